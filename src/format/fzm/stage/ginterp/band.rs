//! The inputs of a row of tiles along x.
#![forbid(unsafe_code)]

use super::grids::Grids;
use super::spline::Real;
use super::tile::Tile;
use super::{LEVELS, TILE};
use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::fzm::stage::boxes::Shape;
use crate::format::fzm::stage::outliers::Outliers;
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::format::fzm::stage::types::{Element, Unsigned, elements};
use crate::format::fzm::stream::ByteStream;

/// A row of tiles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Band {
    /// The first element per axis, slowest first; a multiple of the tile.
    pub(super) start: [u64; 3],
    /// Elements per axis, with the far faces.
    pub(super) extents: [u64; 3],
    /// Tiles.
    pub(super) count: u64,
}

/// The codes of a band.
pub(super) struct BandCodes {
    bytes: ScratchBuffer,
    /// Per level the places of the rows of its grid, in codes, by z and y.
    rows: [Vec<usize>; LEVELS],
}

/// The outliers of a tile: the index of an element in the tile, and the correction.
pub(super) type Corrections<T> = Vec<(usize, T)>;

/// The anchors of a band: up to four rows, each with the z and y of its elements in a tile.
pub(super) type Anchors<T> = Vec<([usize; 2], Vec<T>)>;

impl Band {
    /// The row of `count` tiles of `shape` from `start` on.
    pub(super) fn new(shape: &Shape, start: [u64; 3], count: u64) -> Self {
        let extent = |axis: usize, tiles: u64| {
            let whole = if shape.tile[axis] == 1 { 1 } else { tiles * TILE + 1 };
            whole.min(shape.dims[axis] - start[axis])
        };
        Self { start, extents: [extent(0, 1), extent(1, 1), extent(2, count)], count }
    }

    /// Elements of tile `i` per axis, with the far faces.
    pub(super) fn tile_extents(&self, i: u64) -> [usize; 3] {
        let [z, y, x] = self.extents;
        [z as usize, y as usize, (x - i * TILE).min(TILE + 1) as usize]
    }

    /// Calls `take` for the rows of grid `level`, with their z and y in the grid and from the start of the band.
    fn rows(&self, level: usize, mut take: impl FnMut([u64; 2], [u64; 2])) {
        let unit = 1 << level;
        let [zs, ys] = [0, 1].map(|axis| self.extents[axis].div_ceil(unit));
        for z in 0..zs {
            for y in 0..ys {
                take([self.start[0] / unit + z, self.start[1] / unit + y], [z, y]);
            }
        }
    }

    /// Reads the codes.
    pub(super) fn codes<C: Unsigned>(&self, codes: &dyn ByteStream, grids: &Grids) -> Result<BandCodes> {
        let mut places = [const { Vec::new() }; LEVELS];
        // Runs of codes that follow each other: the index of the first, and their number.
        let mut runs: Vec<(u64, usize)> = Vec::new();
        let mut total = 0;
        for (level, places) in places.iter_mut().enumerate() {
            let first = self.start[2] / (1 << level);
            let width = self.extents[2].div_ceil(1 << level);
            self.rows(level, |[z, y], _| {
                let (skip, count) = if is_sparse([z, y]) { (1, width / 2) } else { (0, width) };
                let (index, count) = (grids.index(level, [z, y, first + skip]), count as usize);
                places.push(total);
                total += count;
                match runs.last_mut() {
                    Some((start, n)) if *start + to_u64(*n) == index => *n += count,
                    _ => runs.push((index, count)),
                }
            });
        }
        let mut bytes = ScratchBuffer::new(total * C::SIZE)?;
        let mut rest = &mut bytes[..];
        for (index, count) in runs {
            let (own, next) = rest.split_at_mut(count * C::SIZE);
            if count > 0 {
                codes.read(index * to_u64(C::SIZE), own)?;
            }
            rest = next;
        }
        Ok(BandCodes { bytes, rows: places })
    }

    /// The outliers of each tile. Outliers on a face belong to two tiles.
    pub(super) fn corrections<T: Real>(&self, outliers: &Outliers<T>, shape: &Shape) -> Result<Vec<Corrections<T>>> {
        let mut all = vec![Vec::new(); self.count as usize];
        let sorted = outliers.sorted()?;
        let [start_z, start_y, start_x] = self.start;
        let [zs, ys, width] = self.extents;
        // Rows of the full width follow each other.
        let (rows, joint) = if width == shape.dims[2] { (1, ys * width) } else { (ys, width) };
        for (z, row) in (0..zs).flat_map(|z| (0..rows).map(move |row| (z, row))) {
            let first = shape.position(start_z + z, start_y + row, start_x);
            sorted.between(first, first + joint, |at, value| {
                let (y, x) = (row + (at - first) / width, (at - first) % width);
                let mut put = |tile: u64, x: u64| {
                    if let Some(own) = all.get_mut(tile as usize) {
                        own.push((Tile::<T>::at([z, y, x].map(|n| n as usize)), value));
                    }
                };
                put(x / TILE, x % TILE);
                if x > 0 && x.is_multiple_of(TILE) {
                    put(x / TILE - 1, TILE);
                }
            })?;
        }
        Ok(all)
    }

    /// Reads the anchors.
    pub(super) fn anchors<T: Element>(&self, anchors: &dyn ByteStream, shape: &Shape) -> Result<Anchors<T>> {
        let [_, ny, nx] = shape.dims.map(|n| n.div_ceil(TILE));
        let mut rows = Vec::with_capacity(4);
        let corners = |axis: usize| (0..self.extents[axis]).step_by(TILE as usize);
        for (z, y) in corners(0).flat_map(|z| corners(1).map(move |y| (z, y))) {
            let count = corners(2).count();
            let place = ((self.start[0] + z) / TILE * ny + (self.start[1] + y) / TILE) * nx + self.start[2] / TILE;
            let mut bytes = ScratchBuffer::new(count * T::SIZE)?;
            anchors.read(place * to_u64(T::SIZE), &mut bytes)?;
            rows.push(([z as usize, y as usize], elements(&bytes).collect()));
        }
        Ok(rows)
    }
}

/// Whether every other element of a row is in a coarser grid.
fn is_sparse([z, y]: [u64; 2]) -> bool {
    z.is_multiple_of(2) && y.is_multiple_of(2)
}

impl BandCodes {
    /// Puts the codes of tile `i` of `band` in their places.
    pub(super) fn put<T: Real, C: Unsigned>(&self, band: &Band, i: u64, tile: &mut Tile<T>) {
        for (level, places) in self.rows.iter().enumerate() {
            let unit = 1_usize << level;
            let (skip, width) = (i * TILE / to_u64(unit), tile.extents[2].div_ceil(unit));
            let mut places = places.iter();
            band.rows(level, |grid, [z, y]| {
                let sparse = is_sparse(grid);
                let (skip, count, from, step) =
                    if sparse { (skip / 2, width / 2, unit, 2 * unit) } else { (skip, width, 0, unit) };
                let start = places.next().map_or(0, |place| place + skip as usize);
                let codes = self.bytes.get(start * C::SIZE..(start + count) * C::SIZE).unwrap_or_default();
                let first = Tile::<T>::at([z as usize * unit, y as usize * unit, from]);
                let own = tile.values_mut().get_mut(first..).unwrap_or_default();
                for (own, code) in own.iter_mut().step_by(step).zip(elements::<C>(codes)) {
                    *own = T::of(code.plain());
                }
            });
        }
    }
}
