//! The shape of arrays of rank 2 and 3: tiles, bricks, and boxes of elements.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::error::{Error, Result};

/// A band of whole tiles over the full width, up to this many bytes, is decoded at once.
const BAND: u64 = 4 << 20;
/// Bricks of wider arrays have about this many bytes.
const BRICK: u64 = 1 << 20;

/// The dimensions of the array, slowest first; rank 2 has one plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) dims: [u64; 3],
    pub(super) tile: [u64; 3],
}

impl Shape {
    /// An array of rank 2 (one plane) or 3.
    pub(super) fn new(dims: [u64; 3]) -> Self {
        Self { dims, tile: if dims[0] > 1 { [8, 8, 8] } else { [1, 32, 32] } }
    }

    /// Elements of a brick per dimension, for elements of `size` bytes.
    pub(super) fn brick(&self, size: u64) -> [u64; 3] {
        let [_, ny, nx] = self.dims;
        let [tz, ty, tx] = self.tile;
        let whole = |n: u64, tile: u64| n.div_ceil(tile).saturating_mul(tile);
        let rows = (tz * ty * size).saturating_mul(whole(nx.max(1), tx));
        let tile = tz * ty * tx * size;
        if tz == 1 {
            return [1, ty, if rows <= BAND { whole(nx, tx) } else { BRICK / tile * tx }];
        }
        if rows > BAND {
            return [tz, ty, BRICK / tile * tx];
        }
        let fits = |bytes: u64| bytes / rows * ty;
        let all = whole(ny, ty);
        [tz, if all <= fits(BAND) { all } else { fits(BRICK).max(ty) }, whole(nx, tx)]
    }

    /// The index of an element in the array.
    pub(super) fn position(&self, z: u64, y: u64, x: u64) -> u64 {
        let [_, ny, nx] = self.dims;
        (z * ny + y) * nx + x
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

impl Target<'_> {
    /// The destination of row `y` of plane `z`; `None` if it is before the box.
    pub(super) fn row(&mut self, z: u64, y: u64, size: usize) -> Result<Option<&mut [u8]>> {
        let (Some(z), Some(y)) = (z.checked_sub(self.z.start), y.checked_sub(self.y.start)) else { return Ok(None) };
        let at = (z * self.strides[0] + y * self.strides[1]) as usize * size;
        let len = (self.x.end - self.x.start) as usize * size;
        let row = self.dst.get_mut(at..).and_then(|rest| rest.get_mut(..len));
        row.map(Some).ok_or_else(|| Error::corrupt("a row is outside its window", "window"))
    }
}
