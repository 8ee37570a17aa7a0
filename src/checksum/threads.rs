//! The threads that checksums and other work over whole files run on, apart from those that decode for readers.
//!
//! They are the program's, as the processor cores are: at most as many as `threads=` says, whatever the number of
//! files that are checked at a time. A check that may run on several threads takes helpers from what is left.
#![forbid(unsafe_code)]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::pool::{Job, Pool};

static POOL: LazyLock<Pool> = LazyLock::new(|| Pool::new(cores(), "check"));

/// Helpers that are out.
static HELPERS: AtomicUsize = AtomicUsize::new(0);

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Sets how many threads there may be: what `threads=` says. As many as there are cores where nobody sets it.
pub fn limit(threads: usize) {
    POOL.set_workers(threads);
}

/// Runs `job` on one of the threads, after those that were given before.
pub fn run(job: Job) {
    POOL.demand(job);
}

/// Threads that work beside the caller's, until it is dropped.
#[derive(Debug)]
pub struct Helpers(usize);

impl Helpers {
    /// At most `wanted` of them, and no more than are left.
    pub fn take(wanted: u64) -> Self {
        let most = POOL.workers().saturating_sub(1);
        let mut taken = 0;
        let _ = HELPERS.fetch_update(Ordering::AcqRel, Ordering::Acquire, |out| {
            taken = most.saturating_sub(out).min(usize::try_from(wanted).unwrap_or(usize::MAX));
            Some(out + taken)
        });
        Self(taken)
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        HELPERS.fetch_sub(self.0, Ordering::AcqRel);
    }
}
