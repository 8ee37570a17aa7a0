//! A check that runs once for all who wait for its verdict.
//!
//! Invariants: a verdict about the bytes is kept, and a failure wins over a pass, whichever comes first: bytes that one
//! reader has found broken are served to none. Who has seen a failure, or that a check has begun, finds it among the
//! background checks. A check that could not be done (a failed read) gives no verdict, and the next reader starts it
//! again. A blocking caller runs a check that is still queued, so no caller waits for a free thread.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::wanted::{self, Wanted, is_given_up, while_wanted};

use super::{BackgroundChecks, Threads};

type CheckFn = dyn Fn() -> Result<()> + Send + Sync;
/// Called with the result of the check.
pub(super) type Then = Box<dyn FnOnce(Result<()>) + Send>;

/// A check and its verdict.
pub(super) struct SharedCheck {
    threads: Threads,
    /// `None` if the verdict is reported by the readers' own decoding.
    check: Option<Box<CheckFn>>,
    state: Mutex<CheckState>,
    ran: Condvar,
}

/// The finder of a failure, which reports it once.
#[derive(Default, PartialEq, Eq)]
enum Teller {
    #[default]
    Check,
    Reader,
}

#[derive(Default)]
struct CheckState {
    verdict: Option<Result<()>>,
    /// The reporter of a failure.
    teller: Teller,
    /// A thread is running the check; or (`queued`) a job that will run it is in the queue.
    running: bool,
    queued: bool,
    /// A background check was started and has not failed to complete since.
    begun: bool,
    /// How often the check ran, and the result of the last run.
    runs: u64,
    last: Option<Result<()>>,
    parked: Vec<(Then, Option<Wanted>)>,
}

impl CheckState {
    /// Whether a continuation waits that was not given up.
    fn is_awaited(&self) -> bool {
        self.parked.iter().any(|(_, wanted)| !wanted.as_ref().is_some_and(Wanted::is_given_up))
    }

    fn has_failed(&self) -> bool {
        self.verdict.as_ref().is_some_and(Result::is_err)
    }

    /// Records `verdict`, unless a failure was recorded before; returns the one that is kept.
    fn settle(&mut self, verdict: &Result<()>) -> Result<()> {
        match &self.verdict {
            Some(failed @ Err(_)) => failed.clone(),
            _ => self.verdict.insert(verdict.clone()).clone(),
        }
    }
}

impl SharedCheck {
    /// A check that runs on `threads`, unless a blocking caller runs it.
    pub(super) fn new(threads: &Threads, check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        Self { check: Some(Box::new(check)), ..Self::reported(threads) }
    }

    /// A check with a verdict that is [reported](SharedCheck::report).
    pub(super) fn reported(threads: &Threads) -> Self {
        Self { threads: threads.clone(), check: None, state: Mutex::default(), ran: Condvar::new() }
    }

    /// Whether the verdict is only reported.
    pub(super) fn is_reported(&self) -> bool {
        self.check.is_none()
    }

    /// The verdict, if there is one, and whether a background check was started.
    pub(super) fn progress(&self) -> (Option<Result<()>>, bool) {
        let state = self.lock();
        (state.verdict.clone(), state.begun)
    }

    /// Records the verdict of a reader, a failure also among `checks`; returns whether it is the first failure.
    /// Transient errors are none.
    pub(super) fn report(&self, verdict: &Result<()>, checks: Option<&BackgroundChecks>) -> bool {
        if verdict.as_ref().is_err_and(|e| !e.is_lasting()) {
            return false;
        }
        let mut state = self.lock();
        let is_new = verdict.is_err() && !state.has_failed();
        // The kept verdict does not matter here.
        let _ = state.settle(verdict);
        if is_new {
            state.teller = Teller::Reader;
            if let (Err(error), Some(checks)) = (verdict, checks) {
                checks.record(error);
            }
        }
        is_new
    }

    /// Starts the check in the background, as one of `checks`, unless it was started or has given a verdict.
    pub(super) fn begin(self: &Arc<Self>, checks: &BackgroundChecks) {
        let mut state = self.lock();
        if self.is_reported() || state.verdict.is_some() || std::mem::replace(&mut state.begun, true) {
            return;
        }
        let (check, running) = (self.clone(), checks.begin());
        drop(state);
        self.threads.run(Box::new(move || {
            let verdict = check.wait();
            if check.lock().teller == Teller::Check {
                running.ends(verdict);
            }
        }));
    }

