//! The literals section of a compressed block.
//!
//! Reference: section 2.4, "Literals section".
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

use super::super::entropy::{Dialect, HuffmanTable};
use super::super::header::MAX_BLOCK;

const WHAT: &str = "literals section";

/// The section's header.
struct LiteralsHeader {
    kind: u8,
    four_streams: bool,
    regenerated: usize,
    compressed: usize,
}

fn header(src: &[u8]) -> Result<(LiteralsHeader, &[u8])> {
    let short = || Error::corrupt("the header runs past the end", WHAT);
    let kind = src.first().ok_or_else(short)? >> 6;
    let form = src.first().ok_or_else(short)? >> 4 & 3;
    // Size of the header, bits of each size field.
    let (len, bits) = match (kind >= 2, form) {
        (true, 0 | 1) => (1, 5),
        (true, 2) => (2, 12),
        (true, _) => (3, 20),
        (false, 0 | 1) => (3, 10),
        (false, 2) => (4, 14),
        (false, _) => (5, 18),
    };
    let (bytes, rest) = src.split_at_checked(len).ok_or_else(short)?;
    let word = bytes.iter().fold(0_u64, |w, &b| w << 8 | u64::from(b));
    let mask = (1 << bits) - 1;
    let (regenerated, compressed) = if kind >= 2 { (word & mask, 0) } else { (word >> bits & mask, word & mask) };
    if regenerated > MAX_BLOCK as u64 {
        return Err(Error::corrupt(format!("{regenerated} literals, the maximum is {MAX_BLOCK}"), WHAT));
    }
    let four_streams = form != 1;
    Ok((
        LiteralsHeader { kind, four_streams, regenerated: regenerated as usize, compressed: compressed as usize },
        rest,
    ))
}

/// The decoded size of the section, without decoding it, and the bytes after it.
///
/// # Errors
/// Fails if its header is malformed, or it extends past the end of the block.
pub(in crate::codec::zstd) fn measure(src: &[u8]) -> Result<(usize, &[u8])> {
    let (header, rest) = header(src)?;
    let stored = match header.kind {
        2 => header.regenerated,
        3 => 1,
        _ => header.compressed,
    };
    let rest = rest.get(stored..).ok_or_else(|| Error::corrupt("runs past the end of the block", WHAT))?;
    Ok((header.regenerated, rest))
}

/// Decodes the section, replacing the content of `dst`; stores the tree in `tree`. Returns the bytes after the section.
///
/// # Errors
/// Fails if the section is malformed, or repeats a tree although there was none.
pub(super) fn read<'a>(src: &'a [u8], tree: &mut HuffmanTable, dst: &mut Vec<u8>) -> Result<&'a [u8]> {
    let (header, rest) = header(src)?;
    let short = || Error::corrupt("runs past the end of the block", WHAT);
    dst.clear();
    match header.kind {
        2 => {
            let (bytes, rest) = rest.split_at_checked(header.regenerated).ok_or_else(short)?;
            dst.extend_from_slice(bytes);
            Ok(rest)
        }
        3 => {
            let (&byte, rest) = rest.split_first().ok_or_else(short)?;
            dst.resize(header.regenerated, byte);
            Ok(rest)
        }
        kind => {
            let (mut streams, rest) = rest.split_at_checked(header.compressed).ok_or_else(short)?;
            if kind == 0 {
                streams = tree.read(streams, Dialect::V07)?;
            } else if !tree.is_given() {
                return Err(Error::corrupt("repeats a tree, but no tree came before", WHAT));
            }
            dst.resize(header.regenerated, 0);
            tree.decode(streams, header.four_streams, dst)?;
            Ok(rest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_and_rle_literals_in_every_size_format() {
        let cases: &[(&str, Vec<u8>, usize)] = &[
            ("raw, 5 bits", [&[0x83][..], b"abc"].concat(), 3),
            ("raw, 12 bits", [&[0xA0, 3][..], b"abc"].concat(), 3),
            ("raw, 20 bits", [&[0xB0, 0, 3][..], b"abc"].concat(), 3),
            ("run, 5 bits", vec![0xDF, b'x'], 31),
            ("run, 12 bits", vec![0xEF, 0xFF, b'x'], 4095),
            ("run, 20 bits", vec![0xF2, 0, 0, b'x'], 131_072),
        ];
        for (name, src, len) in cases {
            let mut dst = Vec::new();
            let mut src = src.clone();
            src.push(0x77);
            assert_eq!(read(&src, &mut HuffmanTable::default(), &mut dst).unwrap(), [0x77], "{name}");
            assert_eq!(dst.len(), *len, "{name}");
        }
    }

    #[test]
    fn malformed_sections_are_rejected() {
        let cases: &[(&str, &[u8])] = &[
            ("nothing", &[]),
            ("half a header", &[0xA0]),
            ("too many literals", &[0xFF, 0xFF, 0xFF, 1]),
            ("raw past the end", &[0x85, 1, 2]),
            ("run without its byte", &[0xC5]),
            ("repeat without a tree", &[0x50, 0x10, 0x01, 1]),
            ("streams past the end", &[0x00, 0x10, 0x20, 242]),
            ("four streams without a jump table", &[0x00, 0x10, 0x03, 242, 1, 1]),
        ];
        for (name, src) in cases {
            assert!(read(src, &mut HuffmanTable::default(), &mut Vec::new()).is_err(), "{name}");
        }
    }
}
