//! Reads the content of one long frame, through a decoder with its own window or from a buffer of the whole content.
//!
//! A window is charged to the account, which windows may exceed a little. If that has no room for it, the frame is
//! decoded into a buffer of its whole content, which may be on disk and serves all later reads. If there is no room for
//! that either, decoders exceed the account, one at a time.
#![forbid(unsafe_code)]

use std::sync::{Arc, PoisonError};

use xxhash_rust::xxh64::Xxh64;

use crate::account::{Buffer, Pages};
use crate::bytes::{to_u64, to_usize};
use crate::error::Result;
use crate::source::Source;
use crate::sync::{Condvar, Mutex, MutexGuard};

use super::checkpoint::Recorder;
use super::decode::{FrameDecoder, length_error};
use super::frame::Frame;

/// Bytes decoded in place before pages are released.
const STRIDE: usize = 1 << 20;

/// The source of a long frame's content.
pub(super) enum FrameReader {
    /// Sequential only.
    ContentStream {
        decoder: FrameDecoder,
        /// Hash of the content so far, if requested.
        hash: Option<Xxh64>,
        /// For a decoder that exceeds the account.
        turn: Option<OverdraftTurn>,
    },
    /// Random access.
    Whole(WholeContent),
}

/// A buffer for a frame's whole content, decoded as far as needed.
pub(super) struct WholeContent {
    buffer: Buffer,
    pages: Pages,
    decoder: FrameDecoder,
    done: usize,
    /// The position of [`FrameReader::fill`].
    pos: usize,
    /// Hash of the content so far, if requested.
    hash: Option<Xxh64>,
}

impl WholeContent {
    /// `buffer` has room for all content of the frame; `decoder` decodes in place.
    pub(super) fn new(buffer: Buffer, decoder: FrameDecoder) -> Self {
        let pages = buffer.pages();
        Self { buffer, pages, decoder, done: 0, pos: 0, hash: None }
    }

