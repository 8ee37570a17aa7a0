//! The `fzmfs` program.
fn main() {}
