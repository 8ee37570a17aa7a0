//! The kernels for x86-64 with AVX2: the bulk of what the portable forms beside them define.
//!
//! [`Kernels`] exists only where the processor has AVX2; that is what makes the calls of functions
//! compiled for it sound. All loads and stores go through arrays of the vector's size.
//! Vectors are woven in halves of 128 bits, so each weave ends by joining the halves in order.
#![expect(unsafe_code, reason = "calls code compiled for AVX2 once the processor is known to have it")]
#![expect(clippy::unused_self, reason = "the receiver is the proof")]

use std::arch::x86_64::{
    __m256i, _mm_cvtsi64_si128, _mm256_add_epi8, _mm256_and_si256, _mm256_loadu_si256, _mm256_permute2x128_si256,
    _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_sll_epi64, _mm256_slli_si256, _mm256_srl_epi64,
    _mm256_storeu_si256, _mm256_unpackhi_epi8, _mm256_unpackhi_epi16, _mm256_unpackhi_epi32, _mm256_unpacklo_epi8,
    _mm256_unpacklo_epi16, _mm256_unpacklo_epi32, _mm256_xor_si256,
};

/// Bytes of a vector, and items that are woven at a time.
const LANES: usize = 32;
type Lanes = [u8; LANES];

/// Proof that the processor has AVX2.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels(());

impl Kernels {
    /// The kernels, if the processor has what they need.
    pub(super) fn get() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Unshuffles items of `width` bytes from the first on; returns how many are done.
    pub(super) fn unshuffle(self, width: usize, items: usize, runs: &[u8], dst: &mut [u8]) -> usize {
        // SAFETY: `self` exists only where the processor has AVX2.
        unsafe { unshuffle(width, items, runs, dst) }
    }

    /// Bit `b` of byte `a` of row `k` becomes bit `k` of byte `8 * a + b` of the run.
    pub(super) fn transpose_bits(self, rows: &[Lanes; 8], run: &mut [u8; 8 * LANES]) {
        // SAFETY: `self` exists only where the processor has AVX2.
        unsafe { transpose_bits(rows, run) }
    }

