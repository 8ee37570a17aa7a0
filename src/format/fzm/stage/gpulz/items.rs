//! One coded chunk of GPULZ: literal words, and matches of earlier words.
//!
//! Reference: section 5 of the LC stages. A bit per item, lowest first, says which it is. A literal is a word; a match
//! is its length and its distance in words.
#![forbid(unsafe_code)]

use crate::error::Result;

/// The items of a chunk, in order.
pub(super) trait Items {
    /// The next `n` bytes of literals.
    fn literals(&mut self, n: usize) -> Option<&[u8]>;
    /// The length and the distance of the next match.
    fn pair(&mut self) -> Option<[u8; 2]>;
    /// Whether all items are used.
    fn is_done(&self) -> bool;
}

/// All items in one sequence.
pub(super) struct Mixed<'a>(pub(super) &'a [u8]);

impl Items for Mixed<'_> {
    #[inline]
    fn literals(&mut self, n: usize) -> Option<&[u8]> {
        let (bytes, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(bytes)
    }

    #[inline]
    fn pair(&mut self) -> Option<[u8; 2]> {
        let (pair, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*pair)
    }

    fn is_done(&self) -> bool {
        self.0.is_empty()
    }
}

/// Literals, lengths and distances in separate sequences.
pub(super) struct Split<'a> {
    pub(super) literals: &'a [u8],
    pub(super) lengths: &'a [u8],
    pub(super) offsets: &'a [u8],
}

impl Items for Split<'_> {
    #[inline]
    fn literals(&mut self, n: usize) -> Option<&[u8]> {
        let (bytes, rest) = self.literals.split_at_checked(n)?;
        self.literals = rest;
        Some(bytes)
    }

    #[inline]
    fn pair(&mut self) -> Option<[u8; 2]> {
        let ((length, lengths), (offset, offsets)) = (self.lengths.split_first()?, self.offsets.split_first()?);
        (self.lengths, self.offsets) = (lengths, offsets);
        Some([*length, *offset])
    }

    fn is_done(&self) -> bool {
        self.literals.is_empty() && self.lengths.is_empty() && self.offsets.is_empty()
    }
}

const BEYOND: &str = "an item beyond the end of the chunk";
const FEWER: &str = "fewer bytes than the items require";

/// Decodes the items that `flags` describes into `out`, whole words of `word` bytes.
///
/// # Errors
/// Fails with a description if they do not give exactly `out`.
pub(super) fn decode(word: usize, flags: &[u8], items: impl Items, out: &mut [u8]) -> Result<(), &'static str> {
    match word {
        1 => words::<1>(flags, items, out),
        2 => words::<2>(flags, items, out),
        4 => words::<4>(flags, items, out),
        _ => words::<8>(flags, items, out),
    }
}

/// As [`decode`], for words of `W` bytes.
fn words<const W: usize>(flags: &[u8], mut items: impl Items, out: &mut [u8]) -> Result<(), &'static str> {
    let words = out.as_chunks_mut::<W>().0;
    let mut at = 0;
    for group in flags.chunks(8) {
        let mut bits = group.iter().rev().fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
        let mut left = 8 * group.len();
        while left > 0 {
            let run = (bits.trailing_zeros() as usize).min(left).min(words.len() - at);
            if run > 0 {
                let bytes = items.literals(run * W).ok_or(FEWER)?;
                words[at..at + run].as_flattened_mut().copy_from_slice(bytes);
                at += run;
                left -= run;
                bits = bits.checked_shr(run as u32).unwrap_or(0);
            }
            if left == 0 || bits & 1 == 0 {
                // All items that follow, if any, are literals; the chunk may be complete.
                if at < words.len() {
                    continue;
                }
                if bits != 0 {
                    return Err(BEYOND);
                }
                break;
            }
            let [length, offset] = items.pair().ok_or(FEWER)?.map(usize::from);
            if length == 0 || length > words.len() - at {
                return Err(BEYOND);
            }
            repeat(words, at, length, offset)?;
            at += length;
            left -= 1;
            bits >>= 1;
        }
    }
    match (at == words.len(), items.is_done()) {
        (true, true) => Ok(()),
        (false, _) => Err("the items end before the chunk"),
        _ => Err("more bytes than the items require"),
    }
}

