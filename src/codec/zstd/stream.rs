//! The decoded bytes of one or more frames, in pieces.
//!
//! Piece: neighbouring small frames share one of up to 1 MiB; 1 MiB of a long frame.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::account::Records;
use crate::bytes::{to_u64, to_usize};
use crate::checksum::{ChecksumGate, Verified};
use crate::error::{Error, Kind, Result};
use crate::limits::{Charge, Limits};
use crate::once::Once;

use super::decode::length_error;
use super::frame::PIECE;
use super::random_access::Frames;

/// Full pieces that a stream of several frames may have: 4 TiB of content.
const MAX_PIECES: u64 = 1 << 22;

/// Frames that a thread counts before it takes the next ones.
const TOGETHER: usize = 256;

/// The content of frames `first..first + count`, concatenated.
#[derive(Debug)]
pub struct ContentStream {
    frames: Arc<Frames>,
    first: usize,
    count: usize,
    plan: Arc<Once<Plan>>,
    /// Computes the plan if that requires decoding.
    sizing: OnceLock<ChecksumGate>,
}

/// How the decoded bytes divide into pieces.
#[derive(Debug, Clone)]
pub enum Division {
    /// Pieces of `piece` bytes, the last one shorter.
    Uniform {
        /// Total length.
        len: u64,
        /// Bytes of a piece.
        piece: u64,
    },
    /// The end of every piece.
    Ends(Arc<[u64]>),
}

#[derive(Debug)]
struct Plan {
    division: Division,
    /// What each piece consists of; empty for a single long frame.
    pieces: Vec<PieceFrames>,
    /// The start of each frame in the decoded bytes, and the end of the last one.
    starts: Records<1>,
    len: u64,
    _charge: Option<Charge>,
}

impl Plan {
    /// The frames of the stream that contain the decoded bytes in `range`.
    fn frames(&self, range: Range<u64>) -> Range<usize> {
        let from = self.starts.partition_point(|&[start]| start <= range.start).saturating_sub(1);
        let to = self.starts.partition_point(|&[start]| start < range.end);
        from..to.min(self.starts.len().saturating_sub(1))
    }
}

#[derive(Debug, Clone, Copy)]
enum PieceFrames {
    /// Whole frames, from the first number up to but excluding the second.
    Whole(u32, u32),
    /// A piece of a long frame.
    Of(u32, u64),
}

impl ContentStream {
    /// Frames `first..first + count`.
    pub fn new(frames: Arc<Frames>, first: usize, count: usize) -> Self {
        Self { frames, first, count, plan: Arc::default(), sizing: OnceLock::new() }
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
        let pieces = &self.plan()?.pieces;
        let first = |part: &PieceFrames| match *part {
            PieceFrames::Whole(from, _) | PieceFrames::Of(from, _) => from as usize,
        };
        let place = pieces.partition_point(|part| first(part) <= index).checked_sub(1);
        let part = place.and_then(|place| pieces.get(place));
        Ok(matches!(part, Some(PieceFrames::Whole(from, to)) if to - from > 1))
    }

    fn plan(&self) -> Result<&Plan> {
        self.plan.get(|| self.make_plan())
    }

    /// Counts the content of the frames that do not state it, once, on the caller's thread and available helpers.
    fn count_all(&self) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            loop {
                // Neighbouring frames share reads, so they are counted by one thread.
                let from = next.fetch_add(TOGETHER, Ordering::Relaxed);
                if from >= self.count {
                    return Ok(());
                }
                self.frames.check_open()?;
                for i in from..self.count.min(from + TOGETHER) {
                    self.frames.size(self.first + i)?;
                }
            }
        };
        if self.indices().all(|i| self.frames.known(i).is_some()) {
            return Ok(());
        }
        let helpers = self.frames.helpers(to_u64(self.count.div_ceil(TOGETHER).saturating_sub(1)));
        thread::scope(|scope| {
            let spawn = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
            let others: Vec<_> = (0..helpers.count()).filter_map(spawn).collect();
            let own = work();
            others.into_iter().fold(own, |all, other| {
                all.and(other.join().unwrap_or_else(|_| Err(Error::corrupt("the sizing thread panicked", "frame"))))
            })
        })
    }

    /// The numbers of the frames.
    fn indices(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    fn make_plan(&self) -> Result<Plan> {
        self.count_all()?;
        let mut starts = Records::new(self.frames.account(), "list of frames");
        let mut len = 0_u64;
        starts.push([0])?;
        for index in self.indices() {
            len = len
                .checked_add(self.frames.size(index)?)
                .ok_or_else(|| Error::corrupt("the sizes add up to more than 2^64 bytes", "content size"))?;
            starts.push([len])?;
        }
        starts.finish()?;
        if self.count == 1 && self.frames.is_long(self.first) {
            let division = Division::Uniform { len, piece: PIECE };
            return Ok(Plan { division, pieces: Vec::new(), starts, len, _charge: None });
        }
        Limits::check(len / PIECE, MAX_PIECES, "content size")?;
        let mut count = 0_u64;
        self.divide(|_, _| count += 1)?;
        let bytes = count.saturating_mul(to_u64(size_of::<PieceFrames>()) + 8);
        let charge = self.frames.account().charge_list(bytes, "list of pieces")?;
        let count = to_usize(count, "list of pieces")?;
        let (mut pieces, mut ends) = (Vec::with_capacity(count), Vec::with_capacity(count));
        self.divide(|part, end| {
            pieces.push(part);
            ends.push(end);
        })?;
        Ok(Plan { division: Division::Ends(ends.into()), pieces, starts, len, _charge: Some(charge) })
    }

    /// Calls `emit` with each piece and its end; all frames are counted.
    fn divide(&self, mut emit: impl FnMut(PieceFrames, u64)) -> Result<()> {
        let mut start = 0_u64;
        // The first frame of the piece that is not complete, and the start of that piece.
        let mut open: Option<(usize, u64)> = None;
        for index in self.indices() {
            let (len, is_long) = (self.frames.size(index)?, self.frames.is_long(index));
            if let Some((from, _)) = open.filter(|(_, at)| is_long || start + len - at > PIECE) {
                emit(PieceFrames::Whole(from as u32, index as u32), start);
                open = None;
            }
            if is_long {
                for piece in 0..len.div_ceil(PIECE) {
                    emit(PieceFrames::Of(index as u32, piece), start + ((piece + 1) * PIECE).min(len));
                }
            } else if open.is_none() {
                open = Some((index, start));
            }
            start += len;
        }
        if let Some((from, _)) = open {
            emit(PieceFrames::Whole(from as u32, (self.first + self.count) as u32), start);
        }
        Ok(())
    }
}

