//! Rank 1: tiles of 1024 consecutive elements, each with its own running sum.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

use std::sync::Arc;

use super::coded::Coded;
use super::number::{Int, Real, all_within, scale, sum_up};
use super::reference_order;
use crate::bytes::to_u64;
use crate::codec::simd_dispatch::{SimdLoop, SimdOps, run};
use crate::error::{Error, Result};
use crate::format::fzm::stage::block_windows::{BlockWindows, Blockwise};
use crate::format::fzm::stage::types::Unsigned;
use crate::format::fzm::stream::{Derivation, Setup};

const TILE: usize = 1024;
/// Elements whose outliers are looked up together.
const GROUP: usize = 16 * TILE;

/// The decoded array.
pub(super) struct Rank1<T: Real, C> {
    coded: Arc<Coded<T, C>>,
    /// Sums from the start of a tile, up to this magnitude, are exact in any order.
    limit: T::Int,
    windows: BlockWindows,
}

impl<T: Real, C: Unsigned> Rank1<T, C> {
    /// The array of all codes.
    pub(super) fn new(coded: Arc<Coded<T, C>>, limit: i64) -> Self {
        let windows = BlockWindows::new(coded.count() * to_u64(T::SIZE), to_u64(TILE * T::SIZE), coded.unit());
        // Any partial sum is the difference of two sums from the start.
        let limit = T::Int::low(limit.min(T::EXACT / 2));
        Self { coded, limit, windows }
    }

    /// Computes the sums of a tile in the reference library's order.
    fn in_reference_order(&self, codes: &[u8], outliers: &[(usize, T)], out: &mut [u8]) -> Result<()> {
        let mut tile = [T::default(); TILE];
        for &(at, error) in outliers {
            *tile.get_mut(at).ok_or_else(|| Error::corrupt("an outlier outside its tile", "outlier_indices"))? = error;
        }
        self.coded.add(codes, &mut tile);
        reference_order::rank1(&mut tile);
        self.coded.put(&tile, out);
        Ok(())
    }
}

/// Fills `out` with the sums of a tile computed in integers. Returns whether they are exact.
struct Fast<'a, T: Real, C> {
    codes: &'a [u8],
    outliers: &'a [(usize, T)],
    coded: &'a Coded<T, C>,
    limit: T::Int,
    out: &'a mut [u8],
}

impl<T: Real, C: Unsigned> SimdLoop for Fast<'_, T, C> {
    type Output = bool;

    #[inline(always)]
    fn run(self, _: impl SimdOps) -> bool {
        let mut sums = [[T::Int::default(); TILE / 4]; 4];
        let line = sums.as_flattened_mut();
        self.coded.differences(self.codes, line);
        let mut load = 0_u64;
        for &(at, error) in self.outliers {
            let (Some(own), Some(n)) = (line.get_mut(at), error.integer()) else { return false };
            load = load.saturating_add(n.unsigned_abs());
            *own = own.plus(T::Int::low(n));
        }
        if load > T::ROOM {
            return false;
        }
        let before = sum_up(&mut sums);
        let mut exact = true;
        for ((sums, before), out) in sums.iter_mut().zip(before).zip(self.out.chunks_mut(TILE / 4 * T::SIZE)) {
            for sum in &mut *sums {
                *sum = sum.plus(before);
            }
            exact &= all_within(&*sums, self.limit);
            scale(&*sums, self.coded.twice_bound, out);
        }
        exact
    }
}

impl<T: Real, C: Unsigned> Blockwise for Rank1<T, C> {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let sorted = self.coded.sorted()?;
        let first = start / to_u64(T::SIZE);
        let codes = self.coded.read(first, to_u64(out.len() / T::SIZE))?;
        let (mut found, mut own) = (Vec::new(), Vec::new());
        let groups = codes.chunks(GROUP * C::SIZE).zip(out.chunks_mut(GROUP * T::SIZE));
        for (start, (codes, out)) in (first..).step_by(GROUP).zip(groups) {
            found.clear();
            let end = start + to_u64(out.len() / T::SIZE);
            sorted.between(start, end, |at, error| found.push(((at - start) as usize, error)))?;
            let mut outliers = found.iter().peekable();
            let tiles = codes.chunks(TILE * C::SIZE).zip(out.chunks_mut(TILE * T::SIZE));
            for (start, (codes, out)) in (0..).step_by(TILE).zip(tiles) {
                own.clear();
                while let Some(&(at, error)) = outliers.next_if(|(at, _)| *at < start + TILE) {
                    own.push((at - start, error));
                }
                if !run(Fast { codes, outliers: &own, coded: &self.coded, limit: self.limit, out }) {
                    self.in_reference_order(codes, &own, out)?;
                }
            }
        }
        Ok(())
    }

    fn setup(&self) -> Setup {
        self.coded.setup()
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let n = self.windows.len() / to_u64(T::SIZE);
        Some(self.coded.derivation([1, 1, n], [1, 1, to_u64(TILE)], None))
    }
}
