//! Readers of a long frame that begin at a checkpoint.
//!
//! A decoder that began at a checkpoint cannot verify the checksum of the frame. So it serves the last piece, which must
//! not be served before that, only if the checksum was verified: in this mount, or in an earlier one, as the index says.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::account::decode_budget;
use crate::bytes::{to_u64, to_usize};
use crate::checksum::{Verified, Verify};
use crate::error::{Error, Kind, Result};

use super::super::checkpoint::spacing;
use super::super::decode::FrameDecoder;
use super::super::frame::{Frame, PIECE, needed};
use super::super::reader::FrameReader;
use super::checkpoints::{Checkpoints, put_verified, was_verified};
use super::long_frame::{Cursor, LongFrame};
use super::readers::DECODER;
use super::{Frames, lock};

/// Pieces that are decoded in the time in which a checkpoint is loaded.
pub(super) const LOADING: u64 = 2;

/// Whether `error` of a decoder that began at a checkpoint may come from the checkpoint.
pub(super) fn is_refused(error: &Error) -> bool {
    error.is_lasting() && !matches!(error.kind(), Kind::NoRoom { .. })
}

impl Frames {
    /// The checkpoints of `frame`, if it can have some and they are of use.
    pub(super) fn checkpoints<'a>(&self, frame: &Frame, state: &'a LongFrame) -> Option<&'a Arc<Checkpoints>> {
        let find = || {
            let spacing = spacing(frame)?;
            let is_again = self.pieces.is_on() && !self.pieces.reads_once();
            let is_plain = self.dictionaries.of(&frame.header).is_ok_and(|all| matches!(*all, [None]));
            let is_wanted = is_plain && (is_again || self.keeper.is_lasting());
            is_wanted.then(|| Checkpoints::new(self.keeper.clone(), frame, spacing))
        };
        state.checkpoints.get_or_init(find).as_ref()
    }

    /// Has `reader`, which is before the first byte of `frame` or at a checkpoint, make checkpoints as it goes.
    pub(super) fn record(&self, frame: &Frame, state: &LongFrame, reader: &mut FrameReader) {
        let Some(checkpoints) = self.checkpoints(frame, state) else { return };
        let sink = checkpoints.clone();
        reader.record(|recorder| recorder.record(sink, frame.header.window, checkpoints.spacing));
    }

    /// The checkpoint from which to decode piece `piece`, if that is nearer than the start of piece `from`.
    pub(super) fn nearest(&self, frame: &Frame, state: &LongFrame, piece: u64, from: u64) -> Option<u64> {
        let pos = self.checkpoints(frame, state)?.before(piece.saturating_mul(PIECE))?;
        (pos.div_ceil(PIECE) > from.saturating_add(LOADING)).then_some(pos)
    }

    /// Whether a decoder that began at a checkpoint may serve piece `piece` of frame `index`.
    pub(super) fn may_resume(&self, index: usize, frame: &Frame, state: &LongFrame, piece: u64) -> bool {
        let len = self.content_of(index, frame);
        let is_last = len.is_none_or(|len| piece.saturating_add(1).saturating_mul(PIECE) >= len);
        if !is_last || !matches!(self.mode(frame), Verify::Background(_)) {
            // Otherwise it is verified before its first byte is served, or never.
            return true;
        }
        if state.gate.get().is_some_and(|gate| matches!(gate.verified(), Verified::Yes)) {
            return true;
        }
        let earlier = || self.keeper.records().zip(len).is_some_and(|(records, len)| was_verified(records, frame, len));
        *state.was_verified.get_or_init(earlier)
    }

    /// Records that all of frame `index` was decoded and its checksum verified.
    pub(super) fn note_verified(&self, index: usize, frame: &Frame) {
        let len = self.content_of(index, frame);
        if let (Some(records), Some(len)) = (self.keeper.records(), len)
            && frame.has_checksum()
            && spacing(frame).is_some()
            && !was_verified(records, frame, len)
        {
            put_verified(records, frame, len);
        }
    }

    /// A reader that begins at the checkpoint at byte `pos` of the content, at the start of the next piece; `None` if the
    /// checkpoint is lost.
    ///
    /// # Errors
    /// [`crate::error::Kind::NoRoom`] if there is no room for it now; fails if the bytes up to the piece cannot be
    /// decoded, and all checkpoints are then given up.
    pub(super) fn resumed(&self, frame: &Frame, state: &LongFrame, pos: u64) -> Result<Option<Cursor>> {
        let Some(checkpoints) = self.checkpoints(frame, state) else { return Ok(None) };
        let needed = needed(frame, self.policy.window)?;
        // For the window as it is loaded; and for libzstd, which keeps a copy as its dictionary.
        let room = needed.saturating_mul(2).saturating_add(DECODER);
        // Pieces that are kept take all memory in time. To decode one again takes a moment, from the start of the frame minutes.
        let charge = |bytes| loop {
            match self.policy.account.charge_window(bytes, "window") {
                Err(_) if self.drop_idle(|reader| !reader.is_whole()) || self.pieces.shed(bytes) => {}
                charged => break charged,
            }
        };
        let loading = charge(needed)?;
        let Some(resume) = checkpoints.load(pos) else { return Ok(None) };
        let decoder = match self.on_threads(frame, Some(&resume))? {
            Some(decoder) => Ok(decoder),
            // An error of libzstd is one of the checkpoint; that there is no room is not.
            None => FrameDecoder::resume(frame, &resume, Some(charge(room)?)),
        };
        let begin = || {
            let mut reader = FrameReader::stream(decoder?, None);
            self.record(frame, state, &mut reader);
            let piece = pos.div_ceil(PIECE);
            let skip = piece.saturating_mul(PIECE).saturating_sub(pos);
            if skip > 0 {
                decode_budget::charge_opening(skip)?;
                let mut bytes = self.pieces.buffer(to_usize(PIECE, "piece")?)?;
                let skipped = bytes.get_mut(..to_usize(skip, "piece")?).unwrap_or_default();
                let n = reader.fill(&self.source, frame, skipped)?;
                if to_u64(n) < skip {
                    return Err(Error::corrupt("the content ends before the next piece", "checkpoint"));
                }
                self.policy.account.count_beside(skip as i64);
                self.pieces.recycle(bytes);
            }
            Ok(Cursor::new(reader, piece))
        };
        let begun = begin();
        drop(loading);
        if begun.as_ref().is_err_and(is_refused) {
            self.give_up_checkpoints(frame, state);
        }
        begun.map(Some)
    }

    /// Gives up all checkpoints of `frame`, and the decoders that began at one.
    pub(super) fn give_up_checkpoints(&self, frame: &Frame, state: &LongFrame) {
        tracing::debug!("{}: decoding from a checkpoint failed; from the start now", self.source.path().display());
        if let Some(checkpoints) = self.checkpoints(frame, state) {
            checkpoints.give_up();
        }
        let gone: Vec<Cursor> = lock(&state.live).idle.extract_if(.., |cursor| cursor.reader.is_resumed()).collect();
        drop(gone);
    }
}
