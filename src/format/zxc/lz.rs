//! Executing sequences: literals and matches, copied in pieces of fixed size.
//!
//! Reference: sections 3.2 to 3.4, 8 (varints) and 16.4 of the ZXC reference.
//!
//! A sequence copies `ll` literals, then `ml` bytes from `off` bytes back. Most are copied in steps that
//! write past what they have to ([`Tape`]); that needs room behind, so both buffers have some (or the last
//! sequences of a block take the exact path). Lengths of literals and of the output are held against
//! the block's bounds at the end, where nothing that was read or written was outside the two
//! slices; offsets are checked on every path.
#![forbid(unsafe_code)]

use crate::codec::kernel::{self, Kernel, Vectors};
use crate::codec::tape::{self, Tape};

use super::fault::Fault;

const NO_EXTRAS: Fault = Fault::new("the extras end inside a length", "extras");
const LONG_VARINT: Fault = Fault::new("a length of more than 3 bytes", "extras");
const NO_LITERALS: Fault = Fault::new("sequences use more literals than there are", "literals");
const OVERFLOW: Fault = Fault::new("the sequences give more than a block", "sequences");
const BAD_OFFSET: Fault = Fault::new("reaches back before the start of the block", "match offset");

/// The shortest match.
const MIN_MATCH: u32 = 5;

/// What sequences are executed on.
#[derive(Debug)]
pub(super) struct Input<'a> {
    /// The literals, and whatever lies behind them: [`PAD`] bytes let the steps run to the end.
    pub(super) literals: &'a [u8],
    /// How many of them are literals.
    pub(super) n_literals: usize,
    /// Varints of lengths that do not fit in a token.
    pub(super) extras: &'a [u8],
    /// The longest varint, in bytes: 5 in version 5, 3 later.
    pub(super) varint_len: usize,
}

/// Bytes behind literals that steps may take: those of sequences, and of run-length coded literals.
pub(super) const PAD: usize = 160;

/// Where output goes: from `start` on, at most to `end`; what lies before `start` can be referred to,
/// what lies behind `end` may be overwritten.
#[derive(Debug)]
pub(super) struct Output<'a> {
    pub(super) bytes: &'a mut [u8],
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Executes GLO sequences; returns where the output ends.
pub(super) fn glo(
    tokens: &[u8],
    offsets: &[u8],
    short_offsets: bool,
    input: &Input,
    out: Output,
) -> Result<usize, Fault> {
    let sequence = |token: u8, off: u16| Sequence {
        ll: u32::from(token >> 4),
        ml: u32::from(token & 15),
        off: usize::from(off) + 1,
    };
    if short_offsets {
        let sequences = tokens.iter().zip(offsets).map(|(&t, &o)| sequence(t, o.into()));
        kernel::run(Run::<_, 15> { sequences, input, out })
    } else {
        let (offsets, _) = offsets.as_chunks();
        let sequences = tokens.iter().zip(offsets).map(|(&t, &o)| sequence(t, u16::from_le_bytes(o)));
        kernel::run(Run::<_, 15> { sequences, input, out })
    }
}

/// Executes GHI sequences; returns where the output ends.
pub(super) fn ghi(words: &[u8], input: &Input, out: Output) -> Result<usize, Fault> {
    let (words, _) = words.as_chunks();
    let sequences = words.iter().map(|&[o0, o1, ml, ll]| Sequence {
        ll: ll.into(),
        ml: ml.into(),
        off: usize::from(u16::from_le_bytes([o0, o1])) + 1,
    });
    kernel::run(Run::<_, 255> { sequences, input, out })
}

/// A sequence: codes of the two lengths, and how far back the match starts.
#[derive(Clone, Copy)]
struct Sequence {
    ll: u32,
    ml: u32,
    off: usize,
}

/// Executes sequences, where the length code `SATURATED` has a varint behind it.
struct Run<'a, S, const SATURATED: u32> {
    sequences: S,
    input: &'a Input<'a>,
    out: Output<'a>,
}

