//! `fzmfs serve` as clients see it.

mod activation;
mod crowd;
mod dav;
mod faults;
mod nfs;
mod page;
mod reach;
mod replies;
mod server;
