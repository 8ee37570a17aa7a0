//! The sequences section of a compressed block: the stream of sequences.
//!
//! Reference: section 2.4, "Sequences section".
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

use super::bits::ReverseBitReader;
use super::fse::{FseEntry, SEQUENCES};
use super::tables::{Dialect, Tables};

const WHAT: &str = "sequences section";

/// One sequence: copy literals, then copy a match from `offset` bytes back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::codec::zstd) struct ZstdSequence {
    pub(in crate::codec::zstd) literals: u32,
    pub(in crate::codec::zstd) matched: u32,
    pub(in crate::codec::zstd) offset: usize,
}

/// The offsets used last, to which the values in a stream of sequences may refer.
pub(in crate::codec::zstd) trait History: Copy {
    /// Converts an offset value (at least 1) to an offset.
    fn resolve(&mut self, value: usize, without_literals: bool) -> usize;
}

/// The bits above the `n` lowest, and those.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
fn split(bits: u64, n: u32) -> (u64, u64) {
    (bits >> n, bits & ((1 << n) - 1))
}

/// Leaves offset values as they are.
#[derive(Debug, Clone, Copy)]
struct OffsetValues;

impl History for OffsetValues {
    #[inline]
    fn resolve(&mut self, value: usize, _: bool) -> usize {
        value
    }
}

const EARLY: &str = "the bit stream ends before the last sequence";

fn short() -> Error {
    Error::corrupt("runs past the end of the block", WHAT)
}

