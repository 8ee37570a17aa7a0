//! A piece on its way: one thread decodes it, any number wait for it.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::format::Piece;

/// What is done with a piece once it has come, or is known not to.
pub type Then = Box<dyn FnOnce(Result<Piece>) + Send>;

/// One decode, from the first who asks to the answer.
pub(super) struct InFlight {
    state: Mutex<State>,
    landed: Condvar,
}

#[derive(Default)]
struct State {
    /// A thread decodes it. Before that, whoever comes first may: a job in a queue may have to wait
    /// for the very thread that asks.
    flying: bool,
    result: Option<Result<Piece>>,
    waiting: Vec<Then>,
}

impl InFlight {
    /// A flight that the caller is flying, or that is for the first who comes.
    pub(super) fn new(flying: bool) -> Self {
        Self { state: Mutex::new(State { flying, ..State::default() }), landed: Condvar::new() }
    }

    /// Whether the caller is to decode it; says so once.
    pub(super) fn claim(&self) -> bool {
        !std::mem::replace(&mut self.lock().flying, true)
    }

    /// The result, which another thread is getting.
    pub(super) fn wait(&self) -> Result<Piece> {
        let mut state = self.lock();
        loop {
            if let Some(result) = &state.result {
                return result.clone();
            }
            state = self.landed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Leaves the result to `then`, which is called at once if the landing has been.
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

    /// Tells everybody: those who wait with a thread, then those who do not, on this one.
    pub(super) fn complete(&self, result: &Result<Piece>) {
        let mut state = self.lock();
        state.result = Some(result.clone());
        self.landed.notify_all();
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
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
