//! Rank 1: tiles of 1024 consecutive elements, each with its own running sum.
//!
//! A tile goes from the codes, or from the bit planes that they are stored in, to elements in one pass.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

use std::sync::Arc;

use super::coded::Coded;
use super::number::{Int, Real, scale};
use super::reference_order;
use crate::bytes::to_u64;
use crate::codec::simd_dispatch::{Portable, SimdLoop, SimdOps, run_widest};
use crate::error::{Error, Kind, Result};
use crate::format::fzm::stage::block_windows::{BlockWindows, Blockwise};
use crate::format::fzm::stage::code_blocks::{Codes, TILE, missing_codes};
use crate::format::fzm::stage::outliers::Ahead;
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::format::fzm::stage::types::{Unsigned, elements};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};

/// Number of elements with outliers that are looked up together.
const AHEAD: u64 = 1 << 14;

/// The decoded array.
pub(super) struct Rank1<T: Real, C> {
    coded: Arc<Coded<T, C>>,
    /// A number for each tile, added to its first difference.
    means: Option<Arc<dyn ByteStream>>,
    /// Sums from the start of a tile, up to this magnitude, are exact in any order.
    limit: T::Int,
    windows: BlockWindows,
}

impl<T: Real, C: Unsigned> Rank1<T, C> {
    /// The array of all codes.
    ///
    /// # Errors
    /// Fails if there are fewer means than tiles.
    pub(super) fn new(coded: Arc<Coded<T, C>>, means: Option<Arc<dyn ByteStream>>, limit: i64) -> Result<Self> {
        let need = coded.count().div_ceil(to_u64(TILE)) * to_u64(T::SIZE);
        if let Some(have) = means.as_ref().map(|means| means.len()).filter(|&have| have < need) {
            return Err(Error::new(Kind::Truncated { need, have }, "means"));
        }
        let windows = BlockWindows::new(coded.count() * to_u64(T::SIZE), to_u64(TILE * T::SIZE), coded.unit());
        // Any partial sum is the difference of two sums from the start.
        let limit = T::Int::low(limit.min(T::EXACT / 2));
        Ok(Self { coded, means, limit, windows })
    }

    /// The means of `count` tiles from tile `first`; empty if tiles have none.
    fn means(&self, first: u64, count: usize) -> Result<ScratchBuffer> {
        let Some(means) = &self.means else { return ScratchBuffer::new(0) };
        let mut bytes = ScratchBuffer::new(count * T::SIZE)?;
        means.read(first * to_u64(T::SIZE), &mut bytes)?;
        Ok(bytes)
    }

    /// Computes the sums of a tile in the reference library's order.
    fn in_reference_order(
        &self,
        codes: &[u8],
        start: u64,
        outliers: &[(u64, T)],
        mean: Option<T>,
        out: &mut [u8],
    ) -> Result<()> {
        let mut tile = [T::default(); TILE];
        for &(at, error) in outliers {
            *tile
                .get_mut((at - start) as usize)
                .ok_or_else(|| Error::corrupt("an outlier outside its tile", "outlier_indices"))? = error;
        }
        self.coded.add(codes, &mut tile);
        if let Some(mean) = mean {
            tile[0] = tile[0] + mean;
        }
        reference_order::rank1(&mut tile);
        self.coded.put(&tile, out);
        Ok(())
    }
}

/// Fills `out` with the sums of tile `tile` of `codes` computed in integers. Returns whether they are complete and
/// exact.
struct Fast<'a, T: Real, C> {
    codes: Codes<'a>,
    tile: usize,
    /// The first element of the tile, and the outliers of the tile by their position in the array.
    start: u64,
    outliers: &'a [(u64, T)],
    /// The mean of the tile, which its first difference lacks.
    mean: T,
    coded: &'a Coded<T, C>,
    limit: T::Int,
    /// Space for the codes and the sums of a tile.
    space: (&'a mut [u8], &'a mut [T::Int]),
    out: &'a mut [u8],
}

impl<T: Real, C: Unsigned> SimdLoop for Fast<'_, T, C> {
    type Output = bool;

    #[inline(always)]
    fn run(self, vectors: impl SimdOps) -> bool {
        let (bytes, sums) = self.space;
        vectors.prefetch(self.out);
        let count = self.out.len() / T::SIZE;
        let (Some(codes), Some(sums)) = (self.codes.tile::<C>(vectors, self.tile, count, bytes), sums.get_mut(..count))
        else {
            return false;
        };
        self.coded.differences(codes, sums);
        let (Some(mean), Some(first)) = (self.mean.integer(), sums.first_mut()) else { return false };
        *first = first.plus(T::Int::low(mean));
        let mut load = mean.unsigned_abs();
        for &(at, error) in self.outliers {
            let own = sums.get_mut((at - self.start) as usize);
            let (Some(own), Some(n)) = (own, error.integer()) else { return false };
            load = load.saturating_add(n.unsigned_abs());
            *own = own.plus(T::Int::low(n));
        }
        if load > T::ROOM || !self.coded.is_plain() {
            return false;
        }
        T::Int::running_sums(vectors, sums, TILE);
        scale(sums, self.limit, self.coded.twice_bound, self.out)
    }
}

impl<T: Real, C: Unsigned> Blockwise for Rank1<T, C> {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let sorted = self.coded.sorted()?;
        let first = start / to_u64(T::SIZE);
        let mut ahead = Ahead::new(AHEAD);
        let means = self.means(first / to_u64(TILE), (out.len() / T::SIZE).div_ceil(TILE))?;
        let mut means = elements::<T>(&means);
        let (mut bytes, mut sums) = (ScratchBuffer::new(TILE * C::SIZE)?, [T::Int::default(); TILE]);
        self.coded.codes.each(first, to_u64(out.len() / T::SIZE), |done, count, codes| {
            let out = &mut out[done * T::SIZE..][..count * T::SIZE];
            for (tile, out) in out.chunks_mut(TILE * T::SIZE).enumerate() {
                let (start, count) = (first + to_u64(done + tile * TILE), out.len() / T::SIZE);
                let mean = means.next();
                let outliers = ahead.at(sorted, start..start + to_u64(count))?;
                let (coded, limit, space) = (&*self.coded, self.limit, (&mut bytes[..], &mut sums[..]));
                let fast =
                    Fast { codes, tile, start, outliers, mean: mean.unwrap_or_default(), coded, limit, space, out };
                if !run_widest(fast) {
                    let codes = codes.tile::<C>(Portable, tile, count, &mut bytes).ok_or_else(missing_codes)?;
                    self.in_reference_order(codes, start, outliers, mean, out)?;
                }
            }
            Ok(())
        })
    }

    fn setup(&self) -> Setup {
        self.coded.setup()
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        if self.means.is_some() {
            return None;
        }
        let n = self.windows.len() / to_u64(T::SIZE);
        Some(self.coded.derivation([1, 1, n], [1, 1, to_u64(TILE)], None))
    }
}
