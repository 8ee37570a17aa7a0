//! The numbers of `LorenzoQuant`: codes, the integers they are summed in, and the floats they become.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "single operations of loops that the compiler puts into vectors")]

use std::ops::Add;

use crate::codec::simd_dispatch::SimdOps;
use crate::format::fzm::inverse::Coding;
use crate::format::fzm::stage::types::{Element, Float, Unsigned};

/// The integers in which codes are summed.
pub(super) trait Int: Element + Add<Output = Self> {
    /// The low bits of `n`.
    fn low(n: i64) -> Self;
    /// The sum, modulo the width.
    fn plus(self, other: Self) -> Self;
    /// Whether it is at most `limit` in magnitude.
    fn within(self, limit: Self) -> bool;
    /// Replaces `numbers` by their running sums, which restart every `span` numbers.
    fn running_sums(vectors: impl SimdOps, numbers: &mut [Self], span: usize);
}

/// An element of the decoded array.
pub(super) trait Real: Float {
    /// The type in which codes are summed.
    type Int: Int;
    /// All integers up to this magnitude, a power of two, are exact.
    const EXACT: i64;
    /// Outliers with magnitudes up to this in total cannot overflow [`Real::Int`], for any codes of a tile.
    const ROOM: u64;
    /// Converts `n`, which is at most half of [`Real::EXACT`] in magnitude.
    fn exactly(n: Self::Int) -> Self;
    /// The value as an integer, if it is one and at most half of [`Real::EXACT`] in magnitude.
    fn integer(self) -> Option<i64>;
}

macro_rules! ints {
    ($($ty:ty, $unsigned:ty, |$vectors:ident, $numbers:ident, $span:ident| $sums:expr;)*) => {$(
        impl Int for $ty {
            #[inline(always)]
            fn low(n: i64) -> Self {
                n as Self
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn within(self, limit: Self) -> bool {
                // -limit <= self <= limit, as one unsigned comparison.
                self.wrapping_add(limit) as $unsigned <= (limit as $unsigned).wrapping_mul(2)
            }

            #[inline(always)]
            fn running_sums($vectors: impl SimdOps, $numbers: &mut [Self], $span: usize) {
                $sums;
            }
        }
    )*};
}

ints!(
    i32, u32, |vectors, numbers, span| vectors.running_sums(numbers, span);
    i64, u64, |vectors, numbers, span| vectors.running_sums64(numbers, span);
);

impl Real for f32 {
    type Int = i32;
    const EXACT: i64 = 1 << 24;
    // 1024 codes of 16 bits add at most 2^26.
    const ROOM: u64 = 1 << 30;

    #[inline(always)]
    fn exactly(n: i32) -> Self {
        n as Self
    }

    fn integer(self) -> Option<i64> {
        (self.abs() <= (Self::EXACT / 2) as Self && self.fract() == 0.0).then_some(self as i64)
    }
}

impl Real for f64 {
    type Int = i64;
    const EXACT: i64 = 1 << 52;
    // 1024 codes of 32 bits add at most 2^42.
    const ROOM: u64 = 1 << 62;

    #[inline(always)]
    fn exactly(n: i64) -> Self {
        // The bits of 1.5 * 2^52 count in ones: adding n to them adds n to the number. There is no vector conversion
        // from 64-bit integers below AVX-512.
        const BASE: f64 = 6_755_399_441_055_744.0;
        Self::from_bits((BASE.to_bits() as i64).wrapping_add(n) as u64) - BASE
    }

    fn integer(self) -> Option<i64> {
        (self.abs() <= (Self::EXACT / 2) as Self && self.fract() == 0.0).then_some(self as i64)
    }
}

/// Decodes the codes in `bytes` to integers.
#[inline(always)]
pub(super) fn differences<C: Unsigned, I: Int>(bytes: &[u8], coding: Coding, out: &mut [I]) {
    #[inline(always)]
    fn each<C: Unsigned, I: Int>(bytes: &[u8], out: &mut [I], number: impl Fn(C) -> i64) {
        for (own, code) in out.iter_mut().zip(bytes.chunks_exact(C::SIZE)) {
            *own = I::low(number(C::get(code)));
        }
    }
    match coding {
        Coding::Signed => each(bytes, out, C::signed),
        Coding::Zigzag => each(bytes, out, |code: C| code.unzigzag().signed()),
        Coding::Biased(radius) => each(bytes, out, |code: C| code.plain() - i64::from(radius)),
    }
}

/// Whether all of `sums` are at most `limit` in magnitude.
#[inline(always)]
pub(super) fn all_within<I: Int>(sums: &[I], limit: I) -> bool {
    sums.iter().fold(true, |all, sum| all & sum.within(limit))
}

/// Writes `sums` times `scale` as bytes. Returns whether all of them are at most `limit` in magnitude.
#[inline(always)]
pub(super) fn scale<T: Real>(sums: &[T::Int], limit: T::Int, scale: T, out: &mut [u8]) -> bool {
    let mut all = true;
    for (own, &sum) in out.chunks_exact_mut(T::SIZE).zip(sums) {
        (T::exactly(sum) * scale).put(own);
        all &= sum.within(limit);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magnitudes_are_compared_at_both_ends() {
        for (n, inside) in
            [(0, true), (8, true), (9, false), (-8, true), (-9, false), (i32::MIN, false), (i32::MAX, false)]
        {
            assert_eq!(n.within(8), inside, "{n}");
            assert_eq!(i64::from(n).within(8), inside, "{n}");
            assert_eq!(n.within(0), n == 0);
        }
    }

    #[test]
    fn both_integer_conversions_give_the_same_floats() {
        for n in [0, 1, -1, 12_345_678_901, -12_345_678_901, (1 << 51) - 1, 1 - (1 << 51), 1 << 51, -(1 << 51)] {
            assert_eq!(f64::exactly(n).to_bits(), f64::of(n).to_bits(), "{n}");
        }
    }

    #[test]
    fn only_small_whole_floats_count_as_integers() {
        for (x, n) in [(3.0, Some(3)), (-0.0, Some(0)), (0.5, None), (8_388_608.0, Some(1 << 23)), (8_388_609.0, None)]
        {
            assert_eq!(f32::integer(x), n, "{x}");
        }
        assert_eq!(
            (f32::integer(f32::NAN), f32::integer(f32::INFINITY), f64::integer(f64::NEG_INFINITY)),
            (None, None, None)
        );
        assert_eq!(f64::integer(-4e9), Some(-4_000_000_000));
    }
}
