//! A chunk that stores only the words marked in a bitmap: RRE, and RZE since it knows words.
//!
//! Reference: section 5 of the block stages (RRE), section 5.7 (RZE). In order: the kept words, the bitmaps, the bytes
//! after the last whole word, the length of the chunk. Without words and bitmaps, all words are 0.
#![forbid(unsafe_code)]

use super::bitmaps::{LONGEST, Levels, Tagged, marked};
use super::chunks::Invalid;
use crate::codec::word_merge::{merge, repeat_last};
use crate::error::Result;

/// The value of a word that is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Left {
    /// 0 (RZE).
    Zero,
    /// The word before it, at the start 0 (RRE).
    Same,
}

/// Decodes `body` into `out`; the words have `word` bytes.
///
/// # Errors
/// Fails if the body is invalid.
pub(in super::super) fn decode(
    left: Left,
    word: usize,
    levels: Levels,
    body: &[u8],
    out: &mut [u8],
) -> Result<(), Invalid> {
    let (body, tag) = body.split_last_chunk().ok_or("too short for a tag")?;
    let Tagged { coded, extra } = Tagged::new(body, *tag, out.len(), word)?;
    let (words, tail) = out.split_at_mut(out.len().saturating_sub(extra.len()));
    tail.copy_from_slice(extra);
    if coded.is_empty() {
        words.fill(0);
        return Ok(());
    }
    let mut bitmap = [0; LONGEST];
    let (data, bitmap) = levels.rebuild(coded, &mut bitmap)?;
    if marked(bitmap, words.len() / word)?.saturating_mul(word) != data.len() {
        return Err("the data does not have the length that the bitmaps require".into());
    }
    match word {
        1 => place::<1>(left, bitmap, data, words),
        2 => place::<2>(left, bitmap, data, words),
        4 => place::<4>(left, bitmap, data, words),
        _ => place::<8>(left, bitmap, data, words),
    }
    Ok(())
}

/// Writes the words of `data` where `bitmap` has bits.
fn place<const W: usize>(left: Left, bitmap: &[u8], data: &[u8], out: &mut [u8]) {
    match left {
        Left::Zero => merge::<W>(bitmap, None, data, out),
        Left::Same => repeat_last::<W>(bitmap, data, out),
    }
}
