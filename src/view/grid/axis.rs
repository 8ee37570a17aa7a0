//! Dimensions of an array stored in chunks of blocks, and the cells into which chunks and blocks divide them.
//!
//! Each cell carries its offset in the blob, so that loops over cells need no division.
#![forbid(unsafe_code)]

use crate::error::Result;

use super::AXES;

/// One dimension, or several that are contiguous and merged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    /// The window: its first step, and its length, which may extend past the end of the array.
    pub(super) start: u64,
    pub(super) len: u64,
    /// Number of steps in the array, in a chunk, in a block.
    pub(super) shape: u64,
    pub(super) chunk: u64,
    pub(super) block: u64,
    /// Bytes in the blob from one chunk, block or element to the next.
    pub(super) per_chunk: u64,
    pub(super) per_block: u64,
    pub(super) per_step: u64,
}

impl Axis {
    /// Removes divisions that have no effect on the offsets.
    pub(super) fn simplify(mut self) -> Self {
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

    /// Merges this axis with the one inside it, if the inner one is whole and undivided, and ends where the next step
    /// of this one begins.
    pub(super) fn coalesce(self, inner: Self) -> Option<Self> {
        let is_whole = inner.start == 0 && inner.len == inner.shape && inner.block == inner.shape;
        let runs_on = is_whole && inner.shape.checked_mul(inner.per_step) == Some(self.per_step);
        runs_on.then(|| {
            Self {
                start: self.start.saturating_mul(inner.shape),
                len: self.len.saturating_mul(inner.shape),
                shape: self.shape.saturating_mul(inner.shape),
                chunk: self.chunk.saturating_mul(inner.shape),
                block: self.block.saturating_mul(inner.shape),
                per_step: inner.per_step,
                ..self
            }
            .simplify()
        })
    }

    /// The end of the part of the window that is in the array, as an index of the window.
    pub(super) fn inside(&self) -> u64 {
        self.len.min(self.shape - self.start)
    }

    /// Whether the window is in one block.
    pub(super) fn is_in_block(&self) -> bool {
        let last = self.start + self.len - 1;
        let place = |step: u64| (step / self.chunk, step % self.chunk / self.block);
        last < self.shape && place(self.start) == place(last)
    }

    /// Number of blocks that the steps `lo..hi` are in; there is at least one step.
    pub(super) fn blocks(&self, lo: u64, hi: u64) -> u64 {
        let block = |step: u64| step / self.chunk * self.chunk.div_ceil(self.block) + step % self.chunk / self.block;
        block(hi - 1) - block(lo) + 1
    }

    /// The part of `lo..hi` in the chunk that contains step `lo`; its place is the start of the chunk.
    pub(super) fn first_chunk(&self, lo: u64, hi: u64) -> Cell {
        let chunk = lo / self.chunk;
        Cell { lo, hi, edge: (chunk + 1).saturating_mul(self.chunk), offset: chunk * self.per_chunk }
    }

    /// The part of `lo..hi` in the next chunk.
    pub(super) fn next_chunk(&self, cell: &Cell) -> Cell {
        Cell {
            lo: cell.edge,
            edge: cell.edge.saturating_add(self.chunk),
            offset: cell.offset + self.per_chunk,
            ..*cell
        }
    }

    /// The part of a chunk in the block that contains its first step; its place is the offset of that step.
    pub(super) fn first_block(&self, chunk: &Cell) -> Cell {
        // The first step and its block, relative to the start of the chunk.
        let step = chunk.lo - (chunk.edge.saturating_sub(self.chunk));
        let block = step / self.block;
        let start = block * self.block;
        let offset = chunk.offset + block * self.per_block + (step - start) * self.per_step;
        Cell { lo: chunk.lo, hi: chunk.end(), edge: chunk.lo - (step - start) + self.block, offset }
    }

    /// The part of the chunk in the next block.
    pub(super) fn next_block(&self, cell: &Cell) -> Cell {
        // From the start of this block to the start of the next one is one whole block.
        let step = cell.lo - (cell.edge - self.block);
        let offset = cell.offset - step * self.per_step + self.per_block;
        Cell { lo: cell.edge, edge: cell.edge.saturating_add(self.block), offset, ..*cell }
    }
}

/// The steps of one axis within one chunk or block, from `lo` to the smaller of `hi` and `edge`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cell {
    pub(super) lo: u64,
    /// End of the box.
    pub(super) hi: u64,
    /// End of the chunk or block.
    pub(super) edge: u64,
    /// Contribution of this axis to the offset in the blob.
    pub(super) offset: u64,
}

impl Cell {
    pub(super) fn end(&self) -> u64 {
        self.hi.min(self.edge)
    }

    pub(super) fn len(&self) -> u64 {
        self.end() - self.lo
    }
}

/// The offset in the blob of the first byte of a part of a block.
pub(super) fn offset(block: &[Cell]) -> u64 {
    block.iter().map(|cell| cell.offset).sum()
}

/// Calls `each` for all combinations of the cells of each axis, in C order, until it returns `false`.
pub(super) fn cells(
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
        // Advance the innermost axis that has another cell, and reset the axes inside it.
        let Some(d) = (0..n).rev().find(|&d| now[d].edge < now[d].hi) else { return Ok(true) };
        now[d] = next(&axes[d], &now[d]);
        now[d + 1..n].copy_from_slice(&firsts[d + 1..n]);
    }
}
