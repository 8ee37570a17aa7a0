//! The content of one long frame, from a decoder with a window of its own or from a buffer that holds all of it.
//!
//! A window takes memory of the account. Where that has no room for it, the frame is decoded into a buffer of its whole
//! content, which is on the disk then and serves every later read. Where there is no room for that either, one decoder at
//! a time goes over the account.
#![forbid(unsafe_code)]

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::account::{Buffer, Pages};
use crate::bytes::{to_u64, to_usize};
use crate::error::Result;
use crate::source::Source;

use super::decode::{FrameDecoder, length_error};
use super::walk::Frame;

/// Bytes that are decoded in place before pages are given back.
const STRIDE: usize = 1 << 20;
/// At least a page of the system.
const PAGES: usize = 64 << 10;

/// What a long frame is read from.
pub(super) enum Reader {
    /// From its start to its end.
    Stream {
        decoder: FrameDecoder,
        /// Of a decoder that is over the account.
        _turn: Option<Turn>,
    },
    /// At any place.
    Whole(Whole),
}

/// A frame in a buffer of its whole content, as far as it was decoded.
pub(super) struct Whole {
    buffer: Buffer,
    pages: Pages,
    decoder: FrameDecoder,
    done: usize,
    /// Where [`Reader::fill`] goes on.
    pos: usize,
}

impl Whole {
    /// `buffer` has room for all content of the frame that `decoder` decodes in place.
    pub(super) fn new(buffer: Buffer, decoder: FrameDecoder) -> Self {
        let pages = buffer.pages();
        Self { buffer, pages, decoder, done: 0, pos: 0 }
    }

    /// Decodes up to `until`.
    fn extend(&mut self, source: &Source, frame: &Frame, until: usize) -> Result<()> {
        while self.done < until && !self.decoder.has_ended() {
            let next = until.min(self.done.saturating_add(STRIDE));
            self.done = self.decoder.extend(source, frame, &mut self.buffer, self.done, next)?;
            self.pages.release();
        }
        match frame.content {
            Some(len) if self.decoder.has_ended() && to_u64(self.done) != len => {
                Err(length_error(to_u64(self.done), len))
            }
            _ => Ok(()),
        }
    }
}

impl Reader {
    /// Whether it can be read at any place.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    /// Goes to byte `pos` of the content, where it can be read at any place.
    pub(super) fn seek(&mut self, pos: u64) {
        if let Self::Whole(whole) = self {
            whole.pos = usize::try_from(pos).unwrap_or(usize::MAX);
        }
    }

    /// The content that comes next; gives how many bytes there were, which are fewer than `dst` takes only where the
    /// frame ends.
    ///
    /// # Errors
    /// When a block is broken, or the checksum behind the last one differs.
    pub(super) fn fill(&mut self, source: &Source, frame: &Frame, dst: &mut [u8]) -> Result<usize> {
        let whole = match self {
            Self::Stream { decoder, .. } => return decoder.fill(source, frame, dst),
            Self::Whole(whole) => whole,
        };
        let (pos, end) = (whole.pos, whole.pos.saturating_add(dst.len()));
        whole.extend(source, frame, end)?;
        let bytes = whole.buffer.get(pos..end.min(whole.done)).unwrap_or_default();
        dst.get_mut(..bytes.len()).unwrap_or_default().copy_from_slice(bytes);
        let n = bytes.len();
        whole.buffer.release(pos.saturating_sub(PAGES)..end.saturating_add(PAGES).min(whole.buffer.len()));
        whole.pos = pos.saturating_add(n);
        Ok(n)
    }

    /// How many bytes of content come behind what was given, as far as a few show: 0 where the frame ends.
    ///
    /// # Errors
    /// As [`Reader::fill`].
    pub(super) fn excess(&mut self, source: &Source, frame: &Frame) -> Result<usize> {
        match self {
            Self::Stream { decoder, .. } => decoder.excess(source, frame),
            Self::Whole(whole) => {
                let len = to_usize(to_u64(whole.buffer.len()).saturating_add(1), "content size")?;
                whole.extend(source, frame, len)?;
                Ok(whole.done.saturating_sub(whole.pos))
            }
        }
    }

    /// Its decoder, for another frame.
    pub(super) fn into_decoder(self) -> FrameDecoder {
        match self {
            Self::Stream { decoder, .. } => decoder,
            Self::Whole(whole) => whole.decoder,
        }
    }
}

/// Who may go over the account: one at a time.
#[derive(Default)]
pub(super) struct Turns(Arc<(Mutex<bool>, Condvar)>);

/// Leave to go over the account.
pub(super) struct Turn(Arc<(Mutex<bool>, Condvar)>);

impl Turns {
    /// Waits for the turn; `give_up` has those drop it who keep it for later.
    pub(super) fn wait(&self, give_up: impl Fn()) -> Turn {
        let (taken, freed) = &*self.0;
        loop {
            give_up();
            let mut state = taken.lock().unwrap_or_else(PoisonError::into_inner);
            if !*state {
                *state = true;
                return Turn(Arc::clone(&self.0));
            }
            drop(freed.wait_timeout(state, Duration::from_millis(50)));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (taken, freed) = &*self.0;
        *taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        freed.notify_all();
    }
}
