//! The parallel prefix sum of the reference library (KS of section 4), in its order of additions.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "with constant arguments the loops are unrolled")]

use std::ops::Add;

/// An inclusive Kogge-Stone scan of the `lanes` elements at `first`, `first + stride`, ...
#[inline(always)]
pub(super) fn inclusive_scan<T: Copy + Add<Output = T>>(v: &mut [T], first: usize, stride: usize, lanes: usize) {
    let mut d = 1;
    while d < lanes {
        // From the top down, so that the lower lane still has its old value.
        for lane in (d..lanes).rev() {
            v[first + lane * stride] = v[first + lane * stride] + v[first + (lane - d) * stride];
        }
        d *= 2;
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "the sums are exact")]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_added_pairwise_and_not_from_left_to_right() {
        // 2^24 + 1 + 1 + 1: from left to right every 1 is lost; in pairs, two of them survive.
        let mut v = [16_777_216.0_f32, 1.0, 1.0, 1.0];
        inclusive_scan(&mut v, 0, 1, 4);
        assert_eq!(v, [16_777_216.0, 16_777_216.0, 16_777_218.0, 16_777_218.0]);
    }
}
