//! From chunks of blocks to C order: any byte range of an n-dimensional array that lies block by block.
//!
//! The place of an element in the blob is a sum of one term per dimension, so dimensions that run on in
//! both orders melt into one; the last one counts bytes. A range of C order is a few boxes. A box is
//! visited chunk by chunk and block by block, in the order of the blob, so that each
//! piece is asked for once; a block gives its share of the box in rows.
//!
//! Checked: all products at opening; the blob has to hold all the chunks of the array.
//! Invariant: for every index below the shape, the place plus one element lies inside the blob.
#![forbid(unsafe_code)]

mod axis;
mod copy;

use std::ops::Range;

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::{BlobRef, Fetch, Grid, Layout};

use axis::{Axis, Cell, cells, place};
use copy::Pieces;

/// The most dimensions an array may have.
const RANK: usize = 16;
/// Those, and one for the bytes of an element.
const AXES: usize = RANK + 1;

type Index = [u64; AXES];
/// Takes a box, from its first index to beyond its last, and says whether to go on.
type EachBox<'a> = dyn FnMut(&Index, &Index) -> Result<bool> + 'a;
/// The same for a part of a box that lies in one block.
type EachBlock<'a> = dyn FnMut(&[Cell]) -> Result<bool> + 'a;

/// Reads a [`Grid`] in C order.
#[derive(Debug)]
pub struct GridReader {
    blob: BlobRef,
    layout: Layout,
    len: u64,
    /// Outermost first; the last one counts bytes, one after the other.
    axes: Vec<Axis>,
    /// Bytes of C order from one step to the next, per axis.
    strides: Vec<u64>,
}

/// Bytes of all elements of `grid`.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] beyond what can be counted.
pub fn byte_len(grid: &Grid) -> Result<u64> {
    let len = grid.shape.iter().try_fold(grid.itemsize, |n, &d| n.checked_mul(d));
    len.filter(|&len| len <= super::LONGEST).ok_or_else(too_large)
}

fn too_large() -> Error {
    Error::corrupt("more bytes than can be counted", "shape")
}

/// The product of `a` and `b`, where it can be counted.
fn times(a: u64, b: u64) -> Result<u64> {
    a.checked_mul(b).ok_or_else(too_large)
}

impl GridReader {
    /// Prepares to read `grid`.
    ///
    /// # Errors
    /// [`crate::error::Kind::Corrupt`] where its numbers contradict each other or the blob is too short for them.
    pub fn new(grid: &Grid) -> Result<Self> {
        let rank = grid.shape.len();
        if rank > RANK || grid.chunk.len() != rank || grid.block.len() != rank {
            return Err(Error::corrupt("dimensions of array, chunk and block do not agree", "shape"));
        }
        let (len, layout) = (byte_len(grid)?, grid.blob.layout()?);
        let mut this = Self { blob: grid.blob.clone(), layout, len, axes: Vec::new(), strides: Vec::new() };
        if len == 0 {
            return Ok(this);
        }
        if grid.chunk.contains(&0) || grid.block.contains(&0) {
            return Err(Error::corrupt("a chunk or block without elements", "chunk shape"));
        }

        // Strides from the inside out: elements of a block, blocks of a chunk, chunks of the array.
        let mut dims: Vec<Axis> = (grid.shape.iter().zip(&grid.chunk).zip(&grid.block))
            .map(|((&shape, &chunk), &block)| Axis { shape, chunk, block, per_chunk: 0, per_block: 0, per_step: 0 })
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
        if stride > this.layout.len() {
            return Err(Error::corrupt("the chunks hold fewer bytes than the array takes", "shape"));
        }

        let n = grid.itemsize;
        let mut inner = Axis { shape: n, chunk: n, block: n, per_chunk: 0, per_block: 0, per_step: 1 };
        let mut axes = Vec::new();
        for dim in dims.into_iter().rev().filter(|dim| dim.shape > 1).map(Axis::simplify) {
            inner = dim.coalesce(inner).unwrap_or_else(|| {
                axes.push(inner);
                dim
            });
        }
        axes.push(inner);
        let mut stride = 1;
        for axis in &axes {
            this.strides.push(stride);
            stride = times(stride, axis.shape)?;
        }
        axes.reverse();
        this.strides.reverse();
        this.axes = axes;
        Ok(this)
    }

    /// Bytes of the array.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the array has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of the blob that its first piece takes, and how many pieces are decoded in one go.
    pub(super) fn first_piece(&self) -> (Range<u64>, u64) {
        (self.layout.range(0), self.blob.batch())
    }

    /// Fills `dst` with the bytes from `at` on in C order, which lie inside the array.
    ///
    /// # Errors
    /// What decoding a piece meets.
    pub fn read(&self, at: u64, dst: &mut [u8], fetch: &dyn Fetch) -> Result<()> {
        let end = at.saturating_add(to_u64(dst.len()));
        let mut pieces = Pieces { gather: self, fetch, held: None };
        self.blocks(at..end, &mut |block| {
            let out: u64 = block.iter().zip(&self.strides).map(|(cell, stride)| cell.lo * stride).sum();
            pieces.copy_block(block, dst, to_usize(out - at, "range")?).map(|()| true)
        })
    }

    /// The pieces that `len` bytes from `at` on are gathered from, and their sizes; gives whether to go on.
    ///
    /// # Errors
    /// Where a block would lie outside the array.
    pub fn pieces(&self, at: u64, len: u64, each: &mut dyn FnMut(&BlobRef, u64, u64) -> bool) -> Result<bool> {
        let (mut last, mut go_on) = (None, true);
        self.blocks(at..at.saturating_add(len), &mut |block| {
            let start = place(block);
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

    /// The parts of blocks that `range` of C order consists of, in the order of the blob within
    /// a few larger boxes. `each` says whether to go on.
    fn blocks(&self, range: Range<u64>, each: &mut EachBlock) -> Result<()> {
        if range.start > range.end || range.end > self.len {
            return Err(Error::corrupt("past the end of the array", "range"));
        }
        if range.is_empty() {
            return Ok(());
        }
        let axes = &self.axes[..];
        let mut prefix = ([0; AXES], [0; AXES]);
        self.boxes(0, range, &mut prefix, &mut |lo, hi| {
            cells(
                axes,
                |d| axes[d].first_chunk(lo[d], hi[d]),
                Axis::next_chunk,
                |chunk| cells(axes, |d| axes[d].first_block(&chunk[d]), Axis::next_block, &mut *each),
            )
        })
        .map(|_| ())
    }

    /// Divides `range`, counted in bytes of C order below the axes before `d`, into boxes.
    fn boxes(&self, d: usize, range: Range<u64>, prefix: &mut (Index, Index), each: &mut EachBox) -> Result<bool> {
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
                prefix.1[inner] = axis.shape;
            }
            if !each(&prefix.0, &prefix.1)? {
                return Ok(false);
            }
        }
        if tail > 0 { self.within(d, last, 0..tail, prefix, each) } else { Ok(true) }
    }

    /// [`GridReader::boxes`] of the axes inside step `i` of axis `d`.
    fn within(
        &self,
        d: usize,
        i: u64,
        range: Range<u64>,
        prefix: &mut (Index, Index),
        each: &mut EachBox,
    ) -> Result<bool> {
        prefix.0[d] = i;
        prefix.1[d] = i + 1;
        self.boxes(d + 1, range, prefix, each)
    }
}
