//! The inverse of one level of the wavelet along one axis: lifting steps, each a product and a sum rounded once.
//!
//! Lines are transformed together if they are next to each other: `rows` holds line element 0 of every line, then line
//! element 1 of every line, and so on; the first half of them are the even (low) samples, the second half the odd ones.
//! A single line is a case of this.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "parts of loops that are compiled for several processors")]

use crate::codec::simd_dispatch::{SimdLoop, SimdOps};
use crate::format::fzm::stage::types::Float;

/// The factors of the steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Factors<T> {
    alpha: T,
    beta: T,
    gamma: T,
    delta: T,
    eps: T,
    /// 1 / `eps`.
    inverse: T,
}

/// An element of a transformed array.
pub(super) trait Sample: Float {
    /// The factors, as the bits that the library's constants have.
    const FACTORS: Factors<Self>;
    /// The number with the other sign.
    fn negative(self) -> Self;
}

macro_rules! samples {
    ($($ty:ty, $alpha:literal, $beta:literal, $gamma:literal, $delta:literal, $eps:literal, $inverse:literal;)*) => {$(
        impl Sample for $ty {
            const FACTORS: Factors<Self> = Factors {
                alpha: <$ty>::from_bits($alpha),
                beta: <$ty>::from_bits($beta),
                gamma: <$ty>::from_bits($gamma),
                delta: <$ty>::from_bits($delta),
                eps: <$ty>::from_bits($eps),
                inverse: <$ty>::from_bits($inverse),
            };

            #[inline(always)]
            fn negative(self) -> Self {
                -self
            }
        }
    )*};
}

samples!(
    f32, 0xBFCB_0673, 0xBD59_01AE, 0x3F62_0676, 0x3EE3_1355, 0x3F93_263D, 0x3F5E_AF70;
    f64, 0xBFF9_60CE_6763_52C0, 0xBFAB_2035_C938_C1F9, 0x3FEC_40CE_BA55_79B7, 0x3FDC_626A_9045_727D,
        0x3FF2_64C7_9507_1559, 0x3FEB_D5ED_F975_CCA4;
);

/// Inverts a level of `lines` lines of at least two elements each.
pub(super) struct Inverse<'a, T> {
    pub(super) rows: &'a mut [T],
    pub(super) lines: usize,
}

impl<T: Sample> SimdLoop for Inverse<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: impl SimdOps) {
        let Factors { alpha, beta, gamma, delta, eps, inverse } = T::FACTORS;
        let lines = self.lines;
        let length = self.rows.len() / lines.max(1);
        let (even, odd) = self.rows.split_at_mut((length - length / 2) * lines);
        let scale = eps.negative();
        for own in &mut *odd {
            *own = *own * scale;
        }
        step_even(even, odd, lines, |own, sum| own.times_plus(inverse, (sum * delta).negative()));
        step_odd(odd, even, lines, |own, sum| sum.times_plus(gamma.negative(), own));
        step_even(even, odd, lines, |own, sum| sum.times_plus(beta.negative(), own));
        step_odd(odd, even, lines, |own, sum| sum.times_plus(alpha.negative(), own));
    }
}

/// Changes the odd samples by the sums of the even ones on both sides. The last one may have none after it; the one
/// before it then counts twice.
#[inline(always)]
fn step_odd<T: Sample>(odd: &mut [T], even: &[T], lines: usize, step: impl Fn(T, T) -> T) {
    let inner = odd.len().min(even.len() - lines);
    let (inside, last) = odd.split_at_mut(inner);
    for ((own, &before), &after) in inside.iter_mut().zip(even).zip(&even[lines..]) {
        *own = step(*own, before + after);
    }
    for (own, &before) in last.iter_mut().zip(&even[inner..]) {
        *own = step(*own, before + before);
    }
}

/// Changes the even samples by the sums of the odd ones on both sides. The first one has none before it, and the last
/// one may have none after it; the other one then counts twice.
#[inline(always)]
fn step_even<T: Sample>(even: &mut [T], odd: &[T], lines: usize, step: impl Fn(T, T) -> T) {
    let (first, rest) = even.split_at_mut(lines);
    for (own, &after) in first.iter_mut().zip(odd) {
        *own = step(*own, after + after);
    }
    let inner = odd.len() - lines;
    let (inside, last) = rest.split_at_mut(inner.min(rest.len()));
    for ((own, &before), &after) in inside.iter_mut().zip(odd).zip(&odd[lines..]) {
        *own = step(*own, before + after);
    }
    for (own, &before) in last.iter_mut().zip(&odd[inner..]) {
        *own = step(*own, before + before);
    }
}

/// Writes one line with its even and odd samples in turn.
pub(super) struct Interleave<'a, T> {
    pub(super) line: &'a [T],
    pub(super) out: &'a mut [u8],
}

impl<T: Sample> SimdLoop for Interleave<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: impl SimdOps) {
        let (even, odd) = self.line.split_at(self.line.len() - self.line.len() / 2);
        let mut pairs = self.out.chunks_exact_mut(2 * T::SIZE);
        for ((pair, even), odd) in pairs.by_ref().zip(even).zip(odd) {
            let (first, second) = pair.split_at_mut(T::SIZE);
            even.canonical().put(first);
            odd.canonical().put(second);
        }
        if let (Some(last), own) = (even.get(odd.len()), pairs.into_remainder())
            && own.len() == T::SIZE
        {
            last.canonical().put(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_those_of_the_filter() {
        let [h0, h1, h2, h3, h4] =
            [0.602_949_018_236, 0.266_864_118_443, -0.078_223_266_529, -0.016_864_118_443, 0.026_748_757_411];
        let r0: f64 = h0 - 2.0 * h4 * h1 / h3;
        let r1 = (h2 - h4) - (h4 * h1) / h3;
        let s0 = (h1 - h3) - (h3 * r0) / r1;
        let t0 = h0 - 2.0 * (h2 - h4);
        let eps = 2_f64.sqrt() * t0;
        let want = [h4 / h3, h3 / r1, r1 / s0, s0 / t0, eps, 1.0 / eps];
        let Factors { alpha, beta, gamma, delta, eps, inverse } = f64::FACTORS;
        assert_eq!([alpha, beta, gamma, delta, eps, inverse].map(f64::to_bits), want.map(f64::to_bits));
        let Factors { alpha, beta, gamma, delta, eps, inverse } = f32::FACTORS;
        let bits = [alpha, beta, gamma, delta, eps, inverse].map(f32::to_bits);
        assert_eq!(bits, want.map(|factor| (factor as f32).to_bits()));
    }
}
