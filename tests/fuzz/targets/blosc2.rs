#![no_main]
fzmfs_fuzz::target!("blosc2");
