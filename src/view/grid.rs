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

use std::ops::Range;

use crate::bytes::{narrow, wide};
use crate::error::{Error, Result};
use crate::format::{BlobRef, Fetch, Grid, Layout, Piece};

/// The most dimensions an array may have.
const RANK: usize = 16;
/// Those, and one for the bytes of an element.
const AXES: usize = RANK + 1;

type Index = [u64; AXES];
/// Takes a box, from its first index to beyond its last, and says whether to go on.
type EachBox<'a> = dyn FnMut(&Index, &Index) -> Result<bool> + 'a;
/// The same for a part of a box that lies in one block.
type EachBlock<'a> = dyn FnMut(&[Cell]) -> Result<bool> + 'a;

/// One dimension, or several that run on.
#[derive(Debug, Clone, Copy)]
struct Axis {
    /// Steps in the array, in a chunk, in a block.
    shape: u64,
    chunk: u64,
    block: u64,
    /// Bytes of the blob from one chunk, block, element to the next.
    per_chunk: u64,
    per_block: u64,
    per_step: u64,
}

impl Axis {
    /// Drops divisions that divide nothing.
    fn simplify(mut self) -> Self {
        self.chunk = self.chunk.min(self.shape);
        self.block = self.block.min(self.chunk);
        if self.block.checked_mul(self.per_step) == Some(self.per_block) {
            self.block = self.chunk;
        }
        if self.block == self.chunk && self.chunk.checked_mul(self.per_step) == Some(self.per_chunk) {
            (self.chunk, self.block) = (self.shape, self.shape);
        }
        self
    }

    /// This axis and the one inside it as one, where the inner one has no divisions and ends
    /// where this one's next step begins.
    fn melt(self, inner: Self) -> Option<Self> {
        let runs_on = inner.block == inner.shape && inner.shape.checked_mul(inner.per_step) == Some(self.per_step);
        runs_on.then(|| {
            Self {
                shape: self.shape.saturating_mul(inner.shape),
                chunk: self.chunk.saturating_mul(inner.shape),
                block: self.block.saturating_mul(inner.shape),
                per_step: inner.per_step,
                ..self
            }
            .simplify()
        })
    }

    /// The part of `lo..hi` that lies in the chunk of step `lo`; its place is that of the chunk.
    fn first_chunk(&self, lo: u64, hi: u64) -> Cell {
        let chunk = lo / self.chunk;
        Cell { lo, hi, edge: (chunk + 1).saturating_mul(self.chunk), place: chunk * self.per_chunk }
    }

    /// The part of `lo..hi` in the next chunk.
    fn next_chunk(&self, cell: &Cell) -> Cell {
        Cell { lo: cell.edge, edge: cell.edge.saturating_add(self.chunk), place: cell.place + self.per_chunk, ..*cell }
    }

    /// The part of a chunk that lies in the block of its first step; its place is that of this step.
    fn first_block(&self, chunk: &Cell) -> Cell {
        // A step and its block, counted from the start of the chunk.
        let step = chunk.lo - (chunk.edge.saturating_sub(self.chunk));
        let block = step / self.block;
        let start = block * self.block;
        let place = chunk.place + block * self.per_block + (step - start) * self.per_step;
        Cell { lo: chunk.lo, hi: chunk.end(), edge: chunk.lo - (step - start) + self.block, place }
    }

    /// The part of the chunk in the next block.
    fn next_block(&self, cell: &Cell) -> Cell {
        // Whole blocks lie between the start of this one and that of the next.
        let step = cell.lo - (cell.edge - self.block);
        let place = cell.place - step * self.per_step + self.per_block;
        Cell { lo: cell.edge, edge: cell.edge.saturating_add(self.block), place, ..*cell }
    }
}

/// The steps of one axis that lie in one chunk or block, from `lo` to where `hi` or `edge` comes first.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    lo: u64,
    /// Where the box ends.
    hi: u64,
    /// Where the chunk or block ends.
    edge: u64,
    /// This axis' part of the place in the blob.
    place: u64,
}

impl Cell {
    fn end(&self) -> u64 {
        self.hi.min(self.edge)
    }

    fn len(&self) -> u64 {
        self.end() - self.lo
    }
}

