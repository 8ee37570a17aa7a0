//! AVX2 kernels for x86-64: they do the bulk of the work that the portable code in the sibling modules defines.
//!
//! A [`Kernels`] value exists only if the processor has AVX2 and FMA, which makes it sound to call functions compiled
//! for them. All loads and stores go through arrays of vector size. AVX2 interleaves within halves of 128 bits, so each
//! interleaving ends by joining the halves in order.
#![expect(unsafe_code, reason = "calls code compiled for AVX2 once the processor is known to have it")]
#![expect(clippy::unused_self, reason = "the receiver is the proof")]

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm_shuffle_epi8, _mm_storeu_si128, _mm256_add_epi8, _mm256_and_si256,
    _mm256_blendv_epi8, _mm256_loadu_si256, _mm256_permute2x128_si256, _mm256_set1_epi8, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_slli_epi16, _mm256_slli_epi64, _mm256_slli_si256, _mm256_srli_epi64,
    _mm256_storeu_si256, _mm256_unpackhi_epi8, _mm256_unpackhi_epi16, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64,
    _mm256_unpacklo_epi8, _mm256_unpacklo_epi16, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

use super::simd_ops::{PLACES, SimdLoop, SimdOps};

/// Bytes per vector, and items that are interleaved at a time.
const LANES: usize = 32;
type Lanes = [u8; LANES];

/// Proof that the processor has AVX2 and FMA.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels(());

impl Kernels {
    /// The kernels, if the processor has AVX2 and FMA, which all that have AVX2 do in practice.
    pub(super) fn get() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
    }

    /// Runs `kernel`, compiled for AVX2 and FMA: `mul_add` is one instruction. Nothing else is fused.
    #[inline]
    pub(super) fn run<K: SimdLoop>(self, kernel: K) -> K::Output {
        // SAFETY: `self` proves that the processor has AVX2 and FMA.
        unsafe { run(self, kernel) }
    }

    /// Unshuffles items of `width` bytes, starting with the first; returns how many were done.
    pub(super) fn unshuffle(self, width: usize, items: usize, runs: &[u8], dst: &mut [u8]) -> usize {
        // SAFETY: `self` proves that the processor has AVX2.
        unsafe { unshuffle(width, items, runs, dst) }
    }

    /// Reverses a bit shuffle of items of `width` bytes in `groups` of eight, starting with the first; returns how many
    /// groups were done.
    pub(super) fn bit_unshuffle(self, width: usize, groups: usize, rows: &[u8], dst: &mut [u8]) -> usize {
        if width <= 8 {
            // SAFETY: `self` proves that the processor has AVX2.
            unsafe { bit_unshuffle::<{ 8 * TILE + LANES }>(width, groups, rows, dst) }
        } else {
            // SAFETY: as above.
            unsafe { bit_unshuffle::<{ 64 * TILE + LANES }>(width, groups, rows, dst) }
        }
    }

    /// Computes running sums of the bytes of `run`, starting with the first; returns how many were done and their sum.
    pub(super) fn running_sum(self, run: &mut [u8]) -> (usize, u8) {
        // SAFETY: `self` proves that the processor has AVX2.
        unsafe { running_sum(run) }
    }
}

#[target_feature(enable = "avx2,fma")]
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
fn load(bytes: &Lanes) -> __m256i {
    // SAFETY: 32 bytes are readable; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(bytes: &mut Lanes, v: __m256i) {
    // SAFETY: 32 bytes are writable; the store needs no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), v) }
}

/// Joins the lower halves of `a` and `b`, and their upper halves.
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

/// Words of eight columns: vector `i` has the items `2 * i` and `2 * i + 1` in its lower half, and the items 16 further
/// on in its upper half.
#[inline]
#[target_feature(enable = "avx2")]
fn words([a, b, c, d, e, f, g, h]: [__m256i; 8]) -> [__m256i; 8] {
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
    let (low, high) = (four([a, b, c, d]), four([e, f, g, h]));
    let pair = |i: usize| [_mm256_unpacklo_epi32(low[i], high[i]), _mm256_unpackhi_epi32(low[i], high[i])];
    let [[v0, v1], [v2, v3], [v4, v5], [v6, v7]] = [pair(0), pair(1), pair(2), pair(3)];
    [v0, v1, v2, v3, v4, v5, v6, v7]
}

