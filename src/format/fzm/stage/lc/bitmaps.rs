//! Levels of bitmaps: each marks the bytes of the level below that differ from the byte before.
//!
//! Reference: section 2 of the LC stages, section 5 of the block stages (RRE), sections 5.7 and 5.9 (RZE). Only the
//! marked bytes are stored, and the last bitmap whole; so bitmaps are rebuilt from the last to the first.
#![forbid(unsafe_code)]

use super::chunks::Invalid;
use crate::codec::bitmap_merge::{ones, repeat_last};
use crate::error::Result;

/// Bytes of the longest first bitmap.
pub(in super::super) const LONGEST: usize = 2048;
/// Bytes of the longest second bitmap.
const SECOND: usize = LONGEST / 8;

/// The sizes of the bitmaps of a chunk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Levels {
    /// The first bitmap, and the others that are rebuilt; 0: not there.
    rebuilt: [usize; 3],
    /// The one that is stored whole.
    last: usize,
}

impl Levels {
    /// For chunks of `chunk` bytes (at most 16384) and words of `word` bytes; chunks that are shorter have the same.
    pub(in super::super) fn of(chunk: usize, word: usize) -> Self {
        let first = chunk / 8 / word.max(1);
        if word == 8 {
            Self { rebuilt: [first, first / 8, 0], last: first / 64 }
        } else {
            Self { rebuilt: [first, first / 8, first / 64], last: first / 512 }
        }
    }

    /// For the first RZE: as long as `len` bytes need, and a last one of four bytes.
    pub(in super::super) fn shortest(len: usize) -> Self {
        let first = len.div_ceil(8);
        let second = first.div_ceil(8);
        Self { rebuilt: [first, second, second.div_ceil(8)], last: 4 }
    }

    /// Rebuilds the first bitmap into `out`, from the bitmaps that end at the end of `stored`. It gets the bytes before
    /// them, and the bitmap.
    pub(in super::super) fn rebuild<'a, 'b>(
        self,
        stored: &'a [u8],
        out: &'b mut [u8; LONGEST],
    ) -> Result<(&'a [u8], &'b [u8]), Invalid> {
        const SHORT: &str = "too short for a bitmap and a tag";
        let Self { rebuilt: [first, second, third], last } = self;
        if last == 0 {
            return Err(Invalid::Undefined("bitmaps without a last level"));
        }
        let (rest, last) = stored.split_at_checked(stored.len().wrapping_sub(last)).ok_or(SHORT)?;
        let (mut b2, mut b3) = ([0; SECOND], [0; SECOND / 8]);
        let (Some(b1), Some(b2), Some(b3)) = (out.get_mut(..first), b2.get_mut(..second), b3.get_mut(..third)) else {
            return Err("the output is longer than a chunk".into());
        };
        let (rest, third): (_, &[u8]) = if third == 0 { (rest, last) } else { (level(last, rest, b3)?, b3) };
        let rest = level(third, rest, b2)?;
        let rest = level(b2, rest, b1)?;
        Ok((rest, b1))
    }
}

/// The number of bits set in `bitmap`; fails if one is at or beyond `positions`.
pub(in super::super) fn marked(bitmap: &[u8], positions: usize) -> Result<usize, Invalid> {
    let (used, beyond) = bitmap.split_at_checked(positions.div_ceil(8)).ok_or("a bitmap is too short")?;
    let partial = positions % 8;
    let last = used.last().map_or(0, |&last| if partial == 0 { 0 } else { last >> partial });
    if last != 0 || beyond.iter().any(|&byte| byte != 0) {
        return Err("a bitmap marks bytes beyond the end".into());
    }
    Ok(ones(used, positions))
}

/// Rebuilds `out` from the bytes where it changes: the last of `stored`, one per bit set in `changes`. Returns the
/// bytes before.
fn level<'a>(changes: &[u8], stored: &'a [u8], out: &mut [u8]) -> Result<&'a [u8], Invalid> {
    let start = stored.len().checked_sub(marked(changes, out.len())?);
    let (rest, bytes) = start.and_then(|start| stored.split_at_checked(start)).ok_or(FEWER)?;
    repeat_last(changes, bytes, out);
    Ok(rest)
}

/// The bytes end before the bitmaps.
const FEWER: &str = "fewer bytes than a bitmap requires";

/// The parts of a body that ends with the bytes after the last whole word, and a tag: the length of the chunk.
pub(in super::super) struct Tagged<'a> {
    /// The kept words and the bitmaps.
    pub(in super::super) coded: &'a [u8],
    /// The bytes after the last whole word.
    pub(in super::super) extra: &'a [u8],
}

impl<'a> Tagged<'a> {
    /// The parts of `body`, without its `tag`, of a chunk of `len` bytes in words of `word` bytes.
    pub(in super::super) fn new(body: &'a [u8], tag: [u8; 2], len: usize, word: usize) -> Result<Self, Invalid> {
        if usize::from(u16::from_le_bytes(tag)) != len {
            return Err("the tag is not the length of the chunk".into());
        }
        let end = body.len().checked_sub(len % word.max(1)).ok_or("too short for the bytes after the last word")?;
        let (coded, extra) = body.split_at(end);
        Ok(Self { coded, extra })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_from_chunk_and_word() {
        for (chunk, word, rebuilt, last) in [
            (16384, 1, [2048, 256, 32], 4),
            (16384, 2, [1024, 128, 16], 2),
            (16384, 4, [512, 64, 8], 1),
            (16384, 8, [256, 32, 0], 4),
            (8192, 1, [1024, 128, 16], 2),
            (8192, 4, [256, 32, 4], 0),
            (8192, 8, [128, 16, 0], 2),
            (4096, 1, [512, 64, 8], 1),
            (4096, 2, [256, 32, 4], 0),
            (4096, 4, [128, 16, 2], 0),
            (4096, 8, [64, 8, 0], 1),
        ] {
            assert_eq!(Levels::of(chunk, word), Levels { rebuilt, last }, "{chunk} {word}");
        }
    }
}
