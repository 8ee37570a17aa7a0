//! The content sizes of frames: stated, or counted once.
#![forbid(unsafe_code)]

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::index::Records;
use crate::limits::Limits;

use super::super::decode::length_error;
use super::super::frame::{Frame, PIECE};
use super::long_frame::{Cursor, LongFrame};
use super::{Frames, inside};

/// Limit on decoding a frame of unknown size: the larger of this many bytes and this multiple of the stored size.
const COUNTED: (u64, u64) = (1 << 30, 1024);

/// The sizes of frames that do not state theirs are kept for later mounts if the file has this many bytes.
const COUNTED_SLOWLY: u64 = 8 << 20;
/// The record of them.
const SIZES: &str = "zstd-sizes";

/// How far a decoder came on its way to the end of a piece.
pub(super) enum Reached {
    Piece,
    /// The end of the frame, which was not known, after that many bytes.
    End(u64),
}

impl Reached {
    /// The number of bytes of piece `piece`, which is the one it was on its way to.
    pub(super) fn of(&self, piece: u64) -> usize {
        let end = match self {
            Self::Piece => u64::MAX,
            Self::End(len) => *len,
        };
        end.saturating_sub(piece.saturating_mul(PIECE)).min(PIECE) as usize
    }
}

/// The error of a read of `len` bytes of piece `piece` of a frame of `content` bytes.
pub(super) fn past_end(piece: u64, len: usize, content: u64) -> Error {
    let have = content.saturating_sub(piece.saturating_mul(PIECE));
    Error::new(Kind::Truncated { need: to_u64(len), have }, "content")
}

impl Frames {
    /// Bytes of content of frame `index`, if stated or already counted.
    pub fn known(&self, index: usize) -> Option<Result<u64>> {
        let frame = self.list.get(index)?;
        match frame.content {
            Some(len) if len > frame.bound => {
                let why = format!("{len} bytes, its blocks produce at most {}", frame.bound);
                let e = Error::corrupt(why, "content size");
                Some(Err(e.at(frame.at.plus(5)).within(format_args!("frame {index}"))))
            }
            Some(len) => Some(Ok(len)),
            None => self.counted.get(index),
        }
    }

    /// Bytes of content of frame `index`; counted once if neither the frame nor its blocks state it.
    ///
    /// # Errors
    /// Fails if the frame is malformed.
    pub fn size(&self, index: usize) -> Result<u64> {
        if let Some(known) = self.known(index) {
            return known;
        }
        let counted = self.count(index);
        match &counted {
            Err(error) if !error.is_lasting() => {}
            counted => self.counted.set(index, counted)?,
        }
        counted
    }

    /// Takes the sizes of frames that do not state theirs from the index, if counting would take long.
    ///
    /// # Errors
    /// Fails only on a bug.
    pub(super) fn load_sizes(&self) -> Result<()> {
        let Some(records) = self.kept_sizes() else { return Ok(()) };
        let len = to_u64(self.list.len()).saturating_mul(8);
        let packed = records.get(SIZES, len).filter(|packed| to_u64(packed.len()) == len);
        let plausible =
            |index, size| self.list.get(index).is_some_and(|frame| frame.content.is_none() && size <= frame.bound);
        packed.map_or(Ok(()), |packed| self.counted.unpack(&packed, plausible))
    }

    /// Keeps the sizes that were counted in the index.
    pub(in super::super) fn keep_sizes(&self) {
        if let Some(records) = self.kept_sizes()
            && let Some(packed) = self.counted.pack(self.list.len())
        {
            records.put(SIZES, &packed);
        }
    }

    /// The records, if sizes are kept there.
    fn kept_sizes(&self) -> Option<&Records> {
        let is_slow = self.source.len() >= COUNTED_SLOWLY && self.list.iter().any(|frame| frame.content.is_none());
        self.policy.records.as_deref().filter(|_| is_slow)
    }

    /// Counts the content of frame `index`: from the lengths of its sequences, or by decoding it.
    fn count(&self, index: usize) -> Result<u64> {
        let frame = self.frame(index)?;
        let inside = |e: Error| inside(index, &frame, e);
        match self.counted.measure(&self.source, &frame, &self.policy.threads).map_err(inside)? {
            Some(len) => Limits::check(len, self.policy.content, "content size").map_err(inside),
            None if frame.is_long() => self.pass(index).map(|pass| pass.len),
            None => self.check(index),
        }
    }

    /// The content size of `frame` and true, if stated or counted; otherwise an upper limit, which depends on the
    /// stored size, and false. Counts it if it may exceed that.
    pub(super) fn expected(&self, index: usize, frame: &Frame) -> Result<(u64, bool)> {
        let limit = COUNTED.0.max(frame.stored.saturating_mul(COUNTED.1)).min(self.policy.content);
        let known = match frame.content.or_else(|| self.counted.get(index)?.ok()) {
            None if frame.bound > limit => self.counted.measure(&self.source, frame, &self.policy.threads)?,
            known => known,
        };
        Ok(known.map_or((frame.bound.min(limit), false), |len| (len, true)))
    }

    /// Bytes of content of `frame`, stated or counted.
    pub(super) fn content_of(&self, index: usize, frame: &Frame) -> Option<u64> {
        frame.content.or_else(|| self.known(index)?.ok())
    }

    /// Reads the next piece of `cursor` into `dst`. At the end of a frame of unknown length, that and its checksums are
    /// then known.
    ///
    /// # Errors
    /// Fails if a block is malformed, the frame ends before the piece does, or a checksum differs.
    pub(super) fn fill(
        &self,
        index: usize,
        frame: &Frame,
        state: &LongFrame,
        cursor: &mut Cursor,
        dst: &mut [u8],
    ) -> Result<Reached> {
        let n = cursor.fill(&self.source, frame, dst)?;
        let len = cursor.piece.saturating_mul(PIECE).saturating_add(to_u64(n));
        let is_short = n < dst.len();
        let goes_on = match self.content_of(index, frame) {
            Some(want) if len > want || (is_short && len < want) => return Err(length_error(len, want)),
            // Counted since the read began, if it is short.
            Some(_) => !is_short,
            None => cursor.goes_on(&self.source, frame)?,
        };
        cursor.piece = cursor.piece.saturating_add(1);
        if goes_on {
            return Ok(Reached::Piece);
        }
        self.counted.set(index, &Limits::check(len, self.policy.content, "content size"))?;
        self.keep_sizes();
        self.check_passed(index, frame, state, cursor).map(|()| Reached::End(len))
    }
}
