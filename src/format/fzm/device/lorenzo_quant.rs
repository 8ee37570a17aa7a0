//! `LorenzoQuant`: one thread block or warp per tile.
//!
//! Reference: sections 5.1 and 10. Tiles are independent, so a window of whole rows of tiles needs only its own codes.
//! The host keeps the outliers sorted by position, and uploads those of the window, grouped by tile.
//!
//! Rows 40 to 49 of an array of 100 x 100 lie in the second row of tiles of 32 x 32: the window has the codes 3200 to
//! 6399, as an array of 32 x 100 with four tiles. The outlier at position 4133, row 41 and column 33, belongs to tile
//! 1, where its index is (41 - 32) * 32 + (33 - 32) = 289.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::fallback::{Fallback, OpResult};
use super::job::{DeviceJob, Span};
use super::op::DeviceOp;
use crate::bytes::to_usize;
use crate::format::fzm::inverse::{Coding, LorenzoQuant};
use crate::gpu::{Arg, Kernel, Memory};

/// How a window is decoded: whole rows of tiles of the array, and the requested bricks in them. A window in byte order
/// is treated as one brick.
#[derive(Debug, PartialEq, Eq)]
struct TileWindow {
    /// Positions of the codes.
    codes: Range<u64>,
    dims: [u64; 3],
    brick: [u64; 3],
    /// Requested bricks, counted from the first in `dims`.
    bricks: Range<u64>,
}

impl TileWindow {
    /// Bricks per dimension.
    fn grid(&self) -> [u64; 3] {
        [0, 1, 2].map(|i| self.dims[i].div_ceil(self.brick[i].max(1)))
    }

    /// Tiles per dimension of a brick.
    fn tiles(&self, tile: [u64; 3]) -> [u64; 3] {
        [0, 1, 2].map(|i| self.brick[i].div_ceil(tile[i]))
    }

    /// Returns a function from the position of an element to its tile and its index in the tile; `None` if not
    /// requested.
    fn places(&self, tile: [u64; 3]) -> OpResult<impl Fn(u32) -> Option<(u32, u16)>> {
        let all = |n: [u64; 3]| Ok::<_, Fallback>([low(n[0])?, low(n[1])?, low(n[2])?]);
        let (start, [_, ny, nx]) = (low(self.codes.start)?, all(self.dims)?);
        let (brick, grid, tiles) = (all(self.brick)?, all(self.grid())?, all(self.tiles(tile))?);
        let bricks = low(self.bricks.start)?..low(self.bricks.end)?;
        // Tile numbers must fit 32 bits.
        low(tiles.iter().try_fold(bricks.len() as u64, |n, &of| n.checked_mul(of.into())).unwrap_or(u64::MAX))?;
        // Tile dimensions are powers of two.
        let (shift, mask) = (tile.map(u64::trailing_zeros), all(tile)?.map(|n| n - 1));
        let join = |index: [u32; 3], of: [u32; 3]| (index[0] * of[1] + index[1]) * of[2] + index[2];
        let (alone, line) = (grid == [1; 3], tile[1] == 1);
        Ok(move |position: u32| {
            let at = position.checked_sub(start)?;
            if line {
                return Some((at >> shift[2], (at & mask[2]) as u16));
            }
            let row = at / nx;
            let mut at = [row / ny, row % ny, at % nx];
            let mut index = 0;
            if !alone {
                let place = [0, 1, 2].map(|i| at[i] / brick[i]);
                at = [0, 1, 2].map(|i| at[i] % brick[i]);
                let place = Some(join(place, grid)).filter(|place| bricks.contains(place))?;
                index = place - bricks.start;
            }
            let own = join([0, 1, 2].map(|i| at[i] >> shift[i]), tiles);
            let inside = [0, 1, 2].map(|i| at[i] & mask[i]);
            let tile = index * tiles.iter().product::<u32>() + own;
            Some((tile, ((((inside[0] << shift[1]) + inside[1]) << shift[2]) + inside[2]) as u16))
        })
    }
}

/// Outliers on the device, as kernel arguments.
pub(super) struct Uploaded {
    first: Memory,
    at: Memory,
    value: Memory,
    count: u32,
}

impl Uploaded {
    pub(super) fn args(&self) -> [Arg<'_>; 4] {
        [Arg::Memory(&self.first, 0), Arg::Memory(&self.at, 0), Arg::Memory(&self.value, 0), Arg::U32(self.count)]
    }
}

/// Decode on the CPU if there are more than this many codes per requested element.
const WASTE: u64 = 4;

impl LorenzoQuant {
    fn count(&self) -> u64 {
        self.dims.iter().product()
    }

    fn rank(&self) -> u32 {
        match self.tile {
            [1, 1, _] => 1,
            [1, ..] => 2,
            _ => 3,
        }
    }

    /// The slowest dimension, along which rows of tiles are stacked.
    fn slowest(&self) -> usize {
        3 - self.rank() as usize
    }

    /// Elements between neighbors along the slowest dimension.
    fn row(&self) -> u64 {
        self.dims.iter().skip(self.slowest() + 1).product()
    }

