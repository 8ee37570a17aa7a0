//! Reads byte ranges, in C order, of an n-dimensional array that is stored as chunks of blocks.
//!
//! The offset of an element in the blob is a sum of one term per dimension, so dimensions that are contiguous in both
//! orders are merged into one axis; the last axis counts bytes. A range in C order consists of a few boxes. A box is
//! visited chunk by chunk and block by block, in blob order, so that each piece is requested once per box; the part of
//! a block inside the box is copied in rows.
//!
//! A window of the array is read the same way: its steps are counted from its start, and its bytes outside the array
//! are zero.
//!
//! Checked: all products when the reader is created; the blob must be large enough for all chunks of the array.
//! Limits: `BLOCKS` bytes of whole blocks for one read, and `PER_BYTE` for each of its bytes.
//! Invariant: for every index within the shape, the offset plus one element is within the blob.
#![forbid(unsafe_code)]

mod axis;
mod copy;
mod padding;

use std::ops::Range;

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::{BlobRef, Grid, Layout};
use crate::view::Lookup;

use axis::{Axis, Cell, cells, offset};
use copy::Pieces;

/// Maximum number of dimensions of an array.
const RANK: usize = 16;
/// The dimensions, and one axis for the bytes of an element.
const AXES: usize = RANK + 1;

/// Bytes of the blocks that a read may touch, and as many more for each of its bytes. Blocks are decoded whole: where
/// each column of an array is a chunk, a row takes all of them. Any array with a row of blocks that fits in a cache is
/// below the limit.
const BLOCKS: u64 = 1 << 30;
const PER_BYTE: u64 = 1 << 12;

type AxisIndex = [u64; AXES];
/// Called with a box, from its first index to past its last; returns whether to continue.
type EachBox<'a> = dyn FnMut(&AxisIndex, &AxisIndex) -> Result<bool> + 'a;
/// Called with the part of a box in one block; returns whether to continue.
type EachBlock<'a> = dyn FnMut(&[Cell]) -> Result<bool> + 'a;

/// Reads a [`Grid`] in C order.
#[derive(Debug)]
pub struct GridReader {
    blob: BlobRef,
    layout: Layout,
    len: u64,
    /// Bytes of a block.
    block_len: u64,
    /// Outermost first; the last one counts single bytes.
    axes: Vec<Axis>,
    /// Bytes in C order of the window from one step to the next, per axis.
    strides: Vec<u64>,
}

/// The size of `grid`, or of its window, in bytes.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] if it exceeds the maximum length of a file.
pub fn byte_len(grid: &Grid) -> Result<u64> {
    let shape = grid.window.as_ref().map_or(&grid.shape, |window| &window.shape);
    let len = shape.iter().try_fold(grid.itemsize, |n, &d| n.checked_mul(d));
    len.filter(|&len| len <= super::LONGEST).ok_or_else(too_large)
}

fn too_large() -> Error {
    Error::corrupt("the number of bytes exceeds 64 bits", "shape")
}

/// The product of `a` and `b`; fails on overflow.
fn times(a: u64, b: u64) -> Result<u64> {
    a.checked_mul(b).ok_or_else(too_large)
}

/// The axes of the part of `grid` at `start` with the shape `extent`, and the bytes of all chunks.
fn axes(grid: &Grid, start: &[u64], extent: &[u64]) -> Result<(Vec<Axis>, u64)> {
    // Strides, innermost first: elements of a block, blocks of a chunk, chunks of the array.
    let mut dims: Vec<Axis> = (grid.shape.iter().zip(&grid.chunk).zip(&grid.block))
        .zip(start.iter().zip(extent))
        .map(|(((&shape, &chunk), &block), (&start, &len))| Axis {
            start,
            len,
            shape,
            chunk,
            block,
            per_chunk: 0,
            per_block: 0,
            per_step: 0,
        })
        .collect();
    let mut stride = grid.itemsize;
    for dim in dims.iter_mut().rev() {
        dim.per_step = stride;
        stride = times(stride, dim.block)?;
    }
    for dim in dims.iter_mut().rev() {
        dim.per_block = stride;
        stride = times(stride, dim.chunk.div_ceil(dim.block))?;
    }
    for dim in dims.iter_mut().rev() {
        dim.per_chunk = stride;
        stride = times(stride, dim.shape.div_ceil(dim.chunk))?;
    }
    Ok((dims, stride))
}

