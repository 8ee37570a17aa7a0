//! AVX-512 kernels for x86-64, with the bit matrices of GFNI: 64 bytes at a time.
//!
//! A [`Kernels`] value exists only if the processor has the features that they are compiled for, which makes it sound
//! to call them. All loads and stores go through arrays of vector size, or are masked to the numbers of their slice.
#![expect(unsafe_code, reason = "calls code compiled for AVX-512 once the processor is known to have it")]

use std::arch::x86_64::{
    __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_add_epi32, _mm512_add_epi64, _mm512_alignr_epi32, _mm512_alignr_epi64,
    _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_mask_storeu_epi32, _mm512_maskz_alignr_epi32,
    _mm512_maskz_loadu_epi32, _mm512_permutex2var_epi64, _mm512_permutexvar_epi8, _mm512_permutexvar_epi32,
    _mm512_permutexvar_epi64, _mm512_set_epi64, _mm512_set1_epi32, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_shuffle_i64x2, _mm512_storeu_si512, _mm512_unpackhi_epi8, _mm512_unpackhi_epi16, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi8, _mm512_unpacklo_epi16, _mm512_unpacklo_epi64,
};

use super::avx2;
use super::bit_plane_network::{self, LINE};
use super::running_sums;
use super::simd_ops::{SimdLoop, SimdOps};

type Line = [u8; LINE];

/// Proof that the processor has AVX2, FMA, AVX-512 F, BW, DQ, VL, VBMI and VBMI2, GFNI, BMI1, BMI2 and POPCNT.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels(avx2::Kernels);

