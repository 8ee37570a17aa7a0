//! Activity on a mount: requests and open files.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that is open.
#[derive(Debug)]
pub(super) struct InUse(Arc<Activity>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.open_files.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counters of one mount.
#[derive(Debug, Default)]
pub(super) struct Activity {
    requests: AtomicU64,
    open_files: AtomicU64,
}

impl Activity {
    /// Counts a request; not for requests of programs that poll all mounts (`df`, `fzmfs list`).
    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a file as open until the returned value is dropped, at the latest with its container.
    pub(super) fn open(self: &Arc<Self>) -> InUse {
        self.open_files.fetch_add(1, Ordering::Relaxed);
        InUse(self.clone())
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Files that are open now.
    pub(super) fn open_files(&self) -> u64 {
        self.open_files.load(Ordering::Relaxed)
    }
}
