//! A request that waits for pieces; the last one completes it.
#![forbid(unsafe_code)]

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use super::collected::Collected;
use super::reply::Reply;
use super::{Reader, Request};
use crate::error::{Error, Result};
use crate::format::{Piece, PieceKey};
use crate::fs::offload::{JobTurn, On};

/// A request waiting for pieces.
pub(super) struct Waiting<R> {
    reader: Arc<Reader>,
    request: Request,
    state: Mutex<WaitingState<R>>,
}

struct WaitingState<R> {
    /// Number of pieces still to come.
    left: usize,
    collected: Collected,
    /// Where to complete the read, if not on the thread that delivers the last piece.
    on: Option<On>,
    error: Option<Error>,
    reply: Option<R>,
}

impl<R: Reply> Waiting<R> {
    /// A `request` that has `collected` and needs `left` more pieces.
    pub(super) fn new(
        reader: &Arc<Reader>,
        request: Request,
        left: usize,
        collected: Collected,
        on: Option<On>,
        reply: R,
    ) -> Arc<Self> {
        let state = Mutex::new(WaitingState { left, collected, on, error: None, reply: Some(reply) });
        Arc::new(Self { reader: reader.clone(), request, state })
    }

    /// Takes a piece or its error; the last one completes the read.
    pub(super) fn comes(self: &Arc<Self>, key: PieceKey, result: Result<Piece>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.left -= 1;
        let is_last = state.left == 0;
        // The last piece is not held, as there is nothing to wait for.
        let held = (!is_last || state.on.is_some()).then_some(&self.reader.held);
        let added = match result {
            Ok(piece) if state.error.is_none() => {
                let Request { view, range, .. } = &self.request;
                state.collected.add(key, piece, view, range, held)
            }
            Ok(_) => Ok(()),
            Err(e) => Err(e),
        };
        if let Err(e) = added {
            state.error.get_or_insert(e);
        }
        let on = state.on;
        drop(state);
        if is_last {
            self.finish(on);
        }
    }

    /// Completes the read, on the thread that `on` says.
    pub(super) fn finish(self: &Arc<Self>, on: Option<On>) {
        let me = self.clone();
        match on {
            None => self.answer(),
            // Requests waiting for computations occupy one thread in total.
            Some(On::Checks) => {
                self.reader.offload.run_in_turn(JobTurn::Computed, On::Checks, Box::new(move || me.answer()));
            }
            Some(on) => self.reader.offload.run(on, Box::new(move || me.answer())),
        }
    }

    fn answer(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut collected = mem::take(&mut state.collected);
        let (error, reply) = (state.error.take(), state.reply.take());
        drop(state);
        match (reply, error) {
            (Some(reply), Some(e)) => self.reader.failed(&self.request, &e, reply),
            (Some(reply), None) => self.reader.answer(&self.request, &mut collected, reply),
            (None, _) => {}
        }
        collected.release(&self.reader.held);
    }
}
