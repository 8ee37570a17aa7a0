//! The state that a decoder carries from one compressed block to the next, besides the content: a Huffman tree, three
//! FSE tables, three repeat offsets.
//!
//! Reference: sections 2.4 and 3 (RFC 8878, 3.1.1.3 and 3.1.1.5). Only headers are parsed, to find where descriptions
//! begin and end; sequences are read only if the repeat offsets are wanted.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

use super::super::entropy::{CodeTable, History, Sequences, Tables, sequence_count};
use super::super::literals::{Literals, LiteralsKind};
use super::distribution::describe;

/// A tree of two symbols of one bit each, in the place of none.
const NO_TREE: [u8; 2] = [0x80, 0x10];

/// Where the current table of an alphabet comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) enum TableSource {
    /// No block had sequences yet.
    #[default]
    Nothing,
    Predefined,
    /// A single code, which takes no bits. A dictionary cannot express that.
    Single(u8),
    /// Its description.
    Described(Vec<u8>),
}

impl TableSource {
    /// Sets it in `tables`.
    ///
    /// # Errors
    /// Fails if the table is malformed.
    pub(in super::super) fn set(&self, which: CodeTable, tables: &mut Tables) -> Result<()> {
        match self {
            Self::Nothing | Self::Predefined => tables.set(which, 0, &[]),
            Self::Single(code) => tables.set(which, 1, &[*code]),
            Self::Described(bytes) => tables.set(which, 2, bytes),
        }
    }
}

/// The tree and the tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Entropy {
    /// The description of the last tree.
    pub(in super::super) tree: Option<Vec<u8>>,
    /// In the order of [`CodeTable::ALL`].
    pub(in super::super) tables: [TableSource; 3],
    /// The tables that libzstd was given others for: they must not be repeated.
    lost: [bool; 3],
}

/// The sequences of a block.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Section<'a> {
    /// The number of sequences.
    pub(in super::super) len: usize,
    /// The bit stream after the tables.
    pub(in super::super) stream: &'a [u8],
}

impl Entropy {
    /// As libzstd has it after [`Entropy::append_tables`].
    pub(super) fn resumed(mut self) -> Self {
        self.lost = self.tables.each_ref().map(|table| matches!(table, TableSource::Single(_)));
        self
    }

    /// Follows the compressed block `src`; returns its sequences, if any.
    ///
    /// # Errors
    /// Fails if its headers are malformed, or it repeats a tree or table that there is not.
    pub(in super::super) fn block<'a>(&mut self, src: &'a [u8]) -> Result<Option<Section<'a>>> {
        let (literals, rest) = Literals::read(src)?;
        match literals.kind {
            LiteralsKind::Raw | LiteralsKind::Run => {}
            LiteralsKind::Compressed => {
                let tree = self.tree.get_or_insert_default();
                tree.clear();
                tree.extend_from_slice(literals.tree()?);
            }
            LiteralsKind::Treeless if self.tree.is_some() => {}
            LiteralsKind::Treeless => {
                return Err(Error::corrupt("repeats a tree, but no tree came before", "literals section"));
            }
        }
        let (len, after) = sequence_count(rest)?;
        if len == 0 {
            let rest = Error::corrupt(format!("{} bytes after no sequences", after.len()), "sequences section");
            return if after.is_empty() { Ok(None) } else { Err(rest) };
        }
        let short = || Error::corrupt("runs past the end of the block", "sequences section");
        let (&modes, mut stream) = after.split_first().ok_or_else(short)?;
        if modes & 3 != 0 {
            return Err(Error::corrupt("reserved bits set", "sequences section"));
        }
        for (which, shift) in CodeTable::ALL.into_iter().zip([6, 4, 2]) {
            let mode = modes >> shift & 3;
            let taken = self.table(which, mode, stream)?;
            stream = stream.get(taken..).ok_or_else(short)?;
        }
        Ok(Some(Section { len, stream }))
    }

    /// Sets a table by its mode in a modern frame; returns the length of its description.
    fn table(&mut self, which: CodeTable, mode: u8, src: &[u8]) -> Result<usize> {
        let short = || Error::corrupt("runs past the end of the block", "sequences section");
        let (table, lost) = (&mut self.tables[which as usize], &mut self.lost[which as usize]);
        let taken = match mode {
            0 => {
                *table = TableSource::Predefined;
                0
            }
            1 => {
                *table = TableSource::Single(*src.first().ok_or_else(short)?);
                1
            }
            2 => {
                let len = which.description_len(src)?;
                let described = src.get(..len).ok_or_else(short)?;
                match table {
                    TableSource::Described(old) => {
                        old.clear();
                        old.extend_from_slice(described);
                    }
                    _ => *table = TableSource::Described(described.to_vec()),
                }
                len
            }
            _ if *table == TableSource::Nothing || *lost => {
                return Err(Error::corrupt("repeats a table, but no table came before", "sequences section"));
            }
            _ => return Ok(0),
        };
        *lost = false;
        Ok(taken)
    }

    /// Appends the tree and the tables as a dictionary has them.
    pub(super) fn append_tables(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.tree.as_deref().unwrap_or(&NO_TREE));
        for which in [CodeTable::Offsets, CodeTable::Matches, CodeTable::Literals] {
            match &self.tables[which as usize] {
                TableSource::Described(bytes) => out.extend_from_slice(bytes),
                TableSource::Nothing | TableSource::Predefined | TableSource::Single(_) => {
                    let (counts, accuracy) = which.predefined();
                    out.extend(describe(counts, accuracy));
                }
            }
        }
    }
}

