//! Executing sequences: literals and matches, copied in steps of fixed size.
//!
//! Reference: sections 3.2 to 3.4, 8 (varints) and 16.4 of the ZXC reference.
//!
//! A sequence copies `ll` literals, then `ml` bytes from `off` bytes back. Short sequences are copied in bulk, others
//! one by one, in steps that write past their end ([`LzWriter`]). This needs spare room after both buffers; without it
//! the last sequences of a block are copied exactly. The number of literals and the size of the output are checked
//! against the bounds of the block at the end; until then no access is outside the two slices. Offsets are checked
//! while one can reach before the start.
#![forbid(unsafe_code)]

use crate::codec::lz_writer::{LzWriter, Sequence, SequenceFormat};
use crate::codec::simd_dispatch::{self, SimdLoop, SimdOps};

use super::decode_error::DecodeError;

const NO_EXTRAS: DecodeError = DecodeError::new("the extras end inside a length", "extras");
const LONG_VARINT: DecodeError = DecodeError::new("a length of more than 3 bytes", "extras");
const NO_LITERALS: DecodeError = DecodeError::new("sequences use more literals than there are", "literals");
const OVERFLOW: DecodeError = DecodeError::new("the sequences decode to more than a block", "sequences");
const BAD_OFFSET: DecodeError = DecodeError::new("reaches back before the start of the block", "match offset");

/// The shortest match.
const MIN_MATCH: u32 = 5;

/// The inputs of sequence execution.
#[derive(Debug)]
pub(super) struct Input<'a> {
    /// The literals, and the bytes that follow them: with [`PAD`] bytes the steps can run to the end.
    pub(super) literals: &'a [u8],
    /// Number of literals in `literals`.
    pub(super) n_literals: usize,
    /// Varints: the rest of lengths that do not fit in a token.
    pub(super) extras: &'a [u8],
    /// Maximum length of a varint in bytes: 5 in versions 4 and 5, 3 later.
    pub(super) varint_len: usize,
}

/// Bytes after the literals that steps may access, both of sequences and of run-length coded literals.
pub(super) const PAD: usize = 160;

/// The output: from `start` to at most `end`. Matches can refer to the bytes before `start`; the bytes after `end` may
/// be overwritten.
#[derive(Debug)]
pub(super) struct Output<'a> {
    pub(super) bytes: &'a mut [u8],
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Executes GLO sequences; returns the end of the output.
pub(super) fn glo(
    tokens: &[u8],
    offsets: &[u8],
    short_offsets: bool,
    input: &Input,
    out: Output,
) -> Result<usize, DecodeError> {
    if short_offsets { glo_of::<1>(tokens, offsets, input, out) } else { glo_of::<2>(tokens, offsets, input, out) }
}

/// Like [`glo`], with offsets of `OFFSET` bytes.
fn glo_of<const OFFSET: usize>(
    tokens: &[u8],
    offsets: &[u8],
    input: &Input,
    out: Output,
) -> Result<usize, DecodeError> {
    let (heads, tails) = (tokens, offsets.as_chunks().0);
    if input.extras.len() > tokens.len() / SELDOM {
        simd_dispatch::run(SequenceKernel::<Glo<OFFSET, true>> { heads, tails, input, out })
    } else {
        simd_dispatch::run(SequenceKernel::<Glo<OFFSET, false>> { heads, tails, input, out })
    }
}

/// Varints count as rare if there is at most one byte of them per this many sequences.
const SELDOM: usize = 8;

/// Executes GHI sequences; returns the end of the output.
pub(super) fn ghi(words: &[u8], input: &Input, out: Output) -> Result<usize, DecodeError> {
    let (words, _) = words.as_chunks();
    simd_dispatch::run(SequenceKernel::<Ghi> { heads: words, tails: words, input, out })
}

/// How a type of block stores sequences. Short ones have no varint, except that in some forms the match can have one of
/// one byte.
trait Form: SequenceFormat {
    /// The length code that is followed by a varint.
    const SATURATED: u32;

    /// The sequence without the values of its varints.
    fn sequence(head: Self::Head, tail: Self::Tail) -> Sequence;
}

/// A token, and an offset of `OFFSET` bytes, 1 or 2. If varints are `OFTEN` present, short sequences can have one.
struct Glo<const OFFSET: usize, const OFTEN: bool>;

impl<const OFFSET: usize, const OFTEN: bool> Form for Glo<OFFSET, OFTEN> {
    const SATURATED: u32 = 15;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn sequence(token: u8, offset: [u8; OFFSET]) -> Sequence {
        let back = offset.iter().rev().fold(0, |back, &byte| back << 8 | u16::from(byte));
        Sequence { ll: u32::from(token >> 4), ml: u32::from(token & 15) + MIN_MATCH, back }
    }
}

impl<const OFFSET: usize, const OFTEN: bool> SequenceFormat for Glo<OFFSET, OFTEN> {
    const LITERALS: u32 = Self::SATURATED - 1;
    const MATCH: u32 = MIN_MATCH + if OFTEN { Self::SATURATED + 0x7F } else { Self::SATURATED - 1 };
    type Head = u8;
    type Tail = [u8; OFFSET];

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn peek(token: u8, offset: [u8; OFFSET], next: Option<u8>) -> (Sequence, usize) {
        let mut sequence = Self::sequence(token, offset);
        if !OFTEN {
            return (sequence, 0);
        }
        // Branch-free, since the branch would be unpredictable. A longer or missing varint gives a match that is not
        // short.
        let more = sequence.ml == Self::SATURATED + MIN_MATCH;
        sequence.ml += u32::from(next.unwrap_or(u8::MAX)) & 0_u32.wrapping_sub(more.into());
        (sequence, more.into())
    }
}

