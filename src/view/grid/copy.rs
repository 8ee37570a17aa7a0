//! Copies parts of blocks from the pieces that contain them.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::Piece;
use crate::view::{Lookup, computed, subslice, whole};

use super::axis::{Cell, offset};
use super::{AXES, AxisIndex, GridReader};

/// Caches the last piece: blocks are visited in blob order.
pub(super) struct Pieces<'a> {
    pub(super) reader: &'a GridReader,
    pub(super) lookup: &'a Lookup<'a>,
    /// `None` for a piece that is not copied.
    pub(super) current: Option<(Range<u64>, Option<Piece>)>,
}

impl Pieces<'_> {
    /// The piece that contains byte `at` of the blob; `None` if its bytes are not copied.
    fn hold(&mut self, at: u64) -> Result<(&Range<u64>, Option<&Piece>)> {
        if !self.current.as_ref().is_some_and(|(bounds, _)| bounds.contains(&at)) {
            self.current = None;
            let layout = &self.reader.layout;
            let index = layout.locate(at);
            let bounds = layout.range(index);
            if !bounds.contains(&at) {
                return Err(Error::corrupt("the pieces do not cover the blob", "layout"));
            }
            let piece = (self.lookup)(&self.reader.blob, index)?;
            let piece = piece.map(|piece| whole(piece, bounds.end - bounds.start)).transpose()?;
            self.current = Some((bounds, piece));
        }
        match &self.current {
            Some((bounds, piece)) => Ok((bounds, piece.as_ref())),
            None => Err(computed::absent()),
        }
    }

    /// Copies a part of a block to offset `out` of `dst`.
    pub(super) fn copy_block(&mut self, block: &[Cell], dst: &mut [u8], out: usize) -> Result<()> {
        let reader = self.reader;
        let (n, offset) = (block.len(), offset(block));
        let count = |d: usize| block[d].len();
        let run = to_usize(count(n - 1), "run")?;
        // The axis of the rows: their number, and their distances in the blob and in C order. A single row has no
        // distance; a merged inner axis that spans chunks may then be longer than a step of this axis.
        let (rows, per_row, stride) = match n.checked_sub(2).filter(|&d| count(d) > 1) {
            Some(d) => (count(d), reader.axes[d].per_step, reader.strides[d]),
            None => (1, to_u64(run), to_u64(run)),
        };
        let outer = n.saturating_sub(2);
        let mut step: AxisIndex = [0; AXES];
        loop {
            let from: u64 = (0..outer).map(|d| step[d] * reader.axes[d].per_step).sum();
            let to: u64 = (0..outer).map(|d| step[d] * reader.strides[d]).sum();
            let rows = EqualRows { count: to_usize(rows, "rows")?, per_row, stride: to_usize(stride, "stride")?, run };
            self.copy_rows(offset + from, dst.get_mut(out + to_usize(to, "range")?..).unwrap_or_default(), rows)?;
            let Some(d) = (0..outer).rev().find(|&d| step[d] + 1 < count(d)) else { return Ok(()) };
            step[d] += 1;
            step[d + 1..outer].fill(0);
        }
    }

    /// Copies `rows` from offset `offset` of the blob to the start of `dst`.
    fn copy_rows(&mut self, offset: u64, dst: &mut [u8], rows: EqualRows) -> Result<()> {
        let span = to_u64(rows.count - 1) * rows.per_row + to_u64(rows.run);
        let (bounds, piece) = self.hold(offset)?;
        if offset + span <= bounds.end {
            if let Some(piece) = piece {
                rows.copy(subslice(piece, offset - bounds.start, to_usize(span, "block")?)?, dst);
            }
            return Ok(());
        }
        // The block crosses a piece boundary: copy row by row, each in as many parts as necessary.
        for (row, dst) in dst.chunks_mut(rows.stride).take(rows.count).enumerate() {
            let mut at = offset + to_u64(row) * rows.per_row;
            let mut rest = dst.get_mut(..rows.run).unwrap_or_default();
            while !rest.is_empty() {
                let (bounds, piece) = self.hold(at)?;
                let len = to_usize(bounds.end - at, "run")?.min(rest.len());
                let (head, tail) = rest.split_at_mut(len);
                if let Some(piece) = piece {
                    head.copy_from_slice(subslice(piece, at - bounds.start, len)?);
                }
                (rest, at) = (tail, at + to_u64(len));
            }
        }
        Ok(())
    }
}

/// Rows of equal length at equal distances.
#[derive(Clone, Copy)]
struct EqualRows {
    /// Number of rows; at least one.
    count: usize,
    /// Bytes in the blob from one row to the next.
    per_row: u64,
    /// Bytes in C order from one row to the next.
    stride: usize,
    /// Bytes of a row.
    run: usize,
}

impl EqualRows {
    /// Copies all rows from `src` to `dst`; the most common element sizes as single moves.
    fn copy(self, src: &[u8], dst: &mut [u8]) {
        match self.run {
            1 => self.moves::<1>(src, dst),
            2 => self.moves::<2>(src, dst),
            4 => self.moves::<4>(src, dst),
            8 => self.moves::<8>(src, dst),
            16 => self.moves::<16>(src, dst),
            32 => self.moves::<32>(src, dst),
            64 => self.moves::<64>(src, dst),
            run => {
                for (dst, src) in self.pairs(src, dst) {
                    if let (Some(dst), Some(src)) = (dst.get_mut(..run), src.get(..run)) {
                        dst.copy_from_slice(src);
                    }
                }
            }
        }
    }

    fn moves<const N: usize>(self, src: &[u8], dst: &mut [u8]) {
        for (dst, src) in self.pairs(src, dst) {
            if let (Some(dst), Some(src)) = (dst.first_chunk_mut::<N>(), src.first_chunk::<N>()) {
                *dst = *src;
            }
        }
    }

    fn pairs<'a>(self, src: &'a [u8], dst: &'a mut [u8]) -> impl Iterator<Item = (&'a mut [u8], &'a [u8])> {
        let per_row = usize::try_from(self.per_row).unwrap_or(usize::MAX).max(1);
        dst.chunks_mut(self.stride.max(1)).zip(src.chunks(per_row)).take(self.count)
    }
}
