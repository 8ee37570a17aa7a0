//! The header block of a member, whose fields crate tar reads.
//!
//! The sum of all bytes covers the header; old programs summed signed bytes.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::io;
use std::mem::offset_of;

use tar::OldHeader;

use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Result};

/// Bytes of a block: a header, or the unit of content.
pub(super) const BLOCK: u64 = 512;
/// The same in memory.
pub(super) const BLOCK_LEN: usize = 512;
/// Where the sum is, and its length.
const SUM: (usize, usize) = (offset_of!(OldHeader, cksum), 8);
/// Magic and version of POSIX, and where they are.
const USTAR: &[u8; 8] = b"ustar\x0000";
const MAGIC: std::ops::Range<usize> = 257..265;

/// A header.
#[derive(Debug)]
pub(super) struct TarHeader {
    /// Where it is in the archive.
    pub(super) at: FileOffset,
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
    pub(super) fields: tar::Header,
}

impl TarHeader {
    /// Parses a block, which is not all zeros.
    ///
    /// # Errors
    /// Fails if the sum is wrong, or the size unreadable.
    pub(super) fn parse(block: &[u8; BLOCK_LEN], at: FileOffset) -> Result<Self> {
        let mut fields = tar::Header::from_byte_slice(block).clone();
        let field = |offset: usize| at.plus(to_u64(offset));
        let sum = number(&fields.as_old().cksum, || fields.cksum().map(u64::from));
        if sum.is_none_or(|sum| !sums(block).contains(&sum.cast_signed())) {
            return Err(Error::corrupt("wrong sum of the header", "chksum").at(field(SUM.0)));
        }
        // Not all writers of POSIX write its version, and without it no prefix is read.
        if let Some(magic) = fields.as_mut_bytes().get_mut(MAGIC).filter(|magic| magic.starts_with(b"ustar"))
            && *magic != *b"ustar  \0"
        {
            magic.copy_from_slice(USTAR);
        }
        let old = fields.as_old();
        let size = number(&old.size, || fields.entry_size());
        let size = size.ok_or_else(|| Error::corrupt("not a number", "size").at(field(offset_of!(OldHeader, size))))?;
        Ok(Self {
            at,
            kind: fields.entry_type().as_byte(),
            name: fields.path_bytes().into_owned(),
            link: text(&old.linkname).to_vec(),
            size,
            mode: number(&old.mode, || fields.mode().map(u64::from)).and_then(|mode| u16::try_from(mode & 0o777).ok()),
            // Times before 1970 are negative.
            mtime: number(&old.mtime, || fields.mtime()).map(u64::cast_signed),
            fields,
        })
    }
}

/// Whether `block` is a header by its sum.
pub(super) fn is_header(block: &[u8; BLOCK_LEN]) -> bool {
    TarHeader::parse(block, FileOffset(0)).is_ok()
}

/// The sums of the bytes, unsigned and signed, with spaces instead of the sum itself. 512 bytes cannot overflow.
fn sums(block: &[u8; BLOCK_LEN]) -> [i64; 2] {
    let mut block = *block;
    block.iter_mut().skip(SUM.0).take(SUM.1).for_each(|byte| *byte = b' ');
    let sum = block.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    // Signed, each of them is 256 less.
    let negative = block.iter().map(|&byte| u32::from(byte >> 7)).sum::<u32>();
    [sum, sum.wrapping_sub(negative << 8)].map(|sum| sum.cast_signed().into())
}

/// The bytes before the first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// The number in a field: octal, 0 if it is blank; or binary, which `binary` reads. That reads octal digits, too, but not
/// if anything follows the space after them.
pub(super) fn number(field: &[u8], binary: impl FnOnce() -> io::Result<u64>) -> Option<u64> {
    if field.first().is_some_and(|first| first & 0x80 != 0) {
        return binary().ok();
    }
    let digits = field.trim_ascii_start().split(|byte| matches!(byte, 0 | b' ')).next()?;
    if digits.is_empty() {
        return Some(0);
    }
    // `from_str_radix` takes `+` for a sign.
    let digits = str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u64::from_str_radix(digits, 8).ok()
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// A header with `bytes` at an offset, and its sum.
    fn header(at: usize, bytes: &[u8]) -> [u8; BLOCK_LEN] {
        let mut header = tar::Header::new_old();
        header.as_mut_bytes()[at..at + bytes.len()].copy_from_slice(bytes);
        header.set_cksum();
        *header.as_bytes()
    }

    #[test]
    fn numbers_are_octal_or_binary() {
        for (field, want) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"  644 \0\0", Some(0o644)),
            (b"644", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"            ", Some(0)),
            (b"0000644 1750", Some(0o644)),
            (b"8", None),
            (b"-1", None),
            (b"+1", None),
            (b"\x80\0\0\0\0\0\0\0\0\0\x01\x02", Some(258)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
        ] {
            let (mtime, size) = (offset_of!(OldHeader, mtime), offset_of!(OldHeader, size));
            let field = &[field, &[0; 12]].concat()[..12];
            assert_eq!(TarHeader::parse(&header(mtime, field), FileOffset(0)).unwrap().mtime, want, "{field:?}");
            let found =
                TarHeader::parse(&header(size, field), FileOffset(1024)).map(|header| header.size.cast_signed());
            assert_eq!(found.as_ref().ok(), want.as_ref(), "{field:?}");
            if let Err(e) = found {
                assert_eq!((e.what(), e.offset()), ("size", Some(FileOffset(1024 + 124))));
            }
        }
    }

    #[test]
    fn a_prefix_needs_no_version() {
        let name = |magic: &[u8]| {
            let mut block = header(0, b"name");
            block[345..351].copy_from_slice(b"prefix");
            block[MAGIC].copy_from_slice(magic);
            let mut fields = tar::Header::from_byte_slice(&block).clone();
            fields.set_cksum();
            TarHeader::parse(fields.as_bytes(), FileOffset(0)).unwrap().name
        };
        assert_eq!(name(USTAR), b"prefix/name");
        assert_eq!(name(b"ustar\0\0\0"), b"prefix/name");
        assert_eq!(name(b"ustar  \0"), b"name");
        assert_eq!(name(&[0; 8]), b"name");
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
