//! Merging two sequences of words by a bitmap, and repeating words by one: [`bitmap_merge`] for words of 1, 2, 4 or 8
//! bytes.
#![forbid(unsafe_code)]

use super::bitmap_merge::{self, Side};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::merging::Kernels;

/// Fills `out` with words of `W` bytes: if bit `i` of `bits` is 0, with the next word of `left`, or zeros if there is
/// no `left`; if it is 1, with the next word of `right`.
///
/// If `bits` or a side is too short, the bytes are unspecified.
pub fn merge<const W: usize>(bits: &[u8], left: Option<&[u8]>, right: &[u8], out: &mut [u8]) {
    let side = left.map_or(Side::Byte(0), Side::Bytes);
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(kernels) = Kernels::get().filter(|_| W <= Kernels::LONGEST) {
        return kernels.merge::<W>(bits, side, Side::Bytes(right), out);
    }
    match left {
        _ if W == 1 => bitmap_merge::merge(bits, side, Side::Bytes(right), out),
        Some(left) => merge_portable::<W>(bits, Words::new(left), Words::new(right), out),
        None => merge_portable::<W>(bits, Zeros, Words::new(right), out),
    }
}

/// Fills `out` with words of `W` bytes: if bit `i` of `bits` is 1, with the next of `words`; if it is 0, with the word
/// before it again, at the start with 0.
///
/// If `bits` or `words` is too short, the bytes are unspecified.
pub fn repeat_last<const W: usize>(bits: &[u8], words: &[u8], out: &mut [u8]) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(kernels) = Kernels::get().filter(|_| W <= Kernels::LONGEST) {
        return kernels.repeat_last::<W>(bits, words, out);
    }
    match W {
        1 => bitmap_merge::repeat_last(bits, words, out),
        _ => repeat_last_portable::<W>(bits, words, out),
    }
}

fn repeat_last_portable<const W: usize>(bits: &[u8], words: &[u8], out: &mut [u8]) {
    let mut right = Words::<W>::new(words);
    let mut last = [0; W];
    for (own, &mask) in out.as_chunks_mut::<W>().0.chunks_mut(8).zip(bits) {
        if mask == 0 {
            own.fill(last);
            continue;
        }
        let mut choice = [last; 16];
        choice[1..9].copy_from_slice(&right.eight());
        let mut seen = 0;
        for (i, own) in own.iter_mut().enumerate() {
            seen += usize::from(mask >> i & 1);
            *own = choice[seen & 15];
        }
        last = choice[seen & 15];
        right.skip(seen);
    }
}

/// One of the two sequences.
trait Sequence<const W: usize> {
    /// The next eight words; zeros after the end.
    fn eight(&self) -> [[u8; W]; 8];
    /// Continues after `n` words.
    fn skip(&mut self, n: usize);
}

struct Zeros;

impl<const W: usize> Sequence<W> for Zeros {
    #[inline]
    fn eight(&self) -> [[u8; W]; 8] {
        [[0; W]; 8]
    }

    #[inline]
    fn skip(&mut self, _n: usize) {}
}

/// Words that are not used yet.
struct Words<'a, const W: usize>(&'a [[u8; W]]);

impl<'a, const W: usize> Words<'a, W> {
    fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.as_chunks().0)
    }
}

impl<const W: usize> Sequence<W> for Words<'_, W> {
    #[inline]
    fn eight(&self) -> [[u8; W]; 8] {
        self.0.first_chunk().copied().unwrap_or_else(|| {
            let mut last = [[0; W]; 8];
            last[..self.0.len()].copy_from_slice(self.0);
            last
        })
    }

    #[inline]
    fn skip(&mut self, n: usize) {
        self.0 = self.0.get(n..).unwrap_or_default();
    }
}

