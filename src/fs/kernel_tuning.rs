//! Kernel settings for a mount: its readahead, and the request timeout that could end it.
#![forbid(unsafe_code)]

use std::io;

/// Kernel readahead for our mounts, in KiB: the largest request size. The kernel's default is 128.
const READ_AHEAD_KB: u32 = 1024;

/// Raises the readahead of the file system `device` (`major:minor`). Requires root; other mounts rely on prefetch.
///
/// # Errors
/// Fails if the setting cannot be written, which is harmless.
pub(super) fn raise_read_ahead(device: &str) -> io::Result<()> {
    std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), READ_AHEAD_KB.to_string())
}

/// The number of seconds after which the kernel aborts a connection with an unanswered request; `None` if unlimited.
pub(super) fn request_timeout() -> Option<u64> {
    ["default_request_timeout", "max_request_timeout"]
        .iter()
        .filter_map(|name| std::fs::read_to_string(format!("/proc/sys/fs/fuse/{name}")).ok()?.trim().parse().ok())
        .filter(|&seconds| seconds > 0)
        .min()
}
