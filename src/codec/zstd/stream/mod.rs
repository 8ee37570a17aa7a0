//! The decoded bytes of one or more frames, in pieces.
//!
//! Piece: see [`super::division`].
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::bytes::{to_u64, to_usize};
use crate::checksum::{ChecksumGate, Verified};
use crate::error::{Error, Kind, Result};
use crate::once::Once;
use crate::parallel;

use super::decode::length_error;
use super::division::{Division, PieceFrames, StreamPlan};
use super::frame::{Cut, PIECE};
use super::random_access::Frames;

/// Maximum number of frames that a thread counts in one turn, and minimum number of turns.
const TOGETHER: usize = 256;
const TURNS: usize = 64;

/// Minimum bytes missing at the end of a truncated file, so that a reader to its end meets the error: the missing
/// content may be unknown, or only a checksum may be missing.
const LEAST_MISSING: u64 = 1;
/// Limit on the missing bytes that a header may claim.
const MOST_MISSING: u64 = 1 << 40;

/// The content of frames `first..first + count`, concatenated, and the missing bytes after them.
#[derive(Debug)]
pub struct ContentStream {
    frames: Arc<Frames>,
    first: usize,
    count: usize,
    cut: Option<Cut>,
    plan: Arc<Once<StreamPlan>>,
    /// Computes the plan if that requires decoding.
    sizing: OnceLock<ChecksumGate>,
}

impl ContentStream {
    /// Frames `first..first + count`.
    pub fn new(frames: Arc<Frames>, first: usize, count: usize) -> Self {
        Self { frames, first, count, cut: None, plan: Arc::default(), sizing: OnceLock::new() }
    }

    /// The same of a truncated file: its missing bytes have a place at the end, and cannot be read.
    #[must_use]
    pub fn with_cut(self, cut: Option<Cut>) -> Self {
        Self { cut, ..self }
    }

    /// Bytes that are missing at the end; `size` is that of the last frame.
    fn missing(&self, size: impl FnOnce(usize) -> Result<u64>) -> Result<u64> {
        let Some(cut) = &self.cut else { return Ok(0) };
        let last = (self.first + self.count).saturating_sub(1);
        let Some(content) = cut.content else { return Ok(LEAST_MISSING) };
        Ok(content.saturating_sub(size(last)?).clamp(LEAST_MISSING, MOST_MISSING))
    }

    /// All frames of a file.
    pub fn all(frames: Arc<Frames>) -> Self {
        let count = frames.list.len();
        Self::new(frames, 0, count)
    }

    /// The range of frame `index` in the decoded bytes of this stream.
    ///
    /// # Errors
    /// Fails if the size of a frame of the stream cannot be determined.
    pub fn range(&self, index: usize) -> Result<Range<u64>> {
        let starts = &self.plan()?.starts;
        match (starts.get(index), starts.get(index.saturating_add(1))) {
            (Some([start]), Some([end])) => Ok(start..end),
            _ => Err(Error::new(Kind::NotFound, "frame")),
        }
    }

    /// Whether other frames share a piece with frame `index`.
    ///
    /// # Errors
    /// As [`ContentStream::size`].
    pub fn shares_piece(&self, index: usize) -> Result<bool> {
        let pieces = &self.plan()?.parts;
        let first = |part: &PieceFrames| match *part {
            PieceFrames::Whole(from, _) | PieceFrames::Of(from, _) => from as usize,
            PieceFrames::Missing => usize::MAX,
        };
        let place = pieces.partition_point(|part| first(part) <= index).checked_sub(1);
        let part = place.and_then(|place| pieces.get(place));
        Ok(matches!(part, Some(PieceFrames::Whole(from, to)) if to - from > 1))
    }

    fn plan(&self) -> Result<&StreamPlan> {
        self.plan.get(|| {
            self.count_all()?;
            StreamPlan::make(&self.frames, self.indices(), self.missing(|last| self.frames.size(last))?)
        })
    }

