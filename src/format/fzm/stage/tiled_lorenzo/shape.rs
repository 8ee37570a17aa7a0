//! The shape of arrays in tiles: bricks of whole tiles, and boxes of elements.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::error::{Error, Result};

/// A band of whole tiles over the full width, up to this many bytes, is decoded at once.
const BAND: u64 = 4 << 20;
/// Bricks of wider arrays have about this many bytes.
const BRICK: u64 = 1 << 20;
/// Rows of the largest tile that is decoded for one of them.
const TALL: u64 = 32;

/// Dimensions, slowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Elements of the array.
    pub(super) dims: [u64; 3],
    /// Elements of a tile.
    pub(super) tile: [u64; 3],
}

impl Shape {
    /// Tiles of the array.
    pub(super) fn grid(&self) -> [u64; 3] {
        std::array::from_fn(|i| self.dims[i].div_ceil(self.tile[i]))
    }

    /// Elements of a brick, for elements of `size` bytes: whole tiles; no more than the array along a dimension that
    /// it covers.
    pub(super) fn brick(&self, size: u64) -> [u64; 3] {
        let [tz, ty, _] = self.tile;
        let whole: [u64; 3] = std::array::from_fn(|i| self.grid()[i].saturating_mul(self.tile[i]).max(1));
        let [_, ny, nx] = whole;
        let rows = (tz * ty * size).saturating_mul(nx);
        if rows > BAND {
            return self.row_brick(size);
        }
        let fits = |bytes: u64| bytes / rows * ty;
        [tz, if ny <= fits(BAND) { ny } else { fits(BRICK).max(ty) }, nx]
    }

    /// Whether a few elements of a row cost many times as many, and a band is too large to be decoded for them.
    pub(super) fn is_wide_and_tall(&self, size: u64) -> bool {
        let [tz, ty, tx] = self.tile;
        let [_, ny, nx] = self.dims;
        let planes = if tz == 1 { ty.saturating_mul(nx) } else { tz.saturating_mul(ny).saturating_mul(nx) };
        tz * ty > TALL && planes.max(tx).saturating_mul(size) > BRICK
    }

    /// Elements of the largest brick of one row of tiles, for elements of `size` bytes.
    pub(super) fn row_brick(&self, size: u64) -> [u64; 3] {
        let [tz, ty, tx] = self.tile;
        [tz, ty, (BRICK / (tz * ty * tx * size)).max(1) * tx]
    }

    /// Whether bricks are contiguous ranges of the array.
    pub(super) fn is_contiguous(&self, brick: [u64; 3]) -> bool {
        let [nz, ny, nx] = self.dims;
        let [tz, ty, _] = self.tile;
        // Without rows in a tile, rows are as good; a layer of one plane is contiguous in every case.
        let is_flat = tz == 1 || nz == 1;
        is_flat && (ty == 1 || ny == 1) || brick[2] >= nx && (is_flat || brick[1] >= ny)
    }
}

/// A box of the array and its destination. `strides` are the elements between planes and between rows in `dst`.
pub(super) struct Target<'a> {
    pub(super) dst: &'a mut [u8],
    pub(super) z: Range<u64>,
    pub(super) y: Range<u64>,
    pub(super) x: Range<u64>,
    pub(super) strides: [u64; 2],
}

impl<'a> Target<'a> {
    /// Brick `index` of `shape`; what is outside of the array is filled with zeros.
    pub(super) fn brick(shape: &Shape, brick: [u64; 3], index: u64, dst: &'a mut [u8]) -> Result<Self> {
        let [bz, by, bx] = brick;
        let [nz, ny, nx] = shape.dims;
        let (down, across) = (ny.div_ceil(by), nx.div_ceil(bx));
        let start = [index / across / down * bz, index / across % down * by, index % across * bx];
        let [z, y, x] = [(start[0], bz, nz), (start[1], by, ny), (start[2], bx, nx)]
            .map(|(start, brick, n)| start..n.min(start.saturating_add(brick)));
        if z.is_empty() || y.is_empty() || x.is_empty() {
            return Err(Error::corrupt(format!("no brick {index}"), "brick"));
        }
        if z.end - z.start < bz || y.end - y.start < by || x.end - x.start < bx {
            dst.fill(0);
        }
        Ok(Self { dst, z, y, x, strides: [by * bx, bx] })
    }

    /// Elements of the tiles that the box crosses.
    pub(super) fn rounded(&self, tile: [u64; 3]) -> u64 {
        let along = |range: &Range<u64>, tile: u64| (range.end.div_ceil(tile) - range.start / tile) * tile;
        let [tz, ty, tx] = tile;
        along(&self.z, tz).saturating_mul(along(&self.y, ty)).saturating_mul(along(&self.x, tx))
    }

    /// The destination of `x` in row `y` of plane `z`; `None` if the row is before the box. `x` must be in the box.
    pub(super) fn row(&mut self, z: u64, y: u64, x: Range<u64>, size: usize) -> Result<Option<&mut [u8]>> {
        let (Some(z), Some(y)) = (z.checked_sub(self.z.start), y.checked_sub(self.y.start)) else { return Ok(None) };
        let at = (z * self.strides[0] + y * self.strides[1] + x.start - self.x.start) as usize * size;
        let len = x.end.saturating_sub(x.start) as usize * size;
        let row = self.dst.get_mut(at..).and_then(|rest| rest.get_mut(..len));
        row.map(Some).ok_or_else(|| Error::corrupt("a row is outside its window", "window"))
    }
}