impl ContentStream {
    /// The total length, if known without counting.
    pub fn known_len(&self) -> Option<u64> {
        if let Some(Ok(plan)) = self.plan.ready() {
            return Some(plan.len);
        }
        let known = |i| self.frames.known(i).and_then(Result::ok);
        self.indices().try_fold(0_u64, |sum, i| sum.checked_add(known(i)?))
    }

    /// The gate that computes the plan, if some frames are not counted yet.
    pub fn sizing(&self) -> Option<ChecksumGate> {
        if self.plan.ready().is_some() || self.indices().all(|i| self.frames.known(i).is_some()) {
            return None;
        }
        let gate = self.sizing.get_or_init(|| {
            let (frames, plan) = (Arc::clone(&self.frames), Arc::clone(&self.plan));
            let same = Self { frames, plan, first: self.first, count: self.count, sizing: OnceLock::new() };
            self.frames.whole(move || same.plan().map(drop))
        });
        ChecksumGate::shut(Some(gate), true)
    }

    /// The pending gate that must open before piece `piece` is decoded, if any.
    pub fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        self.plan.ready()?.ok()?;
        match self.part(piece).ok()? {
            PieceFrames::Of(frame, _) => self.frames.shut(frame as usize),
            PieceFrames::Whole(..) => None,
        }
    }

    /// What is known about the checksums of the frames that contain the decoded bytes in `range`; of all frames while
    /// their sizes are unknown.
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
        Ok(self.plan()?.division.clone())
    }

    /// What piece `piece` consists of.
    fn part(&self, piece: u64) -> Result<PieceFrames> {
        let plan = self.plan()?;
        match plan.pieces.get(to_usize(piece, "piece")?) {
            Some(part) => Ok(*part),
            None if plan.pieces.is_empty() => Ok(PieceFrames::Of(self.first as u32, piece)),
            None => Err(Error::new(Kind::NotFound, "piece")),
        }
    }

    /// Records that a reader has requested piece `piece`, so that what follows is decoded ahead. Does not block.
    pub fn note_read(&self, piece: u64) {
        if let Some(Ok(_)) = self.plan.ready()
            && let Ok(PieceFrames::Of(frame, piece)) = self.part(piece)
        {
            self.frames.note_read(frame as usize, piece);
        }
    }

    /// Piece `piece` if it is in memory, decoded and verified. Does not block.
    pub fn ready(&self, piece: u64) -> Option<Arc<Vec<u8>>> {
        self.plan.ready()?.ok()?;
        match self.part(piece).ok()? {
            PieceFrames::Of(frame, piece) => self.frames.ready(frame as usize, piece),
            PieceFrames::Whole(..) => None,
        }
    }

    /// Whether piece `piece` is in memory or is being decoded ahead.
    pub fn is_coming(&self, piece: u64) -> bool {
        match self.plan.ready().map(|plan| plan.and_then(|_| self.part(piece))) {
            Some(Ok(PieceFrames::Of(frame, piece))) => self.frames.is_coming(frame as usize, piece),
            _ => false,
        }
    }

    /// Whether piece `piece` continues the one before it: it is part of a long frame.
    pub fn is_run(&self, piece: u64) -> bool {
        match self.plan.ready().map(|plan| plan.and_then(|_| self.part(piece))) {
            Some(Ok(PieceFrames::Of(_, piece))) => piece > 0,
            _ => false,
        }
    }

    /// As [`ContentStream::ready`], but waits for a piece that is being decoded ahead.
    pub fn ready_soon(&self, piece: u64) -> Option<Arc<Vec<u8>>> {
        self.plan.ready()?.ok()?;
        match self.part(piece).ok()? {
            PieceFrames::Of(frame, piece) => self.frames.ready_soon(frame as usize, piece),
            PieceFrames::Whole(..) => None,
        }
    }

    /// Decodes piece `piece` into `dst`, which must have its length.
    ///
    /// # Errors
    /// Fails if one of its frames is malformed.
    pub fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        self.frames.check_open()?;
        match self.part(piece)? {
            PieceFrames::Of(frame, piece) => self.frames.part(frame as usize, piece, dst),
            PieceFrames::Whole(from, to) => {
                let mut rest = dst;
                for index in from as usize..to as usize {
                    let range = self.range(index - self.first)?;
                    let len = to_usize(range.end - range.start, "frame")?;
                    let (head, tail) = std::mem::take(&mut rest)
                        .split_at_mut_checked(len)
                        .ok_or_else(|| length_error(range.end, to_u64(len)))?;
                    self.frames.small(index, head)?;
                    rest = tail;
                }
                Ok(())
            }
        }
    }
}