#[inline]
#[target_feature(enable = "avx2")]
fn weave8(v: [__m256i; 8]) -> [__m256i; 8] {
    let w = words(v);
    let pair = |i: usize| halves(w[i], w[i + 1]);
    let [[v0, v4], [v1, v5], [v2, v6], [v3, v7]] = [pair(0), pair(2), pair(4), pair(6)];
    [v0, v1, v2, v3, v4, v5, v6, v7]
}

#[inline]
#[target_feature(enable = "avx2")]
fn weave16(v: &[__m256i; 16]) -> [__m256i; 16] {
    let &[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = v;
    let (low, high) = (words([a, b, c, d, e, f, g, h]), words([i, j, k, l, m, n, o, p]));
    let mut out = *v;
    for i in 0..8 {
        let [first, second] = [_mm256_unpacklo_epi64(low[i], high[i]), _mm256_unpackhi_epi64(low[i], high[i])];
        [out[i], out[i + 8]] = halves(first, second);
    }
    out
}

/// Unshuffles as many items as it can, starting with the first; if `dst` is longer than the items, the bytes after
/// them are overwritten.
#[target_feature(enable = "avx2")]
fn unshuffle(width: usize, items: usize, runs: &[u8], dst: &mut [u8]) -> usize {
    match width {
        2 => dense(items, runs, dst, |&v| weave2(v)),
        4 => dense(items, runs, dst, |&v| weave4(v)),
        8 => dense(items, runs, dst, |&v| weave8(v)),
        16 => dense(items, runs, dst, |v| weave16(v)),
        _ => strided(width, items, runs, dst),
    }
}

/// The whole vectors of `N` runs starting with run `first`; empty for runs after the last.
#[inline]
#[target_feature(enable = "avx2")]
fn columns<const N: usize>(runs: &[u8], items: usize, first: usize) -> [&[Lanes]; N] {
    let mut columns: [&[Lanes]; N] = [&[]; N];
    for (column, run) in columns.iter_mut().zip(runs.chunks_exact(items).skip(first)) {
        *column = run.as_chunks().0;
    }
    columns
}

/// Unshuffles items of exactly the width of an interleaving.
#[inline]
#[target_feature(enable = "avx2")]
fn dense<const W: usize>(
    items: usize,
    runs: &[u8],
    dst: &mut [u8],
    weave: impl Fn(&[__m256i; W]) -> [__m256i; W],
) -> usize {
    let columns = columns::<W>(runs, items, 0);
    let tiles = dst.as_chunks_mut::<LANES>().0.chunks_exact_mut(W);
    for (t, tile) in tiles.take(items / LANES).enumerate() {
        let mut vectors = [_mm256_setzero_si256(); W];
        for (v, column) in vectors.iter_mut().zip(columns) {
            *v = load(&column[t]);
        }
        for (out, v) in tile.iter_mut().zip(weave(&vectors)) {
            store(out, v);
        }
    }
    items / LANES * LANES
}

/// Unshuffles items of any width: sixteen columns at a time, then eight (or up to four), stored item by item.
///
/// The last columns are stored first, as full 8 (or 4) bytes: the excess, in the next item, is overwritten by the first
/// columns of that item. Therefore the very last items may be left to the caller.
#[target_feature(enable = "avx2")]
fn strided(width: usize, items: usize, runs: &[u8], dst: &mut [u8]) -> usize {
    let over = if width.is_multiple_of(8) { 0 } else { 8 };
    let tiles = (dst.len().saturating_sub(over) / width).min(items) / LANES;
    for t in 0..tiles {
        let tile = &mut dst[t * LANES * width..];
        let mut first = width / 8 * 8;
        match width % 8 {
            0 => {}
            1..=4 => scatter::<4>(width, first, &woven(runs, items, first, t, |&v| weave4(v)), tile),
            _ => scatter::<8>(width, first, &woven(runs, items, first, t, |&v| weave8(v)), tile),
        }
        if first % 16 == 8 {
            first -= 8;
            scatter::<8>(width, first, &woven(runs, items, first, t, |&v| weave8(v)), tile);
        }
        while first > 0 {
            first -= 16;
            scatter::<16>(width, first, &woven(runs, items, first, t, |v| weave16(v)), tile);
        }
    }
    tiles * LANES
}

/// Tile `t` of `N` columns starting with `first`, interleaved; columns after the last are zeros.
#[inline]
#[target_feature(enable = "avx2")]
fn woven<const N: usize>(
    runs: &[u8],
    items: usize,
    first: usize,
    t: usize,
    weave: impl Fn(&[__m256i; N]) -> [__m256i; N],
) -> [Lanes; N] {
    let mut vectors = [_mm256_setzero_si256(); N];
    for (v, run) in vectors.iter_mut().zip(runs.chunks_exact(items).skip(first)) {
        *v = load(&run.as_chunks().0[t]);
    }
    let mut out = [[0; LANES]; N];
    for (bytes, v) in out.iter_mut().zip(weave(&vectors)) {
        store(bytes, v);
    }
    out
}

/// Stores the `N` bytes of each item at byte `first` of the item, which has `width` bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn scatter<const N: usize>(width: usize, first: usize, woven: &[Lanes; N], tile: &mut [u8]) {
    for (i, bytes) in woven.as_flattened().as_chunks::<N>().0.iter().enumerate() {
        let at = i * width + first;
        tile[at..at + N].copy_from_slice(bytes);
    }
}

