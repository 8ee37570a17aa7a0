//! Executing sequences: literals and matches, copied in pieces of fixed size.
//!
//! Reference: sections 3.2 to 3.4, 8 (varints) and 16.4 of the ZXC reference.
//!
//! A sequence copies `ll` literals, then `ml` bytes from `off` bytes back. The common sequence takes
//! one literal copy and one match copy of fixed size, which write past what they have to and are
//! overwritten by what follows; that needs room behind, so both buffers have some (or the last
//! sequences of a block take the exact path). Lengths of literals and of the output are held against
//! the block's bounds after the fast path, where nothing it could have read or written was outside
//! the two slices; offsets are checked on every path.
#![forbid(unsafe_code)]

use super::fault::Fault;

const NO_EXTRAS: Fault = Fault::new("the extras end inside a length", "extras");
const LONG_VARINT: Fault = Fault::new("a length of more than 3 bytes", "extras");
const NO_LITERALS: Fault = Fault::new("sequences use more literals than there are", "literals");
const OVERFLOW: Fault = Fault::new("the sequences give more than a block", "sequences");
const BAD_OFFSET: Fault = Fault::new("reaches back before the start of the block", "match offset");

/// Bytes of one copy: most literals and most matches are not longer.
const STEP: usize = 32;

/// The shortest match.
const MIN_MATCH: usize = 5;

/// What sequences are executed on.
#[derive(Debug)]
pub(super) struct Input<'a> {
    /// The literals, and whatever lies behind them: at least [`PAD`] bytes let the fast path run to the end.
    pub(super) literals: &'a [u8],
    /// How many of them are literals.
    pub(super) n_literals: usize,
    /// Varints of lengths that do not fit in a token.
    pub(super) extras: &'a [u8],
    /// The longest varint, in bytes: 5 in version 5, 3 later.
    pub(super) varint_len: usize,
}

/// Bytes behind literals that the fast path may read.
pub(super) const PAD: usize = 288;

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
    let split = |t: u8| (u32::from(t >> 4), u32::from(t & 15));
    if short_offsets {
        let sequences = tokens.iter().zip(offsets).map(|(&t, &o)| (split(t), usize::from(o) + 1));
        run::<15>(sequences, input, out)
    } else {
        let (offsets, _) = offsets.as_chunks::<2>();
        let sequences = tokens.iter().zip(offsets).map(|(&t, &o)| (split(t), usize::from(u16::from_le_bytes(o)) + 1));
        run::<15>(sequences, input, out)
    }
}

/// Executes GHI sequences; returns where the output ends.
pub(super) fn ghi(words: &[u8], input: &Input, out: Output) -> Result<usize, Fault> {
    let (words, _) = words.as_chunks::<4>();
    let sequences = words
        .iter()
        .map(|&[o0, o1, ml, ll]| ((u32::from(ll), u32::from(ml)), usize::from(u16::from_le_bytes([o0, o1])) + 1));
    run::<255>(sequences, input, out)
}

