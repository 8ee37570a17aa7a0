//! Frame and block headers of every generation.
//!
//! Reference: sections 1 to 4 of the Zstandard reference.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::Cursor;
use crate::error::{Error, Result};

/// Maximum decoded size of a block, in every generation.
pub(super) const MAX_BLOCK: usize = 128 << 10;

/// The zstd version that wrote a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// zstd 0.5.
    V05,
    /// zstd 0.6.
    V06,
    /// zstd 0.7, the 0.0.2 draft.
    V07,
    /// zstd 0.8 and later, RFC 8878.
    Modern,
}

impl Generation {
    /// Identifies a frame by its first four bytes.
    pub fn of(magic: u32) -> Option<Self> {
        match magic {
            0xFD2F_B525 => Some(Self::V05),
            0xFD2F_B526 => Some(Self::V06),
            0xFD2F_B527 => Some(Self::V07),
            0xFD2F_B528 => Some(Self::Modern),
            _ => None,
        }
    }

    /// Its version, as shown in messages and `info.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V05 => "0.5",
            Self::V06 => "0.6",
            Self::V07 => "0.7",
            Self::Modern => "1",
        }
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The version that wrote it.
    pub generation: Generation,
    /// Maximum distance of a match in bytes; the content size if the frame is a single segment.
    pub window: u64,
    /// Bytes of content; `None` if the frame does not state it.
    pub content_size: Option<u64>,
    /// The id of the required dictionary; 0 if none is named.
    pub dictionary: u32,
    /// Whether the frame ends with a checksum of the content.
    pub has_checksum: bool,
}

impl Header {
    /// Reads the fields after the magic number.
    ///
    /// # Errors
    /// Fails if the header is truncated or invalid.
    pub(super) fn read(cur: &mut Cursor<'_>, generation: Generation) -> Result<Self> {
        match generation {
            Generation::V05 | Generation::V06 => Self::read_old(cur, generation),
            Generation::V07 | Generation::Modern => Self::read_new(cur, generation),
        }
    }

    fn read_old(cur: &mut Cursor<'_>, generation: Generation) -> Result<Self> {
        let at = cur.at();
        let descriptor = cur.u8("frame header descriptor")?;
        let (reserved, shift) = if generation == Generation::V05 { (0xF0, 11) } else { (0x20, 12) };
        if descriptor & reserved != 0 {
            return Err(Error::corrupt("reserved bit set", "frame header descriptor").at(at));
        }
        // The size field of 0.6 is wrong for every file above 128 KiB, so it is skipped.
        if generation == Generation::V06 {
            let bytes = match descriptor >> 6 {
                0 => 0,
                1 => 1,
                2 => 2,
                _ => 8,
            };
            cur.take(bytes, "content size")?;
        }
        let window = 1_u64 << (descriptor & 0x0F).saturating_add(shift);
        Ok(Self { generation, window, content_size: None, dictionary: 0, has_checksum: false })
    }

    fn read_new(cur: &mut Cursor<'_>, generation: Generation) -> Result<Self> {
        let at = cur.at();
        let descriptor = cur.u8("frame header descriptor")?;
        if descriptor & 0x08 != 0 {
            if generation == Generation::Modern {
                return Err(Error::unknown("the frame flag 0x08", "frame header descriptor").at(at));
            }
            return Err(Error::corrupt("reserved bit set", "frame header descriptor").at(at));
        }
        let single = descriptor & 0x20 != 0;
        let window = if single { None } else { Some(window(cur.u8("window descriptor")?)) };
        let dictionary = match descriptor & 3 {
            0 => 0,
            1 => u32::from(cur.u8("dictionary id")?),
            2 => u32::from(cur.u16_le("dictionary id")?),
            _ => cur.u32_le("dictionary id")?,
        };
        let content_size = match descriptor >> 6 {
            0 if !single => None,
            0 => Some(u64::from(cur.u8("content size")?)),
            1 => Some(u64::from(cur.u16_le("content size")?).saturating_add(256)),
            2 => Some(u64::from(cur.u32_le("content size")?)),
            _ => Some(cur.u64_le("content size")?),
        };
        // In 0.7 a size of 0 means unknown.
        let content_size = content_size.filter(|&size| size != 0 || generation == Generation::Modern);
        let window = match (window, content_size) {
            (Some(window), _) => window,
            (None, Some(size)) => size,
            (None, None) => return Err(Error::corrupt("single segment without a content size", "content size").at(at)),
        };
        Ok(Self { generation, window, content_size, dictionary, has_checksum: descriptor & 0x04 != 0 })
    }

