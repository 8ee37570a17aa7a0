//! Loops that are generic over the vectors of the processor, and the vector operations that they may use.
//!
//! [`run`](super::simd_dispatch::run) selects the vectors.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "only inlined code is compiled for the vectors of the caller")]

use super::bit_plane_network::{self, LINE};
use super::running_sums;

/// A loop and its operands.
pub trait SimdLoop {
    /// The result.
    type Output;

    /// Runs the loop. Must be `#[inline(always)]`, like everything that its loops call: only inlined code is compiled
    /// for the vectors of the caller. `vectors` provides operations that the compiler does not vectorize.
    fn run(self, vectors: impl SimdOps) -> Self::Output;
}

/// Vector operations that the compiler does not make of plain loops.
pub trait SimdOps: Copy {
    /// 32 bytes of period `period` (1 to 31); the first period is at the front of `bytes`. Unspecified for any other
    /// period.
    fn repeat(self, bytes: &[u8; 32], period: usize) -> [u8; 32];

    /// The first 16 bytes of the result of [`SimdOps::repeat`].
    fn repeat16(self, bytes: &[u8; 16], period: usize) -> [u8; 16];

    /// The elements of [`LINE`] bytes of `WIDTH` planes (8, 16, 32 or 64), the highest plane first, in the
    /// order that [`super::bit_planes`] describes.
    #[inline(always)]
    fn elements<const WIDTH: usize>(self, planes: [&[u8; LINE]; WIDTH], out: &mut [[u8; LINE]; WIDTH]) {
        bit_plane_network::portable(planes, out);
    }

    /// Replaces `numbers` by their running sums, modulo 2^32, which restart every `span` numbers (at least 1).
    #[inline(always)]
    fn running_sums(self, numbers: &mut [i32], span: usize) {
        running_sums::portable(numbers, span, i32::wrapping_add);
    }

    /// Like [`SimdOps::running_sums`], modulo 2^64.
    #[inline(always)]
    fn running_sums64(self, numbers: &mut [i64], span: usize) {
        running_sums::portable(numbers, span, i64::wrapping_add);
    }

    /// Announces that `out` is about to be written, so that its cache lines arrive meanwhile.
    #[inline(always)]
    fn prefetch(self, out: &[u8]) {
        let _ = out;
    }
}

/// For each period, the source index of every byte.
pub(super) const PLACES: [[u8; 32]; 32] = {
    let mut places = [[0; 32]; 32];
    let mut period = 1;
    while period < 32 {
        let mut i = 0;
        while i < 32 {
            places[period][i] = (i % period) as u8;
            i += 1;
        }
        period += 1;
    }
    places
};

/// Portable implementation for any processor.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

impl SimdOps for Portable {
    #[inline]
    fn repeat(self, bytes: &[u8; 32], period: usize) -> [u8; 32] {
        PLACES[period % 32].map(|place| bytes[usize::from(place % 32)])
    }

    #[inline]
    fn repeat16(self, bytes: &[u8; 16], period: usize) -> [u8; 16] {
        if period == 16 {
            return *bytes;
        }
        std::array::from_fn(|i| bytes[usize::from(PLACES[period % 32][i] % 16)])
    }
}
