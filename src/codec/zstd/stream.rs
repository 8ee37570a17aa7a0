//! The decoded bytes of one or more frames, in pieces.
//!
//! Piece: neighbouring small frames share one of up to 1 MiB; 1 MiB of a long frame.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::bytes::{to_u64, to_usize};
use crate::checksum::ChecksumGate;
use crate::error::{Error, Kind, Result};
use crate::limits::{Charge, Limits};
use crate::once::Once;

use super::decode::length_error;
use super::frame_scan::pay;
use super::random_access::{Frames, PIECE};

/// A stream of several frames is limited to 1/1024 of this many full pieces: 4 TiB of content.
const MAX_PIECES: u64 = 1 << 32;

/// Frames that a thread counts before it takes the next ones.
const TOGETHER: usize = 256;

/// The content of frames `first..first + count`, concatenated.
#[derive(Debug)]
pub struct Stream {
    frames: Arc<Frames>,
    first: usize,
    count: usize,
    plan: Arc<Once<Plan>>,
    /// Computes the plan if that requires decoding.
    sizing: OnceLock<ChecksumGate>,
}

/// How the decoded bytes divide into pieces.
#[derive(Debug, Clone)]
pub enum Pieces {
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
    division: Pieces,
    /// What each piece consists of; empty for a single long frame.
    pieces: Vec<Part>,
    /// The start of each frame in the decoded bytes, and the end of the last one.
    starts: Vec<u64>,
    _charge: Option<Arc<Charge>>,
}

#[derive(Debug, Clone, Copy)]
enum Part {
    /// Whole frames, from the first number up to but excluding the second.
    Whole(u32, u32),
    /// A piece of a long frame.
    Of(u32, u64),
}

impl Stream {
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
    pub fn range(&self, index: usize) -> Result<std::ops::Range<u64>> {
        let plan = self.plan()?;
        match plan.starts.get(index..).unwrap_or_default() {
            [start, end, ..] => Ok(*start..*end),
            _ => Err(Error::new(Kind::NotFound, "frame")),
        }
    }

    /// Whether other frames share a piece with frame `index`.
    ///
    /// # Errors
    /// As [`Stream::size`].
    pub fn shares_piece(&self, index: usize) -> Result<bool> {
        let pieces = &self.plan()?.pieces;
        let first = |part: &Part| match *part {
            Part::Whole(from, _) | Part::Of(from, _) => from as usize,
        };
        let place = pieces.partition_point(|part| first(part) <= index).checked_sub(1);
        let part = place.and_then(|place| pieces.get(place));
        Ok(matches!(part, Some(Part::Whole(from, to)) if to - from > 1))
    }

    fn plan(&self) -> Result<&Plan> {
        self.plan.get(|| self.make_plan())
    }

    /// The content sizes of all frames. Frames that do not state theirs are counted once, on the caller's thread and
    /// available helpers.
    fn lens(&self) -> Result<Vec<u64>> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            loop {
                // Neighbouring frames share reads, so they are counted by one thread.
                let from = next.fetch_add(TOGETHER, Ordering::Relaxed);
                if from >= self.count {
                    return Ok(());
                }
                for i in from..self.count.min(from + TOGETHER) {
                    self.frames.size(self.first + i)?;
                }
            }
        };
        let all = self.first..self.first + self.count;
        if all.clone().any(|i| self.frames.known(i).is_none()) {
            let helpers = self.frames.helpers(to_u64(self.count.div_ceil(TOGETHER).saturating_sub(1)));
            thread::scope(|scope| {
                let spawn = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
                let others: Vec<_> = (0..helpers.count()).filter_map(spawn).collect();
                let own = work();
                others.into_iter().fold(own, |all, other| {
                    all.and(other.join().unwrap_or_else(|_| Err(Error::corrupt("the sizing thread died", "frame"))))
                })
            })?;
        }
        all.map(|i| self.frames.size(i)).collect()
    }

    fn make_plan(&self) -> Result<Plan> {
        let lens = self.lens()?;
        let charge = |pieces: u64| {
            let bytes = pieces.saturating_mul(to_u64(size_of::<Part>()) + 8).saturating_add(to_u64(lens.len()) * 16);
            Ok::<_, Error>(pay(self.frames.account(), bytes, "list of pieces")?.map(Arc::new))
        };
        let mut starts = Vec::with_capacity(lens.len() + 1);
        let mut end = 0_u64;
        starts.push(0);
        for len in &lens {
            end = end.checked_add(*len).ok_or_else(|| Error::corrupt("sizes add up beyond 2^64", "content size"))?;
            starts.push(end);
        }
        if self.count == 1 && self.frames.is_long(self.first) {
            return Ok(Plan {
                division: Pieces::Uniform { len: end, piece: PIECE },
                pieces: Vec::new(),
                starts,
                _charge: charge(0)?,
            });
        }
        Limits::check(end / PIECE, MAX_PIECES / 1024, "content size")?;
        // At most one piece per full MiB and one per frame.
        let charge = charge((end / PIECE).saturating_add(to_u64(lens.len())))?;
        let (mut pieces, mut ends) = (Vec::new(), Vec::new());
        let mut open: Option<(usize, u64)> = None;
        for (i, len) in lens.iter().enumerate() {
            let (index, start) = (self.first + i, starts.get(i).copied().unwrap_or(0));
            let long = self.frames.is_long(index);
            if let Some((from, at)) = open.filter(|(_, at)| long || start + len - at > PIECE) {
                debug_assert!(at <= start);
                pieces.push(Part::Whole(from as u32, index as u32));
                ends.push(start);
                open = None;
            }
            if long {
                for piece in 0..len.div_ceil(PIECE) {
                    pieces.push(Part::Of(index as u32, piece));
                    ends.push(start + ((piece + 1) * PIECE).min(*len));
                }
            } else if open.is_none() {
                open = Some((index, start));
            }
        }
        if let Some((from, _)) = open {
            pieces.push(Part::Whole(from as u32, (self.first + self.count) as u32));
            ends.push(end);
        }
        Ok(Plan { division: Pieces::Ends(ends.into()), pieces, starts, _charge: charge })
    }
}

