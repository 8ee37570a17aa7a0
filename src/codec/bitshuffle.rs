//! Bit unshuffle: rearranges rows of equal bits into items.
//!
//! The shuffled form of `m` items of `width` bytes, `m` a multiple of 8, is `8 * width` rows of `m / 8`
//! bytes: row `8 * j + k` holds bit `k` of byte `j` of every item, item `8 * a + b` at bit `b` of byte
//! `a`. Items after the last multiple of eight, and bytes after the last item, are not shuffled.
//!
//! The kernels reverse it in two steps per tile of items: eight rows at a time become a run of one byte of all items
//! (a transposition of 8 x 8 bits across the rows, then of bytes), and the runs become items.
#![forbid(unsafe_code)]

use super::pace::{self, Pace};

/// Reverses a bit shuffle of items of `width` bytes; `dst` must be as long as `src`.
///
/// Bytes after the last eight whole items are copied. A width of 0 means a copy.
///
/// # Examples
/// ```
/// let mut dst = [0; 9];
/// fzmfs::codec::bitshuffle::undo(1, &[1, 0, 0, 0, 0, 0, 0, 0x80, 9], &mut dst);
/// assert_eq!(dst, [1, 0, 0, 0, 0, 0, 0, 0x80, 9]);
/// ```
pub fn undo(width: usize, src: &[u8], dst: &mut [u8]) {
    let len = src.len().min(dst.len());
    let (src, dst) = (&src[..len], &mut dst[..len]);
    let groups = len.checked_div(width).unwrap_or(0) / 8;
    let (rows, rest) = src.split_at(groups * 8 * width);
    let (dst, tail) = dst.split_at_mut(groups * 8 * width);
    tail.copy_from_slice(rest);
    let first = bulk(width, groups, rows, dst);
    scalar(width, groups, first, rows, dst);
}

/// Like [`undo`]; calls `pace` along the way.
pub fn undo_paced(width: usize, src: &[u8], dst: &mut [u8], pace: Pace<'_>) {
    pace::undo_transposition(8 * width, src, dst, pace, |part, out| undo(width, part, out));
}

/// Runs a kernel, if there is one; returns how many groups of eight items, starting with the first, were done.
fn bulk(width: usize, groups: usize, rows: &[u8], dst: &mut [u8]) -> usize {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(kernels) = super::vectors::Kernels::get() {
        return kernels.bit_unshuffle(width, groups, rows, dst);
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (width, groups, rows, dst);
    0
}

/// Transposes 8 x 8 bits: bit `k` of byte `b` becomes bit `b` of byte `k`.
fn transpose(rows: [u8; 8]) -> [u8; 8] {
    let mut x = u64::from_le_bytes(rows);
    let mut swap = |shift: u32, mask: u64| {
        let t = (x ^ (x >> shift)) & mask;
        x ^= t ^ (t << shift);
    };
    swap(7, 0x00AA_00AA_00AA_00AA);
    swap(14, 0x0000_CCCC_0000_CCCC);
    swap(28, 0x0000_0000_F0F0_F0F0);
    x.to_le_bytes()
}

/// Processes the groups from `first` on, one by one.
fn scalar(width: usize, groups: usize, first: usize, rows: &[u8], dst: &mut [u8]) {
    for j in 0..width {
        for a in first..groups {
            let eight = transpose(std::array::from_fn(|k| rows[(8 * j + k) * groups + a]));
            for (b, byte) in eight.into_iter().enumerate() {
                dst[(8 * a + b) * width + j] = byte;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pace::tests::check_strides;
    use super::super::shuffle::tests::{cases, noise};
    use super::*;

    /// The definition, bit by bit.
    fn shuffled(width: usize, src: &[u8]) -> Vec<u8> {
        let items = src.len() / width / 8 * 8;
        let mut out = src.to_vec();
        out[..items * width].fill(0);
        for i in 0..items {
            for j in 0..width {
                for k in 0..8 {
                    let bit = src[i * width + j] >> k & 1;
                    out[(8 * j + k) * (items / 8) + i / 8] |= bit << (i % 8);
                }
            }
        }
        out
    }

    #[test]
    fn strides_do_not_change_the_result() {
        for (width, len) in [(1, 5 << 20), (4, (5 << 20) + 3), (255, (6 << 20) + 11)] {
            check_strides(width, len, undo, undo_paced);
        }
    }

    #[test]
    fn every_width_and_length_round_trips() {
        for width in cases((1..=18).chain([24, 63, 64, 65, 100, 255]), 5) {
            for len in cases([0, 1, 7, 8, 63, 64, 65, 255, 256 * width, 256 * width + 9, 4096, 10_007], 3) {
                let bytes = noise(len);
                let mut dst = vec![0xAA; len];
                undo(width, &shuffled(width, &bytes), &mut dst);
                assert_eq!(dst, bytes, "width {width}, {len} bytes");
            }
        }
    }

    #[test]
    fn the_worked_example_of_the_reference() {
        let src = [0x81, 0x82, 4, 8, 0, 0, 0, 0, 0x10, 0x20, 0, 0, 0, 0, 0, 0x40, 0xcd, 0xab];
        let mut dst = [0; 18];
        undo(2, &src, &mut dst);
        assert_eq!(dst, [1, 0, 2, 0, 4, 0, 8, 0, 0, 1, 0, 2, 0, 0x80, 3, 0, 0xcd, 0xab]);
    }

    #[test]
    fn the_portable_form_agrees_with_the_kernels() {
        for width in cases([1, 2, 3, 7, 8, 9, 16, 24, 63, 64, 65], 3) {
            let groups = 100;
            let rows = noise(groups * 8 * width);
            let (mut portable, mut kernels) = (vec![0; rows.len()], vec![0xAA; rows.len()]);
            scalar(width, groups, 0, &rows, &mut portable);
            undo(width, &rows, &mut kernels);
            assert!(portable == kernels, "width {width}");
        }
    }
}
