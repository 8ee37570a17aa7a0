//! One coded chunk of CLOG or HCLOG: 32 groups of words, each with as many bits as its largest word needs.
//!
//! Reference: section 3 of the LC stages. One string of bits: for HCLOG, which groups are zigzag coded; the length of
//! the chunk; the width of every group; the words. Then the bytes after the last whole word.
#![forbid(unsafe_code)]

use super::chunks::Invalid;
use crate::codec::bit_fields;
use crate::error::Result;
use crate::format::fzm::stage::types::Unsigned;

/// Groups of a chunk.
const GROUPS: usize = 32;

/// Decodes `body` into `out`; the words have `word` bytes. `flags`: groups can be zigzag coded (HCLOG).
///
/// # Errors
/// Fails if the body is invalid.
pub(in super::super) fn decode(flags: bool, word: usize, body: &[u8], out: &mut [u8]) -> Result<(), Invalid> {
    match word {
        1 => words::<u8, 1>(flags, 4, body, out),
        2 => words::<u16, 2>(flags, 5, body, out),
        4 => words::<u32, 4>(flags, 6, body, out),
        _ => words::<u64, 8>(flags, 7, body, out),
    }
}

/// As [`decode`], for words of type `U` with `W` bytes and widths of `bits` bits.
fn words<U: Unsigned, const W: usize>(flags: bool, bits: u32, body: &[u8], out: &mut [u8]) -> Result<(), Invalid> {
    let (zigzag, rest) = match body.split_first_chunk() {
        Some((zigzag, rest)) if flags => (u32::from_le_bytes(*zigzag), rest),
        None if flags => return Err("too short for the flags of the groups".into()),
        _ => (0, body),
    };
    let (tag, rest) = rest.split_first_chunk().ok_or("too short for a tag")?;
    if usize::from(u16::from_le_bytes(*tag)) != out.len() {
        return Err("the tag is not the length of the chunk".into());
    }
    let (widths, rest) = rest.split_at_checked(GROUPS / 8 * bits as usize).ok_or("too short for the widths")?;
    let mut width = [0; GROUPS];
    bit_fields::unpack::<1>(widths, 0, bits, &mut width);
    let count = out.len() / W;
    let first = |group: usize| group * count / GROUPS;
    let mut end = 0;
    for (group, &width) in width.iter().enumerate() {
        if usize::from(width) > 8 * W {
            return Err("a group has more bits than a word".into());
        }
        end += usize::from(width) * (first(group + 1) - first(group));
    }
    let (out, tail) = out.split_at_mut(count * W);
    let (packed, extra) = rest.split_at_checked(end.div_ceil(8)).ok_or("fewer bits than the widths require")?;
    if extra.len() != tail.len() {
        return Err("not as many bits as the widths require".into());
    }
    tail.copy_from_slice(extra);
    let mut at = 0;
    for (group, &width) in width.iter().enumerate() {
        let range = first(group) * W..first(group + 1) * W;
        let own = out.get_mut(range).unwrap_or_default();
        bit_fields::unpack::<W>(packed, at, width.into(), own);
        at += usize::from(width) * (own.len() / W);
        if zigzag >> group & 1 == 1 {
            own.chunks_exact_mut(W).for_each(|word| U::get(word).unzigzag().put(word));
        }
    }
    Ok(())
}
