//! The core header: the fields before the two tables.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::fmt;

use crate::bytes::{Cursor, FileOffset};
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;

/// The first four bytes: `0x464D5A32`, little-endian.
pub(in crate::format::fzm) const MAGIC: [u8; 4] = *b"2ZMF";

pub(super) const CORE_V30: u64 = 72;
const CORE: u64 = 80;
const MAX_STAGES: u64 = 32;
const MAX_BUFFERS: u64 = 32;
const MAX_SOURCES: usize = 4;

/// Offsets of fields in the core.
const AT_COMPRESSED_SIZE: FileOffset = FileOffset(16);
const AT_HEADER_SIZE: FileOffset = FileOffset(24);
pub(in crate::format::fzm) const AT_SOURCE_SIZES: FileOffset = FileOffset(40);

/// The format version: `3.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::format::fzm) struct CoreVersion {
    pub(in crate::format::fzm) major: u8,
    pub(in crate::format::fzm) minor: u8,
}

impl CoreVersion {
    /// Values up to 0xFF are a major version only, from before minor versions existed.
    const fn of(field: u16) -> Self {
        match field.to_be_bytes() {
            [0, major] => Self { major, minor: 0 },
            [major, minor] => Self { major, minor },
        }
    }
}

impl fmt::Display for CoreVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The first 72 bytes.
pub(super) struct Core {
    pub(super) version: CoreVersion,
    pub(super) num_buffers: u64,
    pub(super) uncompressed_size: u64,
    pub(super) compressed_size: u64,
    pub(super) header_size: u64,
    pub(super) num_stages: u64,
    pub(super) flags: u16,
    pub(super) source_sizes: Vec<u64>,
}

impl Core {
    pub(super) fn parse(cur: &mut Cursor<'_>) -> Result<Self> {
        if cur.array::<4>("magic")? != MAGIC {
            return Err(Error::corrupt("not an FZM file", "magic").at(FileOffset(0)));
        }
        let at = cur.at();
        let version = CoreVersion::of(cur.u16_le("version")?);
        if version.major != 3 {
            return Err(Error::unsupported(format!("version {version} (supported: 3.x)"), "version").at(at));
        }
        let at = cur.at();
        let num_buffers = Limits::check(cur.u16_le("num_buffers")?.into(), MAX_BUFFERS, "num_buffers");
        let num_buffers = num_buffers.map_err(|e| e.at(at))?;
        let uncompressed_size = cur.u64_le("uncompressed_size")?;
        let compressed_size = cur.u64_le("compressed_size")?;
        let header_size = cur.u64_le("header_size")?;
        let at = cur.at();
        let num_stages = Limits::check(cur.u32_le("num_stages")?.into(), MAX_STAGES, "num_stages");
        let num_stages = num_stages.map_err(|e| e.at(at))?;
        if num_stages == 0 {
            return Err(Error::corrupt("there are no stages", "num_stages").at(at));
        }
        let at = cur.at();
        let num_sources = usize::from(cur.u16_le("num_sources")?);
        if !(1..=MAX_SOURCES).contains(&num_sources) {
            return Err(Error::corrupt(format!("must be 1 to {MAX_SOURCES}, not {num_sources}"), "num_sources").at(at));
        }
        let flags = cur.u16_le("flags")?;
        let sizes: Result<Vec<u64>> = (0..num_sources).map(|_| cur.u64_le("source_uncompressed_sizes")).collect();
        Ok(Self {
            version,
            num_buffers,
            uncompressed_size,
            compressed_size,
            header_size,
            num_stages,
            flags,
            source_sizes: sizes?,
        })
    }

    /// Bytes of the core; only versions 3 and 3.0 have no checksum fields.
    pub(super) const fn len(&self) -> u64 {
        if self.version.minor == 0 { CORE_V30 } else { CORE }
    }

    /// Checks that the payload starts at or after `tables_end` and ends within the file.
    pub(super) fn check_payload(&self, tables_end: u64, file_len: u64) -> Result<()> {
        if self.header_size < tables_end {
            let why = format!("{} is inside the tables, which end at {tables_end}", self.header_size);
            return Err(Error::corrupt(why, "header_size").at(AT_HEADER_SIZE));
        }
        let Some(have) = file_len.checked_sub(self.header_size) else {
            let why = format!("{} is past the end of the file of {file_len} bytes", self.header_size);
            return Err(Error::corrupt(why, "header_size").at(AT_HEADER_SIZE));
        };
        if self.compressed_size > have {
            let kind = Kind::Truncated { need: self.compressed_size, have };
            return Err(Error::new(kind, "compressed_size").at(AT_COMPRESSED_SIZE));
        }
        Ok(())
    }
}
