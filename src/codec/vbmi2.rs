//! AVX-512 VBMI2 kernels of [`bitmap_merge`](super::bitmap_merge) for x86-64: 64 bytes at a time.
//!
//! A [`Kernels`] value exists only if the processor has the features that they are compiled for, which makes the calls
//! sound. Loads and stores are masked to the bytes of their slices.
#![expect(unsafe_code, reason = "calls code compiled for AVX-512 once the processor is known to have it")]
#![expect(clippy::unused_self, reason = "the receiver is the proof")]

use std::arch::x86_64::{
    __m512i, _mm512_alignr_epi64, _mm512_and_si512, _mm512_mask_expand_epi8, _mm512_mask_storeu_epi8,
    _mm512_maskz_expand_epi8, _mm512_maskz_loadu_epi8, _mm512_multishift_epi64_epi8, _mm512_permutex2var_epi8,
    _mm512_permutexvar_epi8, _mm512_set1_epi8, _mm512_set4_epi32, _mm512_setzero_si512, _mm512_shuffle_epi8,
    _mm512_slli_epi64, _mm512_xor_si512,
};

use super::merge_side::Side;

/// Bytes per vector.
const LANES: usize = 64;

/// Proof that the processor has AVX-512 F, BW, VBMI and VBMI2.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels(());

impl Kernels {
    /// The kernels, if the processor has these features.
    pub(super) fn get() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("popcnt");
        has.then_some(Self(()))
    }

    /// Like [`bitmap_merge::merge`](super::bitmap_merge::merge).
    pub(super) fn merge(self, bits: &[u8], left: Side, right: Side, out: &mut [u8]) {
        // SAFETY: `self` proves that the processor has these features.
        unsafe { merge(bits, left, right, out) }
    }

    /// Like [`bitmap_merge::repeat_last`](super::bitmap_merge::repeat_last).
    pub(super) fn repeat_last(self, bits: &[u8], bytes: &[u8], out: &mut [u8]) {
        // SAFETY: `self` proves that the processor has these features.
        unsafe { repeat_last(bits, bytes, out) }
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

/// The next 64 bits of a bitmap, of which `bytes` has at most eight bytes.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => bytes.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b)),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
fn merge(bits: &[u8], left: Side, right: Side, out: &mut [u8]) {
    let (mut l, mut r) = (0_usize, 0_usize);
    let take = |side: Side, at: usize| match side {
        Side::Byte(byte) => _mm512_set1_epi8(byte.cast_signed()),
        Side::Bytes(bytes) => load(bytes.get(at..).unwrap_or_default()),
    };
    for (out, word) in out.chunks_mut(LANES).zip(bits.chunks(8).map(word)) {
        let zeros = _mm512_maskz_expand_epi8(!word, take(left, l));
        store(out, _mm512_mask_expand_epi8(zeros, word, take(right, r)));
        let ones = word.count_ones() as usize;
        (l, r) = (l + LANES - ones, r + ones);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
fn repeat_last(bits: &[u8], bytes: &[u8], out: &mut [u8]) {
    let (zero, mut at, mut last) = (_mm512_setzero_si512(), 0_usize, 0_u8);
    for (out, word) in out.chunks_mut(LANES).zip(bits.chunks(8).map(word)) {
        let before = _mm512_set1_epi8(last.cast_signed());
        if word == 0 {
            store(out, before);
            continue;
        }
        // Where bytes change, the difference from the byte before; then the differences are summed up, without carry.
        let own = load(bytes.get(at..).unwrap_or_default());
        let differ = _mm512_xor_si512(own, _mm512_mask_expand_epi8(before, !1, own));
        let x = _mm512_maskz_expand_epi8(word, differ);
        let x = _mm512_xor_si512(x, _mm512_slli_epi64::<8>(x));
        let x = _mm512_xor_si512(x, _mm512_slli_epi64::<16>(x));
        let x = _mm512_xor_si512(x, _mm512_slli_epi64::<32>(x));
        let ends = _mm512_shuffle_epi8(x, _mm512_set4_epi32(0x0F0F_0F0F, 0x0F0F_0F0F, 0x0707_0707, 0x0707_0707));
        let y = _mm512_alignr_epi64::<7>(ends, zero);
        let y = _mm512_xor_si512(y, _mm512_alignr_epi64::<7>(y, zero));
        let y = _mm512_xor_si512(y, _mm512_alignr_epi64::<6>(y, zero));
        let y = _mm512_xor_si512(y, _mm512_alignr_epi64::<4>(y, zero));
        store(out, _mm512_xor_si512(_mm512_xor_si512(x, y), before));
        at += word.count_ones() as usize;
        last = bytes.get(at - 1).copied().unwrap_or(last);
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
