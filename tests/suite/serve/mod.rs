//! `fzmfs serve` as clients see it.

mod faults;
mod reach;
mod replies;
mod server;