    /// Counts the content of the frames that do not state it, once, on the caller's thread and available helpers.
    fn count_all(&self) -> Result<()> {
        if self.indices().all(|i| self.frames.known(i).is_some()) {
            return Ok(());
        }
        // Neighbouring frames share reads, so they are counted by one thread.
        let together = (self.count / TURNS).clamp(1, TOGETHER);
        let count = |from: usize| -> Result<()> {
            self.frames.check_open()?;
            (from..self.count.min(from + together)).try_for_each(|i| self.frames.size(self.first + i).map(drop))
        };
        let helpers = self.frames.helpers(to_u64(self.count.div_ceil(together).saturating_sub(1)));
        parallel::in_order(helpers.workers(), (0..self.count).step_by(together), count, |counted| counted)?;
        if self.count == self.frames.list.len() {
            self.frames.keep_sizes();
        }
        Ok(())
    }

    /// The numbers of the frames.
    fn indices(&self) -> Range<usize> {
        self.first..self.first + self.count
    }
}

impl ContentStream {
    /// The total length, if known without counting.
    pub fn known_len(&self) -> Option<u64> {
        if let Some(Ok(plan)) = self.plan.ready() {
            return Some(plan.len);
        }
        let known = |i| self.frames.known(i).and_then(Result::ok);
        let missing = self.missing(|last| known(last).ok_or_else(|| Error::new(Kind::NotFound, "frame"))).ok()?;
        self.indices().try_fold(missing, |sum, i| sum.checked_add(known(i)?))
    }

    /// While the length of a single long frame is not counted: the division of the longest content that it can have. A
    /// decoder that comes to its end has counted it.
    pub fn longest(&self) -> Option<Division> {
        let is_unknown = self.is_one_long() && self.frames.known(self.first).is_none();
        let frame = self.frames.list.get(self.first).filter(|_| is_unknown)?;
        Some(Division::Uniform { len: frame.bound, piece: PIECE })
    }

    /// Whether it is one long frame, and nothing is missing: its pieces follow from their numbers.
    fn is_one_long(&self) -> bool {
        self.count == 1 && self.cut.is_none() && self.frames.is_long(self.first)
    }

    /// The gate that computes the plan, if some frames are not counted yet.
    pub fn sizing(&self) -> Option<ChecksumGate> {
        if self.plan.ready().is_some() || self.indices().all(|i| self.frames.known(i).is_some()) {
            return None;
        }
        let gate = self.sizing.get_or_init(|| {
            let (frames, plan) = (Arc::clone(&self.frames), Arc::clone(&self.plan));
            let cut = self.cut.clone();
            let same = Self { frames, plan, cut, first: self.first, count: self.count, sizing: OnceLock::new() };
            self.frames.whole(move || same.plan().map(drop))
        });
        ChecksumGate::shut(Some(gate), true)
    }

