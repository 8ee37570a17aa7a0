//! Wakes the thread that watches containers.
//!
//! Invariants: a wake-up is not lost. A thread that says it [`Wake::sleeps`] looks once more at what wakes it before it
//! waits without a timeout; that lies behind a lock, and is changed before [`Wake::unless_awake`].
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::sys;

/// Wakes a watching thread.
#[derive(Debug)]
pub(super) struct Wake {
    event: File,
    /// Whether the thread looks at intervals, without being woken.
    is_awake: AtomicBool,
}

impl Wake {
    /// Of a thread that sleeps.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { event: sys::event_fd()?, is_awake: AtomicBool::new(false) })
    }

    /// Wakes the thread at once. The counter would overflow after more files than can be opened.
    pub(super) fn now(&self) {
        (&self.event).write_all(&1_u64.to_ne_bytes()).ok();
    }

    /// Wakes the thread, unless it looks at intervals.
    pub(super) fn unless_awake(&self) {
        if !self.is_awake.load(Ordering::Acquire) {
            self.now();
        }
    }

    /// The thread waits without a timeout from now on, and is woken for all.
    pub(super) fn sleeps(&self) {
        self.is_awake.store(false, Ordering::Release);
    }

    /// The thread looks at intervals from now on.
    pub(super) fn wakes(&self) {
        self.is_awake.store(true, Ordering::Release);
    }

    /// Takes the wake-ups so far, which there must be. Called before the thread looks: later ones wake it again.
    pub(super) fn take(&self) {
        let _ = (&self.event).read(&mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_that_looks_at_intervals_is_woken_at_once_by_what_cannot_wait_and_by_nothing_else() {
        let wake = Wake::new().unwrap();
        let is_woken = || {
            let woken = sys::wait_readable(&[wake.as_fd()], Some(Duration::ZERO)).unwrap() == [true];
            if woken {
                wake.take();
            }
            woken
        };
        wake.unless_awake();
        assert!(is_woken(), "it sleeps");
        wake.wakes();
        wake.unless_awake();
        assert!(!is_woken());
        wake.now();
        assert!(is_woken());
        wake.sleeps();
        wake.unless_awake();
        assert!(is_woken() && !is_woken());
    }
}