    /// Decodes up to `until`.
    fn extend(&mut self, source: &Source, frame: &Frame, until: usize) -> Result<()> {
        while self.done < until && !self.decoder.has_ended() {
            let next = until.min(self.done.saturating_add(STRIDE));
            let from = self.done;
            self.done = self.decoder.extend(source, frame, &mut self.buffer, from, next)?;
            if let Some(hash) = &mut self.hash {
                hash.update(self.buffer.get(from..self.done).unwrap_or_default());
            }
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

impl FrameReader {
    /// A reader with a decoder that keeps its own window; `turn` if that exceeds the account.
    pub(super) fn stream(decoder: FrameDecoder, turn: Option<OverdraftTurn>) -> Self {
        Self::ContentStream { decoder, hash: None, turn }
    }

    /// Hashes the content as it is decoded. Must be called before the first byte.
    pub(super) fn start_hash(&mut self) {
        let (Self::ContentStream { hash, .. } | Self::Whole(WholeContent { hash, .. })) = self;
        *hash = Some(Xxh64::new(0));
    }

    /// The XXH64 of the content so far, if it is hashed.
    pub(super) fn digest(&self) -> Option<u64> {
        let (Self::ContentStream { hash, .. } | Self::Whole(WholeContent { hash, .. })) = self;
        hash.as_ref().map(Xxh64::digest)
    }

    /// Whether it has failed because the content does not match the frame's own checksum, which the decoders of modern
    /// frames verify.
    pub(super) fn is_mismatch(&self) -> bool {
        match self {
            Self::ContentStream { decoder, .. } | Self::Whole(WholeContent { decoder, .. }) => decoder.is_mismatch(),
        }
    }

    /// Whether it began at a checkpoint.
    pub(super) fn is_resumed(&self) -> bool {
        matches!(self, Self::ContentStream { decoder, .. } if decoder.is_resumed())
    }

    /// Has `with` follow the blocks; see [`FrameDecoder::record`].
    pub(super) fn record(&mut self, with: impl FnOnce(&mut Recorder)) {
        let (Self::ContentStream { decoder, .. } | Self::Whole(WholeContent { decoder, .. })) = self;
        decoder.record(with);
    }

    /// Whether it exceeds the account.
    pub(super) fn has_turn(&self) -> bool {
        matches!(self, Self::ContentStream { turn: Some(_), .. })
    }

    /// Whether it supports random access.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    /// Moves to byte `pos` of the content, if it supports random access.
    pub(super) fn seek(&mut self, pos: u64) {
        if let Self::Whole(whole) = self {
            whole.pos = usize::try_from(pos).unwrap_or(usize::MAX);
        }
    }

    /// Reads the next content into `dst`; returns the number of bytes, less than `dst.len()` only at the end of the
    /// frame.
    ///
    /// # Errors
    /// Fails if a block is malformed, or the checksum after the last one differs.
    pub(super) fn fill(&mut self, source: &Source, frame: &Frame, dst: &mut [u8]) -> Result<usize> {
        let whole = match self {
            Self::ContentStream { decoder, hash, .. } => {
                let n = decoder.fill(source, frame, dst)?;
                if let Some(hash) = hash {
                    hash.update(dst.get(..n).unwrap_or_default());
                }
                return Ok(n);
            }
            Self::Whole(whole) => whole,
        };
        let (pos, end) = (whole.pos, whole.pos.saturating_add(dst.len()));
        whole.extend(source, frame, end)?;
        let bytes = whole.buffer.get(pos..end.min(whole.done)).unwrap_or_default();
        dst.get_mut(..bytes.len()).unwrap_or_default().copy_from_slice(bytes);
        let n = bytes.len();
        whole.buffer.release_around(pos..end);
        whole.pos = pos.saturating_add(n);
        Ok(n)
    }

    /// Returns how many bytes of content follow, up to a limit; 0 at the end of the frame.
    ///
    /// # Errors
    /// As [`FrameReader::fill`].
    pub(super) fn excess(&mut self, source: &Source, frame: &Frame) -> Result<usize> {
        match self {
            Self::ContentStream { decoder, .. } => decoder.excess(source, frame),
            Self::Whole(whole) => {
                let len = to_usize(to_u64(whole.buffer.len()).saturating_add(1), "content size")?;
                whole.extend(source, frame, len)?;
                Ok(whole.done.saturating_sub(whole.pos))
            }
        }
    }

    /// Its decoder, for reuse with another frame.
    pub(super) fn into_decoder(self) -> FrameDecoder {
        match self {
            Self::ContentStream { decoder, .. } => decoder,
            Self::Whole(whole) => whole.decoder,
        }
    }
}

/// Admits one decoder at a time to exceed the account.
#[derive(Default)]
pub(super) struct Turns(Arc<(Mutex<TurnState>, Condvar)>);

#[derive(Default)]
struct TurnState {
    is_taken: bool,
    /// How often a reader with a turn has become idle.
    idled: u64,
}

/// Permission to exceed the account; released on drop.
pub(super) struct OverdraftTurn(Arc<(Mutex<TurnState>, Condvar)>);

impl Turns {
    fn lock(&self) -> MutexGuard<'_, TurnState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn; calls `drop_idle`, which drops idle readers that hold one, now and whenever one has become idle.
    pub(super) fn wait(&self, drop_idle: impl Fn()) -> OverdraftTurn {
        loop {
            let idled = self.lock().idled;
            drop_idle();
            let mut state = self.lock();
            while state.is_taken && state.idled == idled {
                state = self.0.1.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if !state.is_taken {
                state.is_taken = true;
                return OverdraftTurn(Arc::clone(&self.0));
            }
        }
    }

    /// Records that a reader with a turn has become idle, where `drop_idle` finds it.
    pub(super) fn note_idle(&self) {
        self.lock().idled += 1;
        self.0.1.notify_all();
    }
}

impl Drop for OverdraftTurn {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).is_taken = false;
        self.0.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn who_waits_for_a_turn_gets_that_of_a_reader_that_becomes_idle() {
        let (turns, idle) = (Turns::default(), Mutex::new(None));
        let drop_idle = || drop(idle.lock().unwrap().take());
        let first = turns.wait(drop_idle);
        let (asked, wait) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let asked = asked;
                let second = turns.wait(|| {
                    drop_idle();
                    let _ = asked.send(());
                });
                drop(second);
            });
            // It has found none, and waits.
            wait.recv().unwrap();
            *idle.lock().unwrap() = Some(first);
            turns.note_idle();
        });
        assert!(!turns.lock().is_taken && idle.lock().unwrap().is_none());
    }
}