impl GridReader {
    /// Creates a reader of `grid`.
    ///
    /// # Errors
    /// [`crate::error::Kind::Corrupt`] if its numbers are inconsistent or the blob is too short for them.
    pub fn new(grid: &Grid) -> Result<Self> {
        let rank = grid.shape.len();
        if rank > RANK || grid.chunk.len() != rank || grid.block.len() != rank {
            return Err(Error::corrupt("array, chunk and block differ in rank", "shape"));
        }
        let (len, layout) = (byte_len(grid)?, grid.blob.layout()?);
        let block_len = grid.block.iter().fold(grid.itemsize, |n, &d| n.saturating_mul(d));
        let mut this = Self { blob: grid.blob.clone(), layout, len, block_len, axes: Vec::new(), strides: Vec::new() };
        if len == 0 {
            return Ok(this);
        }
        if grid.chunk.contains(&0) || grid.block.contains(&0) {
            return Err(Error::corrupt("a chunk or block has no elements", "chunk shape"));
        }
        let zeros = vec![0; rank];
        let (start, extent) = grid.window.as_ref().map_or((&zeros, &grid.shape), |w| (&w.start, &w.shape));
        if start.len() != rank || extent.len() != rank || start.iter().zip(&grid.shape).any(|(start, len)| start >= len)
        {
            return Err(Error::corrupt("it starts outside the array", "window"));
        }

        let (dims, stored) = axes(grid, start, extent)?;
        if stored > this.layout.len() {
            return Err(Error::corrupt("the chunks have fewer bytes than the array", "shape"));
        }
        let n = grid.itemsize;
        let mut inner =
            Axis { start: 0, len: n, shape: n, chunk: n, block: n, per_chunk: 0, per_block: 0, per_step: 1 };
        for dim in dims.into_iter().rev().filter(|dim| dim.shape.max(dim.len) > 1).map(Axis::simplify) {
            inner = dim.coalesce(inner).unwrap_or_else(|| {
                this.axes.push(inner);
                dim
            });
        }
        this.axes.push(inner);
        let mut stride = 1;
        for axis in &this.axes {
            this.strides.push(stride);
            stride = times(stride, axis.len)?;
        }
        this.axes.reverse();
        this.strides.reverse();
        Ok(this)
    }

    /// The same array, read by the fragments of its blob, if it has any.
    pub(super) fn by_fragments(&self) -> Option<Self> {
        let blob = self.blob.fragments()?;
        let layout = blob.layout().ok()?;
        let (axes, strides) = (self.axes.clone(), self.strides.clone());
        Some(Self { blob, layout, len: self.len, block_len: self.block_len, axes, strides })
    }

    /// Size of the array in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The place of the bytes in the blob, with its layout, if they are contiguous there.
    pub(super) fn contiguous(&self) -> Option<(&BlobRef, &Layout, u64)> {
        let (mut run, mut at) = (1, 0);
        for axis in self.axes.iter().rev() {
            if !axis.is_in_block() || (axis.len > 1 && axis.per_step != run) {
                return None;
            }
            run *= axis.len;
            // Where the cells end says nothing about where they begin.
            at += axis.first_block(&axis.first_chunk(axis.start, u64::MAX)).offset;
        }
        (!self.axes.is_empty()).then_some((&self.blob, &self.layout, at))
    }

    /// Whether its pieces are far.
    pub(super) fn is_far(&self) -> bool {
        self.blob.is_far()
    }

    /// The range of the first piece in the blob, and the number of pieces per batch.
    pub(super) fn first_piece(&self) -> (Range<u64>, u64) {
        (self.layout.range(0), self.blob.batch())
    }

    /// Fills `dst` with the bytes at `at` in C order, which must be within the array: copies those of pieces that
    /// `lookup` returns, and writes those outside the array if `pads`.
    ///
    /// # Errors
    /// Fails if a piece cannot be decoded, or if the range is past the end of the array.
    pub(super) fn copy(&self, at: u64, dst: &mut [u8], lookup: &Lookup, pads: bool) -> Result<()> {
        let end = at.saturating_add(to_u64(dst.len()));
        if pads {
            self.pad(at..end, dst)?;
        }
        let mut pieces = Pieces { reader: self, lookup, current: None };
        self.blocks(at..end, &mut |block| {
            let steps = block.iter().zip(&self.axes).zip(&self.strides);
            let out: u64 = steps.map(|((cell, axis), stride)| (cell.lo - axis.start) * stride).sum();
            pieces.copy_block(block, dst, to_usize(out - at, "range")?).map(|()| true)
        })
    }