    /// Sums up the bytes of `run` from the first on; returns how many are done and their sum.
    pub(super) fn running_sum(self, run: &mut [u8]) -> (usize, u8) {
        // SAFETY: `self` exists only where the processor has AVX2.
        unsafe { running_sum(run) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &Lanes) -> __m256i {
    // SAFETY: 32 bytes are there to be read; this load has no alignment to keep.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(bytes: &mut Lanes, v: __m256i) {
    // SAFETY: 32 bytes are there to be written; this store has no alignment to keep.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), v) }
}

/// The lower halves of `a` and `b`, and their upper halves.
#[inline]
#[target_feature(enable = "avx2")]
fn halves(a: __m256i, b: __m256i) -> [__m256i; 2] {
    [_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn weave2([a, b]: [__m256i; 2]) -> [__m256i; 2] {
    halves(_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b))
}

#[inline]
#[target_feature(enable = "avx2")]
fn weave4([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    let (ab, cd) = (_mm256_unpacklo_epi8(a, b), _mm256_unpacklo_epi8(c, d));
    let (ab_hi, cd_hi) = (_mm256_unpackhi_epi8(a, b), _mm256_unpackhi_epi8(c, d));
    let [v0, v2] = halves(_mm256_unpacklo_epi16(ab, cd), _mm256_unpackhi_epi16(ab, cd));
    let [v1, v3] = halves(_mm256_unpacklo_epi16(ab_hi, cd_hi), _mm256_unpackhi_epi16(ab_hi, cd_hi));
    [v0, v1, v2, v3]
}

#[inline]
#[target_feature(enable = "avx2")]
fn weave8(v: [__m256i; 8]) -> [__m256i; 8] {
    let four = |[a, b, c, d]: [__m256i; 4]| {
        let (ab, cd) = (_mm256_unpacklo_epi8(a, b), _mm256_unpacklo_epi8(c, d));
        let (ab_hi, cd_hi) = (_mm256_unpackhi_epi8(a, b), _mm256_unpackhi_epi8(c, d));
        [
            _mm256_unpacklo_epi16(ab, cd),
            _mm256_unpackhi_epi16(ab, cd),
            _mm256_unpacklo_epi16(ab_hi, cd_hi),
            _mm256_unpackhi_epi16(ab_hi, cd_hi),
        ]
    };
    let [a, b, c, d, e, f, g, h] = v;
    let (low, high) = (four([a, b, c, d]), four([e, f, g, h]));
    let pair = |i: usize| halves(_mm256_unpacklo_epi32(low[i], high[i]), _mm256_unpackhi_epi32(low[i], high[i]));
    let [[v0, v4], [v1, v5], [v2, v6], [v3, v7]] = [pair(0), pair(1), pair(2), pair(3)];
    [v0, v1, v2, v3, v4, v5, v6, v7]
}

#[target_feature(enable = "avx2")]
fn unshuffle(width: usize, items: usize, runs: &[u8], dst: &mut [u8]) -> usize {
    match width {
        2 => dense(items, runs, dst, |v| weave2(v)),
        4 => dense(items, runs, dst, |v| weave4(v)),
        8 => dense(items, runs, dst, |v| weave8(v)),
        _ => strided(width, items, runs, dst),
    }
}

/// The whole vectors of `N` runs from run `first` on; runs behind the last one are empty.
#[inline]
#[target_feature(enable = "avx2")]
fn columns<const N: usize>(runs: &[u8], items: usize, first: usize) -> [&[Lanes]; N] {
    let mut columns: [&[Lanes]; N] = [&[]; N];
    for (column, run) in columns.iter_mut().zip(runs.chunks_exact(items).skip(first)) {
        *column = run.as_chunks().0;
    }
    columns
}

/// Items that are exactly as wide as a weave.
#[inline]
#[target_feature(enable = "avx2")]
fn dense<const W: usize>(
    items: usize,
    runs: &[u8],
    dst: &mut [u8],
    weave: impl Fn([__m256i; W]) -> [__m256i; W],
) -> usize {
    let columns = columns::<W>(runs, items, 0);
    for (t, tile) in dst.as_chunks_mut::<LANES>().0.chunks_exact_mut(W).enumerate() {
        let mut vectors = [_mm256_setzero_si256(); W];
        for (v, column) in vectors.iter_mut().zip(columns) {
            *v = load(&column[t]);
        }
        for (out, v) in tile.iter_mut().zip(weave(vectors)) {
            store(out, v);
        }
    }
    items / LANES * LANES
}

/// Items of any width: eight (or up to four) columns at a time, stored item by item.
///
/// The last columns are stored first, a full 8 (or 4) bytes of them: what runs over into the next
/// item is written again by that item's first columns. So the last item of all is left out.
#[target_feature(enable = "avx2")]
fn strided(width: usize, items: usize, runs: &[u8], dst: &mut [u8]) -> usize {
    let tiles = items.saturating_sub(8_usize.div_ceil(width)) / LANES;
    for t in 0..tiles {
        let tile = &mut dst[t * LANES * width..];
        let full = width / 8 * 8;
        match width % 8 {
            0 => {}
            1..=4 => scatter::<4>(width, full, &woven4(runs, items, full, t), tile),
            _ => scatter::<8>(width, full, &woven8(runs, items, full, t), tile),
        }
        for first in (0..full).step_by(8).rev() {
            scatter::<8>(width, first, &woven8(runs, items, first, t), tile);
        }
    }
    tiles * LANES
}

#[inline]
#[target_feature(enable = "avx2")]
fn woven4(runs: &[u8], items: usize, first: usize, t: usize) -> [Lanes; 4] {
    let mut vectors = [_mm256_setzero_si256(); 4];
    for (v, run) in vectors.iter_mut().zip(runs.chunks_exact(items).skip(first)) {
        *v = load(&run.as_chunks().0[t]);
    }
    let mut out = [[0; LANES]; 4];
    for (bytes, v) in out.iter_mut().zip(weave4(vectors)) {
        store(bytes, v);
    }
    out
}

#[inline]
#[target_feature(enable = "avx2")]
fn woven8(runs: &[u8], items: usize, first: usize, t: usize) -> [Lanes; 8] {
    let mut vectors = [_mm256_setzero_si256(); 8];
    for (v, run) in vectors.iter_mut().zip(runs.chunks_exact(items).skip(first)) {
        *v = load(&run.as_chunks().0[t]);
    }
    let mut out = [[0; LANES]; 8];
    for (bytes, v) in out.iter_mut().zip(weave8(vectors)) {
        store(bytes, v);
    }
    out
}

/// Puts the `N` bytes of each item at `first` in its item of `width` bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn scatter<const N: usize>(width: usize, first: usize, woven: &[Lanes; N], tile: &mut [u8]) {
    for (i, bytes) in woven.as_flattened().as_chunks::<N>().0.iter().enumerate() {
        let at = i * width + first;
        tile[at..at + N].copy_from_slice(bytes);
    }
}

#[target_feature(enable = "avx2")]
fn transpose_bits(rows: &[Lanes; 8], run: &mut [u8; 8 * LANES]) {
    let mut v = [_mm256_setzero_si256(); 8];
    for (v, row) in v.iter_mut().zip(rows) {
        *v = load(row);
    }
    // A transposition of 8 x 8 bits: swap the off-diagonal quarters, then those of each quarter, ...
    let swap = |a: __m256i, b: __m256i, shift: i64, mask: i8| {
        let count = _mm_cvtsi64_si128(shift);
        let moved = _mm256_srl_epi64(a, count);
        let t = _mm256_and_si256(_mm256_xor_si256(moved, b), _mm256_set1_epi8(mask));
        let back = _mm256_sll_epi64(t, count);
        (_mm256_xor_si256(a, back), _mm256_xor_si256(b, t))
    };
    for k in [0, 1, 2, 3] {
        (v[k], v[k + 4]) = swap(v[k], v[k + 4], 4, 0x0F);
    }
    for k in [0, 1, 4, 5] {
        (v[k], v[k + 2]) = swap(v[k], v[k + 2], 2, 0x33);
    }
    for k in [0, 2, 4, 6] {
        (v[k], v[k + 1]) = swap(v[k], v[k + 1], 1, 0x55);
    }
    for (out, v) in run.as_chunks_mut::<LANES>().0.iter_mut().zip(weave8(v)) {
        store(out, v);
    }
}

#[target_feature(enable = "avx2")]
fn running_sum(run: &mut [u8]) -> (usize, u8) {
    let mut carry = _mm256_setzero_si256();
    let vectors = run.as_chunks_mut::<LANES>().0;
    for bytes in vectors.iter_mut() {
        let x = load(bytes);
        let x = _mm256_add_epi8(x, _mm256_slli_si256::<1>(x));
        let x = _mm256_add_epi8(x, _mm256_slli_si256::<2>(x));
        let x = _mm256_add_epi8(x, _mm256_slli_si256::<4>(x));
        let x = _mm256_add_epi8(x, _mm256_slli_si256::<8>(x));
        let sums = _mm256_shuffle_epi8(x, _mm256_set1_epi8(15));
        // [0, the sum of the lower half]; and the sum of both halves in both.
        let across = _mm256_permute2x128_si256::<0x08>(sums, sums);
        let both = _mm256_add_epi8(sums, _mm256_permute2x128_si256::<0x01>(sums, sums));
        store(bytes, _mm256_add_epi8(_mm256_add_epi8(x, across), carry));
        carry = _mm256_add_epi8(carry, both);
    }
    let last = vectors.last().map_or(0, |bytes| bytes[LANES - 1]);
    (vectors.len() * LANES, last)
}
