//! Dictionaries of 0.7 frames: entropy tables, recent offsets, and content that precedes the frame's.
//!
//! Reference: section 2.4, "Dictionary".
#![forbid(unsafe_code)]

use crate::bytes::{Cursor, FileOffset};
use crate::error::{Error, Result};

use super::super::entropy::{Dialect, HuffmanTable, Tables};
use super::offsets::RepeatOffsets;

/// The first four bytes of a dictionary with tables.
const MAGIC: [u8; 4] = [0x37, 0xA4, 0x30, 0xEC];

/// A parsed dictionary.
#[derive(Debug, Clone)]
pub(in crate::codec::zstd) struct V07Dictionary {
    pub(super) tree: HuffmanTable,
    pub(super) tables: Tables,
    pub(super) recent: RepeatOffsets,
    pub(super) content: Vec<u8>,
}

impl V07Dictionary {
    /// Parses a dictionary file; without the magic number all of it is content.
    ///
    /// # Errors
    /// Fails if the tables are malformed.
    pub(in crate::codec::zstd) fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() < 8 || !bytes.starts_with(&MAGIC) {
            let content = bytes.to_vec();
            let tree = HuffmanTable::default();
            return Ok(Self { tree, tables: Tables::default(), recent: RepeatOffsets::INITIAL, content });
        }
        let mut cur = Cursor::new(bytes, FileOffset(0));
        cur.take(4, "dictionary magic")?;
        cur.u32_le("dictionary id")?;
        let mut tree = HuffmanTable::default();
        let rest = tree.read(cur.rest(), Dialect::V07)?;
        let (tables, rest) = Tables::of_dictionary(rest)?;
        let mut cur = Cursor::new(rest, FileOffset((bytes.len() - rest.len()) as u64));
        let mut recent = RepeatOffsets::INITIAL;
        for entry in &mut recent.0 {
            let at = cur.at();
            let offset = cur.u32_le("dictionary offset")? as usize;
            if offset == 0 || offset >= bytes.len() - 8 {
                return Err(Error::corrupt(format!("{offset} is outside the dictionary"), "dictionary offset").at(at));
            }
            *entry = offset;
        }
        Ok(Self { tree, tables, recent, content: cur.rest().to_vec() })
    }
}
