//! Dimensions of an array in chunks of blocks, and the cells that its divisions make.
//!
//! Cells carry their place in the blob along: the loops over them do not divide.
#![forbid(unsafe_code)]

use crate::error::Result;

use super::AXES;

/// One dimension, or several that run on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    /// Steps in the array, in a chunk, in a block.
    pub(super) shape: u64,
    pub(super) chunk: u64,
    pub(super) block: u64,
    /// Bytes of the blob from one chunk, block, element to the next.
    pub(super) per_chunk: u64,
    pub(super) per_block: u64,
    pub(super) per_step: u64,
}

impl Axis {
    /// Drops divisions that divide nothing.
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

    /// This axis and the one inside it as one, where the inner one has no divisions and ends
    /// where this one's next step begins.
    pub(super) fn coalesce(self, inner: Self) -> Option<Self> {
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
    pub(super) fn first_chunk(&self, lo: u64, hi: u64) -> Cell {
        let chunk = lo / self.chunk;
        Cell { lo, hi, edge: (chunk + 1).saturating_mul(self.chunk), place: chunk * self.per_chunk }
    }

    /// The part of `lo..hi` in the next chunk.
    pub(super) fn next_chunk(&self, cell: &Cell) -> Cell {
        Cell { lo: cell.edge, edge: cell.edge.saturating_add(self.chunk), place: cell.place + self.per_chunk, ..*cell }
    }

    /// The part of a chunk that lies in the block of its first step; its place is that of this step.
    pub(super) fn first_block(&self, chunk: &Cell) -> Cell {
        // A step and its block, counted from the start of the chunk.
        let step = chunk.lo - (chunk.edge.saturating_sub(self.chunk));
        let block = step / self.block;
        let start = block * self.block;
        let place = chunk.place + block * self.per_block + (step - start) * self.per_step;
        Cell { lo: chunk.lo, hi: chunk.end(), edge: chunk.lo - (step - start) + self.block, place }
    }

    /// The part of the chunk in the next block.
    pub(super) fn next_block(&self, cell: &Cell) -> Cell {
        // Whole blocks lie between the start of this one and that of the next.
        let step = cell.lo - (cell.edge - self.block);
        let place = cell.place - step * self.per_step + self.per_block;
        Cell { lo: cell.edge, edge: cell.edge.saturating_add(self.block), place, ..*cell }
    }
}

/// The steps of one axis that lie in one chunk or block, from `lo` to where `hi` or `edge` comes first.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cell {
    pub(super) lo: u64,
    /// Where the box ends.
    pub(super) hi: u64,
    /// Where the chunk or block ends.
    pub(super) edge: u64,
    /// This axis' part of the place in the blob.
    pub(super) place: u64,
}

impl Cell {
    pub(super) fn end(&self) -> u64 {
        self.hi.min(self.edge)
    }

    pub(super) fn len(&self) -> u64 {
        self.end() - self.lo
    }
}

/// The first byte in the blob of a part of a block.
pub(super) fn place(block: &[Cell]) -> u64 {
    block.iter().map(|cell| cell.place).sum()
}

/// Gives all combinations of the cells of each axis, in C order, until `each` says to stop.
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
        // The next cell: the innermost axis that has one, those inside it from their first.
        let Some(d) = (0..n).rev().find(|&d| now[d].edge < now[d].hi) else { return Ok(true) };
        now[d] = next(&axes[d], &now[d]);
        now[d + 1..n].copy_from_slice(&firsts[d + 1..n]);
    }
}
