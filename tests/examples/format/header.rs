//! The header.
//!
//! Every number of a file is hostile: fields are read by name through a cursor, which knows their offsets, and each is
//! compared with its limits here, so that no other module meets a value that is not allowed.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::RangeInclusive;

use fzmfs::bytes::{Cursor, FileOffset, to_u64};
use fzmfs::error::{Error, Kind, Result};
use fzmfs::source::Source;

pub(super) const MAGIC: [u8; 4] = *b"RUNS";
/// A piece is decoded in well under a second, and has to be worth its place in the cache.
const BLOCK: RangeInclusive<u32> = 64 << 10..=16 << 20;

#[derive(Debug)]
pub(super) struct Header {
    /// Bytes of a decoded block.
    pub(super) block: u64,
    /// Bytes of the decoded content.
    pub(super) content: u64,
}

impl Header {
    pub(super) const LEN: usize = 20;

    /// Reads and checks the header.
    ///
    /// # Errors
    /// Fails if it is malformed or its checksum differs; the error names the field and its offset.
    pub(super) fn read(source: &Source) -> Result<Self> {
        let start = FileOffset(0);
        let bytes = source.get(start, to_u64(Self::LEN).min(source.len()), "header")?;
        let mut fields = Cursor::new(&bytes, start);
        if fields.array("magic")? != MAGIC {
            return Err(Error::corrupt("not RUNS", "magic").at(start));
        }
        let block_at = fields.at();
        let block = fields.u32_le("block size")?;
        let content = fields.u64_le("content size")?;
        let (covered, crc_at) = (bytes.get(..16).unwrap_or_default(), fields.at());
        let (stored, computed) = (fields.u32_le("header checksum")?.into(), crc32fast::hash(covered).into());
        if stored != computed {
            return Err(Error::new(Kind::Checksum { stored, computed }, "header checksum").at(crc_at));
        }
        if !BLOCK.contains(&block) || !block.is_power_of_two() {
            let why = format!("{block}: not a power of two from {} to {}", BLOCK.start(), BLOCK.end());
            return Err(Error::corrupt(why, "block size").at(block_at));
        }
        Ok(Self { block: block.into(), content })
    }
}
