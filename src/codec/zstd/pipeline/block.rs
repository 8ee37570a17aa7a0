//! The first stage: the entropy-coded parts of one block.
#![forbid(unsafe_code)]

use crate::bytes::FileOffset;
use crate::codec::simd_dispatch::{self, SimdLoop, SimdOps};
use crate::error::{Error, Result};

use super::super::checkpoint::{Entropy, TableSource};
use super::super::entropy::{CodeTable, Dialect, HuffmanTable, Sequences, Tables, ZstdSequence};
use super::super::header::{self, BlockKind, MAX_BLOCK};
use super::super::literals::{Literals, LiteralsKind};
use super::super::window::ROOM;

/// Shortest match in a modern frame, by which a block has no more sequences than this.
const SEQUENCES: usize = MAX_BLOCK / 3;

/// A block on its way through the pipeline.
#[derive(Debug, Default)]
pub(in super::super) struct Block {
    /// Where its header is.
    pub(in super::super) at: FileOffset,
    pub(super) header: Option<header::ZstdBlockHeader>,
    /// The stored bytes after the header.
    pub(in super::super) stored: Vec<u8>,
    /// The tree and the tables in effect for it, and after it.
    entropy: Entropy,
    /// The number of its sequences, and where in `stored` their bit stream begins.
    sequences_at: Option<(usize, usize)>,
    /// Its literals, once decoded.
    pub(super) literals: Vec<u8>,
    /// Its sequences, once decoded, with offset values in the place of offsets.
    pub(super) sequences: Vec<ZstdSequence>,
}

impl Block {
    /// Makes it the block with this `header` and these `stored` bytes; `entropy` follows it.
    ///
    /// # Errors
    /// Fails if its headers are malformed, or it repeats a tree or table that there is not.
    pub(super) fn set(
        &mut self,
        at: FileOffset,
        header: header::ZstdBlockHeader,
        stored: &[u8],
        entropy: &mut Entropy,
    ) -> Result<()> {
        (self.at, self.header, self.sequences_at) = (at, Some(header), None);
        self.stored.clear();
        self.stored.extend_from_slice(stored);
        self.literals.clear();
        self.sequences.clear();
        if header.kind == BlockKind::Compressed {
            let (literals, _) = Literals::read(stored)?;
            if literals.regenerated > MAX_BLOCK {
                let why = format!("{} literals, the maximum is {MAX_BLOCK}", literals.regenerated);
                return Err(Error::corrupt(why, "literals section"));
            }
            self.literals.reserve_exact(literals.regenerated + ROOM);
            if let Some(section) = entropy.block(stored)? {
                if section.len > SEQUENCES {
                    let why = format!("{} sequences, a block has at most {SEQUENCES}", section.len);
                    return Err(Error::corrupt(why, "sequences section"));
                }
                self.sequences.reserve_exact(section.len);
                self.sequences_at = Some((section.len, stored.len() - section.stream.len()));
            }
            self.entropy = entropy.clone();
        }
        Ok(())
    }

    /// Whether it is the last one of its frame.
    pub(in super::super) fn is_last(&self) -> bool {
        self.header.is_some_and(|header| header.last)
    }

    /// The tree and the tables after it, if it may have changed them.
    pub(in super::super) fn take_entropy(&mut self) -> Option<Entropy> {
        let is_coded = self.header.is_some_and(|header| header.kind == BlockKind::Compressed);
        is_coded.then(|| std::mem::take(&mut self.entropy))
    }

    /// Bytes of memory that it has, which are all that it needs.
    pub(super) fn memory(&self) -> usize {
        let sequences = self.sequences.capacity() * size_of::<ZstdSequence>();
        self.stored.capacity() + self.literals.capacity() + sequences
    }
}

/// The tables that a thread has built, for the next block that it decodes.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    tree: HuffmanTable,
    /// The description of `tree`.
    tree_of: Option<Vec<u8>>,
    tables: Tables,
    /// The descriptions of `tables`.
    tables_of: Option<[TableSource; 3]>,
}

impl Workspace {
    /// Decodes the literals and the sequences of `block`.
    ///
    /// # Errors
    /// Fails if they are malformed.
    pub(super) fn decode(&mut self, block: &mut Block) -> Result<()> {
        let at = block.at;
        self.sections(block).map_err(|e| e.at(at))
    }

    fn sections(&mut self, block: &mut Block) -> Result<()> {
        let Block { stored, entropy, sequences_at, literals, sequences, header, .. } = block;
        if header.is_none_or(|header| header.kind != BlockKind::Compressed) {
            return Ok(());
        }
        let (section, _) = Literals::read(stored)?;
        match section.kind {
            LiteralsKind::Raw => literals.extend_from_slice(section.stored()),
            LiteralsKind::Run => literals.resize(section.regenerated, section.stored().first().copied().unwrap_or(0)),
            LiteralsKind::Compressed | LiteralsKind::Treeless => {
                if self.tree_of != entropy.tree {
                    self.tree_of = None;
                    self.tree.read(entropy.tree.as_deref().unwrap_or_default(), Dialect::Modern)?;
                    self.tree_of.clone_from(&entropy.tree);
                }
                literals.resize(section.regenerated, 0);
                self.tree.decode(section.streams()?, section.is_four(), literals)?;
            }
        }
        let Some((count, at)) = *sequences_at else { return Ok(()) };
        if self.tables_of.as_ref() != Some(&entropy.tables) {
            let built = self.tables_of.take();
            for (i, which) in CodeTable::ALL.into_iter().enumerate() {
                if built.as_ref().is_none_or(|built| built[i] != entropy.tables[i]) {
                    entropy.tables[i].set(which, &mut self.tables)?;
                }
            }
            self.tables_of = Some(entropy.tables.clone());
        }
        let stream = stored.get(at..).unwrap_or_default();
        simd_dispatch::run(SequenceDecode { sequences: Sequences::of(count, stream, &self.tables)?, list: sequences })
    }
}

/// Decodes sequences.
struct SequenceDecode<'a> {
    sequences: Sequences<'a>,
    list: &'a mut Vec<ZstdSequence>,
}

impl SimdLoop for SequenceDecode<'_> {
    type Output = Result<()>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
    fn run(self, _: impl SimdOps) -> Self::Output {
        self.sequences.list(self.list)
    }
}
