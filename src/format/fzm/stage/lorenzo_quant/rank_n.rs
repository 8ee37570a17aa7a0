//! Rank 2 and 3: tiles of 32 x 32 and 8 x 8 x 8, decoded row by row over a box of the array.
//!
//! A box has at most about 4 MiB; its tiles are decoded from their first row. Rows are read in order; sums over x stay
//! in the row, sums over y in one row of sums, sums over z in one plane of sums. Tiles with integers too large to be
//! exact are marked, and decoded again in the reference library's order.
//!
//! A tile of two rows, before the scale:
//!
//! | codes | sums over x | and over y |
//! |---|---|---|
//! | 1 2 3 | 1 3 6 | 1 3 6 |
//! | 4 5 6 | 4 9 15 | 5 12 21 |
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

use std::ops::Range;
use std::sync::Arc;

use super::coded::Coded;
use super::number::{Int, Real, all_within, scale};
use super::reference_order;
use crate::bytes::to_u64;
use crate::codec::simd_dispatch::{SimdLoop, SimdOps, run_widest};
use crate::error::{Error, Result};
use crate::format::fzm::stage::block_windows::STEP;
use crate::format::fzm::stage::boxes::{BoxTarget, Shape, Sizes};
use crate::format::fzm::stage::outliers::{Ahead, Sorted};
use crate::format::fzm::stage::types::Unsigned;
use crate::format::fzm::stream::{Bricks, ByteStream, Derivation, Setup};

/// The decoded array, followed by zeros up to the number of codes.
pub(super) struct RankN<T: Real, C> {
    coded: Arc<Coded<T, C>>,
    /// Sums from the corner of a tile, up to this magnitude, are exact in any order.
    limit: T::Int,
    shape: Shape,
    brick: [u64; 3],
    len: u64,
}

impl<T: Real, C: Unsigned> RankN<T, C> {
    /// The array of `shape`, which is `coded` by its first codes. The caller has checked that there are enough of them.
    pub(super) fn new(coded: Arc<Coded<T, C>>, limit: i64, shape: Shape) -> Self {
        let size = to_u64(T::SIZE);
        let len = coded.count() * size;
        // Any partial sum is a combination of corner sums at 2^rank positions.
        let limit = T::Int::low(limit.min(T::EXACT / if shape.dims[0] > 1 { 8 } else { 4 }));
        Self { coded, limit, shape, brick: shape.brick(size, Sizes::FAST), len }
    }

    /// Decodes a box within one brick.
    fn decode(&self, sorted: &Sorted<T>, mut to: BoxTarget) -> Result<()> {
        let tz = self.shape.tile[0];
        let mut z = to.z.start / tz * tz;
        while z < to.z.end {
            self.layer(sorted, z, &mut to)?;
            z += tz;
        }
        Ok(())
    }

    /// Decodes the part of a box in the layer of tiles that starts at plane `z0`.
    fn layer(&self, sorted: &Sorted<T>, z0: u64, to: &mut BoxTarget) -> Result<()> {
        let [tz, ty, tx] = self.shape.tile;
        let (y0, x0) = (to.y.start / ty * ty, to.x.start / tx * tx);
        let (xs, tx) = (x0..to.x.end, tx as usize);
        let (width, skip) = ((to.x.end - x0) as usize, (to.x.start - x0) as usize);
        let (height, across) = ((to.y.end - y0) as usize, width.div_ceil(tx));
        // The sum of outlier magnitudes per tile, or `INEXACT`.
        let mut load = vec![if self.coded.is_plain() { 0 } else { INEXACT }; across * height.div_ceil(ty as usize)];
        let mut outliers = Vec::new();
        let mut ahead = Ahead::new(if to_u64(width) == self.shape.dims[2] { AHEAD } else { 0 });
        let (mut part, mut line) = ([T::Int::default(); PART], vec![T::Int::default(); width]);
        let mut plane = vec![T::Int::default(); if tz == 1 { 0 } else { width * height }];
        for z in z0..to.z.end.min(z0 + tz) {
            self.rows(z, y0..to.y.end, &xs, |y, codes| {
                let down = (y - y0) as usize;
                let load = &mut load[down / ty as usize * across..][..across];
                let first = self.shape.position(z, y, x0);
                outliers.clear();
                for &(at, error) in ahead.at(sorted, first..first + to_u64(width))? {
                    let (at, n) = ((at - first) as usize, error.integer());
                    outliers.push((at, T::Int::low(n.unwrap_or_default())));
                    let more = n.map_or(INEXACT, i64::unsigned_abs);
                    load[at / tx] = load[at / tx].saturating_add(more);
                }
                let is_exact = run_widest(SumRow {
                    coded: &self.coded,
                    codes,
                    outliers: &outliers,
                    tx,
                    is_first: y % ty == 0,
                    part: &mut part,
                    line: &mut line,
                    plane: plane.get_mut(down * width..(down + 1) * width),
                    limit: self.limit,
                    skip,
                    out: to.row(z, y, T::SIZE)?.unwrap_or_default(),
                });
                if !is_exact {
                    let sums = plane.get(down * width..(down + 1) * width).unwrap_or(&line);
                    for (load, tile) in load.iter_mut().zip(sums.chunks(tx)) {
                        if !all_within(tile, self.limit) {
                            *load = INEXACT;
                        }
                    }
                }
                Ok(())
            })?;
        }
        for (down, load) in load.chunks(across).enumerate() {
            if load.iter().any(|&load| load > T::ROOM) {
                let tiles = load.iter().map(|&load| load > T::ROOM).collect::<Vec<_>>();
                self.in_reference_order(sorted, z0, y0 + to_u64(down) * ty, x0, &tiles, to)?;
            }
        }
        Ok(())
    }