    /// The part of the array in `window`; empty if the window is only padding.
    fn part(&self, window: &Range<u64>) -> OpResult<TileWindow> {
        let (slow, row) = (self.slowest(), self.row().max(1));
        let Some(brick) = self.brick else {
            let codes = window.start / self.real..(window.end / self.real).min(self.count());
            let mut dims = self.dims;
            dims[slow] = codes.end.saturating_sub(codes.start) / row;
            return Ok(TileWindow { codes, dims, brick: dims, bricks: 0..1 });
        };
        let bytes = brick.iter().product::<u64>() * self.real;
        let bricks = window.start / bytes..window.end / bytes;
        let grid = [0, 1, 2].map(|i| self.dims[i].div_ceil(brick[i]));
        // Bricks per step along the slowest dimension.
        let layer = grid.iter().skip(slow + 1).product::<u64>().max(1);
        let layers = bricks.start / layer..bricks.end.div_ceil(layer);
        let rows = layers.start * brick[slow]..(layers.end * brick[slow]).min(self.dims[slow]);
        let mut dims = self.dims;
        dims[slow] = rows.end.saturating_sub(rows.start);
        let codes = rows.start * row..rows.end * row;
        if codes.end.saturating_sub(codes.start) / WASTE > (window.end - window.start) / self.real {
            return Err(Fallback::Invalid);
        }
        let skipped = layers.start * layer;
        Ok(TileWindow { codes, dims, brick, bricks: bricks.start - skipped..bricks.end - skipped })
    }

    /// Uploads the outliers of a part, grouped by tile.
    fn upload(&self, job: &mut DeviceJob, part: &TileWindow) -> OpResult<Uploaded> {
        let (positions, values) = (self.outliers)(part.codes.clone())?;
        let count = u32::try_from(positions.len()).map_err(|_| Fallback::Invalid)?;
        if count == 0 {
            let none = job.upload(&[])?;
            return Ok(Uploaded { first: none.clone(), at: none.clone(), value: none, count });
        }
        let (first, at, value) = by_tile(part, self.tile, self.real, &positions, &values)?;
        Ok(Uploaded { first: job.upload(&first)?, at: job.upload(&at)?, value: job.upload(&value)?, count })
    }

    /// Uploads the outliers of a window, grouped by tile.
    pub(super) fn side(&self, job: &mut DeviceJob, window: &Range<u64>) -> OpResult<Uploaded> {
        let part = self.part(window)?;
        self.upload(job, &part)
    }

    /// The coding and the bound as kernel arguments.
    pub(super) fn scale(&self) -> [Arg<'static>; 3] {
        let (coding, radius) = match self.coding {
            Coding::Signed => (0, 0),
            Coding::Zigzag => (1, 0),
            Coding::Biased(radius) => (2, radius),
        };
        let bound = if self.real == 4 { Arg::F32(self.twice_bound as f32) } else { Arg::F64(self.twice_bound) };
        [Arg::U32(coding), Arg::U32(radius), bound]
    }
}

fn low(n: u64) -> OpResult<u32> {
    u32::try_from(n).map_err(|_| Fallback::Invalid)
}

/// The reciprocal by which a kernel divides 32 bits by `by`, which is not 0: a factor, and a shift in the upper word.
/// With the product's upper word q the quotient of n is `((n - q) / 2 + q) >> (shift - 1)`; without a shift it is n.
fn divisor(by: u32) -> u64 {
    let by = u64::from(by.max(1));
    let shift = u64::from(64 - (by - 1).leading_zeros());
    // At most 2^32, and 2^32 only for 1, where the factor does not matter.
    let factor = (((1 << shift) - by) << 32) / by + 1;
    (factor & u64::from(u32::MAX)) | (shift << 32)
}

/// Groups outliers by tile: the start of each tile's group (`u32`), indices in the tile (`u16`), and values.
fn by_tile(
    part: &TileWindow,
    tile: [u64; 3],
    size: u64,
    positions: &[u32],
    values: &[u8],
) -> OpResult<(Vec<u8>, Vec<u8>, Vec<u8>)> {
    let bricks = part.bricks.end - part.bricks.start;
    let tiles = to_usize(bricks * part.tiles(tile).iter().product::<u64>(), "tiles")?;
    let size = to_usize(size, "outliers")?;
    let place = part.places(tile)?;
    let places: Vec<Option<(u32, u16)>> = positions.iter().map(|&position| place(position)).collect();
    // Counting sort: counts two slots ahead; after the prefix sum, slot `tile + 1` is the tile's next free index.
    let mut ends = vec![0_u32; tiles + 2];
    for (own, _) in places.iter().flatten() {
        *ends.get_mut(*own as usize + 2).ok_or(Fallback::Invalid)? += 1;
    }
    let mut sum = 0;
    for end in &mut ends {
        sum += *end;
        *end = sum;
    }
    let mut at = vec![0_u8; 2 * positions.len()];
    let mut value = vec![0_u8; size * positions.len()];
    let (ats, _) = at.as_chunks_mut::<2>();
    for (place, bytes) in places.iter().zip(values.chunks_exact(size)) {
        let Some((own, inside)) = place else { continue };
        let end = ends.get_mut(*own as usize + 1).ok_or(Fallback::Invalid)?;
        let index = *end as usize;
        *end += 1;
        *ats.get_mut(index).ok_or(Fallback::Invalid)? = inside.to_le_bytes();
        let value = value.get_mut(size * index..).and_then(|value| value.get_mut(..size));
        value.ok_or(Fallback::Invalid)?.copy_from_slice(bytes);
    }
    ends.pop();
    Ok((ends.iter().flat_map(|end| end.to_le_bytes()).collect(), at, value))
}

