//! The three tables of the sequences section of a compressed block, which a block may repeat from the previous one.
//!
//! Reference: section 2.4, "Sequences section".
#![forbid(unsafe_code)]

use std::sync::LazyLock;

use crate::error::{Error, Result};

use super::super::frame::Frame;
use super::super::header::Generation;
use super::alphabet::{Alphabet, LITERALS, MATCHES, OFFSETS};
use super::fse::{FseTable, read_distribution};

/// The tables of the predefined distributions: literal lengths, offsets, match lengths.
static PREDEFINED: LazyLock<[Result<FseTable>; 3]> =
    LazyLock::new(|| [LITERALS, OFFSETS, MATCHES].map(|a| FseTable::new(a.predefined, a.accuracy, a.name, a.meaning)));

/// The index of an alphabet in [`PREDEFINED`], and the order of the tables in a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codec::zstd) enum CodeTable {
    Literals = 0,
    Offsets = 1,
    Matches = 2,
}

impl CodeTable {
    pub(in crate::codec::zstd) const ALL: [Self; 3] = [Self::Literals, Self::Offsets, Self::Matches];

    /// Its alphabet in modern frames.
    fn modern(self) -> Alphabet {
        match self {
            Self::Literals => LITERALS,
            Self::Offsets => Dialect::Modern.offsets(),
            Self::Matches => MATCHES,
        }
    }

    /// Bytes of the description of a table at the start of `src`, in a modern frame.
    ///
    /// # Errors
    /// Fails if the description is malformed.
    pub(in crate::codec::zstd) fn description_len(self, src: &[u8]) -> Result<usize> {
        let Alphabet { max_code, max_accuracy, name, .. } = self.modern();
        let (_, _, rest) = read_distribution(src, max_code.into(), max_accuracy, name)?;
        Ok(src.len() - rest.len())
    }

    /// The predefined distribution, and its accuracy.
    pub(in crate::codec::zstd) fn predefined(self) -> (&'static [i16], u32) {
        let Alphabet { predefined, accuracy, .. } = self.modern();
        (predefined, accuracy)
    }
}

/// The format of the section: they differ in the numbering of modes and in the maximum offset code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codec::zstd) enum Dialect {
    V07,
    Modern,
}

impl Dialect {
    /// That of `frame`; `None` of 0.5 and 0.6, which have another one.
    pub(in crate::codec::zstd) fn of(frame: &Frame) -> Option<Self> {
        match frame.header.generation {
            Generation::V05 | Generation::V06 => None,
            Generation::V07 => Some(Self::V07),
            Generation::Modern => Some(Self::Modern),
        }
    }

    /// Converts a table mode to its number in 0.7.
    fn mode(self, mode: u8) -> u8 {
        match (self, mode) {
            (Self::Modern, 2) => 3,
            (Self::Modern, 3) => 2,
            _ => mode,
        }
    }

    fn offsets(self) -> Alphabet {
        Alphabet { max_code: if self == Self::Modern { 31 } else { OFFSETS.max_code }, ..OFFSETS }
    }
}

/// The three tables, which a block may repeat from the previous block.
#[derive(Debug, Clone, Default)]
pub(in crate::codec::zstd) struct Tables {
    literals: AlphabetTable,
    offsets: AlphabetTable,
    matches: AlphabetTable,
}

/// The table of one alphabet.
#[derive(Debug, Clone, Default)]
struct AlphabetTable {
    /// Memory for a table, in use or not.
    own: FseTable,
    source: TableSource,
}

/// The current table of an alphabet.
#[derive(Debug, Clone, Copy, Default)]
enum TableSource {
    #[default]
    Nothing,
    Predefined,
    Own,
}

impl Tables {
    /// Reads the three tables of a dictionary: offsets first, then match lengths and literal lengths.
    ///
    /// # Errors
    /// Fails if a table is malformed.
    pub(in crate::codec::zstd) fn of_dictionary(src: &[u8]) -> Result<(Self, &[u8])> {
        let mut tables = Self::default();
        let src = tables.offsets.described(&OFFSETS, src)?;
        let src = tables.matches.described(&MATCHES, src)?;
        let src = tables.literals.described(&LITERALS, src)?;
        Ok((tables, src))
    }

