//! Finds the dialect of a file and the extent of its manifest.
//!
//! Reference: sections 1 and 6.1.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::{Cursor, FileOffset};
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;
use crate::source::Source;

/// First bytes of dialect 0.1.
pub(super) const MAGIC_01: &[u8; 8] = b"ZTEN0001";
/// First bytes of dialects 1.0, 1.1 and 1.2; from 1.1 on also the last bytes.
pub(super) const MAGIC_1: &[u8; 8] = b"ZTEN1000";
/// First and last bytes of dialect 2.
pub(super) const MAGIC_2: &[u8; 8] = b"\x89ZT2\r\n\x1a\n";

/// Maximum manifest size.
const MAX_MANIFEST: u64 = 256 << 20;
/// Size of the footer after the manifest in dialect 2.
pub(super) const FOOTER_2: u64 = 40;

/// A dialect of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dialect {
    /// An array of tensors.
    V01,
    /// A map `tensors`: the original 1.0 document.
    V10,
    /// A map `objects`, with a magic number at the end.
    V11,
    /// As 1.1, with decoded lengths and logical types.
    V12,
    /// Deterministic manifests, 4096-byte alignment, shards.
    V2,
}

impl Dialect {
    /// Its version, as shown in `info.json`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V01 => "0.1",
            Self::V10 => "1.0",
            Self::V11 => "1.1",
            Self::V12 => "1.2",
            Self::V2 => "2",
        }
    }
}

/// The extent of the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    /// The dialect as far as the footer determines it: 1.1 also stands for 1.2.
    pub(super) dialect: Dialect,
    /// Where the manifest starts.
    pub(super) at: FileOffset,
    /// Its length in bytes; 0 for a file of dialect 2 that only stores data for other files.
    pub(super) len: u64,
    /// Data must end at or before this byte.
    pub(super) data_end: u64,
    /// XXH3-64 of the manifest, in dialect 2.
    pub(super) hash: Option<u64>,
}

/// Reads the magic number and the footer.
///
/// # Errors
/// Fails if the file is of no known dialect, or its footer is invalid.
pub(super) fn read(source: &Source) -> Result<Footer> {
    let len = source.len();
    if len < 17 {
        return Err(Error::new(Kind::Truncated { need: 17, have: len }, "magic number").at(FileOffset(0)));
    }
    let mut head = [0; 8];
    source.read(FileOffset(0), &mut head, "magic number")?;
    let number = |at: u64, what| -> Result<u64> {
        let mut bytes = [0; 8];
        source.read(FileOffset(at), &mut bytes, what)?;
        Ok(u64::from_le_bytes(bytes))
    };
    match &head {
        MAGIC_01 => sized(Dialect::V01, len.saturating_sub(8), &number),
        MAGIC_1 if len >= 25 && number(len.saturating_sub(8), "footer magic")?.to_le_bytes() == *MAGIC_1 => {
            sized(Dialect::V11, len.saturating_sub(16), &number)
        }
        MAGIC_1 => sized(Dialect::V10, len.saturating_sub(8), &number),
        MAGIC_2 => footer_2(source),
        _ => Err(Error::unsupported("not a zTensor file", "magic number").at(FileOffset(0))),
    }
}

/// A manifest that ends at `end`, where its size is stored.
fn sized(dialect: Dialect, end: u64, number: &dyn Fn(u64, &'static str) -> Result<u64>) -> Result<Footer> {
    let at = FileOffset(end);
    let size = Limits::check(number(end, "manifest size")?, MAX_MANIFEST, "manifest size").map_err(|e| e.at(at))?;
    let start = end.checked_sub(size).filter(|&start| start >= 8).ok_or_else(|| {
        Error::corrupt(format!("{size} bytes, but only {} precede it", end.saturating_sub(8)), "manifest size").at(at)
    })?;
    Ok(Footer { dialect, at: FileOffset(start), len: size, data_end: start, hash: None })
}

fn footer_2(source: &Source) -> Result<Footer> {
    let len = source.len();
    if len < 48 {
        return Err(Error::new(Kind::Truncated { need: 48, have: len }, "footer").at(FileOffset(0)));
    }
    let end = len.saturating_sub(FOOTER_2);
    let bytes = source.get(FileOffset(end), FOOTER_2, "footer")?;
    let mut cur = Cursor::new(&bytes, FileOffset(end));
    let at = cur.at();
    let manifest = cur.u64_le("manifest offset")?;
    let size_at = cur.at();
    let size = cur.u64_le("manifest length")?;
    let hash = cur.u64_le("manifest hash")?;
    let version_at = cur.at();
    let version = cur.u32_le("version")?;
    cur.u32_le("reserved")?;
    let magic_at = cur.at();
    if cur.array::<8>("footer magic")? != *MAGIC_2 {
        return Err(Error::corrupt("the file does not end with the magic number", "footer magic").at(magic_at));
    }
    if version != 2 {
        return Err(Error::unknown(format!("zTensor version {version}"), "version").at(version_at));
    }
    let footer = Footer { dialect: Dialect::V2, at: FileOffset(manifest), len: size, data_end: end, hash: Some(hash) };
    if size == 0 {
        if manifest != 0 || hash != 0 {
            return Err(
                Error::corrupt("the manifest is empty, but its offset or hash is not 0", "manifest offset").at(at)
            );
        }
        return Ok(footer);
    }
    Limits::check(size, MAX_MANIFEST, "manifest length").map_err(|e| e.at(size_at))?;
    if !manifest.is_multiple_of(4096) || manifest < 4096 {
        return Err(Error::corrupt("must be a positive multiple of 4096", "manifest offset").at(at));
    }
    if manifest.checked_add(size).is_none_or(|n| n > end) {
        return Err(
            Error::corrupt(format!("the manifest would end after byte {end:#x}"), "manifest length").at(size_at)
        );
    }
    Ok(footer)
}
