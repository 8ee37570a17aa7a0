//! `fzmfs serve` as clients see it.

mod dav;
mod faults;
mod page;
mod reach;
mod replies;
mod server;
