//! AVX-512 VBMI2 kernels of [`bitmap_merge`](super::bitmap_merge) and [`word_merge`](super::word_merge) for x86-64: 64
//! bytes at a time.
//!
//! A [`Kernels`] value exists only if the processor has the features that they are compiled for, which makes the calls
//! sound. Loads and stores are masked to the bytes of their slices.
#![expect(unsafe_code, reason = "calls code compiled for AVX-512 once the processor is known to have it")]
#![expect(clippy::unused_self, reason = "the receiver is the proof")]

use std::arch::x86_64::{
    __m512i, _mm512_alignr_epi64, _mm512_and_si512, _mm512_mask_expand_epi8, _mm512_mask_storeu_epi8,
    _mm512_maskz_expand_epi8, _mm512_maskz_loadu_epi8, _mm512_multishift_epi64_epi8, _mm512_permutex2var_epi8,
    _mm512_permutexvar_epi8, _mm512_set1_epi8, _mm512_set1_epi64, _mm512_set4_epi32, _mm512_setzero_si512,
    _mm512_shuffle_epi8, _mm512_slli_epi64, _mm512_xor_si512,
};

use super::merge_side::Side;

/// Bytes per vector.
const LANES: usize = 64;

/// Proof that the processor has AVX-512 F, BW, VBMI and VBMI2.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels(());

impl Kernels {
    /// Bytes of the longest words that they merge.
    pub(super) const LONGEST: usize = 8;

    /// The kernels, if the processor has these features.
    pub(super) fn get() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("popcnt");
        has.then_some(Self(()))
    }

    /// Like [`bitmap_merge::merge`](super::bitmap_merge::merge), for words of `W` bytes.
    pub(super) fn merge<const W: usize>(self, bits: &[u8], left: Side, right: Side, out: &mut [u8]) {
        // SAFETY: `self` proves that the processor has these features.
        unsafe { merge::<W>(bits, left, right, out) }
    }

    /// Like [`bitmap_merge::repeat_last`](super::bitmap_merge::repeat_last), for words of `W` bytes.
    pub(super) fn repeat_last<const W: usize>(self, bits: &[u8], bytes: &[u8], out: &mut [u8]) {
        // SAFETY: `self` proves that the processor has these features.
        unsafe { repeat_last::<W>(bits, bytes, out) }
    }

    /// Like [`bitmap_merge::unpack`](super::bitmap_merge::unpack), for groups of 2 to 7 bits, with `lookup` indexed by
    /// group.
    pub(super) fn unpack(self, bits: &[u8], width: u32, lookup: &[u8; 2 * LANES], out: &mut [u8]) {
        // SAFETY: `self` proves that the processor has these features.
        unsafe { unpack(bits, width, lookup, out) }
    }
}

/// A mask of the lanes below `n`.
fn below(n: usize) -> u64 {
    if n >= LANES { u64::MAX } else { (1 << n) - 1 }
}

/// The first bytes of `bytes`, padded with zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load(bytes: &[u8]) -> __m512i {
    // SAFETY: the mask excludes the bytes after the end of `bytes`.
    unsafe { _mm512_maskz_loadu_epi8(below(bytes.len()), bytes.as_ptr().cast()) }
}

/// Fills `out`, which is at most a vector long, with the first bytes of `v`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store(out: &mut [u8], v: __m512i) {
    // SAFETY: the mask excludes the bytes after the end of `out`.
    unsafe { _mm512_mask_storeu_epi8(out.as_mut_ptr().cast(), below(out.len()), v) }
}

/// The next 64 bits of a bitmap, from at most eight bytes of `bytes`.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => bytes.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b)),
    }
}