impl Stream {
    /// The total length, if known without counting.
    pub fn known_len(&self) -> Option<u64> {
        let known = |i| self.frames.known(i).and_then(Result::ok);
        (self.first..self.first + self.count).try_fold(0_u64, |sum, i| sum.checked_add(known(i)?))
    }

    /// The gate that computes the plan, if some frames are not counted yet.
    pub fn sizing(&self) -> Option<ChecksumGate> {
        let mut all = self.first..self.first + self.count;
        if self.plan.ready().is_some() || all.all(|i| self.frames.known(i).is_some()) {
            return None;
        }
        let gate = self.sizing.get_or_init(|| {
            let (frames, plan) = (Arc::clone(&self.frames), Arc::clone(&self.plan));
            let same = Self { frames, plan, first: self.first, count: self.count, sizing: OnceLock::new() };
            self.frames.whole(move || same.plan().map(drop))
        });
        ChecksumGate::shut(Some(gate))
    }

    /// The pending gate that must open before piece `piece` is decoded, if any.
    pub fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        self.plan.ready()?.ok()?;
        match self.part(piece).ok()? {
            Part::Of(frame, _) => self.frames.shut(frame as usize),
            Part::Whole(..) => None,
        }
    }

    /// The total length; counts frames if necessary.
    ///
    /// # Errors
    /// Fails if a frame that must be counted is malformed.
    pub fn size(&self) -> Result<u64> {
        Ok(self.plan()?.starts.last().copied().unwrap_or(0))
    }

    /// The division into pieces.
    ///
    /// # Errors
    /// As [`Stream::size`].
    pub fn pieces(&self) -> Result<Pieces> {
        Ok(self.plan()?.division.clone())
    }

    /// What piece `piece` consists of.
    fn part(&self, piece: u64) -> Result<Part> {
        let plan = self.plan()?;
        match plan.pieces.get(to_usize(piece, "piece")?) {
            Some(part) => Ok(*part),
            None if plan.pieces.is_empty() => Ok(Part::Of(self.first as u32, piece)),
            None => Err(Error::new(Kind::NotFound, "piece")),
        }
    }

    /// Piece `piece` if it is in memory, decoded and verified. Does not block.
    pub fn ready(&self, piece: u64) -> Option<Arc<Vec<u8>>> {
        self.plan.ready()?.ok()?;
        match self.part(piece).ok()? {
            Part::Of(frame, piece) => self.frames.ready(frame as usize, piece),
            Part::Whole(..) => None,
        }
    }

    /// Decodes piece `piece` into `dst`, which must have its length.
    ///
    /// # Errors
    /// Fails if one of its frames is malformed.
    pub fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        match self.part(piece)? {
            Part::Of(frame, piece) => self.frames.part(frame as usize, piece, dst),
            Part::Whole(from, to) => {
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
