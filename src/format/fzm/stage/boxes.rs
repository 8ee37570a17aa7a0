//! Arrays of rank 2 and 3 that decode in tiles: bricks of tiles, and windows as boxes of elements.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::scratch::ScratchBuffer;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::fzm::stream::Bricks;

/// How many bytes of an array are decoded at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// The largest band of whole tiles over the full width.
    band: u64,
    /// The bricks of wider arrays.
    brick: u64,
}

impl Sizes {
    /// For stages that decode gigabytes a second.
    pub(super) const FAST: Self = Self { band: 4 << 20, brick: 1 << 20 };
    /// For stages that decode hundreds of megabytes a second: a random read takes a millisecond.
    pub(super) const SLOW: Self = Self { band: 256 << 10, brick: 256 << 10 };
}

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

    /// Tiles of the array.
    pub(super) fn grid(&self) -> [u64; 3] {
        std::array::from_fn(|i| self.dims[i].div_ceil(self.tile[i]))
    }

    /// Elements of a brick, for elements of `size` bytes: whole tiles.
    pub(super) fn brick(&self, size: u64, sizes: Sizes) -> [u64; 3] {
        let [tz, ty, _] = self.tile;
        let [_, ny, nx]: [u64; 3] = std::array::from_fn(|i| self.grid()[i].saturating_mul(self.tile[i]).max(1));
        let rows = (tz * ty * size).saturating_mul(nx);
        if rows > sizes.band {
            return self.row_brick(size, sizes);
        }
        if tz == 1 {
            return [1, ty, nx];
        }
        let fits = |bytes: u64| bytes / rows * ty;
        [tz, if ny <= fits(sizes.band) { ny } else { fits(sizes.brick).max(ty) }, nx]
    }

    /// Elements of the largest brick of one row of tiles, for elements of `size` bytes.
    pub(super) fn row_brick(&self, size: u64, sizes: Sizes) -> [u64; 3] {
        let [tz, ty, tx] = self.tile;
        [tz, ty, (sizes.brick / (tz * ty * tx * size)).max(1) * tx]
    }

    /// Whether a band of bricks of `brick` elements is a contiguous range of the stream.
    pub(super) fn is_contiguous(&self, brick: [u64; 3]) -> bool {
        let [nz, ny, nx] = self.dims;
        let [tz, ty, _] = self.tile;
        // Without rows in a tile, rows are as good; a layer of one plane is contiguous in every case.
        let is_flat = tz == 1 || nz == 1;
        is_flat && (ty == 1 || ny == 1) || brick[2] >= nx && (is_flat || brick[1] >= ny)
    }

    /// The bricks of the array, if they are not contiguous.
    pub(super) fn bricks(&self, brick: [u64; 3], size: u64) -> Option<Bricks> {
        let from = self.rank_from();
        (!self.is_contiguous(brick)).then(|| Bricks {
            itemsize: size,
            shape: self.dims[from..].to_vec(),
            brick: brick[from..].to_vec(),
        })
    }

    /// The first dimension that bricks have: they have the rank of the array.
    pub(super) fn rank_from(&self) -> usize {
        self.dims.iter().take_while(|n| **n == 1).count().min(2)
    }

    /// Bytes of the smallest contiguous range of whole tiles.
    pub(super) fn unit(&self, size: u64) -> u64 {
        let [tz, ty, tx] = self.tile;
        let [_, ny, nx] = self.dims;
        let elements = match (tz, ty, ny) {
            (1, 1, 1) => tx,
            (1, ..) => ty.saturating_mul(nx),
            _ => tz.saturating_mul(ny).saturating_mul(nx),
        };
        elements.saturating_mul(size).max(1)
    }

    /// Fills `dst` with brick `index`, by one call of `decode`; with zeros outside the array.
    pub(super) fn read_brick<T>(
        &self,
        brick: [u64; 3],
        index: u64,
        dst: &mut [u8],
        decode: impl FnOnce(BoxTarget) -> Result<T>,
    ) -> Result<T> {
        let [bz, by, bx] = brick;
        let [nz, ny, nx] = self.dims;
        let (down, across) = (ny.div_ceil(by), nx.div_ceil(bx));
        let start = [index / across / down * bz, index / across % down * by, index % across * bx];
        let [z, y, x] = [(start[0], bz, nz), (start[1], by, ny), (start[2], bx, nx)]
            .map(|(start, brick, dims)| start..dims.min(start.saturating_add(brick)));
        if z.is_empty() || y.is_empty() || x.is_empty() {
            return Err(Error::corrupt(format!("no brick {index}"), "brick"));
        }
        if y.end - y.start < by || x.end - x.start < bx || z.end - z.start < bz {
            dst.fill(0);
        }
        decode(BoxTarget { dst, z, y, x, strides: [by * bx, bx] })
    }

    /// Fills `dst` with the bytes at `at` of the array, of elements of `size` bytes, followed by zeros: by calls of
    /// `decode` for boxes that are each within one brick.
    pub(super) fn read(
        &self,
        brick: [u64; 3],
        size: usize,
        at: u64,
        dst: &mut [u8],
        decode: &mut dyn FnMut(BoxTarget) -> Result<()>,
    ) -> Result<()> {
        let bytes = to_u64(size);
        let (skip, ragged) = (at % bytes, (at + to_u64(dst.len())) % bytes);
        if skip != 0 || ragged != 0 {
            let mut whole = ScratchBuffer::new((skip as usize + dst.len()).next_multiple_of(size))?;
            self.read(brick, size, at - skip, &mut whole, decode)?;
            dst.copy_from_slice(&whole[skip as usize..][..dst.len()]);
            return Ok(());
        }
        let first = at / bytes;
        let count: u64 = self.dims.iter().product();
        let inside = to_u64(dst.len() / size).min(count.saturating_sub(first));
        let (array, padding) = dst.split_at_mut(to_usize(inside, "window")? * size);
        padding.fill(0);
        self.elements(brick, size, first, array, decode)
    }

    /// Decodes the elements from `first`, as boxes of whole or partial rows and planes.
    fn elements(
        &self,
        brick: [u64; 3],
        size: usize,
        first: u64,
        dst: &mut [u8],
        decode: &mut dyn FnMut(BoxTarget) -> Result<()>,
    ) -> Result<()> {
        let [_, ny, nx] = self.dims;
        let (mut at, mut rest) = (first, dst);
        while !rest.is_empty() {
            let left = to_u64(rest.len() / size);
            let (z, y, x) = (at / nx / ny, at / nx % ny, at % nx);
            let end = if x > 0 || left < nx {
                [z + 1, y + 1, nx.min(x + left)]
            } else if y > 0 || left < nx * ny {
                [z + 1, ny.min(y + left / nx), nx]
            } else {
                [z + left / (nx * ny), ny, nx]
            };
            let n = (end[0] - z) * (end[1] - y) * (end[2] - x);
            let (own, tail) = std::mem::take(&mut rest).split_at_mut(to_usize(n, "window")? * size);
            self.boxes(brick, size, [z, y, x], end, own, decode)?;
            (at, rest) = (at + n, tail);
        }
        Ok(())
    }

    /// Decodes the box from `start` to `end` brick by brick; its rows and planes are contiguous in `dst`.
    fn boxes(
        &self,
        brick: [u64; 3],
        size: usize,
        start: [u64; 3],
        end: [u64; 3],
        dst: &mut [u8],
        decode: &mut dyn FnMut(BoxTarget) -> Result<()>,
    ) -> Result<()> {
        let [_, ny, nx] = self.dims;
        let steps = |i: usize| {
            let (brick, end) = (brick[i], end[i]);
            std::iter::successors(Some(start[i]), move |at| Some((at / brick + 1) * brick).filter(|&at| at < end))
                .map(move |at| at..end.min((at / brick + 1) * brick))
        };
        for z in steps(0) {
            for y in steps(1) {
                for x in steps(2) {
                    let at = ((z.start - start[0]) * ny + y.start - start[1]) * nx + x.start - start[2];
                    let beyond = || Error::corrupt("a box is outside its window", "window");
                    let dst = dst.get_mut(at as usize * size..).ok_or_else(beyond)?;
                    let (y, z) = (y.clone(), z.clone());
                    decode(BoxTarget { dst, z, y, x, strides: [ny * nx, nx] })?;
                }
            }
        }
        Ok(())
    }

    /// The index of an element in the array.
    pub(super) fn position(&self, z: u64, y: u64, x: u64) -> u64 {
        let [_, ny, nx] = self.dims;
        (z * ny + y) * nx + x
    }
}

