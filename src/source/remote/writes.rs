//! Pending writes to `remote_cache`: a process waits for them before it exits, so that the next one finds the files.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// How many spans are to be written.
#[derive(Debug, Default)]
pub(super) struct Writes {
    count: Mutex<usize>,
    ended: Condvar,
}

/// One span that is to be written, until this is dropped.
#[derive(Debug)]
pub(super) struct Write(Arc<Writes>);

impl Writes {
    /// Counts a span before it is fetched.
    pub(super) fn begin(self: &Arc<Self>) -> Write {
        let mut count = self.lock();
        *count = count.saturating_add(1);
        Write(self.clone())
    }

    /// Waits until all are written or given up, at most for `most`.
    pub(super) fn wait(&self, most: Duration) {
        drop(self.ended.wait_timeout_while(self.lock(), most, |count| *count > 0));
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        let mut count = self.0.lock();
        *count = count.saturating_sub(1);
        drop(count);
        self.0.ended.notify_all();
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../../tests/models/writes.rs"]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_waits_for_what_is_being_written() {
        let writes = Arc::new(Writes::default());
        writes.wait(Duration::MAX);
        let (first, second) = (writes.begin(), writes.begin());
        let (begun, most) = (std::time::Instant::now(), Duration::from_millis(1));
        writes.wait(most);
        assert!(begun.elapsed() >= most);
        std::thread::scope(|scope| {
            scope.spawn(|| writes.wait(Duration::from_secs(3600)));
            drop((first, second));
        });
        assert_eq!(*writes.lock(), 0);
    }
}
