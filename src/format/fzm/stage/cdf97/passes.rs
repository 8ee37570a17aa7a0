//! The order of the passes of a multidimensional transform, and the array that they work on.
//!
//! The array is decoded in place in an [`ArrayStore`]. A pass along x takes one row at a time, one along y or z some
//! neighboring columns, so that it holds a few hundred KiB, or a few MiB if the array is in a file: then every access
//! to another row costs a page fault.
#![forbid(unsafe_code)]

use super::lifting::{Interleave, Inverse, Sample};
use crate::bytes::to_u64;
use crate::codec::simd_dispatch::{run, run_widest};
use crate::error::Result;
use crate::format::fzm::stage::array_store::ArrayStore;

/// An axis: its place in z, y, x.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Axis {
    Z,
    Y,
    X,
}

/// One level along one axis: of all lines in the corner of the array with these extents (z, y, x).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pass {
    axis: Axis,
    corner: [u64; 3],
}

/// Levels of an axis of `n` elements: at most 6, while there are at least 9 elements.
fn levels(n: u64) -> u32 {
    (0..6).take_while(|&level| extent(n, level) >= 9).count() as u32
}

/// Low samples of an axis of `n` elements after `level` levels.
fn extent(n: u64, level: u32) -> u64 {
    (0..level).fold(n, |n, _| n - n / 2)
}

/// The passes of an array of rank 2, in forward order.
pub(super) fn plane([ny, nx]: [u64; 2]) -> Vec<Pass> {
    let mut passes = Vec::new();
    for level in 0..levels(nx.min(ny)) {
        let corner = [1, extent(ny, level), extent(nx, level)];
        passes.extend([Axis::X, Axis::Y].map(|axis| Pass { axis, corner }));
    }
    passes
}

/// The passes of an array of any rank (extents z, y, x), in forward order.
pub(super) fn of([nz, ny, nx]: [u64; 3]) -> Vec<Pass> {
    if nz <= 1 && ny <= 1 {
        return (0..levels(nx)).map(|level| Pass { axis: Axis::X, corner: [nz, ny, extent(nx, level)] }).collect();
    }
    if nz <= 1 {
        return plane([ny, nx]);
    }
    let (across, along) = (levels(nx.min(ny)), levels(nz));
    let mut passes = Vec::new();
    if ny >= 2 && (across == along || across.min(along) >= 5) {
        for level in 0..across.min(along) {
            let corner = [nz, ny, nx].map(|n| extent(n, level));
            passes.extend([Axis::X, Axis::Y, Axis::Z].map(|axis| Pass { axis, corner }));
        }
        return passes;
    }
    passes.extend((0..along).map(|level| Pass { axis: Axis::Z, corner: [extent(nz, level), ny, nx] }));
    for Pass { axis, corner: [_, y, x] } in plane([ny, nx]) {
        passes.push(Pass { axis, corner: [nz, y, x] });
    }
    passes
}

/// Bytes of the columns that a pass takes at a time, in memory and in a file.
const COLUMNS: [usize; 2] = [512 << 10, 4 << 20];
/// Columns that are taken at least: a cache line.
const FEWEST: usize = 16;

/// An array of extents z, y, x while it is transformed.
pub(super) struct Field<T> {
    pub(super) store: ArrayStore,
    pub(super) dims: [u64; 3],
    /// Columns, or a row.
    pub(super) space: Vec<T>,
}

impl<T: Sample> Field<T> {
    /// Inverts `passes`, which are in forward order.
    pub(super) fn invert(&mut self, passes: &[Pass]) -> Result<()> {
        passes.iter().rev().try_for_each(|pass| self.pass(pass))
    }

    fn pass(&mut self, &Pass { axis, corner: [cz, cy, cx] }: &Pass) -> Result<()> {
        let [_, ny, nx] = self.dims;
        match axis {
            Axis::X => {
                for row in (0..cz).flat_map(|z| (0..cy).map(move |y| z * ny + y)) {
                    self.row(row * nx, cx)?;
                }
            }
            Axis::Y => (0..cz).try_for_each(|z| self.columns(z * ny * nx, nx, cy, cx))?,
            // All columns of whole planes are next to each other.
            Axis::Z if [cy, cx] == [ny, nx] => self.columns(0, ny * nx, cz, ny * nx)?,
            Axis::Z => (0..cy).try_for_each(|y| self.columns(y * nx, ny * nx, cz, cx))?,
        }
        Ok(())
    }

    /// A row of `count` elements from element `first`.
    fn row(&mut self, first: u64, count: u64) -> Result<()> {
        let size = to_u64(T::SIZE);
        let out = self.store.get_mut(first * size, (count * size) as usize)?;
        self.space.clear();
        self.space.extend(out.chunks_exact(T::SIZE).map(T::get));
        run_widest(Inverse { rows: &mut self.space, lines: 1 });
        run(Interleave { line: &self.space, out });
        Ok(())
    }

    /// `count` columns of `length` elements, which are `stride` elements apart, from element `first`.
    fn columns(&mut self, first: u64, stride: u64, length: u64, count: u64) -> Result<()> {
        let size = to_u64(T::SIZE);
        let column = length as usize * T::SIZE;
        let most = COLUMNS[usize::from(self.store.is_spilled())] / column / FEWEST * FEWEST;
        let (mut at, end) = (first, first + count);
        while at < end {
            let lines = (end - at).min(to_u64(most.max(FEWEST)));
            let bytes = (lines * size) as usize;
            self.space.clear();
            for k in 0..length {
                let row = self.store.get((at + k * stride) * size, bytes)?;
                self.space.extend(row.chunks_exact(T::SIZE).map(T::get));
            }
            run_widest(Inverse { rows: &mut self.space, lines: lines as usize });
            let low = length - length / 2;
            for (k, row) in (0..).zip(self.space.chunks_exact(lines as usize)) {
                let place = if k < low { 2 * k } else { 2 * (k - low) + 1 };
                let out = self.store.get_mut((at + place * stride) * size, bytes)?;
                for (own, sample) in out.chunks_exact_mut(T::SIZE).zip(row) {
                    sample.canonical().put(own);
                }
            }
            at += lines;
        }
        Ok(())
    }
}
