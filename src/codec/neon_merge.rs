//! NEON kernels of [`bitmap_merge`](super::bitmap_merge) and [`word_merge`](super::word_merge) for aarch64: 64 bytes at a
//! time.
//!
//! Each vector is a look-up in the bytes that it may need, at places that a table has for its bits. Where these bytes
//! begin follows from the number of ones before, so that no vector waits for another.
//!
//! A [`Kernels`] value exists only if the processor has NEON, which makes the calls sound.
#![expect(unsafe_code, reason = "calls code compiled for NEON once the processor is known to have it")]
#![expect(clippy::unused_self, reason = "the receiver is the proof")]

use std::arch::aarch64::{
    uint8x16_t, uint8x16x2_t, uint8x16x4_t, vadd_u8, vandq_u8, vcnt_u8, vcombine_u8, vcreate_u8, vdup_n_u8, vdupq_n_u8,
    vget_lane_u64, vnegq_s16, vqtbl1_u8, vqtbl1q_u8, vqtbl2q_u8, vqtbl4q_u8, vqtbx4q_u8, vreinterpret_u64_u8,
    vreinterpretq_s16_u8, vreinterpretq_u8_u16, vreinterpretq_u16_u8, vshl_n_u8, vshlq_u16, vsubq_u8, vuzp1q_u8,
    vzip1_u8, vzip2_u8,
};

use super::merge_side::Side;
use super::neon::{self, Lanes, load, load_two, store};

/// Bytes at a time.
const BLOCK: usize = 64;
/// Bytes that a block may need of a sequence, and as many as are read at once from the last of its places.
const WINDOW: usize = BLOCK + 32;

/// Proof that the processor has NEON.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels(neon::Kernels);

impl Kernels {
    /// Bytes of the longest words that they merge.
    pub(super) const LONGEST: usize = 4;

    /// The kernels, if the processor has NEON.
    pub(super) fn get() -> Option<Self> {
        neon::Kernels::get().map(Self)
    }

    /// Like [`bitmap_merge::merge`](super::bitmap_merge::merge), for words of `W` bytes.
    pub(super) fn merge<const W: usize>(self, bits: &[u8], left: Side, right: Side, out: &mut [u8]) {
        // SAFETY: `self` proves that the processor has NEON.
        unsafe { merge::<W>(bits, left, right, out) }
    }

    /// Like [`bitmap_merge::repeat_last`](super::bitmap_merge::repeat_last), for words of `W` bytes.
    pub(super) fn repeat_last<const W: usize>(self, bits: &[u8], words: &[u8], out: &mut [u8]) {
        // SAFETY: `self` proves that the processor has NEON.
        unsafe { repeat_last::<W>(bits, words, out) }
    }

    /// Like [`bitmap_merge::unpack`](super::bitmap_merge::unpack), for groups of 2 to 7 bits, with `lookup` indexed by
    /// group.
    pub(super) fn unpack(self, bits: &[u8], width: u32, lookup: &[u8; 128], out: &mut [u8]) {
        // SAFETY: `self` proves that the processor has NEON.
        unsafe { unpack(bits, width, lookup, out) }
    }
}

/// For each mask, the places of the words that its bits select: of `count` words of each side for [`merge`], if
/// `is_merge`, or of the last word and those after it.
const fn places<const MASKS: usize, const N: usize>(count: usize, is_merge: bool) -> [[u8; N]; MASKS] {
    let (mut table, width) = ([[0; N]; MASKS], N / count);
    let mut mask = 0;
    while mask < MASKS {
        let (mut at, mut ones) = (0, 0);
        while at < count {
            let bit = mask >> at & 1;
            let word = match (is_merge, bit) {
                (true, 0) => at - ones,
                (true, _) => count + ones,
                (false, _) => ones + bit,
            };
            let mut byte = 0;
            while byte < width {
                table[mask][at * width + byte] = (word * width + byte) as u8;
                byte += 1;
            }
            (at, ones) = (at + 1, ones + bit);
        }
        mask += 1;
    }
    table
}

/// For eight words of a byte.
static MERGE_8: [[u8; 8]; 256] = places(8, true);
static REPEAT_8: [[u8; 8]; 256] = places(8, false);
/// For four words of four bytes.
static MERGE_4: [Lanes; 16] = places(4, true);
static REPEAT_4: [Lanes; 16] = places(4, false);

