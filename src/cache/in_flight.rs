//! A decode in progress: one thread decodes the piece, any number of callers wait for it.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

use crate::error::{Error, Result};
use crate::format::Piece;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::wanted::{self, Wanted, is_given_up};

/// Called with the piece or the error when the decode has finished.
pub type Then = Box<dyn FnOnce(Result<Piece>) + Send>;

/// A continuation, and whether it is still wanted.
pub(super) type Waiter = (Then, Option<Wanted>);

/// Whether a decode has waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Awaited {
    /// It has had none.
    No,
    /// All waiters may give up, or have.
    Perhaps,
    Firmly,
}

/// One decode, from the first request to its completion.
pub(super) struct InFlight {
    state: Mutex<FlightState>,
    completed: Condvar,
}

#[derive(Default)]
struct FlightState {
    /// A thread is decoding the piece. Until then any waiting thread may claim it: a queued job could otherwise wait
    /// for the very thread that waits for its result.
    claimed: bool,
    result: Option<Result<Piece>>,
    waiting: Vec<Waiter>,
    /// Whether it has had waiters: without any, it is a prefetch.
    was_awaited: bool,
    /// Threads that block until the result is there: mostly none, and a system call to wake none is saved.
    blocked: u32,
    /// Blocked threads that will not give up.
    firm: u32,
}

impl FlightState {
    fn is_wanted(&self) -> bool {
        let wants = |(_, wanted): &Waiter| !wanted.as_ref().is_some_and(Wanted::is_given_up);
        self.blocked > 0 || self.waiting.iter().any(wants)
    }
}

impl InFlight {
    /// Creates a decode: already claimed by the caller (`claimed`), or still to be claimed.
    pub(super) fn new(claimed: bool) -> Self {
        Self { state: Mutex::new(FlightState { claimed, ..FlightState::default() }), completed: Condvar::new() }
    }

    /// Claims the decode. Returns `true` for exactly one caller.
    pub(super) fn claim(&self) -> bool {
        !std::mem::replace(&mut self.lock().claimed, true)
    }

    /// Blocks until the thread that claimed the decode has finished it.
    ///
    /// # Errors
    /// That of the decode; `EINTR` if this thread's caller has given up.
    pub(super) fn wait(&self) -> Result<Piece> {
        let mut state = self.lock();
        if state.result.is_none() {
            let firm = u32::from(Wanted::current().is_none());
            state.was_awaited = true;
            (state.blocked, state.firm) = (state.blocked + 1, state.firm + firm);
            let waited = wanted::wait_while(&self.completed, &self.state, state, |state| state.result.is_none());
            let waited = waited.map(drop);
            state = self.lock();
            (state.blocked, state.firm) = (state.blocked - 1, state.firm - firm);
            waited?;
        }
        // There is one.
        state.result.clone().unwrap_or_else(|| Err(wanted::given_up()))
    }

    /// Calls `then` with the result: immediately if the decode has finished, otherwise on the thread that finishes it.
    /// Returns it if the decode was given up before.
    pub(super) fn after(&self, then: Then) -> Option<Then> {
        let mut state = self.lock();
        match state.result.clone() {
            None => {
                state.was_awaited = true;
                state.waiting.push((then, Wanted::current()));
            }
            Some(Err(e)) if is_given_up(&e) => return Some(then),
            Some(result) => {
                drop(state);
                then(result);
            }
        }
        None
    }

    /// Whether it has waiters, or has had some.
    pub(super) fn awaited(&self) -> Awaited {
        let state = self.lock();
        if state.firm > 0 || state.waiting.iter().any(|(_, wanted)| wanted.is_none()) {
            Awaited::Firmly
        } else if state.was_awaited {
            Awaited::Perhaps
        } else {
            Awaited::No
        }
    }

    /// Whether it has a waiter that has not given up.
    pub(super) fn is_wanted(&self) -> bool {
        self.lock().is_wanted()
    }

    /// Ends the decode, which was given up, unless it has other waiters: then any thread may claim it again, and this
    /// returns `true`.
    pub(super) fn is_passed_on(&self, error: &Error) -> bool {
        let mut state = self.lock();
        if state.is_wanted() {
            state.claimed = false;
            return true;
        }
        state.result = Some(Err(error.clone()));
        false
    }

    /// Publishes the result: wakes blocked threads, and returns the continuations, for [`InFlight::run`].
    #[must_use]
    pub(super) fn complete(&self, result: &Result<Piece>) -> Vec<Waiter> {
        let mut state = self.lock();
        state.result = Some(result.clone());
        if state.blocked > 0 {
            self.completed.notify_all();
        }
        std::mem::take(&mut state.waiting)
    }

    /// Runs the continuations of a decode with its result on this thread.
    pub(super) fn run(waiting: Vec<Waiter>, result: &Result<Piece>) {
        for (then, wanted) in waiting {
            let result = result.clone();
            if catch_unwind(AssertUnwindSafe(|| wanted::during(wanted, || then(result)))).is_err() {
                tracing::error!("what waited for a piece panicked");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, FlightState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../tests/models/in_flight.rs"]
mod models;