/// Copies `length` words to `at` from `offset` words before, which may be words of the copy.
#[inline]
fn repeat<const W: usize>(words: &mut [[u8; W]], at: usize, length: usize, offset: usize) -> Result<(), &'static str> {
    let start = at.checked_sub(offset).filter(|_| offset > 0).ok_or("a match of words before the chunk")?;
    if offset == 1 {
        let word = words[start];
        words[at..at + length].fill(word);
    } else if offset >= length {
        words.copy_within(start..start + length, at);
    } else {
        for i in at..at + length {
            words[i] = words[i - offset];
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed(flags: &[u8], items: &[u8], words: usize) -> Result<Vec<u8>, &'static str> {
        let mut out = vec![0xAA; words * 2];
        decode(2, flags, Mixed(items), &mut out).map(|()| out)
    }

    #[test]
    fn matches_repeat_words_before_and_their_own() {
        // Two literals, a match of 5 words from 2 before, a match of 3 from 1 before, a literal.
        let items = [1, 2, 3, 4, 5, 2, 3, 1, 9, 9];
        let want = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 1, 2, 1, 2, 1, 2, 9, 9];
        assert_eq!(mixed(&[0b0_1100], &items, 11).unwrap(), want);
        let mut out = [0; 22];
        let split = Split { literals: &[1, 2, 3, 4, 9, 9], lengths: &[5, 3], offsets: &[2, 1] };
        decode(2, &[0b0_1100, 0], split, &mut out).unwrap();
        assert_eq!(out, want);
        let far = [&[1, 0, 2, 0, 3, 0][..], &[2, 3]].concat();
        assert_eq!(mixed(&[0b1000], &far, 5).unwrap(), [1, 0, 2, 0, 3, 0, 1, 0, 2, 0]);
    }

    #[test]
    fn runs_of_literals_cross_the_words_of_flags() {
        let literals: Vec<u8> = (0..=255).collect();
        assert_eq!(mixed(&[0; 16], &literals, 128).unwrap(), literals);
        assert_eq!(mixed(&[0; 16], &literals[..254], 127).unwrap(), literals[..254]);
        let mut flags = [0; 17];
        flags[16] = 1;
        let items = [&literals[..], &[3, 128]].concat();
        assert_eq!(mixed(&flags, &items, 131).unwrap()[256..], literals[..6]);
    }

    #[test]
    fn items_that_do_not_fit_the_chunk_are_refused() {
        let ok = [1, 2, 3, 1];
        assert_eq!(mixed(&[2], &ok, 4).unwrap(), [1, 2, 1, 2, 1, 2, 1, 2]);
        for (flags, items, words, why) in [
            (&[2][..], &[1, 2, 3, 2][..], 4, "a match of words before the chunk"),
            (&[2], &[1, 2, 3, 0], 4, "a match of words before the chunk"),
            (&[1], &[3, 1], 3, "a match of words before the chunk"),
            (&[2], &[1, 2, 0, 1], 4, BEYOND),
            (&[2], &[1, 2, 4, 1], 4, BEYOND),
            (&[6], &[1, 2, 3, 1, 1, 1], 4, BEYOND),
            (&[2, 0, 0, 0, 0, 0, 0, 0, 1], &ok, 4, "fewer bytes than the items require"),
            (&[2], &ok[..3], 4, FEWER),
            (&[2], &[1, 2, 3, 1, 5], 4, "more bytes than the items require"),
            (&[2], &ok, 5, FEWER),
            (&[], &[], 1, "the items end before the chunk"),
        ] {
            assert_eq!(mixed(flags, items, words).unwrap_err(), why, "{flags:?} {items:?}");
        }
    }
}
