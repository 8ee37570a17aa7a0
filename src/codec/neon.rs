//! NEON for aarch64: the vectors of [`vector_kernels`](super::vector_kernels), and of loops.
//!
//! A [`Kernels`] value exists only if the processor has NEON, as all but a few embedded ones do, which makes it sound to
//! call functions compiled for it. All loads and stores go through arrays of vector size.
#![expect(unsafe_code, reason = "calls code compiled for NEON once the processor is known to have it")]

use std::arch::aarch64::{
    uint8x16_t, uint8x16x2_t, vaddq_s32, vaddq_u8, vbslq_u8, vdupq_laneq_s32, vdupq_laneq_u8, vdupq_n_s32, vdupq_n_u8,
    vextq_s32, vextq_u8, vld1q_s32, vld1q_u8, vld1q_u8_x2, vqtbl1q_u8, vqtbl2q_u8, vreinterpretq_u8_u16,
    vreinterpretq_u8_u32, vreinterpretq_u8_u64, vreinterpretq_u16_u8, vreinterpretq_u32_u8, vreinterpretq_u64_u8,
    vrev32q_u8, vrev64q_u8, vshlq_n_u8, vshrq_n_u8, vst1q_s32, vst1q_u8, vst1q_u8_x2, vzip1q_u8, vzip1q_u16,
    vzip1q_u32, vzip1q_u64, vzip2q_u8, vzip2q_u16, vzip2q_u32, vzip2q_u64,
};

use super::bit_plane_network::LINE;
use super::running_sums;
use super::simd_ops::{PLACES, SimdLoop, SimdOps};
use super::vector_kernels::{transposed, weave2, weave4, weave8};

/// Bytes per vector.
pub(super) const LANES: usize = 16;
pub(super) type Lanes = [u8; LANES];
pub(super) type Vector = uint8x16_t;
/// Up to this width of items the compiler does better: it stores vectors interleaved.
pub(super) const COMPILED: usize = 4;

/// Proof that the processor has NEON.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels(());

impl Kernels {
    /// The kernels, if the processor has NEON.
    #[inline]
    pub(super) fn get() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }

    /// Runs `kernel`, compiled for NEON: `mul_add` is one instruction. Nothing else is fused.
    #[inline]
    pub(super) fn run<K: SimdLoop>(self, kernel: K) -> K::Output {
        // SAFETY: `self` proves that the processor has NEON.
        unsafe { run(self, kernel) }
    }
}

#[target_feature(enable = "neon")]
fn run<K: SimdLoop>(kernels: Kernels, kernel: K) -> K::Output {
    kernel.run(kernels)
}

impl SimdOps for Kernels {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn repeat(self, bytes: &[u8; 32], period: usize) -> [u8; 32] {
        // SAFETY: `self` proves that the processor has NEON.
        unsafe { repeat(bytes, &PLACES[period % 32]) }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn repeat16(self, bytes: &[u8; 16], period: usize) -> [u8; 16] {
        // SAFETY: `self` proves that the processor has NEON.
        unsafe { repeat16(bytes, &PLACES[period % 32]) }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn elements<const WIDTH: usize>(self, planes: [&[u8; LINE]; WIDTH], out: &mut [[u8; LINE]; WIDTH]) {
        // SAFETY: `self` proves that the processor has NEON.
        unsafe { elements(planes, out) }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn running_sums(self, numbers: &mut [i32], span: usize) {
        if span < SUMS {
            running_sums::portable(numbers, span, i32::wrapping_add);
        } else {
            // SAFETY: `self` proves that the processor has NEON.
            unsafe { running_sums32(numbers, span) }
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load(bytes: &Lanes) -> Vector {
    // SAFETY: 16 bytes are readable; the load needs no alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn store(bytes: &mut Lanes, v: Vector) {
    // SAFETY: 16 bytes are writable; the store needs no alignment.
    unsafe { vst1q_u8(bytes.as_mut_ptr(), v) }
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load_two(bytes: &[u8; 2 * LANES]) -> uint8x16x2_t {
    // SAFETY: 32 bytes are readable; the load needs no alignment.
    unsafe { vld1q_u8_x2(bytes.as_ptr()) }
}

/// The bytes of `bytes` at the first of the indices `places`.
#[inline]
#[target_feature(enable = "neon")]
fn repeat16(bytes: &Lanes, places: &[u8; 2 * LANES]) -> Lanes {
    let mut out = [0; LANES];
    store(&mut out, vqtbl1q_u8(load(bytes), load_two(places).0));
    out
}

/// The bytes of `bytes` at the indices `places`.
#[inline]
#[target_feature(enable = "neon")]
fn repeat(bytes: &[u8; 2 * LANES], places: &[u8; 2 * LANES]) -> [u8; 2 * LANES] {
    let (bytes, places) = (load_two(bytes), load_two(places));
    let repeated = uint8x16x2_t(vqtbl2q_u8(bytes, places.0), vqtbl2q_u8(bytes, places.1));
    let mut out = [0; 2 * LANES];
    // SAFETY: 32 bytes are writable; the store needs no alignment.
    unsafe { vst1q_u8_x2(out.as_mut_ptr(), repeated) };
    out
}

/// A vector of zeros.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn zero() -> Vector {
    vdupq_n_u8(0)
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn add(a: Vector, b: Vector) -> Vector {
    vaddq_u8(a, b)
}

/// Interleaves bytes.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn zip8(a: Vector, b: Vector) -> [Vector; 2] {
    [vzip1q_u8(a, b), vzip2q_u8(a, b)]
}

/// Interleaves numbers of 16 bits.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn zip16(a: Vector, b: Vector) -> [Vector; 2] {
    let (a, b) = (vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b));
    [vreinterpretq_u8_u16(vzip1q_u16(a, b)), vreinterpretq_u8_u16(vzip2q_u16(a, b))]
}

/// Interleaves numbers of 32 bits.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn zip32(a: Vector, b: Vector) -> [Vector; 2] {
    let (a, b) = (vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b));
    [vreinterpretq_u8_u32(vzip1q_u32(a, b)), vreinterpretq_u8_u32(vzip2q_u32(a, b))]
}

/// Interleaves numbers of 64 bits.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn zip64(a: Vector, b: Vector) -> [Vector; 2] {
    let (a, b) = (vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b));
    [vreinterpretq_u8_u64(vzip1q_u64(a, b)), vreinterpretq_u8_u64(vzip2q_u64(a, b))]
}