fn merge_portable<const W: usize>(
    bits: &[u8],
    mut left: impl Sequence<W>,
    mut right: impl Sequence<W>,
    out: &mut [u8],
) {
    for (own, &mask) in out.as_chunks_mut::<W>().0.chunks_mut(8).zip(bits) {
        match mask {
            0 => own.copy_from_slice(&left.eight()[..own.len()]),
            0xFF => own.copy_from_slice(&right.eight()[..own.len()]),
            _ => {
                let (l, r) = (left.eight(), right.eight());
                let mut seen = 0;
                for (i, own) in own.iter_mut().enumerate() {
                    let is_right = mask >> i & 1 == 1;
                    let word = if is_right { &r[seen & 7] } else { &l[(i - seen) & 7] };
                    *own = *word;
                    seen += usize::from(is_right);
                }
            }
        }
        let ones = mask.count_ones() as usize;
        left.skip(8 - ones);
        right.skip(ones);
    }
}

#[cfg(test)]
mod tests {
    use super::super::shuffle::tests::cases;
    use super::*;

    /// Bytes with a long period.
    fn noise(n: usize, seed: u32) -> Vec<u8> {
        (0..n as u32).map(|i| (i ^ seed).wrapping_mul(2_654_435_761).wrapping_add(i >> 3).to_be_bytes()[1]).collect()
    }

    fn check<const W: usize>() {
        for n in cases((0..70_usize).chain([1000, 4099]), 17) {
            for (or, and) in [(0, 0xFF), (0, 0), (0, 0x11), (0xFF, 0xFF), (0xEE, 0xFF)] {
                let bits: Vec<u8> = noise(n.div_ceil(8), 1).into_iter().map(|b| b & and | or).collect();
                let ones = bitmap_merge::ones(&bits, n);
                let (a, b) = (noise((n - ones) * W, 2), noise(ones * W, 3));
                let [mut merged, mut filled, mut repeated] = [const { Vec::<u8>::new() }; 3];
                let (mut l, mut r, mut last) = (a.chunks(W), b.chunks(W), vec![0; W]);
                for i in 0..n {
                    let is_right = bits[i / 8] >> (i % 8) & 1 == 1;
                    let word = if is_right { r.next() } else { l.next() }.unwrap();
                    merged.extend(word);
                    filled.extend(word.iter().map(|byte| if is_right { *byte } else { 0 }));
                    if is_right {
                        last = word.to_vec();
                    }
                    repeated.extend(&last);
                }
                let mut out = vec![0xAA; n * W];
                merge::<W>(&bits, Some(&a), &b, &mut out);
                assert!(out == merged, "{n} words of {W} bytes");
                merge::<W>(&bits, None, &b, &mut out);
                assert!(out == filled, "{n} words of {W} bytes and zeros");
                repeat_last::<W>(&bits, &b, &mut out);
                assert!(out == repeated, "{n} repeated words of {W} bytes");
                merge_portable::<W>(&bits, Words::new(&a), Words::new(&b), &mut out);
                assert!(out == merged, "{n} words of {W} bytes, portable");
                merge_portable::<W>(&bits, Zeros, Words::new(&b), &mut out);
                assert!(out == filled, "{n} words of {W} bytes and zeros, portable");
                repeat_last_portable::<W>(&bits, &b, &mut out);
                assert!(out == repeated, "{n} repeated words of {W} bytes, portable");
            }
        }
        let mut out = [0; 300];
        merge::<W>(&[0xFF; 3], Some(&[1]), &[2; 5], &mut out);
        repeat_last::<W>(&[0xF1; 3], &[1; 5], &mut out);
        merge_portable::<W>(&[0xFF; 3], Words::new(&[1]), Words::new(&[2; 5]), &mut out);
        repeat_last_portable::<W>(&[0xF1; 3], &[1; 5], &mut out);
    }

    #[test]
    fn each_word_comes_from_the_side_that_its_bit_selects() {
        check::<1>();
        check::<2>();
        check::<4>();
        check::<8>();
    }
}
