//! Rank 1: tiles of 1024 consecutive elements, each with its own running sum.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

use std::marker::PhantomData;
use std::sync::Arc;

use super::exact;
use super::number::{Coding, Int, Real, all_within, differences, scale, sum_up};
use crate::bytes::to_u64;
use crate::codec::simd_dispatch::{Kernel, SimdOps, run};
use crate::error::Result;
use crate::format::fzm::cuda::{self, Node};
use crate::format::fzm::stage::outliers::Outliers;
use crate::format::fzm::stage::types::Unsigned;
use crate::format::fzm::stage::window::{Scratch, Steps, scaled};
use crate::format::fzm::stream::Stream;

const TILE: usize = 1024;
/// Elements whose outliers are looked up together.
const GROUP: usize = 16 * TILE;

/// The decoded array.
pub(super) struct Line<T: Real, C> {
    codes: Arc<dyn Stream>,
    outliers: Outliers<T>,
    coding: Coding,
    twice_bound: T,
    /// Sums from the start of a tile, up to this magnitude, are exact in any order.
    limit: T::Int,
    steps: Steps,
    _code: PhantomData<fn() -> C>,
}

impl<T: Real, C: Unsigned> Line<T, C> {
    /// The array of all codes.
    pub(super) fn new(
        codes: Arc<dyn Stream>,
        outliers: Outliers<T>,
        coding: Coding,
        twice_bound: T,
        limit: i64,
    ) -> Self {
        let n = codes.len() / to_u64(C::SIZE);
        let unit = scaled(codes.unit(), C::SIZE, T::SIZE);
        let steps = Steps::new(n * to_u64(T::SIZE), to_u64(TILE * T::SIZE), unit);
        // Any partial sum is the difference of two sums from the start.
        let limit = T::Int::low(limit.min(T::EXACT / 2));
        Self { codes, outliers, coding, twice_bound, limit, steps, _code: PhantomData }
    }

    /// Computes the sums of a tile in the reference library's order.
    fn exact(&self, codes: &[u8], outliers: &[(usize, T)], out: &mut [u8]) {
        let mut numbers = [0_i64; TILE];
        differences::<C, _>(codes, self.coding, &mut numbers);
        let mut tile = [T::default(); TILE];
        for &(at, error) in outliers {
            if let Some(own) = tile.get_mut(at) {
                *own = error;
            }
        }
        for (own, &n) in tile.iter_mut().zip(&numbers) {
            *own = *own + T::of(n);
        }
        exact::rank1(&mut tile);
        for (own, &sum) in out.chunks_exact_mut(T::SIZE).zip(&tile) {
            (sum * self.twice_bound).put(own);
        }
    }
}

/// Fills `out` with the sums of a tile computed in integers. Returns whether they are exact.
struct Fast<'a, T: Real, C> {
    codes: &'a [u8],
    outliers: &'a [(usize, T)],
    coding: Coding,
    limit: T::Int,
    scale: T,
    out: &'a mut [u8],
    _code: PhantomData<fn() -> C>,
}

impl<T: Real, C: Unsigned> Kernel for Fast<'_, T, C> {
    type Output = bool;

    #[inline(always)]
    fn run(self, _: impl SimdOps) -> bool {
        let mut sums = [[T::Int::default(); TILE / 4]; 4];
        let line = sums.as_flattened_mut();
        differences::<C, _>(self.codes, self.coding, line);
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
            scale(&*sums, self.scale, out);
        }
        exact
    }
}

impl<T: Real, C: Unsigned> Stream for Line<T, C> {
    fn len(&self) -> u64 {
        self.steps.len()
    }

    fn unit(&self) -> u64 {
        self.steps.unit()
    }

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        let sorted = self.outliers.sorted()?;
        self.steps.fill(at, dst, |start, out| {
            let first = start / to_u64(T::SIZE);
            let mut codes = Scratch::bytes(out.len() / T::SIZE * C::SIZE)?;
            self.codes.read(first * to_u64(C::SIZE), &mut codes)?;
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
                    let (coding, limit, scale) = (self.coding, self.limit, self.twice_bound);
                    if !run(Fast::<T, C> { codes, outliers: &own, coding, limit, scale, out, _code: PhantomData }) {
                        self.exact(codes, &own, out);
                    }
                }
            }
            Ok(())
        })
    }

    fn on_device(self: Arc<Self>) -> Option<Node> {
        let (input, own) = (Arc::clone(&self.codes), Arc::clone(&self));
        let inverse = cuda::LorenzoQuant {
            real: to_u64(T::SIZE),
            code: to_u64(C::SIZE),
            coding: self.coding.on_device(),
            twice_bound: self.twice_bound.into(),
            extent: [1, 1, self.steps.len() / to_u64(T::SIZE)],
            tile: [1, 1, to_u64(TILE)],
            brick: None,
            outliers: Arc::new(move |positions| own.outliers.sorted()?.bytes(positions)),
        };
        Some(Node { inverse: Box::new(inverse), input })
    }
}