    /// Decodes the `wanted` tiles of a row of tiles in the reference library's order. The first tile is at `z0`, `y0`,
    /// `x0`.
    fn in_reference_order(
        &self,
        sorted: &Sorted<T>,
        z0: u64,
        y0: u64,
        x0: u64,
        wanted: &[bool],
        to: &mut BoxTarget,
    ) -> Result<()> {
        let [tz, ty, tx] = self.shape.tile;
        let (zs, ys, xs) = (z0..to.z.end.min(z0 + tz), y0..to.y.end.min(y0 + ty), x0..to.x.end);
        let mut rows = Vec::new();
        for z in zs.clone() {
            self.rows(z, ys.clone(), &xs, |_, codes| {
                rows.extend_from_slice(codes);
                Ok(())
            })?;
        }
        let row_bytes = (xs.end - xs.start) as usize * C::SIZE;
        for (start, _) in (x0..).step_by(tx as usize).zip(wanted).filter(|(_, wanted)| **wanted) {
            let xs = start..xs.end.min(start + tx);
            let mut tile = [T::default(); 1024];
            let mut codes = rows.chunks_exact(row_bytes);
            for (z, y) in zs.clone().flat_map(|z| ys.clone().map(move |y| (z, y))) {
                let own = (((z - z0) * ty + (y - y0)) * tx) as usize;
                let first = self.shape.position(z, y, xs.start);
                sorted.between(first, first + (xs.end - xs.start), |at, error| {
                    tile[own + (at - first) as usize] = error;
                })?;
                let codes = codes.next().and_then(|row| row.get((start - x0) as usize * C::SIZE..));
                let codes = codes.ok_or_else(|| Error::corrupt(format!("row {y} of plane {z} is missing"), "codes"))?;
                self.coded.add(codes, &mut tile[own..][..(xs.end - xs.start) as usize]);
            }
            match tile.first_chunk_mut::<512>() {
                Some(tile) if tz > 1 => reference_order::rank3(tile),
                _ => reference_order::rank2(&mut tile),
            }
            for (z, y) in zs.clone().flat_map(|z| ys.clone().map(move |y| (z, y))) {
                let from = to.x.start.max(xs.start);
                let own = (((z - z0) * ty + (y - y0)) * tx + (from - xs.start)) as usize;
                let place = (from - to.x.start) as usize * T::SIZE;
                let Some(out) = to.row(z, y, T::SIZE)? else { continue };
                let out = out.get_mut(place..).ok_or_else(|| Error::corrupt("a tile is outside its row", "window"))?;
                self.coded.put(&tile[own..][..(xs.end - from) as usize], out);
            }
        }
        Ok(())
    }

