//! Kernel settings around a mount: its readahead, and the request timeout that could end it.
#![forbid(unsafe_code)]

use std::io;

/// KiB that the kernel reads ahead on our mounts: the largest request there is. Its own default is 128.
const READ_AHEAD_KB: u32 = 1024;

/// Raises the readahead of the file system `device` (`major:minor`). Only root may; prefetch does it for others.
///
/// # Errors
/// Where the system refuses, which is nothing to worry about.
pub(super) fn raise_read_ahead(device: &str) -> io::Result<()> {
    std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), READ_AHEAD_KB.to_string())
}

/// The seconds after which the kernel ends a connection that has not answered; `None` if it never does.
pub(super) fn request_timeout() -> Option<u64> {
    ["default_request_timeout", "max_request_timeout"]
        .iter()
        .filter_map(|name| std::fs::read_to_string(format!("/proc/sys/fs/fuse/{name}")).ok()?.trim().parse().ok())
        .filter(|&seconds| seconds > 0)
        .min()
}
