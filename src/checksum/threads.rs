//! The threads that checksums and other work over whole files run on, apart from those that decode for readers.
//!
//! At most as many as `threads=` says, whatever the number of checks of a container that are wanted at a time. A check
//! that can use several takes helpers from what is left.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::pool::{Job, Pool};

/// The threads of one container, of which none is started before there is work; clones share them.
#[derive(Debug, Clone)]
pub struct Threads(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: Pool,
    /// Helpers that are out.
    helpers: AtomicUsize,
}

impl Threads {
    /// At most `most` of them.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Inner { pool: Pool::new(most, "check"), helpers: AtomicUsize::new(0) }))
    }

    /// Sets how many there may be.
    pub fn limit(&self, most: usize) {
        self.0.pool.set_workers(most);
    }

    /// Runs `job` on one of them, after what was given before.
    pub fn run(&self, job: Job) {
        self.0.pool.demand(job);
    }

    /// Helpers for a caller who works too: at most `wanted`, and no more than are left.
    pub fn helpers(&self, wanted: u64) -> Helpers {
        let most = self.0.pool.workers().saturating_sub(1);
        let mut taken = 0;
        let _ = self.0.helpers.fetch_update(Ordering::AcqRel, Ordering::Acquire, |out| {
            taken = most.saturating_sub(out).min(usize::try_from(wanted).unwrap_or(usize::MAX));
            Some(out + taken)
        });
        Helpers { of: self.clone(), count: taken }
    }
}

impl Default for Threads {
    /// One a core.
    fn default() -> Self {
        Self::new(thread::available_parallelism().map_or(1, usize::from))
    }
}

/// Threads that may be started beside the caller's, given back on drop.
#[derive(Debug)]
pub struct Helpers {
    of: Threads,
    count: usize,
}

impl Helpers {
    /// How many.
    pub fn count(&self) -> usize {
        self.count
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.of.0.helpers.fetch_sub(self.count, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_helpers_together_are_fewer_than_there_may_be_threads() {
        let threads = Threads::new(4);
        let first = threads.helpers(2);
        let second = threads.helpers(100);
        assert_eq!((first.count(), second.count(), threads.helpers(1).count()), (2, 1, 0));
        drop(first);
        assert_eq!(threads.helpers(100).count(), 2);
        threads.limit(1);
        assert_eq!((threads.helpers(100).count(), Threads::new(1).helpers(9).count()), (0, 0));
    }
}