/// A box of the array and its destination. `strides` are the elements between planes and between rows in `dst`.
pub(super) struct BoxTarget<'a> {
    pub(super) dst: &'a mut [u8],
    pub(super) z: Range<u64>,
    pub(super) y: Range<u64>,
    pub(super) x: Range<u64>,
    pub(super) strides: [u64; 2],
}

impl BoxTarget<'_> {
    /// Elements of the tiles that the box crosses.
    pub(super) fn rounded(&self, tile: [u64; 3]) -> u64 {
        let along = |range: &Range<u64>, tile: u64| (range.end.div_ceil(tile) - range.start / tile) * tile;
        let [tz, ty, tx] = tile;
        along(&self.z, tz).saturating_mul(along(&self.y, ty)).saturating_mul(along(&self.x, tx))
    }

    /// Elements of the box.
    pub(super) fn count(&self) -> u64 {
        [&self.z, &self.y, &self.x].iter().map(|range| range.end - range.start).product()
    }

    /// The destination of row `y` of plane `z`; `None` if it is before the box.
    pub(super) fn row(&mut self, z: u64, y: u64, size: usize) -> Result<Option<&mut [u8]>> {
        self.part(z, y, self.x.clone(), size)
    }

    /// The destination of `x`, which is in the box, of row `y` of plane `z`; `None` if the row is before the box.
    pub(super) fn part(&mut self, z: u64, y: u64, x: Range<u64>, size: usize) -> Result<Option<&mut [u8]>> {
        let (Some(z), Some(y)) = (z.checked_sub(self.z.start), y.checked_sub(self.y.start)) else { return Ok(None) };
        let at = (z * self.strides[0] + y * self.strides[1] + x.start - self.x.start) as usize * size;
        let len = x.end.saturating_sub(x.start) as usize * size;
        let row = self.dst.get_mut(at..).and_then(|rest| rest.get_mut(..len));
        row.map(Some).ok_or_else(|| Error::corrupt("a row is outside its window", "window"))
    }
}