    /// The pending gate that must open before piece `piece` is decoded, if any.
    pub fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        match self.located(piece)? {
            PieceFrames::Of(frame, _) => self.frames.shut(frame as usize),
            PieceFrames::Whole(..) | PieceFrames::Missing => None,
        }
    }

    /// The state of the checksums of the frames that contain the decoded bytes in `range`; of all frames while their
    /// sizes are unknown.
    pub fn verified(&self, range: Range<u64>) -> Verified {
        let frames = match self.plan.ready() {
            Some(Ok(plan)) => plan.frames(range),
            _ => 0..self.count,
        };
        frames.map(|index| self.frames.verified(self.first.saturating_add(index))).max().unwrap_or(Verified::No)
    }

    /// The total length; counts frames if necessary.
    ///
    /// # Errors
    /// Fails if a frame that must be counted is malformed.
    pub fn size(&self) -> Result<u64> {
        Ok(self.plan()?.len)
    }

    /// The division into pieces.
    ///
    /// # Errors
    /// As [`ContentStream::size`].
    pub fn pieces(&self) -> Result<Division> {
        Ok(self.plan()?.pieces.clone())
    }

    /// The ends of the fragments, if there are some: small frames that share a piece with others. Pieces of long frames
    /// are fragments too.
    pub fn fragments(&self) -> Option<Division> {
        self.plan.ready()?.ok()?.fragments.clone().map(Division::Ends)
    }

    /// Decodes the fragment at byte `at` of piece `piece` into `dst`, which must have its length.
    ///
    /// # Errors
    /// Fails if one of its frames is malformed.
    pub fn decode_fragment(&self, piece: u64, at: u64, dst: &mut [u8]) -> Result<()> {
        let PieceFrames::Whole(first, _) = self.part(piece)? else { return self.decode(piece, dst) };
        let start = self.range(first as usize - self.first)?.start.saturating_add(at);
        let frames = self.plan()?.frames(start..start.saturating_add(to_u64(dst.len())));
        self.decode_whole(frames, dst)
    }

    /// Decodes small frames, counted from the first of the stream, into `dst`.
    fn decode_whole(&self, frames: Range<usize>, dst: &mut [u8]) -> Result<()> {
        self.frames.check_open()?;
        let mut rest = dst;
        for index in frames {
            let range = self.range(index)?;
            let len = to_usize(range.end - range.start, "frame")?;
            let (head, tail) = std::mem::take(&mut rest)
                .split_at_mut_checked(len)
                .ok_or_else(|| length_error(range.end, to_u64(len)))?;
            self.frames.small(self.first + index, head)?;
            rest = tail;
        }
        Ok(())
    }

    /// The content of piece `piece`.
    fn part(&self, piece: u64) -> Result<PieceFrames> {
        if !self.is_one_long() {
            self.plan()?;
        }
        self.located(piece).ok_or_else(|| Error::new(Kind::NotFound, "piece"))
    }

    /// The content of piece `piece`, if that is known without counting. Does not block.
    fn located(&self, piece: u64) -> Option<PieceFrames> {
        if self.is_one_long() {
            return Some(PieceFrames::Of(u32::try_from(self.first).ok()?, piece));
        }
        self.plan.ready()?.ok()?.parts.get(usize::try_from(piece).ok()?).copied()
    }

    /// Records that a reader has requested piece `piece`, to start readahead. Does not block.
    pub fn note_read(&self, piece: u64) {
        if let Some(PieceFrames::Of(frame, piece)) = self.located(piece) {
            self.frames.note_read(frame as usize, piece);
        }
    }

    /// Piece `piece` if it is in memory, decoded and verified. Does not block.
    pub fn ready(&self, piece: u64) -> Option<Arc<Vec<u8>>> {
        match self.located(piece)? {
            PieceFrames::Of(frame, piece) => self.frames.ready(frame as usize, piece),
            PieceFrames::Whole(..) | PieceFrames::Missing => None,
        }
    }

    /// Whether piece `piece` is in memory or is being decoded ahead.
    pub fn is_coming(&self, piece: u64) -> bool {
        match self.located(piece) {
            Some(PieceFrames::Of(frame, piece)) => self.frames.is_coming(frame as usize, piece),
            _ => false,
        }
    }

    /// Whether piece `piece` continues the one before it: it is part of a long frame.
    pub fn is_run(&self, piece: u64) -> bool {
        matches!(self.located(piece), Some(PieceFrames::Of(_, piece)) if piece > 0)
    }

    /// As [`ContentStream::ready`], but waits for a piece that is being decoded ahead.
    pub fn ready_soon(&self, piece: u64) -> Option<Arc<Vec<u8>>> {
        match self.located(piece)? {
            PieceFrames::Of(frame, piece) => self.frames.ready_soon(frame as usize, piece),
            PieceFrames::Whole(..) | PieceFrames::Missing => None,
        }
    }

    /// Decodes piece `piece` into `dst`, which must have its length.
    ///
    /// # Errors
    /// Fails if one of its frames is malformed.
    pub fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        match self.part(piece)? {
            PieceFrames::Of(frame, piece) => {
                self.frames.check_open()?;
                self.frames.part(frame as usize, piece, dst)
            }
            PieceFrames::Whole(from, to) => {
                self.decode_whole(from as usize - self.first..to as usize - self.first, dst)
            }
            PieceFrames::Missing => {
                Err(self.cut.as_ref().map_or_else(|| Error::new(Kind::NotFound, "piece"), |cut| cut.error.clone()))
            }
        }
    }
}

#[cfg(test)]
mod tests;