    /// Calls `each` with the pieces needed for `len` bytes at `at`, and their sizes. Returns whether to continue.
    ///
    /// # Errors
    /// Fails if the range is past the end of the array.
    pub fn pieces(&self, at: u64, len: u64, each: &mut dyn FnMut(&BlobRef, u64, u64) -> bool) -> Result<bool> {
        let (mut last, mut go_on) = (None, true);
        self.blocks(at..at.saturating_add(len), &mut |block| {
            let start = offset(block);
            let span: u64 = block.iter().zip(&self.axes).map(|(cell, axis)| (cell.len() - 1) * axis.per_step).sum();
            let end = start + span;
            for piece in self.layout.locate(start)..=self.layout.locate(end) {
                if last != Some(piece) && go_on {
                    last = Some(piece);
                    let bounds = self.layout.range(piece);
                    go_on = each(&self.blob, piece, bounds.end - bounds.start);
                }
            }
            Ok(go_on)
        })?;
        Ok(go_on)
    }

    /// Calls `each` for the boxes of the window that `range` of C order consists of.
    fn each_box(&self, range: Range<u64>, each: &mut EachBox) -> Result<()> {
        if range.end > self.len {
            return Err(Error::corrupt("past the end of the array", "range"));
        }
        if range.is_empty() {
            return Ok(());
        }
        self.boxes(0, range, &mut ([0; AXES], [0; AXES]), each).map(|_| ())
    }

    /// Calls `each` for the parts of blocks that `range` of C order consists of, in blob order within a few larger
    /// boxes. `each` returns whether to continue.
    fn blocks(&self, range: Range<u64>, each: &mut EachBlock) -> Result<()> {
        let axes = &self.axes[..];
        let limit = BLOCKS.saturating_add(range.end.saturating_sub(range.start).saturating_mul(PER_BYTE));
        self.each_box(range, &mut |lo, hi| {
            if (0..axes.len()).any(|d| lo[d] >= axes[d].inside()) {
                return Ok(true);
            }
            let touched = axes.iter().zip(lo.iter().zip(hi)).fold(self.block_len, |n, (axis, (lo, hi))| {
                n.saturating_mul(axis.blocks(axis.start + lo, axis.start + hi.min(&axis.inside())))
            });
            // One block alone is not a multiple of itself; an array in C order is one, and its pieces are decoded apart.
            if touched > limit.max(self.block_len) {
                return Err(Error::new(Kind::TooLarge { value: touched, limit }, "bytes of blocks for one read"));
            }
            let first = |d: usize| {
                let Axis { start, .. } = axes[d];
                axes[d].first_chunk(start + lo[d], start + hi[d].min(axes[d].inside()))
            };
            let in_chunk =
                |chunk: &[Cell]| cells(axes, |d| axes[d].first_block(&chunk[d]), Axis::next_block, &mut *each);
            cells(axes, first, Axis::next_chunk, in_chunk)
        })
    }

    /// Divides `range` into boxes; the range counts bytes in C order within the axes from `d` on.
    fn boxes(
        &self,
        d: usize,
        range: Range<u64>,
        prefix: &mut (AxisIndex, AxisIndex),
        each: &mut EachBox,
    ) -> Result<bool> {
        let stride = self.strides[d];
        let (first, last) = (range.start / stride, range.end / stride);
        let (head, tail) = (range.start % stride, range.end % stride);
        if first == last {
            return self.within(d, first, head..tail, prefix, each);
        }
        let mut full = first;
        if head > 0 {
            full += 1;
            if !self.within(d, first, head..stride, prefix, each)? {
                return Ok(false);
            }
        }
        if full < last {
            prefix.0[d] = full;
            prefix.1[d] = last;
            for (inner, axis) in self.axes.iter().enumerate().skip(d + 1) {
                prefix.0[inner] = 0;
                prefix.1[inner] = axis.len;
            }
            if !each(&prefix.0, &prefix.1)? {
                return Ok(false);
            }
        }
        if tail > 0 { self.within(d, last, 0..tail, prefix, each) } else { Ok(true) }
    }

    /// Like [`GridReader::boxes`], for the axes inside step `i` of axis `d`.
    fn within(
        &self,
        d: usize,
        i: u64,
        range: Range<u64>,
        prefix: &mut (AxisIndex, AxisIndex),
        each: &mut EachBox,
    ) -> Result<bool> {
        prefix.0[d] = i;
        prefix.1[d] = i + 1;
        self.boxes(d + 1, range, prefix, each)
    }
}

#[cfg(test)]
mod tests;