    /// Returns the verdict; runs the check if there is none. A check that is only reported passes until it has failed.
    ///
    /// # Errors
    /// The error of the check.
    pub(super) fn wait(self: &Arc<Self>) -> Result<()> {
        loop {
            let mut state = self.lock();
            if let Some(verdict) = &state.verdict {
                return verdict.clone();
            }
            if self.is_reported() {
                return Ok(());
            }
            if !state.running {
                state.running = true;
                drop(state);
                return self.run();
            }
            let runs = state.runs;
            let state = wanted::wait_while(&self.ran, &self.state, state, |state| state.runs == runs)?;
            match &state.last {
                // Given up by the thread that ran it.
                Some(Err(e)) if is_given_up(e) => {}
                // The result of the run that was waited for, even if it is no verdict.
                last => return last.clone().unwrap_or(Ok(())),
            }
        }
    }

    /// Calls `then` with the verdict: immediately if there is one, otherwise on the thread that ran the check.
    pub(super) fn when_done(self: &Arc<Self>, then: Then) {
        let mut state = self.lock();
        if let Some(verdict) = state.verdict.clone() {
            drop(state);
            return then(verdict);
        }
        state.parked.push((then, Wanted::current()));
        if !state.running {
            self.queue(state);
        }
    }

    /// Queues a run for the continuations, unless one is queued.
    fn queue(self: &Arc<Self>, mut state: MutexGuard<'_, CheckState>) {
        let is_queued = std::mem::replace(&mut state.queued, true);
        drop(state);
        if !is_queued {
            let check = self.clone();
            self.threads.run(Box::new(move || check.run_queued()));
        }
    }

    /// Runs the check for the queued continuations, unless another thread has run it meanwhile.
    fn run_queued(self: &Arc<Self>) {
        let mut state = self.lock();
        state.queued = false;
        if !state.running && !state.parked.is_empty() {
            state.running = true;
            drop(state);
            let me = self.clone();
            // The continuations get the result.
            let is_awaited = move || {
                me.end_unwanted();
                me.lock().is_awaited()
            };
            let _ = while_wanted(is_awaited, || self.run());
        }
    }

    /// Runs the check, which this thread has claimed, and notifies all waiters.
    fn run(self: &Arc<Self>) -> Result<()> {
        let panicked = || Err(Error::corrupt("the check panicked", "checksum"));
        let mut outcome = catch_unwind(AssertUnwindSafe(|| self.check.as_ref().map_or(Ok(()), |check| check())))
            .unwrap_or_else(|_| panicked());
        let mut state = self.lock();
        match &outcome {
            Err(error) if !error.is_lasting() => state.begun = false,
            verdict => outcome = state.settle(verdict),
        }
        state.running = false;
        state.runs += 1;
        state.last = Some(outcome.clone());
        self.ran.notify_all();
        if outcome.as_ref().is_err_and(is_given_up) && state.is_awaited() {
            // The waiters have not given up.
            self.queue(state);
            return outcome;
        }
        let parked = std::mem::take(&mut state.parked);
        drop(state);
        for (then, wanted) in parked {
            go_on(then, wanted, outcome.clone());
        }
        outcome
    }

    /// Ends the continuations that are not wanted any more.
    fn end_unwanted(&self) {
        let is_unwanted = |(_, wanted): &(Then, Option<Wanted>)| wanted.as_ref().is_some_and(Wanted::is_given_up);
        let mut state = self.lock();
        let unwanted: Vec<_> = state.parked.extract_if(.., |parked| is_unwanted(parked)).collect();
        drop(state);
        for (then, wanted) in unwanted {
            go_on(then, wanted, Err(wanted::given_up()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, CheckState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a continuation.
fn go_on(then: Then, wanted: Option<Wanted>, outcome: Result<()>) {
    if catch_unwind(AssertUnwindSafe(|| wanted::during(wanted, || then(outcome)))).is_err() {
        tracing::error!("a continuation of a checksum panicked");
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../tests/models/shared_check.rs"]
mod models;