/// The last three offsets used, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct RepeatOffsets([u64; 3]);

/// This and more is an offset that is not known, from which little may have been subtracted.
const UNKNOWN: u64 = 1 << 40;

impl RepeatOffsets {
    /// The initial offsets of a frame.
    pub(in super::super) const INITIAL: Self = Self([1, 4, 8]);
    pub(super) const UNKNOWN: Self = Self([UNKNOWN << 1; 3]);

    pub(super) fn new(offsets: [u32; 3]) -> Self {
        Self(offsets.map(u64::from))
    }

    /// The offsets, if all are known.
    pub(in super::super) fn known(self) -> Option<[u32; 3]> {
        let [a, b, c] = self.0.map(|offset| u32::try_from(offset).ok().filter(|&offset| offset > 0));
        Some([a?, b?, c?])
    }
}

impl History for RepeatOffsets {
    #[inline]
    fn resolve(&mut self, value: usize, without_literals: bool) -> usize {
        let [a, b, c] = self.0;
        self.0 = match value + usize::from(without_literals) {
            _ if value > 3 => [value as u64 - 3, a, b],
            1 => [a, b, c],
            2 => [b, a, c],
            3 => [c, a, b],
            _ => [a.saturating_sub(1), a, b],
        };
        self.0[0] as usize
    }
}

/// Reads sequences for their offsets.
#[derive(Debug, Default)]
pub(super) struct OffsetReader {
    tables: Tables,
}

impl OffsetReader {
    /// Follows the sequences of `section`, whose tables are those of `entropy`.
    ///
    /// # Errors
    /// Fails if they are malformed.
    pub(super) fn follow(
        &mut self,
        section: Section<'_>,
        entropy: &Entropy,
        offsets: &mut RepeatOffsets,
    ) -> Result<()> {
        for (which, table) in CodeTable::ALL.into_iter().zip(&entropy.tables) {
            table.set(which, &mut self.tables)?;
        }
        Sequences::of(section.len, section.stream, &self.tables)?.each(offsets, |_| true).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeat_offsets_follow_rfc_8878() {
        // value, without literals, offsets afterwards (before: 10 40 80)
        for (value, bare, after) in [
            (1, false, [10, 40, 80]),
            (2, false, [40, 10, 80]),
            (3, false, [80, 10, 40]),
            (1, true, [40, 10, 80]),
            (2, true, [80, 10, 40]),
            (3, true, [9, 10, 40]),
            (4, false, [1, 10, 40]),
            (4, true, [1, 10, 40]),
        ] {
            let mut offsets = RepeatOffsets::new([10, 40, 80]);
            offsets.resolve(value, bare);
            assert_eq!(offsets.known(), Some(after), "{value} {bare}");
        }
    }

    #[test]
    fn offsets_are_known_once_three_were_stated() {
        let mut offsets = RepeatOffsets::UNKNOWN;
        for (value, bare) in [(3, true), (10, false), (11, false)] {
            offsets.resolve(value, bare);
            assert_eq!(offsets.known(), None, "one was derived from an unknown one");
        }
        offsets.resolve(12, false);
        assert_eq!(offsets.known(), Some([9, 8, 7]));
        let mut zero = RepeatOffsets::new([1, 4, 8]);
        zero.resolve(3, true);
        assert_eq!(zero.known(), None, "no offset is zero");
    }

    #[test]
    fn a_repeated_table_must_have_come_before_and_be_one_that_libzstd_has() {
        // No literals; one sequence; all tables repeated.
        let repeats = [0, 1, 0xFC, 1];
        assert!(Entropy::default().block(&repeats).is_err());
        let mut entropy = Entropy::default();
        assert_eq!(entropy.block(&[0, 1, 0b0001_0000, 7, 1]).unwrap().unwrap().len, 1);
        assert_eq!(entropy.tables, [TableSource::Predefined, TableSource::Single(7), TableSource::Predefined]);
        assert!(entropy.block(&repeats).is_ok());
        let mut resumed = entropy.resumed();
        assert!(resumed.block(&repeats).is_err());
        assert!(resumed.block(&[0, 1, 0, 1]).is_ok() && resumed.block(&repeats).is_ok());
        // Treeless literals: three bytes of header, sizes of 1.
        assert!(resumed.block(&[0x13, 0x40, 0, 0, 0]).is_err());
    }
}