/// Reads a [`Grid`] in C order.
#[derive(Debug)]
pub struct Gather {
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

impl Gather {
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
            inner = dim.melt(inner).unwrap_or_else(|| {
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

    /// The bytes of the blob that its first piece takes.
    pub(super) fn first_piece(&self) -> Range<u64> {
        self.layout.range(0)
    }

    /// Fills `dst` with the bytes from `at` on in C order, which lie inside the array.
    ///
    /// # Errors
    /// What decoding a piece meets.
    pub fn read(&self, at: u64, dst: &mut [u8], fetch: &dyn Fetch) -> Result<()> {
        let end = at.saturating_add(wide(dst.len()));
        let mut pieces = Pieces { gather: self, fetch, held: None };
        self.blocks(at..end, &mut |block| {
            let out: u64 = block.iter().zip(&self.strides).map(|(cell, stride)| cell.lo * stride).sum();
            pieces.copy_block(block, dst, narrow(out - at, "range")?).map(|()| true)
        })
    }

    /// The pieces that `len` bytes from `at` on are gathered from, and their sizes; gives whether to go on.
    pub(super) fn pieces(&self, at: u64, len: u64, each: &mut dyn FnMut(&BlobRef, u64, u64) -> bool) -> Result<bool> {
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

    /// [`Gather::boxes`] of the axes inside step `i` of axis `d`.
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

/// The first byte in the blob of a part of a block.
fn place(block: &[Cell]) -> u64 {
    block.iter().map(|cell| cell.place).sum()
}

/// Gives all combinations of the cells of each axis, in C order, until `each` says to stop.
fn cells(
    axes: &[Axis],
    first: impl Fn(usize) -> Cell,
    next: impl Fn(&Axis, &Cell) -> Cell,
    mut each: impl FnMut(&[Cell]) -> Result<bool>,
) -> Result<bool> {
    let n = axes.len();
    let mut firsts = [Cell::default(); AXES];
    for (d, cell) in firsts[..n].iter_mut().enumerate() {
        *cell = first(d);
    }
    let mut now = firsts;
    loop {
        if !each(&now[..n])? {
            return Ok(false);
        }
        // The next cell: the innermost axis that has one, those inside it from their first.
        let Some(d) = (0..n).rev().find(|&d| now[d].edge < now[d].hi) else { return Ok(true) };
        now[d] = next(&axes[d], &now[d]);
        now[d + 1..n].copy_from_slice(&firsts[d + 1..n]);
    }
}

/// The piece that was read last: blocks come in the order of the blob.
struct Pieces<'a> {
    gather: &'a Gather,
    fetch: &'a dyn Fetch,
    held: Option<(Range<u64>, Piece)>,
}

impl Pieces<'_> {
    /// The piece that holds byte `at` of the blob.
    fn hold(&mut self, at: u64) -> Result<(&Range<u64>, &Piece)> {
        if !self.held.as_ref().is_some_and(|(bounds, _)| bounds.contains(&at)) {
            self.held = None;
            let layout = &self.gather.layout;
            let index = layout.locate(at);
            let bounds = layout.range(index);
            if !bounds.contains(&at) {
                return Err(Error::corrupt("the pieces do not cover the blob", "layout"));
            }
            let piece = self.fetch.piece(&self.gather.blob, index)?;
            self.held = Some((bounds.clone(), super::whole(piece, bounds.end - bounds.start)?));
        }
        match &self.held {
            Some((bounds, piece)) => Ok((bounds, piece)),
            None => Err(super::made::absent()),
        }
    }

    /// Copies a part of a block to `out` in `dst`.
    fn copy_block(&mut self, block: &[Cell], dst: &mut [u8], out: usize) -> Result<()> {
        let gather = self.gather;
        let (n, place) = (block.len(), place(block));
        let count = |d: usize| block[d].len();
        let run = narrow(count(n - 1), "run")?;
        // The axis of the rows: how many, and their distances in the blob and in C order. One row has
        // no distance; an inner axis that runs on over chunks may then be longer than this axis' step.
        let (rows, per_row, stride) = match n.checked_sub(2).filter(|&d| count(d) > 1) {
            Some(d) => (count(d), gather.axes[d].per_step, gather.strides[d]),
            None => (1, wide(run), wide(run)),
        };
        let outer = n.saturating_sub(2);
        let mut step: Index = [0; AXES];
        loop {
            let from: u64 = (0..outer).map(|d| step[d] * gather.axes[d].per_step).sum();
            let to: u64 = (0..outer).map(|d| step[d] * gather.strides[d]).sum();
            let rows = Rows { count: narrow(rows, "rows")?, per_row, stride: narrow(stride, "stride")?, run };
            self.copy_rows(place + from, dst.get_mut(out + narrow(to, "range")?..).unwrap_or_default(), rows)?;
            let Some(d) = (0..outer).rev().find(|&d| step[d] + 1 < count(d)) else { return Ok(()) };
            step[d] += 1;
            step[d + 1..outer].fill(0);
        }
    }

    /// Copies `rows` from `place` on to the start of `dst`.
    fn copy_rows(&mut self, place: u64, dst: &mut [u8], rows: Rows) -> Result<()> {
        let span = wide(rows.count - 1) * rows.per_row + wide(rows.run);
        let (bounds, piece) = self.hold(place)?;
        if place + span <= bounds.end {
            let src = super::cut(piece, place - bounds.start, narrow(span, "block")?)?;
            rows.copy(src, dst);
            return Ok(());
        }
        // The block crosses from one piece to the next: row by row, each in as many parts as it takes.
        for (row, dst) in dst.chunks_mut(rows.stride).take(rows.count).enumerate() {
            let mut at = place + wide(row) * rows.per_row;
            let mut rest = dst.get_mut(..rows.run).unwrap_or_default();
            while !rest.is_empty() {
                let (bounds, piece) = self.hold(at)?;
                let len = narrow(bounds.end - at, "run")?.min(rest.len());
                let (head, tail) = rest.split_at_mut(len);
                head.copy_from_slice(super::cut(piece, at - bounds.start, len)?);
                (rest, at) = (tail, at + wide(len));
            }
        }
        Ok(())
    }
}

/// Rows of equal length and distance.
#[derive(Clone, Copy)]
struct Rows {
    /// How many; at least one.
    count: usize,
    /// Bytes of the blob from one to the next.
    per_row: u64,
    /// Bytes of C order from one to the next.
    stride: usize,
    /// Bytes of one.
    run: usize,
}

impl Rows {
    /// Copies all rows from `src` to `dst`; the commonest element sizes as single moves.
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
