//! Blocks with planes that together fill lines: all their bits are transposed at once.
//!
//! The sign is the highest transposed bit, so that 7, 15 or 31 planes of magnitudes fit.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "the parts of a kernel become part of what runs it")]

use super::{BlockForm, Planes, little};
use crate::codec::bit_planes::LINE;
use crate::codec::simd_dispatch::SimdOps;

/// Elements of a line.
const ELEMENTS: usize = 8 * LINE;

/// Blocks that fill a line; `None` if lines do not end with blocks.
pub(super) fn blocks(planes: &Planes) -> Option<usize> {
    let fits = planes.block.is_multiple_of(32) && ELEMENTS.is_multiple_of(planes.block);
    fits.then(|| ELEMENTS / planes.block)
}

/// Fills `out` with the elements of as many blocks as fill a line, and returns the bytes of the blocks. `None` if they
/// have too many planes, or `payload` is too short.
#[inline(always)]
pub(super) fn unpack(
    vectors: impl SimdOps,
    planes: &Planes,
    metadata: &[u8],
    payload: &[u8],
    out: &mut [u8],
) -> Option<usize> {
    let (mut most, mut cost) = (0, 0);
    for own in metadata.chunks_exact(planes.metadata()) {
        let form = planes.form(own);
        most = most.max(form.rate);
        cost += form.cost;
    }
    let payload = payload.get(..cost)?;
    if cost == 0 {
        out.fill(0);
        return Some(0);
    }
    let done = match (most, planes.size) {
        (..=7, 2) => transpose::<8, 2>(vectors, planes, metadata, payload, out),
        (..=7, _) => transpose::<8, 4>(vectors, planes, metadata, payload, out),
        (..=15, 2) => transpose::<16, 2>(vectors, planes, metadata, payload, out),
        (..=15, _) => transpose::<16, 4>(vectors, planes, metadata, payload, out),
        (..=31, 4) => transpose::<32, 4>(vectors, planes, metadata, payload, out),
        _ => None,
    };
    done.map(|()| cost)
}

/// As [`unpack`], for blocks with fewer than `WIDTH` planes of elements of `SIZE` bytes.
#[inline(always)]
fn transpose<const WIDTH: usize, const SIZE: usize>(
    vectors: impl SimdOps,
    planes: &Planes,
    metadata: &[u8],
    payload: &[u8],
    out: &mut [u8],
) -> Option<()> {
    let mut lines = [[0; LINE]; WIDTH];
    match planes.block {
        32 => gather::<WIDTH, 4>(planes, metadata, payload, &mut lines)?,
        64 => gather::<WIDTH, 8>(planes, metadata, payload, &mut lines)?,
        128 => gather::<WIDTH, 16>(planes, metadata, payload, &mut lines)?,
        256 => gather::<WIDTH, 32>(planes, metadata, payload, &mut lines)?,
        _ => gather::<WIDTH, LINE>(planes, metadata, payload, &mut lines)?,
    }
    let mut codes = [[0; LINE]; WIDTH];
    vectors.elements(lines.each_ref(), &mut codes);
    widen::<WIDTH, SIZE>(codes.as_flattened(), out);
    if planes.selection {
        heads::<SIZE>(planes, metadata, payload, out)?;
    }
    Some(())
}

/// Collects the planes of all blocks, each of `WORD` bytes; the signs are the highest plane.
#[inline(always)]
fn gather<const WIDTH: usize, const WORD: usize>(
    planes: &Planes,
    metadata: &[u8],
    payload: &[u8],
    lines: &mut [[u8; LINE]; WIDTH],
) -> Option<()> {
    let mut rest = payload;
    for (i, own) in metadata.chunks_exact(planes.metadata()).enumerate() {
        let BlockForm { rate, head, cost } = planes.form(own);
        let (own, after) = rest.split_at_checked(cost)?;
        rest = after;
        let (words, _) = own.get(head..)?.as_chunks::<WORD>();
        let Some((signs, words)) = words.split_first() else { continue };
        *lines[0].as_chunks_mut::<WORD>().0.get_mut(i)? = *signs;
        for (line, word) in lines[WIDTH - rate..].iter_mut().rev().zip(words) {
            *line.as_chunks_mut::<WORD>().0.get_mut(i)? = *word;
        }
    }
    Some(())
}

/// Makes elements of codes of `WIDTH` bits; the highest bit is the sign.
#[inline(always)]
fn widen<const WIDTH: usize, const SIZE: usize>(codes: &[u8], out: &mut [u8]) {
    let (out, _) = out.as_chunks_mut::<SIZE>();
    match WIDTH {
        8 => {
            for (out, code) in out.iter_mut().zip(codes) {
                put(out, value::<WIDTH>((*code).into()));
            }
        }
        16 => {
            for (out, code) in out.iter_mut().zip(codes.as_chunks().0) {
                put(out, value::<WIDTH>(u16::from_le_bytes(*code).into()));
            }
        }
        _ => {
            // The first of 32 wide elements is taken from the highest bit of a plane, so that they come backwards.
            let groups = codes.as_chunks::<4>().0.as_chunks::<32>().0;
            for (out, codes) in out.as_chunks_mut::<32>().0.iter_mut().zip(groups) {
                let mut values = codes.map(|code| value::<WIDTH>(u32::from_le_bytes(code)));
                values.reverse();
                out.iter_mut().zip(values).for_each(|(out, value)| put(out, value));
            }
        }
    }
}

/// The number with the sign and the magnitude of a code.
#[inline(always)]
fn value<const WIDTH: usize>(code: u32) -> u32 {
    let sign = (code >> (WIDTH - 1)).wrapping_neg();
    ((code & (u32::MAX >> (33 - WIDTH))) ^ sign).wrapping_sub(sign)
}

#[inline(always)]
fn put<const SIZE: usize>(out: &mut [u8; SIZE], value: u32) {
    if SIZE == 2 {
        out.copy_from_slice(&(value as u16).to_le_bytes());
    } else {
        out.copy_from_slice(&value.to_le_bytes());
    }
}

/// Sets the first element of the blocks that store it apart.
#[inline(always)]
fn heads<const SIZE: usize>(planes: &Planes, metadata: &[u8], payload: &[u8], out: &mut [u8]) -> Option<()> {
    let mut rest = payload;
    for (own, out) in metadata.chunks_exact(planes.metadata()).zip(out.chunks_mut(planes.block * SIZE)) {
        let BlockForm { head, cost, .. } = planes.form(own);
        let (own, after) = rest.split_at_checked(cost)?;
        rest = after;
        if head > 0 {
            let (head, signs) = own.split_at_checked(head)?;
            let magnitude = little(head);
            let is_negative = signs.first()? & 1 != 0;
            put::<SIZE>(out.first_chunk_mut()?, if is_negative { magnitude.wrapping_neg() } else { magnitude });
        }
    }
    Some(())
}