/// Reads the number of sequences in section `src`; also returns the bytes after it.
///
/// # Errors
/// Fails if it is truncated.
pub(in crate::codec::zstd) fn count(src: &[u8]) -> Result<(usize, &[u8])> {
    let (&first, rest) = src.split_first().ok_or_else(short)?;
    Ok(match first {
        0..128 => (usize::from(first), rest),
        128..255 => {
            let (&low, rest) = rest.split_first().ok_or_else(short)?;
            ((usize::from(first) - 128) << 8 | usize::from(low), rest)
        }
        255 => {
            let (bytes, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
            (usize::from(u16::from_le_bytes(*bytes)) + 0x7F00, rest)
        }
    })
}

/// A decoder for the sequences of a section.
#[derive(Debug)]
pub(in crate::codec::zstd) struct Sequences<'a> {
    left: usize,
    bits: ReverseBitReader<'a>,
    /// Tables of literal lengths, offsets and match lengths.
    cells: [&'a [FseEntry; SEQUENCES]; 3],
    states: [usize; 3],
}

impl<'a> Sequences<'a> {
    /// Reads the header of section `src` and its tables; `None` if there are no sequences.
    ///
    /// # Errors
    /// Fails if they are malformed, or a table is repeated although there was none.
    pub(in crate::codec::zstd) fn open(
        src: &'a [u8],
        tables: &'a mut Tables,
        dialect: Dialect,
    ) -> Result<Option<Self>> {
        let (left, rest) = count(src)?;
        if left == 0 {
            return Ok(None);
        }
        let (&modes, rest) = rest.split_first().ok_or_else(short)?;
        let rest = tables.read(modes, dialect, rest)?;
        Self::of(left, rest, tables).map(Some)
    }

    /// The `left` sequences of a section, at least one, in the bit stream `src`.
    ///
    /// # Errors
    /// Fails if the stream is malformed, or a table is missing.
    pub(in crate::codec::zstd) fn of(left: usize, src: &'a [u8], tables: &'a Tables) -> Result<Self> {
        let [literals, offsets, matches] = tables.all().ok_or_else(short)?;
        let mut bits = ReverseBitReader::new(src, WHAT)?;
        bits.refill();
        let states = [literals.start(&mut bits), offsets.start(&mut bits), matches.start(&mut bits)];
        let (Some(literals), Some(offsets), Some(matches)) = (literals.cells(), offsets.cells(), matches.cells())
        else {
            return Err(short());
        };
        Ok(Self { left, bits, cells: [literals, offsets, matches], states })
    }

    /// Calls `run` for each sequence until it returns false; returns the sequence at which it did.
    ///
    /// # Errors
    /// Fails if the bit stream ends early.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is the inner loop of a kernel")]
    pub(in crate::codec::zstd) fn each<H: History>(
        mut self,
        recent: &mut H,
        mut run: impl FnMut(ZstdSequence) -> bool,
    ) -> Result<Option<ZstdSequence>> {
        let mut history = *recent;
        while self.left > 0 {
            let is_far = self.bits.is_far();
            let sequence = self.next(&mut history);
            if !is_far && self.bits.is_overread() {
                return Err(Error::corrupt(EARLY, WHAT));
            }
            if !run(sequence) {
                return Ok(Some(sequence));
            }
        }
        *recent = history;
        Ok(None)
    }

    /// Replaces the content of `list` by all sequences, with offset values in the place of offsets.
    ///
    /// # Errors
    /// Fails if the bit stream does not end with the last sequence.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is the inner loop of a kernel")]
    pub(in crate::codec::zstd) fn list(mut self, list: &mut Vec<ZstdSequence>) -> Result<()> {
        list.resize(self.left, ZstdSequence::default());
        for sequence in list.iter_mut() {
            *sequence = self.next(&mut OffsetValues);
        }
        self.bits.refill();
        if self.bits.is_done() {
            Ok(())
        } else {
            Err(Error::corrupt("the bit stream does not end with the last sequence", WHAT))
        }
    }

    /// The sum of all match lengths.
    ///
    /// # Errors
    /// As [`Sequences::each`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is the inner loop of a kernel")]
    pub(in crate::codec::zstd) fn matched(mut self) -> Result<u64> {
        let mut sum = 0;
        while self.left > 0 {
            sum += u64::from(self.next(&mut OffsetValues).matched);
        }
        if self.bits.is_overread() { Err(Error::corrupt(EARLY, WHAT)) } else { Ok(sum) }
    }

    /// Decodes the next sequence.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn next(&mut self, history: &mut impl History) -> ZstdSequence {
        let Self { bits, cells: [literals, offsets, matches], states: [ll, of, ml], left } = self;
        // A state is always below the table size; the mask lets the compiler omit the bounds check.
        let cell = |cells: &[FseEntry; SEQUENCES], state: usize| cells[state & (SEQUENCES - 1)];
        let (l, o, m) = (cell(literals, *ll), cell(offsets, *of), cell(matches, *ml));
        bits.refill();
        let extra = o.extra + m.extra + l.extra;
        let (value, matched, run_of) = if extra <= 30 {
            // All at once: the last one is the lowest. The states need up to 26 bits more.
            let (rest, run_of) = split(bits.read(extra.into()), l.extra.into());
            let (rest, matched) = split(rest, m.extra.into());
            (rest, matched, run_of)
        } else {
            let value = bits.read(o.extra.into());
            let matched = bits.read(m.extra.into());
            // At most 31 + 16 bits so far. The literal length needs up to 16.
            bits.refill();
            let run_of = bits.read(l.extra.into());
            (value, matched, run_of)
        };
        let value = o.base as usize + value as usize;
        let (matched, run_of) = (m.base + matched as u32, l.base + run_of as u32);
        *left -= 1;
        if *left > 0 {
            let next = bits.read((l.bits + m.bits + o.bits).into());
            let (rest, next_of) = split(next, o.bits.into());
            let (next_ll, next_ml) = split(rest, m.bits.into());
            *ll = usize::from(l.next) + next_ll as usize;
            *ml = usize::from(m.next) + next_ml as usize;
            *of = usize::from(o.next) + next_of as usize;
        }
        ZstdSequence { literals: run_of, matched, offset: history.resolve(value, run_of == 0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_sections_are_rejected() {
        let cases: &[(&str, &[u8])] = &[
            ("nothing", &[]),
            ("half a count", &[200]),
            ("no modes", &[1]),
            ("an offset code of 200", &[1, 0b0101_0100, 0, 200, 0, 1]),
            ("a repeated table", &[1, 0b1000_0000, 1]),
            ("no stream", &[1, 0]),
            ("a stream that ends early", &[1, 0, 1]),
        ];
        for (name, src) in cases {
            let mut tables = Tables::default();
            let opened = Sequences::open(src, &mut tables, Dialect::V07);
            let read = opened.and_then(|s| s.unwrap().each(&mut OffsetValues, |_| true));
            assert!(read.is_err(), "{name}");
        }
        assert!(Sequences::open(&[0], &mut Tables::default(), Dialect::V07).unwrap().is_none());
    }
}