/// The places for a vector of words of 2 or 4 bytes.
#[inline]
#[target_feature(enable = "neon")]
fn wide_places<const W: usize>(mask: u8, eight: &[[u8; 8]; 256], four: &[Lanes; 16]) -> uint8x16_t {
    if W == 4 {
        return load(&four[usize::from(mask % 16)]);
    }
    let even = vshl_n_u8::<1>(vcreate_u8(u64::from_le_bytes(eight[usize::from(mask)])));
    let odd = vadd_u8(even, vdup_n_u8(1));
    vcombine_u8(vzip1_u8(even, odd), vzip2_u8(even, odd))
}

/// The masks of the vectors of a block, of eight words, or of four if these have 4 bytes, from at most `8 / W` bytes.
#[inline]
fn masks<const W: usize>(bits: &[u8]) -> [u8; 8] {
    let mut masks = [0; 8];
    for (mask, bits) in masks.iter_mut().zip(bits) {
        *mask = *bits;
    }
    if W == 4 {
        let [a, b, ..] = masks;
        masks = [a & 15, a >> 4, b & 15, b >> 4, 0, 0, 0, 0];
    }
    masks
}

/// For each mask, the number of ones in those before it; and the number in all.
#[inline]
#[target_feature(enable = "neon")]
fn ones_before(masks: [u8; 8]) -> ([u8; 8], usize) {
    let ones = vget_lane_u64::<0>(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(u64::from_le_bytes(masks)))));
    let sums = ones.wrapping_mul(0x0101_0101_0101_0101);
    ((sums << 8).to_le_bytes(), (sums >> 56) as usize)
}

/// The bytes from `at` on, with `pad` around those at the end.
#[inline]
fn window<'a, const N: usize>(bytes: &'a [u8], at: usize, pad: &'a mut [u8; N]) -> &'a [u8; N] {
    let rest = bytes.get(at..).unwrap_or_default();
    if let Some(window) = rest.first_chunk() {
        return window;
    }
    pad[..rest.len()].copy_from_slice(rest);
    pad
}

/// `N` bytes of a window from `at` on, which is less than a block.
#[inline]
fn part<const N: usize>(window: &[u8; WINDOW], at: usize) -> &[u8; N] {
    window[at % BLOCK..].first_chunk().unwrap_or(&[0; N])
}

/// Fills `out`, which is at most a block long, with the first of `bytes`.
#[inline]
fn put(out: &mut [u8], bytes: &[u8; BLOCK]) {
    match out.first_chunk_mut() {
        Some(out) => *out = *bytes,
        None => out.copy_from_slice(&bytes[..out.len()]),
    }
}

#[target_feature(enable = "neon")]
fn merge<const W: usize>(bits: &[u8], left: Side, right: Side, out: &mut [u8]) {
    let (mut l, mut r, mut pads) = (0, 0, [[0; WINDOW]; 2]);
    for (out, bits) in out.chunks_mut(BLOCK).zip(bits.chunks(8 / W)) {
        let masks = masks::<W>(bits);
        let (before, ones) = ones_before(masks);
        let [left_pad, right_pad] = &mut pads;
        let (own, other) = (side(left, l, left_pad), side(right, r, right_pad));
        let mut merged = [0; BLOCK];
        if W == 1 {
            for (k, out) in merged.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let ones = usize::from(before[k]);
                let eight = |window, at| vcreate_u8(u64::from_le_bytes(*part(window, at)));
                let both = vcombine_u8(eight(own, 8 * k - ones), eight(other, ones));
                *out = looked_up(both, MERGE_8[usize::from(masks[k])]);
            }
        } else {
            for (k, out) in merged.as_chunks_mut().0.iter_mut().enumerate() {
                let ones = W * usize::from(before[k]);
                let both = uint8x16x2_t(load(part(own, 16 * k - ones)), load(part(other, ones)));
                store(out, vqtbl2q_u8(both, wide_places::<W>(masks[k], &MERGE_8, &MERGE_4)));
            }
        }
        put(out, &merged);
        (l, r) = (l + BLOCK - W * ones, r + W * ones);
    }
}