/// Puts the vectors `2 * i` and `2 * i + 1` of a complete interleaving where their bytes belong: there.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn place<const N: usize>(out: &mut [Vector; N], i: usize, [a, b]: [Vector; 2]) {
    (out[2 * i], out[2 * i + 1]) = (a, b);
}

/// Swaps the bits of `a` that are `SHIFT` above those of `mask` with the bits of `b` in `mask`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn swapped<const SHIFT: i32>(a: Vector, b: Vector, mask: u8) -> (Vector, Vector) {
    let mask = vdupq_n_u8(mask);
    (vbslq_u8(mask, a, vshlq_n_u8::<SHIFT>(b)), vbslq_u8(mask, vshrq_n_u8::<SHIFT>(a), b))
}

/// The running sums of the bytes, and the last of them in every byte.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn running_sums(x: Vector) -> [Vector; 2] {
    let x = vaddq_u8(x, vextq_u8::<15>(zero(), x));
    let x = vaddq_u8(x, vextq_u8::<14>(zero(), x));
    let x = vaddq_u8(x, vextq_u8::<12>(zero(), x));
    let x = vaddq_u8(x, vextq_u8::<8>(zero(), x));
    [x, vdupq_laneq_u8::<15>(x)]
}

/// One byte of 128 elements from its eight planes, the highest first: vector `v` has elements from `16 * v`. Elements
/// in groups of `WIDTH` that are stored backwards are put in order.
#[inline]
#[target_feature(enable = "neon")]
fn byte_of_elements<const WIDTH: usize>(planes: &[&[u8; LINE]], part: usize) -> [Vector; 8] {
    let mut rows = [zero(); 8];
    for (row, plane) in rows.iter_mut().rev().zip(planes) {
        let own = load(&plane.as_chunks().0[part]);
        *row = match WIDTH {
            32 => vrev32q_u8(own),
            64 => vrev64q_u8(own),
            _ => own,
        };
    }
    let mut bytes = transposed(rows);
    if WIDTH >= 32 {
        bytes.reverse();
    }
    weave8(bytes)
}

#[inline]
#[target_feature(enable = "neon")]
fn elements<const WIDTH: usize>(planes: [&[u8; LINE]; WIDTH], out: &mut [[u8; LINE]; WIDTH]) {
    for (part, out) in out.as_flattened_mut().chunks_exact_mut(LANES * WIDTH).enumerate() {
        let mut bytes = [[zero(); 8]; 8];
        for (own, planes) in bytes.iter_mut().zip(planes.as_chunks::<8>().0.iter().rev()) {
            *own = byte_of_elements::<WIDTH>(planes, part);
        }
        let vectors = out.as_chunks_mut::<LANES>().0;
        for (i, out) in vectors.chunks_exact_mut(WIDTH / 8).enumerate() {
            let of = |byte: usize| bytes[byte][i];
            match WIDTH {
                8 => store_all(out, [of(0)]),
                16 => store_all(out, weave2([of(0), of(1)])),
                32 => store_all(out, weave4([of(0), of(1), of(2), of(3)])),
                _ => store_all(out, weave8(bytes.map(|own| own[i]))),
            }
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn store_all<const N: usize>(out: &mut [Lanes], vectors: [Vector; N]) {
    for (out, v) in out.iter_mut().zip(vectors) {
        store(out, v);
    }
}

/// Numbers per vector.
const SUMS: usize = 4;

#[inline]
#[target_feature(enable = "neon")]
fn running_sums32(numbers: &mut [i32], span: usize) {
    for span in numbers.chunks_mut(span) {
        let (vectors, rest) = span.as_chunks_mut::<SUMS>();
        let (zero, mut carry) = (vdupq_n_s32(0), vdupq_n_s32(0));
        for own in &mut *vectors {
            // SAFETY: 16 bytes are readable; the load needs no alignment.
            let x = unsafe { vld1q_s32(own.as_ptr()) };
            let x = vaddq_s32(x, vextq_s32::<3>(zero, x));
            let x = vaddq_s32(x, vextq_s32::<2>(zero, x));
            let out = vaddq_s32(x, carry);
            // The next carry does not wait for these sums, but for the one before.
            carry = vaddq_s32(carry, vdupq_laneq_s32::<3>(x));
            // SAFETY: 16 bytes are writable; the store needs no alignment.
            unsafe { vst1q_s32(own.as_mut_ptr(), out) };
        }
        let mut sum = vectors.last().map_or(0, |last| last[SUMS - 1]);
        for own in rest {
            sum = sum.wrapping_add(*own);
            *own = sum;
        }
    }
}