    /// Maximum stored and decoded size of a block of this frame.
    pub(super) fn max_block(&self) -> usize {
        let least = if self.generation == Generation::Modern { 0 } else { 1024 };
        usize::try_from(self.window).unwrap_or(MAX_BLOCK).clamp(least, MAX_BLOCK)
    }
}

/// `2^(10 + e) * (1 + m / 8)`.
fn window(descriptor: u8) -> u64 {
    let base = 1_u64 << (descriptor >> 3).saturating_add(10);
    base.saturating_add((base >> 3).saturating_mul(u64::from(descriptor & 7)))
}

/// The type of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// Compressed: decodes to at most [`Header::max_block`] bytes.
    Compressed,
    /// Stored: the bytes are the content.
    Raw,
    /// One byte, repeated.
    Run,
    /// Not a block but the end of the frame (0.7 and older). The size field may contain a checksum.
    End,
}

/// A block header, three bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ZstdBlockHeader {
    /// The block's type.
    pub(super) kind: BlockKind,
    /// Bytes that follow; for a run the bytes of content; for an end mark its 22 bits.
    pub(super) size: u32,
    /// Whether it is marked as the last block (modern frames).
    pub(super) last: bool,
}

impl ZstdBlockHeader {
    /// Size of a block header.
    pub(super) const HEADER: usize = 3;

    /// Reads the header of a block of `frame`.
    ///
    /// # Errors
    /// Fails if it is truncated, of an unknown type, or larger than its frame allows.
    pub(super) fn read(cur: &mut Cursor<'_>, frame: &Header) -> Result<Self> {
        let at = cur.at();
        let [a, b, c] = cur.array::<3>("block header")?;
        let block = if frame.generation == Generation::Modern {
            let kind = match a >> 1 & 3 {
                0 => BlockKind::Raw,
                1 => BlockKind::Run,
                2 => BlockKind::Compressed,
                _ => return Err(Error::unknown("block type 3", "block type").at(at)),
            };
            Self { kind, size: u32::from_le_bytes([a, b, c, 0]) >> 3, last: a & 1 != 0 }
        } else {
            let kind = match a >> 6 {
                0 => BlockKind::Compressed,
                1 => BlockKind::Raw,
                2 => BlockKind::Run,
                _ => BlockKind::End,
            };
            Self { kind, size: u32::from_be_bytes([0, a & 0x3F, b, c]), last: false }
        };
        if block.kind != BlockKind::End && usize::try_from(block.size).is_ok_and(|size| size > frame.max_block()) {
            let why = format!("{} bytes, the maximum is {}", block.size, frame.max_block());
            return Err(Error::corrupt(why, "block size").at(at));
        }
        Ok(block)
    }

    /// Stored bytes after the header.
    pub(super) fn stored(self) -> usize {
        match self.kind {
            BlockKind::Compressed | BlockKind::Raw => usize::try_from(self.size).unwrap_or(usize::MAX),
            BlockKind::Run => 1,
            BlockKind::End => 0,
        }
    }

