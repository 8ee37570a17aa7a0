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
    let split = |t: u8| (usize::from(t >> 4), usize::from(t & 15));
    if short_offsets {
        let sequences = tokens.iter().zip(offsets).map(|(&t, &o)| (split(t), usize::from(o) + 1));
        run::<15, 16, 64>(sequences, input, out)
    } else {
        let (offsets, _) = offsets.as_chunks::<2>();
        let sequences = tokens.iter().zip(offsets).map(|(&t, &o)| (split(t), usize::from(u16::from_le_bytes(o)) + 1));
        run::<15, 16, 64>(sequences, input, out)
    }
}

/// Executes GHI sequences; returns where the output ends.
pub(super) fn ghi(words: &[u8], input: &Input, out: Output) -> Result<usize, Fault> {
    let (words, _) = words.as_chunks::<4>();
    let sequences = words
        .iter()
        .map(|&[o0, o1, ml, ll]| ((usize::from(ll), usize::from(ml)), usize::from(u16::from_le_bytes([o0, o1])) + 1));
    run::<255, 32, 64>(sequences, input, out)
}

/// Executes sequences of `((ll, ml), off)`, where the length code `SATURATED` has a varint behind it.
///
/// A literal copy of `LITERALS` bytes and a match copy of 32 are the fast path; both end within
/// `WINDOW` bytes from where the sequence starts.
#[inline]
fn run<const SATURATED: usize, const LITERALS: usize, const WINDOW: usize>(
    sequences: impl Iterator<Item = ((usize, usize), usize)>,
    input: &Input,
    out: Output,
) -> Result<usize, Fault> {
    let Output { bytes: out, start: mut pos, end } = out;
    let mut literals = input.literals;
    let behind = literals.len().checked_sub(input.n_literals).ok_or(NO_LITERALS)?;
    let mut extras = input.extras;
    for ((mut ll, mut ml), off) in sequences {
        if ll < SATURATED && ml < SATURATED {
            ml += MIN_MATCH;
            if ll <= LITERALS
                && ml <= 32
                && let Some((done, room)) = out.split_at_mut_checked(pos)
                && let Some(window) = room.first_chunk_mut::<WINDOW>()
                && let Some(chunk) = literals.first_chunk::<LITERALS>()
                // Wraps for an offset past the start: then nothing is there to get.
                && let Some(source) = done.get((pos + ll).wrapping_sub(off)..).and_then(<[u8]>::first_chunk::<32>)
            {
                window[..LITERALS].copy_from_slice(chunk);
                window[ll..][..32].copy_from_slice(source);
                literals = &literals[ll..];
                pos += ll + ml;
                continue;
            }
        } else {
            if ll == SATURATED {
                ll += varint(&mut extras, input.varint_len)?;
            }
            if ml == SATURATED {
                ml += varint(&mut extras, input.varint_len)?;
            }
            ml += MIN_MATCH;
        }
        (pos, literals) = sequence(out, pos, end, literals, behind, ll, ml, off)?;
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
#[inline]
fn varint(extras: &mut &[u8], longest: usize) -> Result<usize, Fault> {
    match *extras {
        [first @ 0..0x80, rest @ ..] => {
            *extras = rest;
            Ok(usize::from(*first))
        }
        _ => long_varint(extras, longest),
    }
}

#[cold]
fn long_varint(extras: &mut &[u8], longest: usize) -> Result<usize, Fault> {
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
    Ok((low | high << first_bits) as u32 as usize)
}

/// Any sequence: long ones in steps of 32 bytes where there is room, exactly where there is not.
#[inline(never)]
#[expect(clippy::too_many_arguments, reason = "the registers of the loop that it is a part of")]
fn sequence<'a>(
    out: &mut [u8],
    pos: usize,
    end: usize,
    literals: &'a [u8],
    behind: usize,
    ll: usize,
    ml: usize,
    off: usize,
) -> Result<(usize, &'a [u8]), Fault> {
    if literals.len() < behind || ll > literals.len() - behind {
        return Err(NO_LITERALS);
    }
    let (head, tail) = literals.split_at(ll);
    let middle = pos + ll;
    let stop = middle + ml;
    if stop > end {
        return Err(OVERFLOW);
    }
    if off > middle {
        return Err(BAD_OFFSET);
    }
    if stop + 64 <= out.len() && literals.len() >= ll + 32 {
        let mut done = 0;
        while done < ll {
            put::<32>(out, pos + done, get(literals, done));
            done += 32;
        }
        wild_match(out, middle, stop, off);
    } else {
        out[pos..middle].copy_from_slice(head);
        exact_match(out, middle, stop, off);
    }
    Ok((stop, tail))
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, chunk: [u8; N]) {
    if let Some(place) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = chunk;
    }
}

/// Copies a match to `pos..stop` in fixed steps; up to 63 bytes behind `stop` are overwritten.
#[inline]
fn wild_match(out: &mut [u8], mut pos: usize, stop: usize, off: usize) {
    let mut from = pos - off;
    if off < 32 {
        if off == 1 {
            let byte = out[from];
            out[pos..stop].fill(byte);
            return;
        }
        // Steps that do not read what they write, until a whole number of periods fits in 32 bytes.
        let far = off * 32_usize.div_ceil(off);
        let wide = stop.min(from + far);
        if off >= 16 {
            while pos < wide {
                put::<16>(out, pos, get(out, from));
                (pos, from) = (pos + 16, from + 16);
            }
        } else if off >= 8 {
            while pos < wide {
                put::<8>(out, pos, get(out, from));
                (pos, from) = (pos + 8, from + 8);
            }
        } else {
            // The period repeated over 8 bytes, by a multiplication with ones at every `off` bytes.
            const REPEAT: [u64; 8] = [
                0,
                0,
                0x0001_0001_0001_0001,
                0x0001_0000_0100_0001,
                0x0000_0001_0000_0001,
                0x0000_0100_0000_0001,
                0x0001_0000_0000_0001,
                0x0100_0000_0000_0001,
            ];
            let period = u64::from_le_bytes(get(out, from)) & ((1 << (8 * off)) - 1);
            let eight = period.wrapping_mul(REPEAT[off]).to_le_bytes();
            let step = 8 - 8 % off;
            while pos < wide {
                put::<8>(out, pos, eight);
                pos += step;
            }
        }
        if pos >= stop {
            return;
        }
        from = pos - far;
    }
    while pos < stop {
        put::<32>(out, pos, get(out, from));
        (pos, from) = (pos + 32, from + 32);
    }
}

/// Copies a match to `pos..stop` and writes nothing else.
fn exact_match(out: &mut [u8], mut pos: usize, stop: usize, off: usize) {
    let from = pos - off;
    // What has been copied repeats with the same period: each round can copy twice as much.
    while pos < stop {
        let len = (pos - from).min(stop - pos);
        out.copy_within(from..from + len, pos);
        pos += len;
    }
}
