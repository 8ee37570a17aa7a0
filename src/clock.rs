//! The clock for ages and expiry. In unit tests it stands still until a test moves it, so that no test depends on the
//! speed of a machine.
#![forbid(unsafe_code)]

#[cfg(test)]
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(test)]
use std::time::Duration;
use std::time::Instant;

/// A wait this long in a unit test is a hang, and fails the test.
#[cfg(test)]
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A clock. Copies of one show the same time.
#[derive(Clone, Debug)]
#[cfg_attr(not(test), derive(Default))]
pub(crate) struct Clock {
    #[cfg(test)]
    stands_at: Arc<Mutex<Instant>>,
}

#[cfg(test)]
impl Default for Clock {
    fn default() -> Self {
        Self { stands_at: Arc::new(Mutex::new(Instant::now())) }
    }
}

impl Clock {
    /// The time that it shows.
    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "one of a unit test has a time of its own")]
    pub(crate) fn now(&self) -> Instant {
        Instant::now()
    }

    /// The time that it shows.
    #[cfg(test)]
    pub(crate) fn now(&self) -> Instant {
        *self.stands_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves it.
    #[cfg(test)]
    pub(crate) fn pass(&self, time: Duration) {
        *self.stands_at.lock().unwrap_or_else(PoisonError::into_inner) += time;
    }
}

/// Waits until `done`.
#[cfg(test)]
#[track_caller]
pub(crate) fn wait_until(mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < PATIENCE, "not after {PATIENCE:?}");
        std::thread::yield_now();
    }
}
