//! Frame footers: the decoded size, and the hash over all block checksums.
//!
//! Reference: sections 2.3 and 11.5 of the ZXC reference.
//!
//! Checked: a version 9 footer has the only valid encoding for its frame.
//!
//! Invariants: decodes nothing.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::{Cursor, FileOffset};
use crate::error::{Error, Kind, Result};
use crate::source::Source;

use super::header::FileHeader;

/// The footer of a frame.
#[derive(Debug, Clone)]
pub(super) struct Footer {
    /// Offset of the footer.
    pub(super) at: FileOffset,
    /// Decoded size of the frame.
    pub(super) total: u64,
    /// Offset of the field `total`.
    pub(super) total_at: FileOffset,
    /// Global hash or digest; meaningful only if the header says that there are checksums.
    pub(super) digest: u64,
    /// Offset of the field `digest`.
    pub(super) digest_at: FileOffset,
}

/// Size of the footer in versions 4 to 8.
pub(super) const OLD_LEN: u64 = 12;

/// Reads the footer at `at`, in versions 4 to 8.
pub(super) fn old(source: &Source, at: FileOffset) -> Result<Footer> {
    let bytes = source.get(at, OLD_LEN, "file footer")?;
    let mut cur = Cursor::new(&bytes, at);
    let total = cur.u64_le("total")?;
    let digest_at = cur.at();
    Ok(Footer { at, total, total_at: at, digest: cur.u32_le("global hash")?.into(), digest_at })
}

/// The end of a version 9 frame, parsed backwards.
#[derive(Debug)]
pub(super) struct Tail {
    total: u64,
    total_at: FileOffset,
    /// Offset of the frame.
    pub(super) frame: FileOffset,
    /// Size of the frame.
    pub(super) frame_size: u64,
}

impl Tail {
    /// Minimum size of a frame: header, EOF block, three bytes.
    pub(super) const SMALLEST: u64 = 27;

    /// Reads the tail of the frame that ends at `end`.
    pub(super) fn read(source: &Source, end: FileOffset) -> Result<Self> {
        let have = end.0;
        if have < Self::SMALLEST {
            return Err(Error::new(Kind::Truncated { need: Self::SMALLEST, have }, "frame").at(FileOffset(0)));
        }
        // A tail has at most 8 + 8 + 1 bytes; the smallest frame is longer.
        let start = FileOffset(have.saturating_sub(17));
        let bytes = source.get(start, 17, "footer")?;
        let lengths_at = FileOffset(have.saturating_sub(1));
        let wrong = |why: &'static str, what: &'static str| Error::corrupt(why, what).at(lengths_at);
        let [fields @ .., lengths] = bytes.as_slice() else { return Err(wrong("missing", "footer lengths")) };
        if lengths & 0x88 != 0 {
            return Err(wrong("reserved bits are set", "footer lengths"));
        }
        let (total_len, size_len) = ((lengths & 7).saturating_add(1), (lengths >> 4).saturating_add(1));
        let field = |skip: u8, len: u8| -> u64 {
            fields.iter().rev().skip(skip.into()).take(len.into()).fold(0, |n, &b| n << 8 | u64::from(b))
        };
        let (frame_size, total) = (field(0, size_len), field(size_len, total_len));
        let total_at = FileOffset(lengths_at.0.saturating_sub(u64::from(size_len)).saturating_sub(total_len.into()));
        if frame_size < Self::SMALLEST || frame_size > have {
            return Err(wrong("the frame does not fit in the file", "frame_size"));
        }
        let before = frame_size.saturating_sub(1).saturating_sub(total_len.into()).saturating_sub(size_len.into());
        let shortest = (1..=8).find(|&n| bytes_needed(size_with(before, total_len, n)) <= n);
        if bytes_needed(total) != total_len || shortest != Some(size_len) {
            return Err(wrong("not the shortest form", "footer lengths"));
        }
        Ok(Self { total, total_at, frame: FileOffset(have.saturating_sub(frame_size)), frame_size })
    }

    /// The footer, given the header of the frame.
    pub(super) fn footer(&self, source: &Source, header: &FileHeader) -> Result<Footer> {
        if header.blocks_of(self.total) > self.frame_size / 8 {
            return Err(Error::corrupt("more than the blocks can hold", "total").at(self.total_at));
        }
        let digest_len = if header.checksums { 8 } else { 0 };
        let at = FileOffset(self.total_at.0.saturating_sub(digest_len));
        let digest = if header.checksums {
            Cursor::new(&source.get(at, digest_len, "digest")?, at).u64_le("digest")?
        } else {
            0
        };
        Ok(Footer { at, total: self.total, total_at: self.total_at, digest, digest_at: at })
    }
}

/// The size of the frame if it is stored in `n` bytes.
fn size_with(before: u64, total_len: u8, n: u8) -> u64 {
    before.saturating_add(u64::from(total_len)).saturating_add(1).saturating_add(n.into())
}

/// The minimum number of bytes, at least one, that hold `n`.
fn bytes_needed(n: u64) -> u8 {
    let bits = 64_u32.saturating_sub(n.leading_zeros());
    u8::try_from(bits.div_ceil(8)).unwrap_or(8).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::to_u64;

    #[test]
    fn bytes_needed_is_the_shortest_form() {
        for (n, want) in [(0, 1), (255, 1), (256, 2), (0xFFFF, 2), (0x10000, 3), (u64::MAX, 8)] {
            assert_eq!(bytes_needed(n), want, "{n}");
        }
    }

    #[test]
    fn a_tail_is_read_backwards_or_refused() {
        let read = |tail: &[u8]| {
            let mut file = vec![0; 300];
            file.extend_from_slice(tail);
            let end = FileOffset(to_u64(file.len()));
            Tail::read(&Source::from_bytes(file), end).map(|t| (t.total, t.frame_size)).map_err(|e| e.what().to_owned())
        };
        assert_eq!(read(&[0x00, 0x1B, 0x00]), Ok((0, 27)));
        assert_eq!(read(&[0x0A, 0x39, 0x00]), Ok((10, 57)));
        assert_eq!(read(&[0x0A, 0x01, 0x01, 0x10]), Ok((10, 257)));
        for (tail, what) in [
            (&[0x0A, 0x39, 0x08][..], "footer lengths"),
            (&[0x0A, 0x39, 0x80], "footer lengths"),
            (&[0x0A, 0x00, 0x39, 0x01], "footer lengths"),
            (&[0x0A, 0x39, 0x00, 0x10], "footer lengths"),
            (&[0x0A, 0x00, 0x01, 0x10], "footer lengths"),
            (&[0x0A, 0x10, 0x00], "frame_size"),
            (&[0x0A, 0x00, 0x10, 0x10], "frame_size"),
        ] {
            assert_eq!(read(tail), Err(what.to_owned()), "{tail:?}");
        }
    }
}
