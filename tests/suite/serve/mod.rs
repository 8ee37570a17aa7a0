//! `fzmfs serve` as clients see it.

mod crowd;
mod dav;
mod faults;
mod nfs;
mod page;
mod reach;
mod replies;
mod server;
