//! The predictions: values between neighbors along an axis, with the roundings of the reference library.
//!
//! Reference: section 22. A product and a sum in one `fused` have one rounding; everything else is rounded once per
//! operation.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a part of kernels")]

use std::ops::{Div, Neg, Sub};

use super::LEVELS;
use crate::format::fzm::stage::types::Float;

/// Elements of a tile and its far face, per axis.
pub(super) const SIDE: usize = 17;
/// A row of a tile along x.
pub(super) type TileRow<T> = [T; SIDE];

/// The arithmetic of an element.
pub(super) trait Real: Float + Sub<Output = Self> + Div<Output = Self> + Neg<Output = Self> {
    /// The nearest number to `x`.
    fn rounded(x: f64) -> Self;
    /// `self * factor + sum`, rounded once.
    fn fused(self, factor: Self, sum: Self) -> Self;
}

macro_rules! reals {
    ($($ty:ty)*) => {$(
        impl Real for $ty {
            fn rounded(x: f64) -> Self {
                x as Self
            }

            #[inline(always)]
            fn fused(self, factor: Self, sum: Self) -> Self {
                self.mul_add(factor, sum)
            }
        }
    )*};
}

reals!(f32 f64);

/// How the elements of one level are computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct SplineLevel<T> {
    /// Distance between elements of its grid.
    pub(super) unit: usize,
    /// The value of one step of a code.
    pub(super) width: T,
    pub(super) is_multi: bool,
    pub(super) is_natural: bool,
    pub(super) is_reverse: bool,
}

/// How codes become values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dequantize<T> {
    /// The code of a right prediction.
    pub(super) radius: T,
    /// The finest first.
    pub(super) levels: [SplineLevel<T>; LEVELS],
    /// Whether the array has two dimensions.
    pub(super) is_flat: bool,
}

/// Which neighbors along an axis exist, by the distance in units: before at 1, and the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Case {
    /// No other.
    Before,
    /// After at 1.
    Linear,
    /// After at 1 and 3.
    Front,
    /// Before at 3, after at 1.
    Back,
    /// Before at 3, after at 1 and 3.
    Cubic,
}

impl Case {
    /// The case of coordinate `c` in a tile that has elements below `n`.
    #[inline(always)]
    pub(super) fn of(c: usize, n: usize, unit: usize) -> Self {
        let (back, front, next) = (c >= 3 * unit, c + 3 * unit < n, c + unit < n);
        match () {
            () if back && front => Self::Cubic,
            () if back && next => Self::Back,
            // Farther neighbors on one side only count if nothing is missing on that side.
            () if !back && front => Self::Front,
            () if !back && next => Self::Linear,
            () => Self::Before,
        }
    }

    /// The rank of a prediction among the axes.
    #[inline(always)]
    pub(super) fn rank(self) -> u8 {
        match self {
            Self::Before => 0,
            Self::Linear => 1,
            Self::Front | Self::Back => 2,
            Self::Cubic => 3,
        }
    }
}

/// The weights of a cubic spline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spline {
    /// Along a single axis: -3, 23, 23, -3 over 40.
    Natural,
    /// Along a single axis: -1, 9, 9, -1 over 16.
    Plain,
    /// Along several axes: -1, 9, 9, -1 over 16.
    MultiPlain,
    /// Along several axes: -3, 23, 23, -3 over 40.
    MultiNatural,
}

impl Spline {
    /// The spline of a level. The flag has the opposite meaning along several axes.
    pub(super) fn of<T>(level: &SplineLevel<T>) -> Self {
        match (level.is_multi, level.is_natural) {
            (false, false) => Self::Natural,
            (false, true) => Self::Plain,
            (true, false) => Self::MultiPlain,
            (true, true) => Self::MultiNatural,
        }
    }
}

/// The prediction between four neighbors; those of `case` exist.
#[inline(always)]
pub(super) fn between<T: Real>(case: Case, spline: Spline, near: impl Fn(isize) -> T) -> T {
    let k = T::from_f32;
    match case {
        Case::Cubic => cubic(spline, [near(-3), near(-1), near(1), near(3)]),
        Case::Back => k(3.0).fused(near(1), k(6.0).fused(near(-1), -near(-3))) * k(0.125),
        Case::Front => (k(3.0).fused(near(-1), k(6.0) * near(1)) - near(3)) * k(0.125),
        Case::Linear => (near(-1) + near(1)) * k(0.5),
        Case::Before => near(-1),
    }
}

#[inline(always)]
fn cubic<T: Real>(spline: Spline, [a, b, d, e]: [T; 4]) -> T {
    let k = T::from_f32;
    let single = |p: T, q: T, w: T| p.fused(e, q.fused(d, p.fused(a, q * b))) / w;
    match spline {
        Spline::Natural => single(k(-3.0), k(23.0), k(40.0)),
        Spline::Plain => single(k(-1.0), k(9.0), k(16.0)),
        Spline::MultiPlain => (k(9.0).fused(d, k(9.0).fused(b, -a)) - e) * k(0.0625),
        Spline::MultiNatural => k(-3.0).fused(e, k(23.0).fused(d, k(23.0).fused(b, -(k(3.0) * a)))) / k(40.0),
    }
}

/// The predictions between four rows; those of `case` exist.
#[inline(always)]
pub(super) fn rows_between<'a, T: Real>(
    case: Case,
    spline: Spline,
    near: impl Fn(isize) -> &'a TileRow<T>,
) -> TileRow<T> {
    let [before, after] = [near(-1), near(1)];
    // The case and the spline are the same for the whole loop.
    macro_rules! each {
        ($case:ident, $spline:ident, $a:expr, $e:expr) => {{
            let mut out = [T::default(); SIDE];
            for ((((out, a), b), d), e) in out.iter_mut().zip($a).zip(before).zip(after).zip($e) {
                *out = between(Case::$case, Spline::$spline, |by| match by {
                    -3 => *a,
                    -1 => *b,
                    1 => *d,
                    _ => *e,
                });
            }
            out
        }};
    }
    match (case, spline) {
        (Case::Cubic, Spline::Natural) => each!(Cubic, Natural, near(-3), near(3)),
        (Case::Cubic, Spline::Plain) => each!(Cubic, Plain, near(-3), near(3)),
        (Case::Cubic, Spline::MultiPlain) => each!(Cubic, MultiPlain, near(-3), near(3)),
        (Case::Cubic, Spline::MultiNatural) => each!(Cubic, MultiNatural, near(-3), near(3)),
        (Case::Back, _) => each!(Back, Plain, near(-3), after),
        (Case::Front, _) => each!(Front, Plain, before, near(3)),
        (Case::Linear, _) => each!(Linear, Plain, before, after),
        (Case::Before, _) => *before,
    }
}
