//! Serializes mounts per directory with flock(2).
//!
//! Two simultaneous mounts on one directory would stack, and could not be distinguished. The lock is advisory; if it
//! cannot be taken, mounting proceeds without it.
#![forbid(unsafe_code)]

use std::fs::{File, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use super::pinned::Pinned;

/// fzmfs holds the lock for milliseconds; a longer lock belongs to another program.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// Waits, up to a limit, for other mounts on `directory` to complete. The caller keeps the returned file until its own
/// mount is made; `None` if the directory cannot be locked.
pub(super) fn take(directory: &Pinned) -> Option<File> {
    let end = Instant::now() + PATIENCE;
    let directory = directory.reopen().ok()?;
    loop {
        match directory.try_lock() {
            Ok(()) => return Some(directory),
            Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(PAUSE),
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_by_one_mount_at_a_time_and_the_wait_for_it_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let pinned = Pinned::open(dir.path()).unwrap();
        let first = take(&pinned);
        assert!(first.is_some());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| crate::clock::wait_until(|| take(&pinned).is_some()));
            drop(first);
            waiting.join().unwrap();
        });
        let held = take(&pinned);
        assert!(take(&pinned).is_none());
        drop(held);
        let removed = Pinned::open(dir.path()).unwrap();
        drop(dir);
        // A lock on a deleted directory is useless but harmless.
        drop(take(&removed));
    }
}