/// Items per tile of the bit unshuffle: a vector of each row.
const TILE: usize = 8 * LANES;

/// Reverses a bit shuffle tile by tile: the rows of a tile become runs, at most `N` bytes in all, and the runs become
/// items.
#[target_feature(enable = "avx2")]
fn bit_unshuffle<const N: usize>(width: usize, groups: usize, rows: &[u8], dst: &mut [u8]) -> usize {
    let (mut runs, mut last) = ([0; N], [0; N]);
    let len = TILE * width;
    if len + LANES > N {
        return 0;
    }
    let tiles = groups / LANES;
    for t in 0..tiles {
        for (j, run) in runs[..len].as_chunks_mut::<TILE>().0.iter_mut().enumerate() {
            let mut v = [_mm256_setzero_si256(); 8];
            for (v, row) in v.iter_mut().zip(rows.chunks_exact(groups).skip(8 * j)) {
                *v = load(&row.as_chunks().0[t]);
            }
            for (out, v) in run.as_chunks_mut().0.iter_mut().zip(weave8(transposed(v))) {
                store(out, v);
            }
        }
        let tile = &mut dst[t * len..];
        if unshuffle(width, TILE, &runs[..len], tile) < TILE {
            // There is no room for the excess after the last tile.
            unshuffle(width, TILE, &runs[..len], &mut last);
            tile[..len].copy_from_slice(&last[..len]);
        }
    }
    tiles * LANES
}

/// Transposes the 8 x 8 bits of each byte across the vectors: bit `b` of vector `k` becomes bit `k` of vector `b`.
#[inline]
#[target_feature(enable = "avx2")]
fn transposed(mut v: [__m256i; 8]) -> [__m256i; 8] {
    // Swap the off-diagonal quarters, then those within each quarter, and so on.
    for k in [0, 1, 2, 3] {
        (v[k], v[k + 4]) = swapped::<4>(v[k], v[k + 4], 0x0F);
    }
    for k in [0, 1, 4, 5] {
        (v[k], v[k + 2]) = swapped::<2>(v[k], v[k + 2], 0x33);
    }
    for k in [0, 2, 4, 6] {
        (v[k], v[k + 1]) = swapped::<1>(v[k], v[k + 1], 0x55);
    }
    v
}

/// Swaps the bits of `a` that are `SHIFT` above those of `mask` with the bits of `b` in `mask`.
#[inline]
#[target_feature(enable = "avx2")]
fn swapped<const SHIFT: i32>(a: __m256i, b: __m256i, mask: i8) -> (__m256i, __m256i) {
    let t = _mm256_xor_si256(_mm256_srli_epi64::<SHIFT>(a), b);
    let t = _mm256_and_si256(t, _mm256_set1_epi8(mask));
    (_mm256_xor_si256(a, _mm256_slli_epi64::<SHIFT>(t)), _mm256_xor_si256(b, t))
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
        // [0, sum of the lower half]; then the sum of both halves in both.
        let across = _mm256_permute2x128_si256::<0x08>(sums, sums);
        let both = _mm256_add_epi8(sums, _mm256_permute2x128_si256::<0x01>(sums, sums));
        store(bytes, _mm256_add_epi8(_mm256_add_epi8(x, across), carry));
        carry = _mm256_add_epi8(carry, both);
    }
    let last = vectors.last().map_or(0, |bytes| bytes[LANES - 1]);
    (vectors.len() * LANES, last)
}
