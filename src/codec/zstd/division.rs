//! How the decoded bytes of frames divide into pieces, and pieces into fragments.
//!
//! Piece: neighbouring small frames share one of up to 1 MiB; 1 MiB of a long frame. Fragment: neighbouring frames of a
//! piece, as few as make 32 KiB.
//!
//! Limits: [`MAX_PIECES`]; the lists are charged to the account, that of the fragments only if there is room.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use crate::account::Records;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::limits::{Charge, Limits};

use super::frame::PIECE;
use super::random_access::Frames;

/// Full pieces that a stream of several frames may have: 4 TiB of content.
const MAX_PIECES: u64 = 1 << 22;
/// Fragments that a piece must have on average.
const FEWEST: usize = 2;
/// Minimum bytes of a fragment that is not the last one of its piece.
const FRAGMENT: u64 = 32 << 10;

/// How the decoded bytes divide into pieces or fragments.
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

/// Where the frames and pieces of a stream are in its decoded bytes.
#[derive(Debug)]
pub(super) struct StreamPlan {
    pub(super) pieces: Division,
    /// The content of each piece; empty for a single long frame.
    pub(super) parts: Vec<PieceFrames>,
    /// The start of each frame, and the end of the last one.
    pub(super) starts: Records<1>,
    pub(super) len: u64,
    /// The end of every fragment, if pieces have several.
    pub(super) fragments: Option<Arc<[u64]>>,
    _charges: [Option<Charge>; 2],
}

/// The content of a piece.
#[derive(Debug, Clone, Copy)]
pub(super) enum PieceFrames {
    /// Whole frames, from the first number up to but excluding the second.
    Whole(u32, u32),
    /// A piece of a long frame.
    Of(u32, u64),
    /// Content lost at the end of a truncated file.
    Missing,
}

impl StreamPlan {
    /// The plan of the frames `range`, which have known sizes, and `missing` bytes after them.
    ///
    /// # Errors
    /// Fails if there are too many pieces, or the account has no room for the lists.
    pub(super) fn make(frames: &Frames, range: Range<usize>, missing: u64) -> Result<Self> {
        let mut starts = Records::new(frames.account(), "list of frames");
        let mut len = 0_u64;
        starts.push([0])?;
        for index in range.clone() {
            len = len
                .checked_add(frames.size(index)?)
                .ok_or_else(|| Error::corrupt("the sizes add up to more than 2^64 bytes", "content size"))?;
            starts.push([len])?;
        }
        starts.finish()?;
        if range.len() == 1 && frames.is_long(range.start) && missing == 0 {
            let pieces = Division::Uniform { len, piece: PIECE };
            return Ok(Self { pieces, parts: Vec::new(), starts, len, fragments: None, _charges: [None, None] });
        }
        let end = len.saturating_add(missing);
        Limits::check(end / PIECE, MAX_PIECES, "content size")?;
        let mut count = missing.div_ceil(PIECE);
        divide(frames, range.clone(), |_, _| count += 1)?;
        let bytes = count.saturating_mul(to_u64(size_of::<PieceFrames>()) + 8);
        let charge = frames.account().charge_list(bytes, "list of pieces")?;
        let count = to_usize(count, "list of pieces")?;
        let (mut parts, mut ends) = (Vec::with_capacity(count), Vec::with_capacity(count));
        divide(frames, range.clone(), |part, end| {
            parts.push(part);
            ends.push(end);
        })?;
        while let at = ends.last().copied().unwrap_or(0)
            && at < end
        {
            parts.push(PieceFrames::Missing);
            ends.push(end.min(at + PIECE));
        }
        let found = fragments(frames, &starts, range.start, || parts.iter().copied().zip(ends.iter().copied()));
        let (fragments, own) = found.unzip();
        let pieces = Division::Ends(ends.into());
        Ok(Self { pieces, parts, starts, len: end, fragments, _charges: [Some(charge), own] })
    }

    /// The frames, counted from the first of the stream, that contain the decoded bytes in `range`.
    pub(super) fn frames(&self, range: Range<u64>) -> Range<usize> {
        let from = self.starts.partition_point(|&[start]| start <= range.start).saturating_sub(1);
        let to = self.starts.partition_point(|&[start]| start < range.end);
        from..to.min(self.starts.len().saturating_sub(1))
    }
}

/// Calls `emit` with each piece of the frames `range` and its end.
fn divide(frames: &Frames, range: Range<usize>, mut emit: impl FnMut(PieceFrames, u64)) -> Result<()> {
    let mut start = 0_u64;
    // The first frame of the piece that is not complete, and the start of that piece.
    let mut open: Option<(usize, u64)> = None;
    for index in range.clone() {
        let (len, is_long) = (frames.size(index)?, frames.is_long(index));
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
        emit(PieceFrames::Whole(from as u32, range.end as u32), start);
    }
    Ok(())
}

/// The ends of the fragments of `parts`, each given with its end, and the charge for them. `None` if pieces have too
/// few, or the account has no room. `starts` are the starts of the frames from number `first` on.
fn fragments<P: Iterator<Item = (PieceFrames, u64)>>(
    frames: &Frames,
    starts: &Records<1>,
    first: usize,
    parts: impl Fn() -> P,
) -> Option<(Arc<[u64]>, Charge)> {
    let each = |emit: &mut dyn FnMut(u64)| {
        let mut last = 0;
        for (part, piece_end) in parts() {
            if let PieceFrames::Whole(from, to) = part {
                for frame in from as usize..to as usize {
                    let end = starts.get(frame - first + 1).map_or(piece_end, |[end]| end);
                    if end - last >= FRAGMENT && end < piece_end {
                        emit(end);
                        last = end;
                    }
                }
            }
            if piece_end > last {
                emit(piece_end);
                last = piece_end;
            }
        }
    };
    let mut count = 0_usize;
    each(&mut |_| count += 1);
    if count / FEWEST < parts().count() {
        return None;
    }
    let charge = frames.account().charge_list(to_u64(count).saturating_mul(8), "list of fragments").ok()?;
    let mut ends = Vec::with_capacity(count);
    each(&mut |end| ends.push(end));
    Some((ends.into(), charge))
}