/// As [`word`], each bit repeated `W` times, from at most `8 / W` bytes.
#[inline]
fn wide<const W: usize>(bytes: &[u8]) -> u64 {
    let x = word(bytes);
    let spread = |x: u64, by: u32, mask: u64| (x | x << by) & mask;
    match W {
        1 => x,
        2 => {
            let x = spread(spread(x, 16, 0x0000_FFFF_0000_FFFF), 8, 0x00FF_00FF_00FF_00FF);
            let x = spread(spread(x, 4, 0x0F0F_0F0F_0F0F_0F0F), 2, 0x3333_3333_3333_3333);
            3 * spread(x, 1, 0x5555_5555_5555_5555)
        }
        4 => {
            let x = spread(spread(x, 24, 0x0000_00FF_0000_00FF), 12, 0x000F_000F_000F_000F);
            15 * spread(spread(x, 6, 0x0303_0303_0303_0303), 3, 0x1111_1111_1111_1111)
        }
        _ => {
            // Bit i of the only byte, alone in byte i.
            let x = x.wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
            255 * ((x + 0x7F7F_7F7F_7F7F_7F7F) >> 7 & 0x0101_0101_0101_0101)
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
fn merge<const W: usize>(bits: &[u8], left: Side, right: Side, out: &mut [u8]) {
    let (mut l, mut r) = (0_usize, 0_usize);
    let take = |side: Side, at: usize| match side {
        Side::Byte(byte) => _mm512_set1_epi8(byte.cast_signed()),
        Side::Bytes(bytes) => load(bytes.get(at..).unwrap_or_default()),
    };
    for (out, word) in out.chunks_mut(LANES).zip(bits.chunks(8 / W).map(wide::<W>)) {
        let zeros = _mm512_maskz_expand_epi8(!word, take(left, l));
        store(out, _mm512_mask_expand_epi8(zeros, word, take(right, r)));
        let ones = word.count_ones() as usize;
        (l, r) = (l + LANES - ones, r + ones);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
fn repeat_last<const W: usize>(bits: &[u8], bytes: &[u8], out: &mut [u8]) {
    let (zero, mut at, mut last) = (_mm512_setzero_si512(), 0_usize, [0_u8; 8]);
    // The last word of every eight bytes, for all of them.
    let places = match W {
        1 => [0x0707_0707, 0x0707_0707, 0x0F0F_0F0F, 0x0F0F_0F0F],
        2 => [0x0706_0706, 0x0706_0706, 0x0F0E_0F0E, 0x0F0E_0F0E],
        4 => [0x0706_0504, 0x0706_0504, 0x0F0E_0D0C, 0x0F0E_0D0C],
        _ => [0x0302_0100, 0x0706_0504, 0x0B0A_0908, 0x0F0E_0D0C],
    };
    let places = _mm512_set4_epi32(places[3], places[2], places[1], places[0]);
    for (out, word) in out.chunks_mut(LANES).zip(bits.chunks(8 / W).map(wide::<W>)) {
        let before = _mm512_set1_epi64(i64::from_le_bytes(last));
        if word == 0 {
            store(out, before);
            continue;
        }
        // Where words change, the difference from the word before; then the differences are summed up, without carry.
        let own = load(bytes.get(at..).unwrap_or_default());
        let differ = _mm512_xor_si512(own, _mm512_mask_expand_epi8(before, u64::MAX << W, own));
        let mut x = _mm512_maskz_expand_epi8(word, differ);
        if W == 1 {
            x = _mm512_xor_si512(x, _mm512_slli_epi64::<8>(x));
        }
        if W <= 2 {
            x = _mm512_xor_si512(x, _mm512_slli_epi64::<16>(x));
        }
        if W <= 4 {
            x = _mm512_xor_si512(x, _mm512_slli_epi64::<32>(x));
        }
        let ends = _mm512_shuffle_epi8(x, places);
        let y = _mm512_alignr_epi64::<7>(ends, zero);
        let y = _mm512_xor_si512(y, _mm512_alignr_epi64::<7>(y, zero));
        let y = _mm512_xor_si512(y, _mm512_alignr_epi64::<6>(y, zero));
        let y = _mm512_xor_si512(y, _mm512_alignr_epi64::<4>(y, zero));
        store(out, _mm512_xor_si512(_mm512_xor_si512(x, y), before));
        at += word.count_ones() as usize;
        if let Some(word) = bytes.get(at - W..at) {
            last.chunks_exact_mut(W).for_each(|own| own.copy_from_slice(word));
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2")]
fn unpack(bits: &[u8], width: u32, lookup: &[u8; 2 * LANES], out: &mut [u8]) {
    // Eight groups take `width` bytes: copy these to eight lanes, and shift a group to the front of each lane.
    let (mut spread, mut shifts) = ([0_u8; LANES], [0_u8; LANES]);
    for (lane, (from, shift)) in spread.iter_mut().zip(&mut shifts).enumerate() {
        *from = (lane / 8 * width as usize + lane % 8).min(LANES - 1) as u8;
        *shift = (lane % 8 * width as usize) as u8;
    }
    let (spread, shifts) = (load(&spread), load(&shifts));
    let mask = _mm512_set1_epi8(((1_u8 << width) - 1).cast_signed());
    let (low, high) = (load(&lookup[..LANES]), load(&lookup[LANES..]));
    for (out, packed) in out.chunks_mut(LANES).zip(bits.chunks(8 * width as usize)) {
        let lanes = _mm512_permutexvar_epi8(spread, load(packed));
        let groups = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, lanes), mask);
        store(out, _mm512_permutex2var_epi8(low, groups, high));
    }
}
