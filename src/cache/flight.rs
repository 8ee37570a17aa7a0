//! A piece on its way: one thread decodes it, any number wait for it.
#![forbid(unsafe_code)]

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::format::Piece;

use super::Job;

/// One decode, from the first who asks to the answer.
pub(super) struct Flight {
    state: Mutex<State>,
    landed: Condvar,
}

#[derive(Default)]
struct State {
    /// A thread decodes it. Before that, whoever comes first may: a job in a queue may have to wait
    /// for the very thread that asks.
    flying: bool,
    result: Option<Result<Piece>>,
    jobs: Vec<Job>,
}

impl Flight {
    /// A flight that the caller is flying, or that is for the first who comes.
    pub(super) fn new(flying: bool) -> Self {
        Self { state: Mutex::new(State { flying, ..State::default() }), landed: Condvar::new() }
    }

    /// Whether the caller is to decode it; says so once.
    pub(super) fn take_off(&self) -> bool {
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

    /// Leaves `job` to be run after the landing; gives it back if that has been.
    pub(super) fn after(&self, job: Job) -> Option<Job> {
        let mut state = self.lock();
        if state.result.is_some() {
            return Some(job);
        }
        state.jobs.push(job);
        None
    }

    /// Tells everybody; gives the jobs that waited.
    pub(super) fn land(&self, result: Result<Piece>) -> Vec<Job> {
        let mut state = self.lock();
        state.result = Some(result);
        self.landed.notify_all();
        std::mem::take(&mut state.jobs)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
