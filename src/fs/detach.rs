//! Detaches a mount from the tree, even if it is in use.
#![forbid(unsafe_code)]

use std::io;
use std::path::Path;

use super::helper;
use super::pinned::Pinned;

/// Detaches the mount with root `root`, which was mounted on `point`.
///
/// # Errors
/// From umount2(2) or fusermount3.
pub(super) fn detach(root: Pinned, point: &Path) -> io::Result<()> {
    match root.detach() {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
            drop(root);
            helper::umount(point, true)
        }
        // Without /proc, which something may have been mounted over, only a path is left.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ENOTCONN)) => {
            root.detach_at(point)
        }
        other => other,
    }
}
