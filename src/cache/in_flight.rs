//! A decode in progress: one thread decodes the piece, any number of callers wait for it.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::format::Piece;

/// Called with the piece or the error when the decode has finished.
pub type Then = Box<dyn FnOnce(Result<Piece>) + Send>;

/// One decode, from the first request to its completion.
pub(super) struct InFlight {
    state: Mutex<State>,
    completed: Condvar,
}

#[derive(Default)]
struct State {
    /// A thread is decoding the piece. Until then any waiting thread may claim it: a queued job could otherwise wait
    /// for the very thread that waits for its result.
    claimed: bool,
    result: Option<Result<Piece>>,
    waiting: Vec<Then>,
    /// Threads that block until the result is there: mostly none, and to wake none takes a system call too.
    blocked: u32,
}

impl InFlight {
    /// Creates a decode: already claimed by the caller (`claimed`), or still to be claimed.
    pub(super) fn new(claimed: bool) -> Self {
        Self { state: Mutex::new(State { claimed, ..State::default() }), completed: Condvar::new() }
    }

    /// Claims the decode. Returns `true` for exactly one caller.
    pub(super) fn claim(&self) -> bool {
        !std::mem::replace(&mut self.lock().claimed, true)
    }

    /// Blocks until the thread that claimed the decode has finished it.
    pub(super) fn wait(&self) -> Result<Piece> {
        let mut state = self.lock();
        loop {
            if let Some(result) = &state.result {
                return result.clone();
            }
            state.blocked += 1;
            state = self.completed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.blocked -= 1;
        }
    }

    /// Calls `then` with the result: immediately if the decode has finished, otherwise on the thread that finishes it.
    pub(super) fn after(&self, then: Then) {
        let mut state = self.lock();
        match state.result.clone() {
            None => state.waiting.push(then),
            Some(result) => {
                drop(state);
                then(result);
            }
        }
    }

    /// Publishes the result: wakes blocked threads, and returns the continuations, for [`InFlight::run`].
    #[must_use]
    pub(super) fn complete(&self, result: &Result<Piece>) -> Vec<Then> {
        let mut state = self.lock();
        state.result = Some(result.clone());
        if state.blocked > 0 {
            self.completed.notify_all();
        }
        std::mem::take(&mut state.waiting)
    }

    /// Runs the continuations of a decode with its result on this thread.
    pub(super) fn run(waiting: Vec<Then>, result: &Result<Piece>) {
        for then in waiting {
            let result = result.clone();
            if catch_unwind(AssertUnwindSafe(|| then(result))).is_err() {
                tracing::error!("what waited for a piece panicked");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