impl DeviceOp for LorenzoQuant {
    fn block(&self) -> u64 {
        let block = match self.brick {
            Some(brick) => brick.iter().product(),
            None => self.tile[self.slowest()].saturating_mul(self.row()),
        };
        block.saturating_mul(self.real).max(1)
    }

    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>> {
        let codes = self.part(window)?.codes;
        if codes.start >= codes.end {
            return Ok(0..0);
        }
        Ok(codes.start * self.code..codes.end * self.code)
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, _kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        let part = self.part(&window)?;
        let out = job.span(window)?;
        let whole = [0, 1, 2].iter().all(|&i| part.dims[i].is_multiple_of(part.brick[i].max(1)));
        let made = part.codes.end.saturating_sub(part.codes.start) * self.real;
        if !whole {
            job.clear(&out, 0)?;
        } else if self.brick.is_none() {
            // The output after the array is zero.
            job.clear(&out, made)?;
        }
        if made == 0 {
            return Ok(out);
        }
        let outliers = self.upload(job, &part)?;
        let rank = self.rank();
        let tiles = (part.bricks.end - part.bricks.start) * part.tiles(self.tile).iter().product::<u64>();
        let mut args = vec![input.arg(), out.arg()];
        if rank == 1 {
            args.push(Arg::U64(made / self.real));
        } else {
            let ([_, gy, gx], [deep, down, across]) = (part.grid(), part.tiles(self.tile));
            for n in part.dims.into_iter().chain(part.brick).chain([gy, gx, part.bricks.start]) {
                args.push(Arg::U32(low(n)?));
            }
            // The last brick and tile are numbered with 32 bits, too.
            low(part.bricks.end)?;
            for by in [across, down, across * down * deep, gx, gy] {
                args.push(Arg::U64(divisor(low(by)?)));
            }
            args.push(Arg::U32(low(tiles)?));
        }
        args.extend(self.scale());
        args.extend(outliers.args());
        let (grid, block) = match rank {
            1 => (tiles, 256),
            2 => (tiles, 128),
            _ => (tiles.div_ceil(8), 256),
        };
        job.launch(self.kernel(), grid, block, &args)?;
        Ok(out)
    }
}

impl LorenzoQuant {
    fn kernel(&self) -> Kernel {
        let name = match (self.rank(), self.real, self.code) {
            (1, 4, 1) => "lorenzo_quant_1_f32_u8",
            (1, 4, _) => "lorenzo_quant_1_f32_u16",
            (1, _, 2) => "lorenzo_quant_1_f64_u16",
            (1, _, _) => "lorenzo_quant_1_f64_u32",
            (2, 4, 1) => "lorenzo_quant_2_f32_u8",
            (2, 4, _) => "lorenzo_quant_2_f32_u16",
            (2, _, 2) => "lorenzo_quant_2_f64_u16",
            (2, _, _) => "lorenzo_quant_2_f64_u32",
            (_, 4, 1) => "lorenzo_quant_3_f32_u8",
            (_, 4, _) => "lorenzo_quant_3_f32_u16",
            (_, _, 2) => "lorenzo_quant_3_f64_u16",
            (_, _, _) => "lorenzo_quant_3_f64_u32",
        };
        Kernel { file: "lorenzo_quant", name }
    }

    /// Whether a fused kernel exists: rank 1 with 16-bit codes.
    pub(super) fn is_line(&self) -> bool {
        self.rank() == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel does it.
    fn divided(n: u32, packed: u64) -> u32 {
        let (factor, shift) = (packed & u64::from(u32::MAX), (packed >> 32) as u32);
        let (q, one) = (((u64::from(n) * factor) >> 32) as u32, shift.min(1));
        (((n - q) >> one) + q) >> (shift - one)
    }

    #[test]
    fn multiplying_divides_exactly() {
        let near = |n: u32| [n.wrapping_sub(1), n, n.wrapping_add(1)];
        let powers = (0..32).flat_map(|i| near(1 << i));
        for by in powers.chain([3, 5, 7, 10, 641, 65_521, 6_700_417, 0xAAAA_AAAB, u32::MAX]).filter(|by| *by > 0) {
            let numbers =
                (0..32).flat_map(|i| near((u64::from(by) << i) as u32)).chain((0..32).flat_map(|i| near(1 << i)));
            for n in numbers.chain([0, 1, u32::MAX, u32::MAX / by * by, (u32::MAX / by * by).wrapping_sub(1)]) {
                assert_eq!(divided(n, divisor(by)), n / by, "{n} / {by}");
            }
        }
    }
}