    /// Reads the tables of a section in the modes of its byte `modes`; returns the bytes after them.
    ///
    /// # Errors
    /// Fails if a table is malformed, or is repeated although there was none.
    pub(in crate::codec::zstd) fn read<'a>(&mut self, modes: u8, dialect: Dialect, src: &'a [u8]) -> Result<&'a [u8]> {
        let src = self.literals.read(dialect.mode(modes >> 6), &LITERALS, src)?;
        let src = self.offsets.read(dialect.mode(modes >> 4 & 3), &dialect.offsets(), src)?;
        self.matches.read(dialect.mode(modes >> 2 & 3), &MATCHES, src)
    }

    /// Sets one table, in `mode` of a modern frame, which must not repeat one.
    ///
    /// # Errors
    /// Fails if the table is malformed.
    pub(in crate::codec::zstd) fn set(&mut self, which: CodeTable, mode: u8, src: &[u8]) -> Result<()> {
        let slot = match which {
            CodeTable::Literals => &mut self.literals,
            CodeTable::Offsets => &mut self.offsets,
            CodeTable::Matches => &mut self.matches,
        };
        slot.read(Dialect::Modern.mode(mode), &which.modern(), src).map(drop)
    }

    /// The tables of literal lengths, offsets and match lengths, if there are all three.
    pub(super) fn all(&self) -> Option<[&FseTable; 3]> {
        let literals = self.literals.table(CodeTable::Literals)?;
        let offsets = self.offsets.table(CodeTable::Offsets)?;
        Some([literals, offsets, self.matches.table(CodeTable::Matches)?])
    }

    /// Whether there are all three.
    pub(in crate::codec::zstd) fn are_known(&self) -> bool {
        self.all().is_some()
    }

    /// Clears the tables; their memory is reused.
    pub(in crate::codec::zstd) fn clear(&mut self) {
        for slot in [&mut self.literals, &mut self.offsets, &mut self.matches] {
            slot.source = TableSource::Nothing;
        }
    }
}

impl AlphabetTable {
    /// Reads a table in one of the four modes; returns the bytes after it.
    fn read<'a>(&mut self, mode: u8, alphabet: &Alphabet, src: &'a [u8]) -> Result<&'a [u8]> {
        match (mode, self.source) {
            (0, _) => {
                self.source = TableSource::Predefined;
                Ok(src)
            }
            (1, _) => {
                let (&code, rest) = src.split_first().ok_or_else(|| Error::corrupt("code missing", alphabet.name))?;
                if code > alphabet.max_code {
                    return Err(Error::corrupt(
                        format!("code {code}, the maximum is {}", alphabet.max_code),
                        alphabet.name,
                    ));
                }
                self.own.set_constant((alphabet.meaning)(code));
                self.source = TableSource::Own;
                Ok(rest)
            }
            (2, TableSource::Nothing) => {
                Err(Error::corrupt("repeats a table, but no table came before", alphabet.name))
            }
            (2, _) => Ok(src),
            _ => self.described(alphabet, src),
        }
    }

    fn described<'a>(&mut self, alphabet: &Alphabet, src: &'a [u8]) -> Result<&'a [u8]> {
        self.source = TableSource::Nothing;
        let (counts, accuracy, rest) =
            read_distribution(src, usize::from(alphabet.max_code), alphabet.max_accuracy, alphabet.name)?;
        self.own.set(&counts, accuracy, alphabet.name, alphabet.meaning)?;
        self.source = TableSource::Own;
        Ok(rest)
    }

    fn table(&self, which: CodeTable) -> Option<&FseTable> {
        match self.source {
            TableSource::Nothing => None,
            TableSource::Predefined => PREDEFINED.get(which as usize)?.as_ref().ok(),
            TableSource::Own => Some(&self.own),
        }
    }
}
