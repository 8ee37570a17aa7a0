//! AVX2 for x86-64: the vectors of [`vector_kernels`](super::vector_kernels), and of loops.
//!
//! A [`Kernels`] value exists only if the processor has AVX2, FMA and the shifts of BMI2, which makes it sound to call
//! functions compiled for them. All loads and stores go through arrays of vector size. AVX2 interleaves within halves of
//! 128 bits, which [`place`] joins.
#![expect(unsafe_code, reason = "calls code compiled for AVX2 once the processor is known to have it")]

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm_shuffle_epi8, _mm_storeu_si128, _mm256_add_epi8, _mm256_and_si256,
    _mm256_blendv_epi8, _mm256_loadu_si256, _mm256_permute2x128_si256, _mm256_set1_epi8, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_slli_epi16, _mm256_slli_epi64, _mm256_slli_si256, _mm256_srli_epi64,
    _mm256_storeu_si256, _mm256_unpackhi_epi8, _mm256_unpackhi_epi16, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64,
    _mm256_unpacklo_epi8, _mm256_unpacklo_epi16, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

use super::simd_ops::{PLACES, SimdLoop, SimdOps};

/// Bytes per vector.
pub(super) const LANES: usize = 32;
pub(super) type Lanes = [u8; LANES];
pub(super) type Vector = __m256i;
/// Up to this width of items the compiler does better.
pub(super) const COMPILED: usize = 1;

/// Proof that the processor has AVX2, FMA and BMI2.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels(());

impl Kernels {
    /// The kernels, if the processor has AVX2, FMA and BMI2, which all that have AVX2 do in practice.
    pub(super) fn get() -> Option<Self> {
        let has_all =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("bmi2");
        has_all.then_some(Self(()))
    }

    /// Runs `kernel`, compiled for AVX2 and FMA: `mul_add` is one instruction. Nothing else is fused. And for BMI2, whose
    /// shifts by a variable leave the flags and a register alone: a sixth of the time of a bit reader.
    #[inline]
    pub(super) fn run<K: SimdLoop>(self, kernel: K) -> K::Output {
        // SAFETY: `self` proves that the processor has AVX2, FMA and BMI2.
        unsafe { run(self, kernel) }
    }
}

#[target_feature(enable = "avx2,fma,bmi2")]
fn run<K: SimdLoop>(kernels: Kernels, kernel: K) -> K::Output {
    kernel.run(kernels)
}

impl SimdOps for Kernels {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn repeat(self, bytes: &[u8; 32], period: usize) -> [u8; 32] {
        // SAFETY: `self` proves that the processor has AVX2.
        unsafe { repeat(bytes, &PLACES[period % 32]) }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn repeat16(self, bytes: &[u8; 16], period: usize) -> [u8; 16] {
        // SAFETY: `self` proves that the processor has AVX2.
        unsafe { repeat16(bytes, &PLACES[period % 32]) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn repeat16(bytes: &[u8; 16], places: &Lanes) -> [u8; 16] {
    // SAFETY: 16 bytes are readable; the load needs no alignment.
    let bytes = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
    // SAFETY: as above.
    let places = unsafe { _mm_loadu_si128(places.as_ptr().cast()) };
    let (mut out, repeated) = ([0; 16], _mm_shuffle_epi8(bytes, places));
    // SAFETY: 16 bytes are writable; the store needs no alignment.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), repeated) };
    out
}

/// The bytes of `bytes` at the indices `places`.
#[inline]
#[target_feature(enable = "avx2")]
fn repeat(bytes: &Lanes, places: &Lanes) -> Lanes {
    // A shuffle selects from 16 bytes only: shuffle both halves and choose by bit 4 of the index.
    let (bytes, places) = (load(bytes), load(places));
    let low = _mm256_shuffle_epi8(_mm256_permute2x128_si256::<0x00>(bytes, bytes), places);
    let high = _mm256_shuffle_epi8(_mm256_permute2x128_si256::<0x11>(bytes, bytes), places);
    let mut out = [0; LANES];
    store(&mut out, _mm256_blendv_epi8(low, high, _mm256_slli_epi16::<3>(places)));
    out
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(bytes: &Lanes) -> __m256i {
    // SAFETY: 32 bytes are readable; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store(bytes: &mut Lanes, v: __m256i) {
    // SAFETY: 32 bytes are writable; the store needs no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), v) }
}

/// A vector of zeros.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn zero() -> __m256i {
    _mm256_setzero_si256()
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn add(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi8(a, b)
}

/// Interleaves bytes, in each half.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn zip8(a: __m256i, b: __m256i) -> [__m256i; 2] {
    [_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)]
}

/// Likewise, numbers of 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn zip16(a: __m256i, b: __m256i) -> [__m256i; 2] {
    [_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)]
}

/// Likewise, numbers of 32 bits.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn zip32(a: __m256i, b: __m256i) -> [__m256i; 2] {
    [_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)]
}

/// Likewise, numbers of 64 bits.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn zip64(a: __m256i, b: __m256i) -> [__m256i; 2] {
    [_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)]
}

/// Puts the vectors `2 * i` and `2 * i + 1` of a complete interleaving where their bytes belong: the lower halves of all
/// come before the upper halves.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn place<const N: usize>(out: &mut [__m256i; N], i: usize, [a, b]: [__m256i; 2]) {
    out[i] = _mm256_permute2x128_si256::<0x20>(a, b);
    out[N / 2 + i] = _mm256_permute2x128_si256::<0x31>(a, b);
}

/// Swaps the bits of `a` that are `SHIFT` above those of `mask` with the bits of `b` in `mask`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn swapped<const SHIFT: i32>(a: __m256i, b: __m256i, mask: u8) -> (__m256i, __m256i) {
    let t = _mm256_xor_si256(_mm256_srli_epi64::<SHIFT>(a), b);
    let t = _mm256_and_si256(t, _mm256_set1_epi8(mask.cast_signed()));
    (_mm256_xor_si256(a, _mm256_slli_epi64::<SHIFT>(t)), _mm256_xor_si256(b, t))
}

/// The running sums of the bytes, and the last of them in every byte.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn running_sums(x: __m256i) -> [__m256i; 2] {
    let x = _mm256_add_epi8(x, _mm256_slli_si256::<1>(x));
    let x = _mm256_add_epi8(x, _mm256_slli_si256::<2>(x));
    let x = _mm256_add_epi8(x, _mm256_slli_si256::<4>(x));
    let x = _mm256_add_epi8(x, _mm256_slli_si256::<8>(x));
    let sums = _mm256_shuffle_epi8(x, _mm256_set1_epi8(15));
    // [0, sum of the lower half]; then the sum of both halves in both.
    let across = _mm256_permute2x128_si256::<0x08>(sums, sums);
    let both = _mm256_add_epi8(sums, _mm256_permute2x128_si256::<0x01>(sums, sums));
    [_mm256_add_epi8(x, across), both]
}