impl Kernels {
    /// The kernels, if the processor has these features.
    #[inline]
    pub(super) fn get() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("gfni")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt");
        avx2::Kernels::get().filter(|_| has).map(Self)
    }

    /// Runs `kernel`, compiled for these features.
    #[inline]
    pub(super) fn run<K: SimdLoop>(self, kernel: K) -> K::Output {
        // SAFETY: `self` proves that the processor has these features.
        unsafe { run(self, kernel) }
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,gfni,bmi1,bmi2,popcnt")]
fn run<K: SimdLoop>(kernels: Kernels, kernel: K) -> K::Output {
    kernel.run(kernels)
}

impl SimdOps for Kernels {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn repeat(self, bytes: &[u8; 32], period: usize) -> [u8; 32] {
        self.0.repeat(bytes, period)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn repeat16(self, bytes: &[u8; 16], period: usize) -> [u8; 16] {
        self.0.repeat16(bytes, period)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn elements<const WIDTH: usize>(self, planes: [&Line; WIDTH], out: &mut [Line; WIDTH]) {
        if WIDTH > 32 {
            bit_plane_network::portable(planes, out);
        } else {
            // SAFETY: `self` proves that the processor has these features.
            unsafe { elements(planes, out) }
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn running_sums(self, numbers: &mut [i32], span: usize) {
        if span == 8 || (span > 0 && span.is_multiple_of(SUMS)) {
            // SAFETY: `self` proves that the processor has these features.
            unsafe { running_sums(numbers, span) }
        } else {
            running_sums::portable(numbers, span, i32::wrapping_add);
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn running_sums64(self, numbers: &mut [i64], span: usize) {
        if span > 0 && span.is_multiple_of(LONG_SUMS) {
            // SAFETY: `self` proves that the processor has these features.
            unsafe { running_sums64(numbers, span) }
        } else {
            running_sums::portable(numbers, span, i64::wrapping_add);
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn prefetch(self, out: &[u8]) {
        for line in out.chunks(LINE) {
            // SAFETY: every address may be prefetched; this one is even valid.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &Line) -> __m512i {
    // SAFETY: 64 bytes are readable; the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(bytes: &mut Line, v: __m512i) {
    // SAFETY: 64 bytes are writable; the store needs no alignment.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), v) }
}

/// Transposes 8 x 8 words of 64 bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn transposed([a, b, c, d, e, f, g, h]: [__m512i; 8]) -> [__m512i; 8] {
    // Words of the same number, and then quarters of the same number.
    let four = |[a, b, c, d]: [__m512i; 4]| {
        let (ab, cd) = (_mm512_shuffle_i64x2::<0x44>(a, b), _mm512_shuffle_i64x2::<0x44>(c, d));
        let (ab_hi, cd_hi) = (_mm512_shuffle_i64x2::<0xEE>(a, b), _mm512_shuffle_i64x2::<0xEE>(c, d));
        [
            _mm512_shuffle_i64x2::<0x88>(ab, cd),
            _mm512_shuffle_i64x2::<0xDD>(ab, cd),
            _mm512_shuffle_i64x2::<0x88>(ab_hi, cd_hi),
            _mm512_shuffle_i64x2::<0xDD>(ab_hi, cd_hi),
        ]
    };
    let low = |a, b| _mm512_unpacklo_epi64(a, b);
    let high = |a, b| _mm512_unpackhi_epi64(a, b);
    let [v0, v2, v4, v6] = four([low(a, b), low(c, d), low(e, f), low(g, h)]);
    let [v1, v3, v5, v7] = four([high(a, b), high(c, d), high(e, f), high(g, h)]);
    [v0, v1, v2, v3, v4, v5, v6, v7]
}

/// For each byte of a transposition of 8 x 8 bytes, the byte that it comes from: row `to` is column `columns[to]`.
const fn columns(columns: [u8; 8]) -> Line {
    let mut places = [0; LINE];
    let mut i = 0;
    while i < LINE {
        places[i] = (i % 8 * 8) as u8 + columns[i / 8];
        i += 1;
    }
    places
}

/// The eight elements of each byte of a plane, in the order in which interleaving by halves of 128 bits needs them.
const INTERLEAVED: [Line; 2] = [columns([0, 4, 1, 5, 2, 6, 3, 7]), columns([3, 7, 2, 6, 1, 5, 0, 4])];
/// The same in their own order.
const IN_ORDER: Line = columns([0, 1, 2, 3, 4, 5, 6, 7]);

/// One byte of each element from its eight planes: vector `g` holds the bytes of elements from `64 * g`, as 8 x 8 bytes
/// in the order of `places`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn byte_of_elements(planes: &[&Line], places: &Line, backwards: bool) -> [__m512i; 8] {
    let mut rows = [_mm512_setzero_si512(); 8];
    for (row, plane) in rows.iter_mut().zip(planes) {
        *row = load(plane);
    }
    // A product with the unit matrix transposes the other matrix; with its mirror image, it also reverses the elements.
    let unit =
        _mm512_set1_epi64(if backwards { 0x0102_0408_1020_4080 } else { 0x8040_2010_0804_0201_u64.cast_signed() });
    let places = load(places);
    let mut bytes = transposed(rows);
    for own in &mut bytes {
        *own = _mm512_gf2p8affine_epi64_epi8::<0>(unit, _mm512_permutexvar_epi8(places, *own));
    }
    bytes
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn elements<const WIDTH: usize>(planes: [&Line; WIDTH], out: &mut [Line; WIDTH]) {
    match WIDTH {
        8 => {
            for (out, v) in out.iter_mut().zip(byte_of_elements(&planes, &IN_ORDER, false)) {
                store(out, v);
            }
        }
        16 => {
            let high = byte_of_elements(&planes[..8], &INTERLEAVED[0], false);
            let low = byte_of_elements(&planes[8..], &INTERLEAVED[0], false);
            for ((out, low), high) in out.as_chunks_mut().0.iter_mut().zip(low).zip(high) {
                let [first, second] = out;
                store(first, _mm512_unpacklo_epi8(low, high));
                store(second, _mm512_unpackhi_epi8(low, high));
            }
        }
        _ => {
            let bytes = |first: usize| byte_of_elements(&planes[first..first + 8], &INTERLEAVED[1], true);
            let (b3, b2, b1, b0) = (bytes(0), bytes(8), bytes(16), bytes(24));
            let both = b0.into_iter().zip(b1).zip(b2.into_iter().zip(b3));
            for (out, ((b0, b1), (b2, b3))) in out.as_chunks_mut().0.iter_mut().zip(both) {
                let [first, second, third, fourth] = out;
                let (low, high) = (_mm512_unpacklo_epi8(b0, b1), _mm512_unpacklo_epi8(b2, b3));
                store_words(first, second, low, high);
                let (low, high) = (_mm512_unpackhi_epi8(b0, b1), _mm512_unpackhi_epi8(b2, b3));
                store_words(third, fourth, low, high);
            }
        }
    }
}

/// Stores 32 elements of 32 bits from their halves `low` and `high`, eight in each quarter.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store_words(first: &mut Line, second: &mut Line, low: __m512i, high: __m512i) {
    let (a, b) = (_mm512_unpacklo_epi16(low, high), _mm512_unpackhi_epi16(low, high));
    let quarters = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    store(first, _mm512_permutex2var_epi64(a, quarters, b));
    let quarters = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    store(second, _mm512_permutex2var_epi64(a, quarters, b));
}

/// Numbers per vector.
const SUMS: usize = 16;

/// The span must be 8 or a positive multiple of [`SUMS`].
#[inline]
#[target_feature(enable = "avx512f")]
fn running_sums(numbers: &mut [i32], span: usize) {
    let (vectors, rest) = numbers.as_chunks_mut::<SUMS>();
    let (mut carry, mut left) = (_mm512_setzero_si512(), 0);
    for own in vectors {
        // SAFETY: 64 bytes are readable; the load needs no alignment.
        let x = unsafe { _mm512_loadu_si512(own.as_ptr().cast()) };
        let x = if span < SUMS {
            sums_of_eight(x)
        } else {
            if left == 0 {
                (carry, left) = (_mm512_setzero_si512(), span / SUMS);
            }
            left -= 1;
            sums(x, &mut carry)
        };
        // SAFETY: 64 bytes are writable; the store needs no alignment.
        unsafe { _mm512_storeu_si512(own.as_mut_ptr().cast(), x) };
    }
    if rest.is_empty() {
        return;
    }
    let lanes = u16::MAX >> (SUMS - rest.len());
    // SAFETY: the mask excludes lanes after the end of `rest`.
    let x = unsafe { _mm512_maskz_loadu_epi32(lanes, rest.as_ptr()) };
    let mut carry = if left == 0 { _mm512_setzero_si512() } else { carry };
    let x = if span < SUMS { sums_of_eight(x) } else { sums(x, &mut carry) };
    // SAFETY: as above.
    unsafe { _mm512_mask_storeu_epi32(rest.as_mut_ptr(), lanes, x) };
}

/// Running sums of each half.
#[inline]
#[target_feature(enable = "avx512f")]
fn sums_of_eight(x: __m512i) -> __m512i {
    let zero = _mm512_setzero_si512();
    let x = _mm512_add_epi32(x, _mm512_maskz_alignr_epi32::<15>(0xFEFE, x, zero));
    let x = _mm512_add_epi32(x, _mm512_maskz_alignr_epi32::<14>(0xFCFC, x, zero));
    _mm512_add_epi32(x, _mm512_maskz_alignr_epi32::<12>(0xF0F0, x, zero))
}

/// Running sums after `carry`, which becomes the last of them in every lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn sums(x: __m512i, carry: &mut __m512i) -> __m512i {
    let zero = _mm512_setzero_si512();
    let x = _mm512_add_epi32(x, _mm512_alignr_epi32::<15>(x, zero));
    let x = _mm512_add_epi32(x, _mm512_alignr_epi32::<14>(x, zero));
    let x = _mm512_add_epi32(x, _mm512_alignr_epi32::<12>(x, zero));
    let x = _mm512_add_epi32(x, _mm512_alignr_epi32::<8>(x, zero));
    let out = _mm512_add_epi32(x, *carry);
    // The next carry does not wait for these sums, but for the one before.
    *carry = _mm512_add_epi32(*carry, _mm512_permutexvar_epi32(_mm512_set1_epi32(15), x));
    out
}

/// 64-bit numbers per vector.
const LONG_SUMS: usize = 8;

/// The span must be a positive multiple of [`LONG_SUMS`].
#[inline]
#[target_feature(enable = "avx512f")]
fn running_sums64(numbers: &mut [i64], span: usize) {
    for span in numbers.chunks_mut(span) {
        let (vectors, rest) = span.as_chunks_mut::<LONG_SUMS>();
        let (zero, mut carry) = (_mm512_setzero_si512(), _mm512_setzero_si512());
        for own in &mut *vectors {
            // SAFETY: 64 bytes are readable; the load needs no alignment.
            let x = unsafe { _mm512_loadu_si512(own.as_ptr().cast()) };
            let x = _mm512_add_epi64(x, _mm512_alignr_epi64::<7>(x, zero));
            let x = _mm512_add_epi64(x, _mm512_alignr_epi64::<6>(x, zero));
            let x = _mm512_add_epi64(x, _mm512_alignr_epi64::<4>(x, zero));
            let out = _mm512_add_epi64(x, carry);
            carry = _mm512_add_epi64(carry, _mm512_permutexvar_epi64(_mm512_set1_epi64(7), x));
            // SAFETY: 64 bytes are writable; the store needs no alignment.
            unsafe { _mm512_storeu_si512(own.as_mut_ptr().cast(), out) };
        }
        let mut sum = vectors.last().map_or(0, |last| last[LONG_SUMS - 1]);
        for own in rest {
            sum = sum.wrapping_add(*own);
            *own = sum;
        }
    }
}
