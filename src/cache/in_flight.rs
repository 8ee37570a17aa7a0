//! A decode in progress: one thread decodes the piece, any number of callers wait for it.
#![forbid(unsafe_code)]

use std::mem::replace;
use std::sync::{Arc, PoisonError, Weak};

use crate::error::{Error, Result};
use crate::format::Piece;
use crate::sync::{Mutex, MutexGuard};
use crate::wanted::{self, Callers, Condition, Parked, Then, is_given_up};

/// A continuation.
pub(super) type Waiter = Arc<Parked<Piece>>;

/// One decode, from the first request to its completion.
pub(super) struct InFlight {
    state: Mutex<FlightState>,
    completed: Condition,
}

#[derive(Default)]
struct FlightState {
    /// A thread is decoding the piece. Until then any waiting thread may claim it: a queued job could otherwise wait
    /// for the very thread that waits for its result.
    claimed: bool,
    result: Option<Result<Piece>>,
    waiting: Vec<Waiter>,
    /// Whether it has had callers: without any, it is a prefetch.
    was_awaited: bool,
    callers: Weak<Callers>,
}

impl FlightState {
    /// One more caller.
    fn caller(&mut self) -> Arc<Callers> {
        self.was_awaited = true;
        Callers::of(&mut self.callers)
    }

    fn is_wanted(&self) -> bool {
        self.callers.strong_count() > 0
    }
}

impl InFlight {
    /// Creates a decode: already claimed by the caller (`claimed`), or still to be claimed.
    pub(super) fn new(claimed: bool) -> Self {
        Self { state: Mutex::new(FlightState { claimed, ..FlightState::default() }), completed: Condition::new() }
    }

    /// Claims the decode. Returns `true` for exactly one caller.
    pub(super) fn claim(&self) -> bool {
        !replace(&mut self.lock().claimed, true)
    }

    /// Blocks until the thread that claimed the decode has finished it.
    ///
    /// # Errors
    /// That of the decode; `EINTR` if this thread's caller has given up.
    pub(super) fn wait(&self) -> Result<Piece> {
        let mut state = self.lock();
        if state.result.is_none() {
            let caller = state.caller();
            let waited = self.completed.wait_while(&self.state, state, |state| state.result.is_none()).map(drop);
            waited.inspect_err(|_| Callers::leave(caller))?;
            state = self.lock();
        }
        // There is one.
        state.result.clone().unwrap_or_else(|| Err(wanted::given_up()))
    }

    /// Calls `then` with the result: immediately if the decode has finished, otherwise on the thread that finishes it.
    /// Returns it if the decode was given up before.
    pub(super) fn after(&self, then: Then<Piece>) -> Option<Then<Piece>> {
        let mut state = self.lock();
        match state.result.clone() {
            None => {
                let parked = Parked::new(then, state.caller());
                state.waiting.push(parked.clone());
                drop(state);
                parked.watch();
            }
            Some(Err(e)) if is_given_up(&e) => return Some(then),
            Some(result) => {
                drop(state);
                then(result);
            }
        }
        None
    }

    /// Whether it has callers, or has had some.
    pub(super) fn was_awaited(&self) -> bool {
        self.lock().was_awaited
    }

    /// Whether it has a caller that has not given up.
    #[cfg(test)]
    pub(super) fn is_wanted(&self) -> bool {
        self.lock().is_wanted()
    }

    /// Its callers that have not given up.
    pub(super) fn callers(&self) -> Option<Arc<Callers>> {
        self.lock().callers.upgrade()
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
        self.completed.notify_all();
        std::mem::take(&mut state.waiting)
    }

    /// Runs the continuations of a decode with its result on this thread.
    pub(super) fn run(waiting: Vec<Waiter>, result: &Result<Piece>) {
        for waiter in waiting {
            waiter.end(result.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, FlightState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../tests/models/in_flight.rs"]
mod models;
