//! The header block of a member.
//!
//! Numbers are octal text, or binary if the first bit is set (GNU). The sum of all bytes covers the header; old programs
//! summed signed bytes.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::{Cursor, FileOffset};
use crate::error::{Error, Result};

/// Bytes of a block: a header, or the unit of content.
pub(super) const BLOCK: u64 = 512;
/// The same in memory.
pub(super) const BLOCK_LEN: usize = 512;
/// Where the sum is, and its length.
const SUM: (usize, usize) = (148, 8);

/// The dialect of a header, by its magic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Unix V7: no magic, no prefix of the name.
    V7,
    /// POSIX, also with pax records.
    Ustar,
    /// GNU: fields for sparse files instead of the prefix.
    Gnu,
}

/// A header.
#[derive(Debug)]
pub(super) struct Header {
    /// Where it is in the archive.
    pub(super) at: FileOffset,
    pub(super) dialect: Dialect,
    pub(super) kind: u8,
    /// With its prefix.
    pub(super) name: Vec<u8>,
    /// The target of a link.
    pub(super) link: Vec<u8>,
    /// Bytes of content in the archive.
    pub(super) size: u64,
    /// `None` if it is unreadable.
    pub(super) mode: Option<u16>,
    /// Seconds since 1970; `None` if they are unreadable.
    pub(super) mtime: Option<i64>,
    /// The bytes after the owner, which depend on the dialect.
    pub(super) rest: [u8; 167],
}

impl Header {
    /// Parses a block, which is not all zeros.
    ///
    /// # Errors
    /// Fails if the sum is wrong, or the size unreadable.
    pub(super) fn parse(block: &[u8], at: FileOffset) -> Result<Self> {
        let mut cur = Cursor::new(block, at);
        let name: [u8; 100] = cur.array("name")?;
        let mode: [u8; 8] = cur.array("mode")?;
        cur.take(16, "owner")?;
        let size_at = cur.at();
        let size: [u8; 12] = cur.array("size")?;
        let mtime: [u8; 12] = cur.array("mtime")?;
        let sum_at = cur.at();
        let stored: [u8; 8] = cur.array("chksum")?;
        let kind = cur.u8("typeflag")?;
        let link: [u8; 100] = cur.array("linkname")?;
        let magic: [u8; 8] = cur.array("magic")?;
        cur.take(80, "owner")?;
        let rest: [u8; 167] = cur.array("prefix")?;
        let sums = sums(block);
        if number(&stored).is_none_or(|stored| !sums.contains(&stored)) {
            return Err(Error::corrupt("wrong sum of the header", "chksum").at(sum_at));
        }
        let size = number(&size).and_then(|size| u64::try_from(size).ok());
        let size = size.ok_or_else(|| Error::corrupt("not a number", "size").at(size_at))?;
        let dialect = match &magic {
            b"ustar  \0" => Dialect::Gnu,
            [b'u', b's', b't', b'a', b'r', ..] => Dialect::Ustar,
            _ => Dialect::V7,
        };
        let prefix = if dialect == Dialect::Ustar { text(rest.get(..155).unwrap_or_default()) } else { &[] };
        let name = if prefix.is_empty() { text(&name).to_vec() } else { [prefix, text(&name)].join(&b'/') };
        let mode = number(&mode).map(|mode| u16::try_from(mode & 0o777).unwrap_or(0));
        Ok(Self { at, dialect, kind, name, link: text(&link).to_vec(), size, mode, mtime: number(&mtime), rest })
    }
}

/// Whether `block` is a header by its sum.
pub(super) fn is_header(block: &[u8]) -> bool {
    Header::parse(block, FileOffset(0)).is_ok()
}

/// The sums of the bytes, unsigned and signed, with spaces instead of the sum itself.
fn sums(block: &[u8]) -> [i64; 2] {
    let covered = block.iter().enumerate().filter(|(i, _)| i.wrapping_sub(SUM.0) >= SUM.1);
    let spaces = 8 * 32;
    covered.fold([spaces; 2], |[unsigned, signed], (_, &byte)| {
        // 512 bytes cannot overflow.
        [unsigned.saturating_add(byte.into()), signed.saturating_add(byte.cast_signed().into())]
    })
}

/// The bytes before the first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// The number in a field: octal, between spaces and NULs; or binary, in two's complement without its first bit. 0 if it
/// is empty.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    if let Some((&first, rest)) = field.split_first().filter(|(first, _)| **first & 0x80 != 0) {
        let is_negative = first & 0x40 != 0;
        let high = i64::from(if is_negative { first.cast_signed() } else { (first & 0x3F).cast_signed() });
        return rest.iter().try_fold(high, |sum, &byte| sum.checked_mul(256)?.checked_add(byte.into()));
    }
    let digits = field.trim_ascii_start().split(|byte| matches!(byte, 0 | b' ')).next()?;
    digits.iter().try_fold(0_i64, |sum, &digit| {
        let digit = digit.checked_sub(b'0').filter(|&digit| digit < 8)?;
        sum.checked_mul(8)?.checked_add(digit.into())
    })
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary() {
        for (field, want) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"  644 \0\0", Some(0o644)),
            (b"644", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"8", None),
            (b"-1", None),
            (b"7777777777777777777777777", None),
            (b"\x80\0\0\0\0\0\0\0\0\0\x01\x02", Some(258)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
        ] {
            assert_eq!(number(field), want, "{field:?}");
        }
    }

    #[test]
    fn the_sum_covers_every_byte_but_its_own() {
        let mut block = [0; BLOCK_LEN];
        block[..5].copy_from_slice(b"n\xFFame");
        let [unsigned, signed] = sums(&block);
        assert_eq!(unsigned - signed, 256);
        for sum in [unsigned, signed] {
            block[SUM.0..SUM.0 + SUM.1].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            assert!(is_header(&block));
            for at in (0..SUM.0).chain(SUM.0 + SUM.1..BLOCK_LEN) {
                block[at] ^= 1;
                assert!(!is_header(&block), "{at}");
                block[at] ^= 1;
            }
        }
    }
}
