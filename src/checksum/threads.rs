//! Threads for checksums and other work over whole files, separate from the threads that decode for readers.
//!
//! The pool has at most `threads=` threads, however many checks of a container are requested at a time. A check that
//! can use several threads takes helpers from the rest.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::thread;

use crate::error::{Error, Result};
use crate::platform::os_error;
use crate::pool::{Job, Pool};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::wanted;

/// The threads of one container or of several, started on demand; clones share them.
#[derive(Debug, Clone)]
pub struct Threads {
    all: Arc<ThreadsInner>,
    /// Whether the container is closed, if others have the threads too.
    closed: Option<Arc<AtomicBool>>,
}

#[derive(Debug)]
struct ThreadsInner {
    pool: Pool,
    /// Helpers in use.
    helpers: AtomicUsize,
    /// Whether all containers are closed.
    closed: AtomicBool,
}

impl Threads {
    /// Creates a pool of at most `most` threads.
    pub fn new(most: usize) -> Self {
        let (pool, helpers, closed) = (Pool::new(most, "check"), AtomicUsize::new(0), AtomicBool::new(false));
        Self { all: Arc::new(ThreadsInner { pool, helpers, closed }), closed: None }
    }

    /// The same threads for a container that is closed before the others.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self { all: self.all.clone(), closed: Some(Arc::default()) }
    }

    /// Sets the maximum number of threads.
    pub fn limit(&self, most: usize) {
        self.all.pool.set_workers(most);
    }

    /// The maximum number of threads.
    pub fn most(&self) -> usize {
        self.all.pool.workers()
    }

    /// Runs `job` on one of the threads, after the jobs queued before.
    pub fn run(&self, job: Job) {
        self.all.pool.demand(job);
    }

    /// Whether [`Threads::offer`] would find a thread.
    pub fn is_free(&self) -> bool {
        self.helpers(1).count() > 0 && self.all.pool.is_free()
    }

    /// Runs `job` on one of the threads if one is free; returns whether it does.
    pub fn offer(&self, job: Job) -> bool {
        let helper = self.helpers(1);
        if helper.count() == 0 {
            return false;
        }
        let job = move || {
            let _helper = helper;
            job();
        };
        self.all.pool.offer(Box::new(job)).is_none()
    }

    /// Marks the container as closed: running checks end with an error at their next [`Threads::check_open`].
    pub fn close(&self) {
        self.closed.as_deref().unwrap_or(&self.all.closed).store(true, Ordering::Relaxed);
    }

    /// Fails once the container is closed, or the work is not wanted any more. Called in regular intervals by work over
    /// whole files.
    ///
    /// # Errors
    /// `ECANCELED` and `EINTR`, which are not verdicts about the bytes.
    pub fn check_open(&self, what: &'static str) -> Result<()> {
        wanted::check()?;
        let is_closed = |closed: &AtomicBool| closed.load(Ordering::Relaxed);
        if is_closed(&self.all.closed) || self.closed.as_deref().is_some_and(is_closed) {
            return Err(Error::io(os_error(libc::ECANCELED), what));
        }
        Ok(())
    }

    /// Reserves helpers for a caller that works too: at most `wanted`, and no more than are left.
    pub fn helpers(&self, wanted: u64) -> Helpers {
        let most = self.all.pool.workers().saturating_sub(1);
        let mut taken = 0;
        let _ = self.all.helpers.fetch_update(Ordering::AcqRel, Ordering::Acquire, |out| {
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
        self.of.all.helpers.fetch_sub(self.count, Ordering::AcqRel);
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../tests/models/threads.rs"]
mod models;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::clock::{PATIENCE, wait_until};

    #[test]
    fn a_container_that_is_closed_closes_no_other() {
        let all = Threads::new(1);
        let (one, other) = (all.renewed(), all.renewed());
        one.close();
        assert!(one.clone().check_open("file").is_err() && other.check_open("file").is_ok());
        all.close();
        assert!(other.check_open("file").is_err());
    }

    #[test]
    fn a_job_is_offered_to_a_helper_if_a_thread_is_free() {
        let threads = Threads::new(2);
        assert!(threads.is_free() && !Threads::new(1).is_free());
        let ((go, wait), (tx, rx)) = (mpsc::channel::<()>(), mpsc::channel());
        let job = move || {
            tx.send(()).unwrap();
            wait.recv().ok();
        };
        assert!(threads.offer(Box::new(job)));
        rx.recv_timeout(PATIENCE).unwrap();
        // The one helper is busy.
        assert!(!threads.is_free() && !threads.offer(Box::new(|| ())));
        drop(go);
        wait_until(|| threads.is_free());
        assert!(!Threads::new(1).offer(Box::new(|| ())));
        // A helper without a thread.
        let threads = Threads::new(2);
        let holds: Vec<_> = (0..2)
            .map(|_| mpsc::channel::<()>())
            .map(|(go, wait)| {
                threads.run(Box::new(move || _ = wait.recv()));
                go
            })
            .collect();
        wait_until(|| !threads.all.pool.is_free());
        assert!(!threads.is_free() && !threads.offer(Box::new(|| ())));
        drop(holds);
    }

    #[test]
    fn helpers_are_limited_to_the_threads_that_are_left() {
        let threads = Threads::new(4);
        let first = threads.helpers(2);
        let second = threads.helpers(100);
        assert_eq!((first.count(), second.count(), threads.helpers(1).count()), (2, 1, 0));
        assert_eq!((first.workers(), second.workers(), threads.helpers(1).workers()), (3, 2, 0));
        drop(first);
        assert_eq!(threads.helpers(100).count(), 2);
        threads.limit(1);
        assert_eq!((threads.helpers(100).count(), Threads::new(1).helpers(9).count()), (0, 0));
    }
}