/// Executes sequences of `((ll, ml), off)`, where the length code `SATURATED` has a varint behind it.
///
/// The inner loop takes those that have room to copy in steps and varints of one byte; it calls nothing,
/// so that its state stays in registers. What it cannot take it leaves to the outer loop.
#[inline]
fn run<const SATURATED: u32>(
    mut sequences: impl Iterator<Item = ((u32, u32), usize)>,
    input: &Input,
    out: Output,
) -> Result<usize, Fault> {
    let Output { bytes: out, start: mut pos, end } = out;
    let mut literals = input.literals;
    let behind = literals.len().checked_sub(input.n_literals).ok_or(NO_LITERALS)?;
    let mut extras = input.extras;
    loop {
        let special = loop {
            let Some(((ll_code, ml_code), off)) = sequences.next() else { break None };
            let special = Some(((ll_code, ml_code), off));
            let (mut ll, mut ml, mut rest) = (ll_code, ml_code, extras);
            if ll == SATURATED {
                let [first @ 0..0x80, after @ ..] = rest else { break special };
                (ll, rest) = (ll + u32::from(*first), after);
            }
            if ml == SATURATED {
                let [first @ 0..0x80, after @ ..] = rest else { break special };
                (ml, rest) = (ml + u32::from(*first), after);
            }
            // As `usize` made of 32 bits the sums are seen not to overflow, and some checks fall away.
            let (ll, ml) = (ll as usize, ml as usize + MIN_MATCH);
            let middle = pos + ll;
            let Some(room) = out.get_mut(pos..) else { break special };
            if room.len() < ll + ml + 2 * STEP || literals.len() < ll + STEP || off > middle {
                break special;
            }
            room[..STEP].copy_from_slice(&literals[..STEP]);
            let mut copied = STEP;
            while copied < ll {
                room[copied..][..STEP].copy_from_slice(&literals[copied..][..STEP]);
                copied += STEP;
            }
            (literals, extras) = (&literals[ll..], rest);
            pos = middle + ml;
            if off >= STEP {
                let mut copied = 0;
                loop {
                    step::<STEP>(out, middle - off + copied, middle + copied);
                    copied += STEP;
                    if copied >= ml {
                        break;
                    }
                }
            } else {
                near_match(out, middle, pos, off);
            }
        };
        let Some(((mut ll, mut ml), off)) = special else { break };
        if ll == SATURATED {
            ll += varint(&mut extras, input.varint_len)?;
        }
        if ml == SATURATED {
            ml += varint(&mut extras, input.varint_len)?;
        }
        let (ll, ml) = (ll as usize, ml as usize + MIN_MATCH);
        let left = literals.len().saturating_sub(behind);
        let (head, tail) = literals.split_at_checked(ll.min(left)).ok_or(NO_LITERALS)?;
        exact(out, pos, end, head, [ll, ml, off])?;
        literals = tail;
        pos += ll + ml;
    }
    let left = literals.len().checked_sub(behind).ok_or(NO_LITERALS)?;
    let stop = pos + left;
    if stop > end {
        return Err(OVERFLOW);
    }
    let (Some(to), Some(from)) = (out.get_mut(pos..stop), literals.get(..left)) else { return Err(OVERFLOW) };
    to.copy_from_slice(from);
    Ok(stop)
}

/// One varint from the extras.
fn varint(extras: &mut &[u8], longest: usize) -> Result<u32, Fault> {
    let first = *extras.first().ok_or(NO_EXTRAS)?;
    // As many bytes follow as the first has leading ones; bit 3 of the longest form means nothing.
    let more = (first.leading_ones() as usize).min(4);
    if more >= longest {
        return Err(LONG_VARINT);
    }
    let (bytes, rest) = extras.split_at_checked(1 + more).ok_or(NO_EXTRAS)?;
    *extras = rest;
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

/// Copies `N` bytes within `out`.
#[inline]
fn step<const N: usize>(out: &mut [u8], from: usize, to: usize) {
    out.copy_within(from..from + N, to);
}

/// For each distance under a step, the smallest multiple of it that is a step or more.
const FAR: [u8; STEP] = {
    let mut far = [0; STEP];
    let mut off = 1;
    while off < STEP {
        far[off] = (off * STEP.div_ceil(off)) as u8;
        off += 1;
    }
    far
};

/// Copies a match of a distance under a step to `pos..stop`; up to a step behind `stop` is overwritten.
#[inline]
fn near_match(out: &mut [u8], mut pos: usize, stop: usize, off: usize) {
    let mut from = pos - off;
    // Steps that do not read what they write, until a whole number of periods fits in a large one.
    let far = usize::from(FAR[off]);
    let near = stop.min(from + far);
    if off >= 8 {
        while pos < near {
            step::<8>(out, from, pos);
            (pos, from) = (pos + 8, from + 8);
        }
    } else {
        // The period, and ones at every `off` bytes: their product is the period repeated over 8 bytes.
        const ONES: [u64; 8] = [
            0,
            0x0101_0101_0101_0101,
            0x0001_0001_0001_0001,
            0x0001_0000_0100_0001,
            0x0000_0001_0000_0001,
            0x0000_0100_0000_0001,
            0x0001_0000_0000_0001,
            0x0100_0000_0000_0001,
        ];
        let Some(bytes) = out[from..].first_chunk() else { return };
        let period = u64::from_le_bytes(*bytes) & ((1 << (8 * off)) - 1);
        let eight = period.wrapping_mul(ONES[off]).to_le_bytes();
        while pos < near {
            out[pos..][..8].copy_from_slice(&eight);
            pos += 8 - 8 % off;
        }
    }
    while pos < stop {
        step::<STEP>(out, pos - far, pos);
        pos += STEP;
    }
}
