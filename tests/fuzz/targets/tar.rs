#![no_main]
fzmfs_fuzz::target!("tar");