    /// Bytes of content, if known without decoding.
    pub(super) fn content(self) -> Option<u64> {
        match self.kind {
            BlockKind::Compressed => None,
            BlockKind::Raw | BlockKind::Run => Some(u64::from(self.size)),
            BlockKind::End => Some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::FileOffset;

    fn frame(bytes: &[u8], generation: Generation) -> Result<Header> {
        Header::read(&mut Cursor::new(bytes, FileOffset(4)), generation)
    }

    #[test]
    fn every_form_of_header_is_parsed() {
        use Generation::{Modern, V05, V06, V07};
        type Case = (&'static str, Generation, &'static [u8], u64, Option<u64>, u32, bool);
        let cases: &[Case] = &[
            ("window only", V07, &[0x00, 0x50], 1 << 20, None, 0, false),
            ("window with mantissa, checksum", V07, &[0x04, 0x57], (1 << 20) + 7 * (1 << 17), None, 0, true),
            ("one segment, 1-byte size", V07, &[0x20, 200], 200, Some(200), 0, false),
            ("2-byte size is 256 more", V07, &[0x60, 1, 1], 513, Some(513), 0, false),
            ("dictionary id before the size", V07, &[0x61, 9, 0, 0], 256, Some(256), 9, false),
            (
                "8-byte size, 4-byte id, unused bit",
                V07,
                &[0xF3, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0],
                5,
                Some(5),
                1,
                false,
            ),
            ("size 0 is unknown in 0.7", V07, &[0x80, 0x00, 0, 0, 0, 0], 1024, None, 0, false),
            ("size 0 is a size today", Modern, &[0x20, 0], 0, Some(0), 0, false),
            ("largest window", Modern, &[0x00, 0xFF], (1 << 41) + 7 * (1 << 38), None, 0, false),
            ("0.5", V05, &[0x09], 1 << 20, None, 0, false),
            ("0.6 with a size that is not believed", V06, &[0x88, 1, 2], 1 << 20, None, 0, false),
        ];
        for (name, generation, bytes, window, content_size, dictionary, has_checksum) in cases {
            let want = Header {
                generation: *generation,
                window: *window,
                content_size: *content_size,
                dictionary: *dictionary,
                has_checksum: *has_checksum,
            };
            assert_eq!(frame(bytes, *generation).unwrap(), want, "{name}");
            assert!(frame(bytes.split_last().unwrap().1, *generation).is_err(), "{name}, cut");
        }
        for (generation, bytes) in [(V07, &[0x08, 0x50][..]), (V05, &[0x10]), (V06, &[0x20])] {
            assert!(frame(bytes, generation).unwrap_err().to_string().contains("reserved bit"), "{generation:?}");
        }
        assert!(frame(&[0x08, 0x50], Modern).unwrap_err().is_unknown());
        assert!(frame(&[0x20, 0], V07).is_err());
    }

    #[test]
    fn blocks_larger_than_the_maximum_are_rejected() {
        use BlockKind::{Compressed, End, Raw, Run};
        let block = |bytes: &[u8], generation| {
            let small = frame(&[0x20, 200], generation).unwrap();
            ZstdBlockHeader::read(&mut Cursor::new(bytes, FileOffset(0)), &small).map(|b| (b.kind, b.size, b.last))
        };
        assert_eq!(block(&[0x00, 0x04, 0x00], Generation::V07).unwrap(), (Compressed, 1024, false));
        assert_eq!(block(&[0x40, 0x00, 0x05], Generation::V07).unwrap(), (Raw, 5, false));
        assert_eq!(block(&[0x80, 0x00, 0x05], Generation::V07).unwrap(), (Run, 5, false));
        assert_eq!(block(&[0xFF, 0xFF, 0xFF], Generation::V07).unwrap(), (End, 0x3F_FFFF, false));
        assert!(block(&[0x40, 0x04, 0x01], Generation::V07).is_err());
        assert_eq!(block(&[0x2D, 0, 0], Generation::Modern).unwrap(), (Compressed, 5, true));
        assert_eq!(block(&[0x42, 6, 0], Generation::Modern).unwrap(), (Run, 200, false));
        assert!(block(&[0x4A, 6, 0], Generation::Modern).is_err());
        assert!(block(&[0x06, 0, 0], Generation::Modern).unwrap_err().is_unknown());
        assert!(block(&[0x06, 0], Generation::Modern).is_err());
    }
}
