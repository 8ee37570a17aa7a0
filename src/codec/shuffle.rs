//! Byte unshuffle: rearranges runs of first bytes, second bytes, and so on into items.
//!
//! The shuffled form of `q` items of `width` bytes is `width` runs of `q` bytes: run `j` holds byte
//! `j` of every item. Bytes after the last whole item are not shuffled.
#![forbid(unsafe_code)]

use super::pace::{self, Pace};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::vectors;

/// Reverses a byte shuffle of items of `width` bytes; `dst` must be as long as `src`.
///
/// Bytes after the last whole item are copied. A width of 0 or 1 means a copy.
///
/// # Examples
/// ```
/// let mut dst = [0; 11];
/// fzmfs::codec::shuffle::undo(4, &[0, 4, 1, 5, 2, 6, 3, 7, 8, 9, 10], &mut dst);
/// assert_eq!(dst, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
/// ```
pub fn undo(width: usize, src: &[u8], dst: &mut [u8]) {
    let len = src.len().min(dst.len());
    let (src, dst) = (&src[..len], &mut dst[..len]);
    if width < 2 || width > len {
        dst.copy_from_slice(src);
        return;
    }
    let items = len / width;
    let (runs, rest) = src.split_at(items * width);
    let (dst, tail) = dst.split_at_mut(items * width);
    tail.copy_from_slice(rest);
    let done = bulk(width, items, runs, dst);
    scalar(width, items, done, runs, dst);
}

/// Like [`undo`]; calls `pace` along the way.
pub fn undo_paced(width: usize, src: &[u8], dst: &mut [u8], pace: Pace<'_>) {
    let rows = if width < 2 { 0 } else { width };
    pace::undo_transposition(rows, src, dst, pace, |part, out| undo(width, part, out));
}

/// Runs a kernel, if there is one; returns how many items, starting with the first, were done.
fn bulk(width: usize, items: usize, runs: &[u8], dst: &mut [u8]) -> usize {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(kernels) = vectors::Kernels::get().filter(|_| width > vectors::COMPILED) {
        return kernels.unshuffle(width, items, runs, dst);
    }
    portable(width, items, runs, dst)
}

/// Used if there is no kernel: fixed widths, which the compiler vectorizes.
fn portable(width: usize, items: usize, runs: &[u8], dst: &mut [u8]) -> usize {
    match width {
        2 => fixed::<2>(items, runs, dst),
        3 => fixed::<3>(items, runs, dst),
        4 => fixed::<4>(items, runs, dst),
        8 => fixed::<8>(items, runs, dst),
        16 => fixed::<16>(items, runs, dst),
        _ => return 0,
    }
    items
}

fn fixed<const W: usize>(items: usize, runs: &[u8], dst: &mut [u8]) {
    let mut columns: [&[u8]; W] = [&[]; W];
    for (column, run) in columns.iter_mut().zip(runs.chunks_exact(items)) {
        *column = run;
    }
    for (i, item) in dst.as_chunks_mut::<W>().0.iter_mut().enumerate() {
        for (byte, column) in item.iter_mut().zip(columns) {
            *byte = column[i];
        }
    }
}

/// Processes the items from `done` on, byte by byte, in tiles that fit in the L1 cache.
fn scalar(width: usize, items: usize, done: usize, runs: &[u8], dst: &mut [u8]) {
    const TILE: usize = 64;
    let mut first = done;
    while first < items {
        let end = items.min(first + TILE);
        for (j, run) in runs.chunks_exact(items).enumerate() {
            let column = dst[first * width..end * width].iter_mut().skip(j).step_by(width);
            for (byte, &value) in column.zip(&run[first..end]) {
                *byte = value;
            }
        }
        first = end;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::LazyLock;

    use super::super::pace::tests::check_strides;
    use super::*;

    /// All `cases`; one of `step` under Miri, which interprets a thousand times more slowly.
    pub(in crate::codec) fn cases<T>(cases: impl IntoIterator<Item = T>, step: usize) -> impl Iterator<Item = T> {
        cases.into_iter().step_by(if cfg!(miri) { step } else { 1 })
    }

    /// Bytes that differ from their neighbours in every run.
    pub(in crate::codec) fn noise(len: usize) -> Vec<u8> {
        static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| noise_from(0, if cfg!(miri) { 1 << 17 } else { 1 << 20 }));
        // The start is made once: most tests want some of it a thousand times.
        let mut bytes = NOISE[..len.min(NOISE.len())].to_vec();
        bytes.extend(noise_from(bytes.len(), len));
        bytes
    }

    fn noise_from(start: usize, end: usize) -> Vec<u8> {
        (start as u32..end as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    fn shuffled(width: usize, src: &[u8]) -> Vec<u8> {
        let items = src.len() / width;
        let mut out = src.to_vec();
        for i in 0..items {
            for j in 0..width {
                out[j * items + i] = src[i * width + j];
            }
        }
        out
    }

    #[test]
    fn every_width_and_length_round_trips() {
        for width in cases((1..=40).chain([48, 63, 64, 100, 128, 255]), 5) {
            for len in cases((0..200).chain([1000, 1023, 4096, 10_007]), 29) {
                let bytes = noise(len);
                let mut dst = vec![0xAA; len];
                undo(width, &shuffled(width, &bytes), &mut dst);
                assert_eq!(dst, bytes, "width {width}, {len} bytes");
            }
        }
    }

    #[test]
    fn strides_do_not_change_the_result() {
        for (width, len) in [(1, 5 << 20), (4, (5 << 20) + 3), (7, 9 << 20), (255, (6 << 20) + 11)] {
            check_strides(width, len, undo, undo_paced);
        }
    }

    #[test]
    fn the_portable_form_agrees_with_the_kernels() {
        for width in [2, 3, 4, 8, 16] {
            for items in [1, 31, 32, 33, 500] {
                let bytes = noise(width * items);
                let runs = shuffled(width, &bytes);
                let mut dst = vec![0xAA; bytes.len()];
                let done = portable(width, items, &runs, &mut dst);
                assert_eq!((done, &dst), (items, &bytes), "width {width}");
                let mut dst = vec![0xAA; bytes.len()];
                scalar(width, items, 0, &runs, &mut dst);
                assert_eq!(dst, bytes, "width {width}");
            }
        }
    }
}
