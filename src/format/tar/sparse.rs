//! Sparse files: which of their bytes are in the archive; the others are zero.
//!
//! The map is in the header (old GNU), in pax records (0.0, 0.1) or at the start of the content (1.0).
//! Limits: [`EXTENTS`] for a file.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::Arc;

use tar::GnuSparseHeader;

use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::format::Content;
use crate::limits::Limits;
use crate::source::Source;

use super::header::{BLOCK, BLOCK_LEN, number};
use super::records::decimal;

/// Maximum number of extents of a file.
const EXTENTS: u64 = 1 << 18;
/// Name of the map in errors.
const MAP: &str = "sparse map";

/// Offsets in the file and lengths of the bytes that are in the archive, one after the other.
#[derive(Debug, Default)]
pub(super) struct Map {
    numbers: Vec<u64>,
    /// Whether they are at the start of the content.
    in_content: bool,
}

impl Map {
    /// A map that is at the start of the content.
    pub(super) fn in_content() -> Self {
        Self { numbers: Vec::new(), in_content: true }
    }

    fn push(&mut self, n: u64, at: FileOffset) -> Result<()> {
        Limits::check(to_u64(self.numbers.len()), EXTENTS.saturating_mul(2), MAP).map_err(|e| e.at(at))?;
        self.numbers.push(n);
        Ok(())
    }

    /// Adds the extents of a block at `at`; an empty one is the last.
    ///
    /// # Errors
    /// Fails if one is not a number, or there are too many.
    pub(super) fn add_extents(&mut self, extents: &[GnuSparseHeader], at: FileOffset) -> Result<()> {
        for extent in extents.iter().take_while(|extent| !extent.is_empty()) {
            let offset = number(&extent.offset, || extent.offset());
            for n in [offset, number(&extent.numbytes, || extent.length())] {
                self.push(n.ok_or_else(|| Error::corrupt("not a number", MAP).at(at))?, at)?;
            }
        }
        Ok(())
    }

    /// Adds a number of a record.
    ///
    /// # Errors
    /// As [`Map::add_extents`].
    pub(super) fn add_number(&mut self, text: &[u8], at: FileOffset) -> Result<()> {
        self.push(decimal(text).ok_or_else(|| Error::corrupt("not a number", MAP).at(at))?, at)
    }

    /// Adds numbers between commas.
    ///
    /// # Errors
    /// As [`Map::add_extents`].
    pub(super) fn add_list(&mut self, list: &[u8], at: FileOffset) -> Result<()> {
        list.split(|&byte| byte == b',').try_for_each(|text| self.add_number(text, at))
    }

    /// Reads the numbers at the start of the `stored` bytes at `data`, a line each, their count first; returns the bytes
    /// that they take.
    fn read(&mut self, source: &Source, data: FileOffset, stored: u64) -> Result<u64> {
        let mut at = 0_u64;
        let (mut line, mut left) = (Vec::new(), None);
        while left != Some(0) {
            if at >= stored {
                return Err(Error::corrupt("longer than the content", MAP).at(data));
            }
            let here = data.plus(at);
            for byte in source.get(here, BLOCK, MAP)? {
                if byte != b'\n' {
                    line.push(byte);
                    continue;
                }
                let n = decimal(&line).ok_or_else(|| Error::corrupt("not a number", MAP).at(here))?;
                line.clear();
                match left {
                    None => left = Some(Limits::check(n, EXTENTS, MAP).map_err(|e| e.at(here))?.saturating_mul(2)),
                    Some(0) => break,
                    Some(more) => {
                        self.push(n, here)?;
                        left = more.checked_sub(1);
                    }
                }
            }
            if line.len() > BLOCK_LEN {
                return Err(Error::corrupt("not a number", MAP).at(here));
            }
            at = at.saturating_add(BLOCK);
        }
        Ok(at)
    }
}

/// A sparse file.
#[derive(Debug)]
pub(super) struct Sparse {
    pub(super) map: Map,
    /// Where its content is in the archive, and how many bytes of it.
    pub(super) data: FileOffset,
    pub(super) stored: u64,
    /// Bytes of the file.
    pub(super) len: u64,
}

impl Sparse {
    /// Its content; `stored` is that of so many bytes of the archive at an offset.
    ///
    /// # Errors
    /// Fails if its map cannot be read, is not in order, or does not fit its sizes.
    pub(super) fn content(self, source: &Source, stored: impl Fn(u64, u64) -> Content) -> Result<Content> {
        let Self { mut map, data, stored: most, len: file_len } = self;
        let broken = |why: &'static str| Error::corrupt(why, MAP).at(data);
        let mut taken = if map.in_content { map.read(source, data, most)? } else { 0 };
        let (mut parts, mut at) = (Vec::new(), 0_u64);
        for &[offset, len] in map.numbers.as_chunks().0 {
            let hole = offset.checked_sub(at).ok_or_else(|| broken("not in order"))?;
            at = offset.checked_add(len).filter(|&end| end <= file_len).ok_or_else(|| broken("exceeds the file"))?;
            if hole > 0 {
                parts.push(Content::Zeros(hole));
            }
            if len > 0 {
                parts.push(stored(data.0.saturating_add(taken), len));
            }
            taken = taken.saturating_add(len);
            if taken > most {
                return Err(broken("exceeds the content"));
            }
        }
        if at < file_len {
            parts.push(Content::Zeros(file_len.saturating_sub(at)));
        }
        Ok(Content::Join(Arc::from(parts)))
    }
}
