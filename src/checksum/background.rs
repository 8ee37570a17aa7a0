//! Checks that run concurrently with reads, and the actions if one fails.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError};

use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex};

/// The background checks that were started; clones share them.
#[derive(Debug, Clone, Default)]
pub struct BackgroundChecks(Arc<BackgroundInner>);

/// Called with the error of each check that fails.
type OnFailure = Box<dyn Fn(&Error) + Send + Sync>;

#[derive(Default)]
struct BackgroundInner {
    state: Mutex<BackgroundState>,
    ended: Condvar,
    on_failure: OnceLock<OnFailure>,
}

impl fmt::Debug for BackgroundInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundChecks").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct BackgroundState {
    running: u64,
    failed: Option<Error>,
}

impl BackgroundChecks {
    /// Waits until all of them have finished.
    ///
    /// # Errors
    /// The error of the first one that failed.
    pub fn join(&self) -> Result<()> {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.0.ended.wait_while(state, |state| state.running > 0);
        state.unwrap_or_else(PoisonError::into_inner).failed.clone().map_or(Ok(()), Err)
    }

    /// Sets the callback for a failed check of bytes that may have been served. Only the first call has any effect.
    pub fn on_failure(&self, call: impl Fn(&Error) + Send + Sync + 'static) {
        let _ = self.0.on_failure.set(Box::new(call));
    }

    /// Records a failed check for who joins.
    pub(super) fn record(&self, error: &Error) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failed.get_or_insert_with(|| error.clone());
    }

    /// Passes the error of a failed check to the callback.
    pub(super) fn notify(&self, error: &Error) {
        if let (true, Some(call)) = (error.is_lasting(), self.0.on_failure.get()) {
            call(error);
        }
    }

    /// Counts a check as running until the returned value is dropped.
    pub(super) fn begin(&self) -> Running {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).running += 1;
        Running(self.clone())
    }
}

/// A running background check; dropping it marks the end, also if the check panics.
pub(super) struct Running(BackgroundChecks);

impl Running {
    /// Records the result of the check.
    pub(super) fn ends(&self, verdict: Result<()>) {
        if let Err(error) = verdict {
            self.0.record(&error);
            self.0.notify(&error);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.state.lock().unwrap_or_else(PoisonError::into_inner).running -= 1;
        self.0.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::checksum::{ChecksumGate, Threads, Verify};

    #[test]
    fn background_checks_report_their_failure_at_the_end() {
        let checks = BackgroundChecks::default();
        checks.join().unwrap();
        let mode = Verify::Background(checks.clone());
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let slow = ChecksumGate::new(&mode, 0, &Threads::default(), move || {
            wait.lock().unwrap().recv().unwrap();
            Err(Error::corrupt("late", "x"))
        });
        checks.join().unwrap();
        slow.wait().unwrap();
        ChecksumGate::new(&mode, 0, &Threads::default(), || Ok(())).wait().unwrap();
        go.send(()).unwrap();
        assert_eq!(checks.join().unwrap_err().to_string(), "late (x)");
        assert!(slow.wait().is_err());
    }
}