/// A word that is both head and tail.
struct Ghi;

impl Form for Ghi {
    const SATURATED: u32 = 255;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn sequence([o0, o1, ml, ll]: [u8; 4], _: [u8; 4]) -> Sequence {
        Sequence { ll: ll.into(), ml: u32::from(ml) + MIN_MATCH, back: u16::from_le_bytes([o0, o1]) }
    }
}

impl SequenceFormat for Ghi {
    const LITERALS: u32 = Self::SATURATED - 1;
    const MATCH: u32 = Self::SATURATED - 1 + MIN_MATCH;
    type Head = [u8; 4];
    type Tail = [u8; 4];

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn peek(head: [u8; 4], tail: [u8; 4], _: Option<u8>) -> (Sequence, usize) {
        (Self::sequence(head, tail), 0)
    }
}

/// The kernel that executes sequences.
struct SequenceKernel<'a, F: Form> {
    heads: &'a [F::Head],
    tails: &'a [F::Tail],
    input: &'a Input<'a>,
    out: Output<'a>,
}

impl<F: Form> SimdLoop for SequenceKernel<'_, F> {
    type Output = Result<usize, DecodeError>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
    fn run(self, vectors: impl SimdOps) -> Self::Output {
        let Self { mut heads, mut tails, input, out } = self;
        let mut writer = LzWriter::new(out.bytes, out.start, input.literals);
        let mut extras = input.extras;
        loop {
            let n = writer.copy_short_batch::<F>(vectors, heads, tails, &mut extras);
            (heads, tails) = (&heads[n..], &tails[n..]);
            let (Some((&head, others)), Some((&tail, rest))) = (heads.split_first(), tails.split_first()) else {
                break;
            };
            (heads, tails) = (others, rest);
            let Sequence { mut ll, mut ml, back } = F::sequence(head, tail);
            let off = usize::from(back) + 1;
            if ll == F::SATURATED {
                ll += varint(&mut extras, input.varint_len)?;
            }
            if ml == F::SATURATED + MIN_MATCH {
                ml += varint(&mut extras, input.varint_len)?;
            }
            if writer.long(vectors, ll, ml, off) {
                continue;
            }
            let (ll, ml) = (ll as usize, ml as usize);
            let literals = input.left(&writer)?.get(..ll).ok_or(NO_LITERALS)?;
            let pos = writer.pos();
            copy_sequence(writer.out(), pos, out.end, literals, [ll, ml, off])?;
            writer.skip(ll, ll + ml);
        }
        let left = input.left(&writer)?;
        let (pos, stop) = (writer.pos(), writer.pos() + left.len());
        match writer.out().get_mut(pos..stop) {
            Some(to) if stop <= out.end => to.copy_from_slice(left),
            _ => return Err(OVERFLOW),
        }
        Ok(stop)
    }
}

impl<'a> Input<'a> {
    /// The literals that are not used yet.
    fn left(&self, writer: &LzWriter) -> Result<&'a [u8], DecodeError> {
        self.literals.get(..self.n_literals).and_then(|l| l.get(writer.taken()..)).ok_or(NO_LITERALS)
    }
}

/// Reads one varint from the extras.
fn varint(extras: &mut &[u8], longest: usize) -> Result<u32, DecodeError> {
    let first = *extras.first().ok_or(NO_EXTRAS)?;
    // The leading ones of the first byte give the number of further bytes; bit 3 of the longest form is ignored.
    let more = (first.leading_ones() as usize).min(4);
    if more >= longest {
        return Err(LONG_VARINT);
    }
    let (bytes, rest) = extras.split_at_checked(more + 1).ok_or(NO_EXTRAS)?;
    *extras = rest;
    let high = bytes[1..].iter().rev().fold(0_u64, |n, &b| n << 8 | u64::from(b));
    let first_bits = 7 - more;
    let low = u64::from(first) & ((1 << first_bits) - 1);
    // Keep 32 bits and clamp: any value that large exceeds a block.
    Ok(((low | high << first_bits) as u32).min(1 << 31))
}

/// Executes one sequence of any size; writes exactly its output.
#[inline(never)]
fn copy_sequence(
    out: &mut [u8],
    pos: usize,
    end: usize,
    literals: &[u8],
    sequence: [usize; 3],
) -> Result<(), DecodeError> {
    let [ll, ml, off] = sequence;
    if literals.len() < ll {
        return Err(NO_LITERALS);
    }
    if off > pos + ll {
        return Err(BAD_OFFSET);
    }
    let (mut at, stop) = (pos + ll, pos + ll + ml);
    if stop > end.min(out.len()) {
        return Err(OVERFLOW);
    }
    out[pos..at].copy_from_slice(literals);
    let from = at - off;
    // The copied bytes have the same period, so each round can copy twice as many.
    while at < stop {
        let len = (at - from).min(stop - at);
        out.copy_within(from..from + len, at);
        at += len;
    }
    Ok(())
}
