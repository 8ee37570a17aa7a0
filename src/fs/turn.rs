//! One at a time: who makes a mount on a directory holds a lock on it meanwhile.
//!
//! Two mounts made on one directory at once would lie one over the other, and the lower one could not be told from
//! the upper one. Other programs take no notice, and where the lock is not to be had the mount is made without it.
#![forbid(unsafe_code)]

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Others of us hold it for milliseconds; who holds it longer means something else by it.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// Waits, for a while, until nobody else makes a mount on `point`. What it gives is to be kept until the mount is
/// made; `None` where there is no lock to be had.
pub(super) fn take(point: &Path) -> Option<File> {
    let end = Instant::now() + PATIENCE;
    let directory = File::open(point).ok()?;
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
        let first = take(dir.path());
        assert!(first.is_some());
        let started = Instant::now();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| take(dir.path()));
            thread::sleep(Duration::from_millis(50));
            drop(first);
            assert!(waiting.join().unwrap().is_some());
        });
        assert!(started.elapsed() >= Duration::from_millis(50));
        let held = take(dir.path());
        assert!(take(dir.path()).is_none());
        drop(held);
        assert!(take(&dir.path().join("missing")).is_none());
    }
}