    /// Calls `take` with the codes `x` of each row in `y` of plane `z`.
    fn rows(
        &self,
        z: u64,
        y: Range<u64>,
        x: &Range<u64>,
        mut take: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let width = x.end - x.start;
        let row = width * to_u64(C::SIZE);
        // Full-width rows are contiguous.
        let batch = if width == self.shape.dims[2] { (STEP / row).max(1) } else { 1 };
        let mut first = y.start;
        while first < y.end {
            let n = batch.min(y.end - first);
            let codes = self.coded.codes.read(self.shape.position(z, first, x.start), n * width)?;
            (first..).zip(codes.chunks_exact(row as usize)).try_for_each(|(y, codes)| take(y, codes))?;
            first += n;
        }
        Ok(())
    }
}

/// Marks a tile with non-integer or too large sums; above any real load.
const INEXACT: u64 = u64::MAX;

/// Number of elements, in whole rows, with outliers that are looked up together.
const AHEAD: u64 = 1 << 14;

/// Codes of a row that are summed together, so that they stay in the first-level cache: a multiple of every tile's
/// width.
const PART: usize = 512;

/// One row of a plane of tiles: adds its sums along x to the rows before it in `line`, and these to the planes before
/// it in `plane`. Returns whether the sums are exact.
struct SumRow<'a, T: Real, C> {
    coded: &'a Coded<T, C>,
    codes: &'a [u8],
    /// Places in the row, ascending, and the correction for each.
    outliers: &'a [(usize, T::Int)],
    /// The width of a tile.
    tx: usize,
    /// Whether tiles start with this row.
    is_first: bool,
    /// Space for [`PART`] sums.
    part: &'a mut [T::Int],
    line: &'a mut [T::Int],
    plane: Option<&'a mut [T::Int]>,
    limit: T::Int,
    /// The first element that `out` gets; nothing is written if `out` is empty.
    skip: usize,
    out: &'a mut [u8],
}

impl<T: Real, C: Unsigned> SimdLoop for SumRow<'_, T, C> {
    type Output = bool;

    #[inline(always)]
    fn run(self, vectors: impl SimdOps) -> bool {
        let SumRow { mut outliers, mut plane, mut out, mut skip, .. } = self;
        let (mut start, mut is_exact) = (0, true);
        vectors.prefetch(out);
        for (codes, line) in self.codes.chunks(PART * C::SIZE).zip(self.line.chunks_mut(PART)) {
            let Some(part) = self.part.get_mut(..line.len()) else { return false };
            self.coded.differences(codes, part);
            while let Some((&(at, n), rest)) = outliers.split_first()
                && let Some(own) = part.get_mut(at - start)
            {
                *own = own.plus(n);
                outliers = rest;
            }
            start += line.len();
            T::Int::running_sums(vectors, part, self.tx);
            if self.is_first {
                line.copy_from_slice(part);
            } else {
                accumulate(line, part);
            }
            let sums = match plane.take().and_then(|plane| plane.split_at_mut_checked(line.len())) {
                Some((own, rest)) => {
                    plane = Some(rest);
                    accumulate(own, line);
                    own
                }
                None => line,
            };
            let (before, sums) = sums.split_at(skip.min(sums.len()));
            skip -= before.len();
            is_exact &= all_within(before, self.limit);
            let n = out.len().min(sums.len() * T::SIZE);
            let (own, rest) = std::mem::take(&mut out).split_at_mut(n);
            out = rest;
            is_exact &= if own.is_empty() {
                all_within(sums, self.limit)
            } else {
                scale(sums, self.limit, self.coded.twice_bound, own)
            };
        }
        is_exact
    }
}

#[inline(always)]
fn accumulate<I: Int>(sums: &mut [I], more: &[I]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum = sum.plus(*more);
    }
}

impl<T: Real, C: Unsigned> ByteStream for RankN<T, C> {
    fn len(&self) -> u64 {
        self.len
    }

    fn unit(&self) -> u64 {
        self.shape.unit(to_u64(T::SIZE))
    }

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        let sorted = self.coded.sorted()?;
        self.shape.read(self.brick, T::SIZE, at, dst, &mut |to| self.decode(sorted, to))
    }

    fn bricks(&self) -> Option<Bricks> {
        self.shape.bricks(self.brick, to_u64(T::SIZE))
    }

    fn read_brick(&self, index: u64, dst: &mut [u8]) -> Result<()> {
        let sorted = self.coded.sorted()?;
        self.shape.read_brick(self.brick, index, dst, |to| self.decode(sorted, to))
    }

    fn setup(&self) -> Setup {
        self.coded.setup()
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let Shape { dims, tile } = self.shape;
        Some(self.coded.derivation(dims, tile, Some(self.brick)))
    }
}
