//! The state of a long frame: its decoders, the pieces that they passed over, and the result of its checks.
//!
//! A long frame can only be decoded from its start or from a checkpoint. A few decoders are kept where they stopped, so
//! that forward and nearby reads continue from there.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock, PoisonError};

use crate::checksum::ChecksumGate;
use crate::error::{Error, Result};
use crate::limits::Charge;
use crate::once::Once;
use crate::source::Source;
use crate::sync::Mutex;
use crate::wanted::Condition;

use super::super::frame::{Frame, PIECE};
use super::super::reader::FrameReader;
use super::checkpoints::Checkpoints;

/// Maximum passed pieces kept in memory per long frame.
pub(super) const PASSED: usize = 6;

/// The state of one long frame.
#[derive(Default)]
pub(super) struct LongFrame {
    /// The result of decoding the whole frame once.
    pub(super) pass: Once<WholePass>,
    /// The index of its dictionary among the candidates.
    pub(super) dictionary: Once<usize>,
    pub(super) gate: OnceLock<ChecksumGate>,
    pub(super) live: Mutex<Live>,
    /// Signaled when a decoder has become idle.
    pub(super) returned: Condition,
    /// Whether reads jump back and forth: decoded pieces are then likely to be read again.
    pub(super) jumped: AtomicBool,
    /// The last piece requested from a decoder.
    pub(super) furthest: AtomicU64,
    /// The piece after the ones served in order.
    pub(super) next: AtomicU64,
    /// Its checkpoints, if it can have some.
    pub(super) checkpoints: OnceLock<Option<Arc<Checkpoints>>>,
    /// Whether its checksum was verified in an earlier mount.
    pub(super) was_verified: OnceLock<bool>,
    /// Whether all of it was decoded into the store of pieces for a sequential reader, or will be.
    pub(super) is_decoded: AtomicBool,
}

/// The result of decoding a frame from start to end without error.
#[derive(Debug, Clone)]
pub(super) struct WholePass {
    /// Bytes of content.
    pub(super) len: u64,
    /// Result of the seek table's checksum. If it differs, the table may be wrong, and the length is still valid.
    pub(super) seek_checksum: Result<()>,
}

/// The decoders of a long frame.
#[derive(Default)]
pub(super) struct Live {
    pub(super) idle: Vec<Cursor>,
    /// The pieces that decoders in use are passing through.
    pub(super) busy: Vec<Range<u64>>,
    /// Whether all of it is being decoded ahead of its reader.
    pub(super) filling: Filling,
    /// Pieces that a decoder passed over, oldest first, for later reads.
    pub(super) passed: VecDeque<(u64, Arc<Vec<u8>>, Charge)>,
    /// The first piece that cannot be decoded, and why.
    pub(super) broken: Option<(u64, Error)>,
}

/// The progress of decoding a frame ahead of its reader.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filling {
    /// It is not decoded ahead.
    #[default]
    No,
    /// No thread has begun.
    Queued,
    /// A thread is decoding it.
    Running,
}

/// A reader that stopped at the start of a piece.
pub(super) struct Cursor {
    pub(super) reader: FrameReader,
    pub(super) piece: u64,
    /// The first byte of the piece, or the error there, if it was read to see whether the frame goes on.
    ahead: Option<Result<u8>>,
}

/// The pieces that a reader is decoding its way to. Dropping it gives them up, also after a panic, so that no other
/// reader waits for them.
pub(super) struct Claim<'a> {
    state: &'a LongFrame,
    out: Option<Range<u64>>,
}

impl<'a> Claim<'a> {
    /// A claim of `out`, which is in `busy`.
    pub(super) fn new(state: &'a LongFrame, out: Range<u64>) -> Self {
        Self { state, out: Some(out) }
    }

    /// Gives the pieces up under the lock under which the reader becomes idle: a waiter finds one or the other.
    pub(super) fn end(mut self, live: &mut Live) {
        if let Some(out) = self.out.take() {
            live.no_longer(&out);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(out) = self.out.take() {
            self.state.live.lock().unwrap_or_else(PoisonError::into_inner).no_longer(&out);
            self.state.returned.notify_all();
        }
    }
}

impl Live {
    /// Removes `out` from the ranges of decoders in use.
    fn no_longer(&mut self, out: &Range<u64>) {
        if let Some(i) = self.busy.iter().position(|other| other == out) {
            self.busy.swap_remove(i);
        }
    }
}

impl Cursor {
    /// `reader` is at the start of piece `piece`.
    pub(super) fn new(reader: FrameReader, piece: u64) -> Self {
        Self { reader, piece, ahead: None }
    }

    /// Moves to the start of piece `piece`, if the reader supports random access.
    pub(super) fn seek(&mut self, piece: u64) {
        self.reader.seek(piece.saturating_mul(PIECE));
        (self.piece, self.ahead) = (piece, None);
    }

    /// Reads the next piece into `dst`; returns the number of bytes, less than `dst.len()` only at the end of the frame.
    ///
    /// # Errors
    /// As [`FrameReader::fill`].
    pub(super) fn fill(&mut self, source: &Source, frame: &Frame, dst: &mut [u8]) -> Result<usize> {
        let (Some(ahead), Some((first, rest))) = (self.ahead.take(), dst.split_first_mut()) else {
            return self.reader.fill(source, frame, dst);
        };
        *first = ahead?;
        Ok(self.reader.fill(source, frame, rest)?.saturating_add(1))
    }

    /// Whether content follows, or a block that is malformed: that is not an error of the piece before.
    ///
    /// # Errors
    /// That of a checksum after the last piece.
    pub(super) fn goes_on(&mut self, source: &Source, frame: &Frame) -> Result<bool> {
        let mut first = [0];
        match self.reader.fill(source, frame, &mut first) {
            Ok(0) => return Ok(false),
            Err(e) if self.reader.is_mismatch() => return Err(e),
            read => self.ahead = Some(read.map(|_| first[0])),
        }
        Ok(true)
    }

    /// As [`FrameReader::excess`].
    ///
    /// # Errors
    /// As [`FrameReader::excess`].
    pub(super) fn excess(&mut self, source: &Source, frame: &Frame) -> Result<usize> {
        let ahead = self.ahead.take().transpose()?;
        Ok(self.reader.excess(source, frame)?.saturating_add(usize::from(ahead.is_some())))
    }
}