/// The bytes of a side from `at` on.
#[inline]
fn side<'a>(side: Side<'a>, at: usize, pad: &'a mut [u8; WINDOW]) -> &'a [u8; WINDOW] {
    match side {
        Side::Byte(byte) => {
            *pad = [byte; WINDOW];
            pad
        }
        Side::Bytes(bytes) => window(bytes, at, pad),
    }
}

/// The bytes of `bytes` at `places`.
#[inline]
#[target_feature(enable = "neon")]
fn looked_up(bytes: uint8x16_t, places: [u8; 8]) -> [u8; 8] {
    let found = vqtbl1_u8(bytes, vcreate_u8(u64::from_le_bytes(places)));
    vget_lane_u64::<0>(vreinterpret_u64_u8(found)).to_le_bytes()
}

#[target_feature(enable = "neon")]
fn repeat_last<const W: usize>(bits: &[u8], words: &[u8], out: &mut [u8]) {
    // A word of zeros is before the first one; so many words, with it, are before the last one.
    let (mut start, mut at, mut pad) = ([0; WINDOW], 0_usize, [0; WINDOW]);
    let first = words.len().min(WINDOW - W);
    start[W..W + first].copy_from_slice(&words[..first]);
    for (out, bits) in out.chunks_mut(BLOCK).zip(bits.chunks(8 / W)) {
        let masks = masks::<W>(bits);
        let (before, ones) = ones_before(masks);
        let own = match at.checked_sub(W) {
            None => &start,
            Some(last) => window(words, last, &mut pad),
        };
        let mut repeated = [0; BLOCK];
        if W == 1 {
            for (k, out) in repeated.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                *out = looked_up(load(part(own, before[k].into())), REPEAT_8[usize::from(masks[k])]);
            }
        } else {
            for (k, out) in repeated.as_chunks_mut().0.iter_mut().enumerate() {
                let some = load_two(part(own, W * usize::from(before[k])));
                store(out, vqtbl2q_u8(some, wide_places::<W>(masks[k], &REPEAT_8, &REPEAT_4)));
            }
        }
        put(out, &repeated);
        at += W * ones;
    }
}

/// Groups that are unpacked at a time.
const GROUPS: usize = 16;

/// For groups of `width` bits, the two bytes that each lies in, eight groups per vector; and how far it is above the
/// lowest bit of these, as 16-bit numbers.
fn group_places(width: usize) -> ([Lanes; 2], Lanes) {
    let (mut from, mut above) = ([[0; GROUPS]; 2], [0; GROUPS]);
    for (i, from) in from.as_flattened_mut().as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let byte = (i * width / 8) as u8;
        *from = [byte, byte + 1];
    }
    for (i, above) in above.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        *above = ((i * width % 8) as i16).to_le_bytes();
    }
    (from, above)
}

#[target_feature(enable = "neon")]
fn unpack(bits: &[u8], width: u32, lookup: &[u8; 128], out: &mut [u8]) {
    let (from, above) = group_places(width as usize);
    let (first, second, down) = (load(&from[0]), load(&from[1]), vnegq_s16(vreinterpretq_s16_u8(load(&above))));
    let mask = vdupq_n_u8((1 << width) - 1);
    let mut table = [vdupq_n_u8(0); 8];
    for (own, lookup) in table.iter_mut().zip(lookup.as_chunks().0) {
        *own = load(lookup);
    }
    let [a, b, c, d, e, f, g, h] = table;
    let (low, high) = (uint8x16x4_t(a, b, c, d), uint8x16x4_t(e, f, g, h));
    let mut pad = [0; GROUPS];
    for (i, out) in out.chunks_mut(GROUPS).enumerate() {
        let packed = load(window(bits, i * 2 * width as usize, &mut pad));
        let group = |places| vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(packed, places)), down);
        let groups = vuzp1q_u8(vreinterpretq_u8_u16(group(first)), vreinterpretq_u8_u16(group(second)));
        let groups = vandq_u8(groups, mask);
        let found = match width {
            ..5 => vqtbl1q_u8(a, groups),
            5 | 6 => vqtbl4q_u8(low, groups),
            _ => vqtbx4q_u8(vqtbl4q_u8(low, groups), high, vsubq_u8(groups, vdupq_n_u8(64))),
        };
        if let Some(out) = out.first_chunk_mut() {
            store(out, found);
        } else {
            let mut last = [0; GROUPS];
            store(&mut last, found);
            out.copy_from_slice(&last[..out.len()]);
        }
    }
}
