//! Threads for checksums and other work over whole files, separate from the threads that decode for readers.
//!
//! The pool has at most `threads=` threads, however many checks of a container are requested at a time. A check that
//! can use several threads takes helpers from the rest.
#![forbid(unsafe_code)]

use std::io;
use std::sync::Arc;
use std::thread;

use crate::error::{Error, Result};
use crate::pool::{Job, Pool};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::wanted;

/// The threads of one container, started on demand; clones share them.
#[derive(Debug, Clone)]
pub struct Threads(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: Pool,
    /// Helpers in use.
    helpers: AtomicUsize,
    /// Whether the container is closed.
    closed: AtomicBool,
}

impl Threads {
    /// Creates a pool of at most `most` threads.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Inner {
            pool: Pool::new(most, "check"),
            helpers: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        }))
    }

    /// Sets the maximum number of threads.
    pub fn limit(&self, most: usize) {
        self.0.pool.set_workers(most);
    }

    /// The maximum number of threads.
    pub fn most(&self) -> usize {
        self.0.pool.workers()
    }

    /// Runs `job` on one of the threads, after the jobs queued before.
    pub fn run(&self, job: Job) {
        self.0.pool.demand(job);
    }

    /// Marks the container as closed: running checks end with an error at their next [`Threads::check_open`].
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
    }

    /// Fails once the container is closed, or the work is not wanted any more. Called in regular intervals by work over
    /// whole files.
    ///
    /// # Errors
    /// `ECANCELED` and `EINTR`, which are no verdicts about the bytes.
    pub fn check_open(&self, what: &'static str) -> Result<()> {
        wanted::check()?;
        if self.0.closed.load(Ordering::Relaxed) {
            return Err(Error::io(io::Error::from_raw_os_error(libc::ECANCELED), what));
        }
        Ok(())
    }

    /// Reserves helpers for a caller that works too: at most `wanted`, and no more than are left.
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
    /// One thread per core.
    fn default() -> Self {
        Self::new(thread::available_parallelism().map_or(1, usize::from))
    }
}

/// Threads that the caller may start in addition to its own; returned on drop.
#[derive(Debug)]
pub struct Helpers {
    of: Threads,
    count: usize,
}

impl Helpers {
    /// The number of helpers.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The number of threads for a caller that only waits for them: its own, and the helpers. 0 if there are no helpers,
    /// and it has to do the work itself.
    pub fn workers(&self) -> usize {
        if self.count == 0 { 0 } else { self.count + 1 }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.of.0.helpers.fetch_sub(self.count, Ordering::AcqRel);
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../tests/models/threads.rs"]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_are_limited_to_the_threads_that_are_left() {
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
