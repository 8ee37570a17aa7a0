//! Kernels over the vectors of this architecture, AVX2 or NEON: they do the bulk of the work that the portable code of
//! [`shuffle`](super::shuffle), [`bitshuffle`](super::bitshuffle) and [`bytedelta`](super::bytedelta) defines.
//!
//! Written once over the operations of [`vectors`], which have the same names on each.
#![expect(unsafe_code, reason = "calls code compiled for the vectors once the processor is known to have them")]
#![expect(clippy::unused_self, reason = "the receiver is the proof")]

use super::vectors::{
    self, Kernels, LANES, Lanes, Vector, load, place, store, swapped, zero, zip8, zip16, zip32, zip64,
};

impl Kernels {
    /// Unshuffles items of `width` bytes, starting with the first; returns how many were done.
    pub(super) fn unshuffle(self, width: usize, items: usize, runs: &[u8], dst: &mut [u8]) -> usize {
        // SAFETY: `self` proves that the processor has the vectors.
        unsafe { unshuffle(width, items, runs, dst) }
    }

    /// Reverses a bit shuffle of items of `width` bytes in `groups` of eight, starting with the first; returns how many
    /// groups were done.
    pub(super) fn bit_unshuffle(self, width: usize, groups: usize, rows: &[u8], dst: &mut [u8]) -> usize {
        if width <= 8 {
            // SAFETY: `self` proves that the processor has the vectors.
            unsafe { bit_unshuffle::<{ 8 * TILE + LANES }>(width, groups, rows, dst) }
        } else {
            // SAFETY: as above.
            unsafe { bit_unshuffle::<{ 64 * TILE + LANES }>(width, groups, rows, dst) }
        }
    }

    /// Computes running sums of the bytes of `run`, starting with the first; returns how many were done and their sum.
    pub(super) fn running_sum(self, run: &mut [u8]) -> (usize, u8) {
        // SAFETY: `self` proves that the processor has the vectors.
        unsafe { running_sum(run) }
    }
}

/// The vectors of a complete interleaving as one array of bytes.
#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn in_order<const N: usize>(v: [Vector; N]) -> [Vector; N] {
    let mut out = v;
    for (i, pair) in v.as_chunks().0.iter().enumerate() {
        place(&mut out, i, *pair);
    }
    out
}

#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(super) fn weave2([a, b]: [Vector; 2]) -> [Vector; 2] {
    in_order(zip8(a, b))
}

#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn four([a, b, c, d]: [Vector; 4]) -> [Vector; 4] {
    let ([ab, ab_hi], [cd, cd_hi]) = (zip8(a, b), zip8(c, d));
    let ([v0, v1], [v2, v3]) = (zip16(ab, cd), zip16(ab_hi, cd_hi));
    [v0, v1, v2, v3]
}

#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(super) fn weave4(v: [Vector; 4]) -> [Vector; 4] {
    in_order(four(v))
}

#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn eight([a, b, c, d, e, f, g, h]: [Vector; 8]) -> [Vector; 8] {
    let (low, high) = (four([a, b, c, d]), four([e, f, g, h]));
    let pair = |i: usize| zip32(low[i], high[i]);
    let [[v0, v1], [v2, v3], [v4, v5], [v6, v7]] = [pair(0), pair(1), pair(2), pair(3)];
    [v0, v1, v2, v3, v4, v5, v6, v7]
}

#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(super) fn weave8(v: [Vector; 8]) -> [Vector; 8] {
    in_order(eight(v))
}

#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn weave16(v: &[Vector; 16]) -> [Vector; 16] {
    let &[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = v;
    let (low, high) = (eight([a, b, c, d, e, f, g, h]), eight([i, j, k, l, m, n, o, p]));
    let mut out = *v;
    for i in 0..8 {
        place(&mut out, i, zip64(low[i], high[i]));
    }
    out
}

/// Unshuffles as many items as it can, starting with the first; if `dst` is longer than the items, the bytes after
/// them are overwritten.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn unshuffle(width: usize, items: usize, runs: &[u8], dst: &mut [u8]) -> usize {
    match width {
        1 => {
            dst[..items].copy_from_slice(&runs[..items]);
            items
        }
        2 => dense(items, runs, dst, |&v| weave2(v)),
        4 => dense(items, runs, dst, |&v| weave4(v)),
        8 => dense(items, runs, dst, |&v| weave8(v)),
        16 => dense(items, runs, dst, |v| weave16(v)),
        _ => strided(width, items, runs, dst),
    }
}

/// The whole vectors of `N` runs starting with run `first`; empty for runs after the last.
#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn columns<const N: usize>(runs: &[u8], items: usize, first: usize) -> [&[Lanes]; N] {
    let mut columns: [&[Lanes]; N] = [&[]; N];
    for (column, run) in columns.iter_mut().zip(runs.chunks_exact(items).skip(first)) {
        *column = run.as_chunks().0;
    }
    columns
}

/// Unshuffles items of exactly the width of an interleaving.
#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn dense<const W: usize>(
    items: usize,
    runs: &[u8],
    dst: &mut [u8],
    weave: impl Fn(&[Vector; W]) -> [Vector; W],
) -> usize {
    let columns = columns::<W>(runs, items, 0);
    let tiles = dst.as_chunks_mut::<LANES>().0.chunks_exact_mut(W);
    for (t, tile) in tiles.take(items / LANES).enumerate() {
        let mut vectors = [zero(); W];
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
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
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
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn woven<const N: usize>(
    runs: &[u8],
    items: usize,
    first: usize,
    t: usize,
    weave: impl Fn(&[Vector; N]) -> [Vector; N],
) -> [Lanes; N] {
    let mut vectors = [zero(); N];
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
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
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
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn bit_unshuffle<const N: usize>(width: usize, groups: usize, rows: &[u8], dst: &mut [u8]) -> usize {
    let (mut runs, mut last) = ([0; N], [0; N]);
    let len = TILE * width;
    if len + LANES > N {
        return 0;
    }
    let tiles = groups / LANES;
    for t in 0..tiles {
        for (j, run) in runs[..len].as_chunks_mut::<TILE>().0.iter_mut().enumerate() {
            let mut v = [zero(); 8];
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
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(super) fn transposed(mut v: [Vector; 8]) -> [Vector; 8] {
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

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn running_sum(run: &mut [u8]) -> (usize, u8) {
    let mut carry = zero();
    let lanes = run.as_chunks_mut::<LANES>().0;
    for bytes in lanes.iter_mut() {
        let [sums, total] = vectors::running_sums(load(bytes));
        store(bytes, vectors::add(sums, carry));
        carry = vectors::add(carry, total);
    }
    let last = lanes.last().map_or(0, |bytes| bytes[LANES - 1]);
    (lanes.len() * LANES, last)
}
