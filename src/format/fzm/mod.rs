//! FZM containers, version 3.
#![forbid(unsafe_code)]

pub mod stage;
pub mod stream;
