//! One coded chunk of `GolombRice`: 16 intervals of codes of variable length.
//!
//! Reference: section 6 of the LC stages. The parameter k, where each interval starts, the intervals. A code is a
//! number in unary and k bits, or 24 ones and the element itself.
#![forbid(unsafe_code)]

use super::chunks::Invalid;
use crate::error::Result;
use crate::format::fzm::stage::types::{Unsigned, elements};

/// Intervals of a chunk.
const INTERVALS: usize = 16;
/// Bytes of a full interval.
const INTERVAL: usize = 1024;
/// Bytes before the intervals.
const HEAD: usize = 4 + 4 * INTERVALS;
/// Ones before an element that is stored as it is.
const ESCAPE: u32 = 24;
/// Intervals that are decoded together: codes of different intervals do not wait for each other.
const LANES: usize = 4;

/// Bytes of the longest body of a chunk that decodes to `len` bytes: no code has three times the bits of its element.
pub(in super::super) fn longest(len: usize) -> usize {
    HEAD.saturating_add(len.saturating_mul(3))
}

/// Decodes `body` into `out`; `limit` is the largest k for elements of type `U`.
///
/// # Errors
/// Fails if the body is invalid.
pub(in super::super) fn decode<U: Unsigned>(limit: u32, body: &[u8], out: &mut [u8]) -> Result<(), Invalid> {
    let (head, codes) = body.split_first_chunk::<HEAD>().ok_or("too short for its intervals")?;
    let mut head = elements::<u32>(head);
    let k = head.next().unwrap_or(0);
    if k > limit {
        return Err("a parameter k that is too large".into());
    }
    let mut ends = [8 * codes.len(); INTERVALS];
    let mut before = 0;
    for (i, start) in head.enumerate() {
        let start = start as usize;
        if start < before || start > codes.len() || i == 0 && start > 0 {
            return Err("intervals that do not follow each other".into());
        }
        if let Some(end) = i.checked_sub(1).and_then(|i| ends.get_mut(i)) {
            *end = 8 * start;
        }
        before = start;
    }
    let (out, tail) = out.split_at_mut(out.len() - out.len() % U::SIZE);
    tail.fill(0);
    let codes = GolombRiceCodes { bytes: codes, k };
    let mut start = 0;
    let (mut wide, mut is_outside) = (0, false);
    for (four, ends) in out.chunks_mut(LANES * INTERVAL).zip(ends.as_chunks::<LANES>().0) {
        let mut at = [start, ends[0], ends[1], ends[2]];
        start = ends[3];
        match four.as_chunks_mut::<INTERVAL>() {
            ([a, b, c, d], []) => {
                let lanes = a.chunks_exact_mut(U::SIZE).zip(b.chunks_exact_mut(U::SIZE));
                let lanes = lanes.zip(c.chunks_exact_mut(U::SIZE).zip(d.chunks_exact_mut(U::SIZE)));
                for ((a, b), (c, d)) in lanes {
                    for (own, at) in [a, b, c, d].into_iter().zip(&mut at) {
                        wide |= codes.next::<U>(at, own);
                    }
                }
            }
            _ => {
                for (interval, at) in four.chunks_mut(INTERVAL).zip(&mut at) {
                    interval.chunks_exact_mut(U::SIZE).for_each(|own| wide |= codes.next::<U>(at, own));
                }
            }
        }
        is_outside |= at.iter().zip(ends).any(|(at, end)| at > end);
    }
    match (is_outside, wide) {
        (true, _) => Err("a code outside its interval".into()),
        (_, 1..) => Err("a code that is larger than an element".into()),
        _ => Ok(()),
    }
}

/// The codes of a chunk.
struct GolombRiceCodes<'a> {
    bytes: &'a [u8],
    k: u32,
}

impl GolombRiceCodes<'_> {
    /// Decodes the code at bit `at` into `own`, and moves to the next. Returns the bits that are too many for an
    /// element. After the end, all bits are 0.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the inner loop")]
    fn next<U: Unsigned>(&self, at: &mut usize, own: &mut [u8]) -> u64 {
        // At least 57 bits, and a code has at most 56.
        let bits = self.eight(*at / 8) >> (*at % 8);
        let ones = bits.trailing_ones();
        let width = 8 * U::SIZE as u32;
        let (value, len) = if ones < ESCAPE {
            let rest = bits >> (ones + 1) & ((1 << self.k) - 1);
            (u64::from(ones) << self.k | rest, ones + 1 + self.k)
        } else {
            (bits >> ESCAPE & (u64::MAX >> (64 - width)), ESCAPE + width)
        };
        *at += len as usize;
        U::get(&value.to_le_bytes()[..U::SIZE]).unzigzag().put(own);
        value >> width
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the inner loop")]
    fn eight(&self, at: usize) -> u64 {
        let rest = self.bytes.get(at..).unwrap_or_default();
        match rest.first_chunk() {
            Some(eight) => u64::from_le_bytes(*eight),
            None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        }
    }
}
