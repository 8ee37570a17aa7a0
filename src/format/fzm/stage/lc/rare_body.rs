//! One coded chunk of RARE or RAZE: full words where the upper bits are not the expected ones, the lower bits of all
//! other words, and bitmaps that tell them apart.
//!
//! Reference: section 2 of the LC stages. In order: the full words, the lower bits, the bitmaps, the bytes after the
//! last whole word, the number of lower bits, the length of the chunk.
#![forbid(unsafe_code)]

use super::bitmaps::{LONGEST, Levels, Tagged, marked};
use super::chunks::Invalid;
use crate::codec::bit_fields;
use crate::codec::word_merge::{merge, repeat_last};
use crate::error::Result;
use crate::format::fzm::stage::scratch::ScratchBuffer;

/// The upper bits of a short word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Upper {
    /// 0 (RAZE).
    Zero,
    /// The upper bits of the word before it, at the start 0 (RARE).
    Same,
}

/// Decodes `body` into `out`; the words have `word` bytes.
///
/// # Errors
/// Fails if the body is invalid.
pub(in super::super) fn decode(
    upper: Upper,
    word: usize,
    levels: Levels,
    body: &[u8],
    out: &mut [u8],
) -> Result<(), Invalid> {
    match word {
        1 => words::<1>(upper, levels, body, out),
        2 => words::<2>(upper, levels, body, out),
        4 => words::<4>(upper, levels, body, out),
        _ => words::<8>(upper, levels, body, out),
    }
}

fn words<const W: usize>(upper: Upper, levels: Levels, body: &[u8], out: &mut [u8]) -> Result<(), Invalid> {
    const LENGTH: &str = "the words do not have the length that the bitmaps require";
    let (body, [keep, tag @ ..]) = body.split_last_chunk::<3>().ok_or("too short for a tag")?;
    let Tagged { coded, extra } = Tagged::new(body, *tag, out.len(), W)?;
    let keep = u32::from(*keep);
    let (out, tail) = out.split_at_mut(out.len().saturating_sub(extra.len()));
    tail.copy_from_slice(extra);
    let bits = 8 * W as u32;
    if keep >= bits {
        let is_stored = keep == bits;
        if keep > bits + 1 {
            return Err("more lower bits than a word has".into());
        }
        if coded.len() != if is_stored { out.len() } else { 0 } {
            return Err(LENGTH.into());
        }
        if is_stored {
            out.copy_from_slice(coded);
        } else {
            out.fill(0);
        }
        return Ok(());
    }
    let mut bitmap = [0; LONGEST];
    let (stored, bitmap) = levels.rebuild(coded, &mut bitmap)?;
    let count = out.len() / W;
    let full = marked(bitmap, count)?;
    let short = count.saturating_sub(full);
    let (full, lower) = stored.split_at_checked(full.saturating_mul(W)).ok_or(LENGTH)?;
    if lower.len() != short.saturating_mul(keep as usize).div_ceil(8) {
        return Err(LENGTH.into());
    }
    let mut words = ScratchBuffer::new(short.saturating_mul(W))?;
    bit_fields::unpack::<W>(lower, 0, keep, &mut words);
    merge::<W>(bitmap, Some(&words), full, out);
    if upper == Upper::Same {
        let mut above = ScratchBuffer::new(out.len())?;
        repeat_last::<W>(bitmap, full, &mut above);
        add_upper::<W>(&above, keep, out);
    }
    Ok(())
}

/// Adds the bits of the words of `above` from bit `keep` on.
fn add_upper<const W: usize>(above: &[u8], keep: u32, out: &mut [u8]) {
    let ones = (u64::MAX >> (64 - 8 * W) << keep).to_le_bytes();
    let mut mask = [0; 8];
    mask.chunks_exact_mut(W).for_each(|word| word.copy_from_slice(&ones[..W]));
    let mask = u64::from_le_bytes(mask);
    let (eights, rest) = out.as_chunks_mut::<8>();
    let (above, last) = above.as_chunks::<8>();
    for (own, above) in eights.iter_mut().zip(above) {
        *own = (u64::from_le_bytes(*own) | u64::from_le_bytes(*above) & mask).to_le_bytes();
    }
    for ((own, above), mask) in rest.iter_mut().zip(last).zip(mask.to_le_bytes()) {
        *own |= above & mask;
    }
}