impl<S: Iterator<Item = Sequence>, const SATURATED: u32> Kernel for Run<'_, S, SATURATED> {
    type Output = Result<usize, Fault>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
    fn run(self, vectors: impl Vectors) -> Self::Output {
        let Self { mut sequences, input, out } = self;
        let mut tape = Tape::new(out.bytes, out.start, input.literals);
        let mut read = 0;
        while let Some(sequence) = steps::<SATURATED>(vectors, &mut sequences, input.extras, &mut read, &mut tape) {
            let Sequence { mut ll, mut ml, off } = sequence;
            if ll == SATURATED {
                ll += varint(input.extras, &mut read, input.varint_len)?;
            }
            if ml == SATURATED {
                ml += varint(input.extras, &mut read, input.varint_len)?;
            }
            let (ll, ml) = (ll as usize, (ml + MIN_MATCH) as usize);
            let literals = input.left(&tape)?.get(..ll).ok_or(NO_LITERALS)?;
            let pos = tape.pos();
            exact(tape.out(), pos, out.end, literals, [ll, ml, off])?;
            tape.skip(ll, ll + ml);
        }
        let left = input.left(&tape)?;
        let (pos, stop) = (tape.pos(), tape.pos() + left.len());
        match tape.out().get_mut(pos..stop) {
            Some(to) if stop <= out.end => to.copy_from_slice(left),
            _ => return Err(OVERFLOW),
        }
        Ok(stop)
    }
}

impl<'a> Input<'a> {
    /// The literals that are not taken.
    fn left(&self, tape: &Tape) -> Result<&'a [u8], Fault> {
        self.literals.get(..self.n_literals).and_then(|l| l.get(tape.taken()..)).ok_or(NO_LITERALS)
    }
}

/// Executes sequences as long as there is room to copy in steps and varints have one byte; returns the first
/// that it cannot take.
///
/// There is a path for each set of varints, and none calls anything, so that the state stays in registers.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is the inner loop of a kernel")]
fn steps<const SATURATED: u32>(
    vectors: impl Vectors,
    sequences: &mut impl Iterator<Item = Sequence>,
    extras: &[u8],
    read: &mut usize,
    tape: &mut Tape,
) -> Option<Sequence> {
    for sequence in sequences {
        let Sequence { ll, ml, off } = sequence;
        if ll < SATURATED && ml < SATURATED {
            let ml = ml + MIN_MATCH;
            let is_short = SATURATED <= tape::SHORT;
            if if is_short { tape.short::<4>(vectors, ll, ml, off) } else { tape.long(vectors, ll, ml, off) } {
                continue;
            }
            return Some(sequence);
        }
        let Some(&first @ 0..0x80) = extras.get(*read) else { return Some(sequence) };
        if ll < SATURATED {
            if tape.long(vectors, ll, ml + u32::from(first) + MIN_MATCH, off) {
                *read += 1;
                continue;
            }
            return Some(sequence);
        }
        let (ll, mut ml, mut next) = (ll + u32::from(first), ml, *read + 1);
        if ml == SATURATED {
            let Some(&first @ 0..0x80) = extras.get(next) else { return Some(sequence) };
            (ml, next) = (ml + u32::from(first), next + 1);
        }
        if !tape.long(vectors, ll, ml + MIN_MATCH, off) {
            return Some(sequence);
        }
        *read = next;
    }
    None
}

/// One varint from the extras.
fn varint(extras: &[u8], at: &mut usize, longest: usize) -> Result<u32, Fault> {
    let rest = extras.get(*at..).ok_or(NO_EXTRAS)?;
    let first = *rest.first().ok_or(NO_EXTRAS)?;
    // As many bytes follow as the first has leading ones; bit 3 of the longest form means nothing.
    let more = (first.leading_ones() as usize).min(4);
    if more >= longest {
        return Err(LONG_VARINT);
    }
    let bytes = rest.get(..=more).ok_or(NO_EXTRAS)?;
    *at += bytes.len();
    let high = bytes[1..].iter().rev().fold(0_u64, |n, &b| n << 8 | u64::from(b));
    let first_bits = 7 - more;
    let low = u64::from(first) & ((1 << first_bits) - 1);
    // 32 bits are kept; what is far more than a block is no longer told apart.
    Ok(((low | high << first_bits) as u32).min(1 << 31))
}

/// Any sequence: writes what it gives and nothing else.
#[inline(never)]
fn exact(out: &mut [u8], pos: usize, end: usize, literals: &[u8], sequence: [usize; 3]) -> Result<(), Fault> {
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
    // What has been copied repeats with the same period: each round can copy twice as much.
    while at < stop {
        let len = (at - from).min(stop - at);
        out.copy_within(from..from + len, at);
        at += len;
    }
    Ok(())
}
