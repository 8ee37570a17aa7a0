//! One at a time: who makes a mount on a directory holds a lock on it meanwhile.
//!
//! Two mounts made on one directory at once would lie one over the other, and the lower one could not be told from
//! the upper one. Other programs take no notice, and where the lock is not to be had the mount is made without it.
#![forbid(unsafe_code)]

use std::fs::{File, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use super::pinned::Pinned;

/// Others of us hold it for milliseconds; who holds it longer means something else by it.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// Waits, for a while, until nobody else makes a mount on `directory`. What it gives is to be kept until the mount is
/// made; `None` if it cannot be locked.
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
    fn a_turn_is_taken_by_one_at_a_time_and_waited_for_no_longer_than_that() {
        let dir = tempfile::tempdir().unwrap();
        let pinned = Pinned::open(dir.path()).unwrap();
        let first = take(&pinned);
        assert!(first.is_some());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| take(&pinned));
            drop(first);
            assert!(waiting.join().unwrap().is_some());
        });
        let held = take(&pinned);
        assert!(take(&pinned).is_none());
        drop(held);
        let removed = Pinned::open(dir.path()).unwrap();
        drop(dir);
        // A lock on a directory that is gone helps nobody, and does no harm.
        drop(take(&removed));
    }
}
