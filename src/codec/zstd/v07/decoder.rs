//! The state across the blocks of a frame.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::account::Account;
use crate::error::{Error, Result};

use super::super::entropy::{Dialect, HuffmanTable, Sequences, Tables, ZstdSequence};
use super::super::header::{BlockKind, Header, ZstdBlockHeader};
use super::super::window::{SequenceStream, Window};
use super::dictionary::V07Dictionary;
use super::literals;
use super::offsets::RepeatOffsets;

/// Decodes the blocks of one frame, in order.
#[derive(Debug)]
pub(in crate::codec::zstd) struct Decoder {
    window: Window,
    tree: HuffmanTable,
    tables: Tables,
    recent: RepeatOffsets,
    literals: Vec<u8>,
}

/// The sequences of a block, and the offsets that they refer to.
struct SequenceOffsets<'a>(Sequences<'a>, &'a mut RepeatOffsets);

impl SequenceStream for SequenceOffsets<'_> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is the inner loop of a kernel")]
    fn each(self, run: impl FnMut(ZstdSequence) -> bool) -> Result<Option<ZstdSequence>> {
        self.0.each(self.1, run)
    }
}

impl Decoder {
    /// Creates a decoder before the first block of `frame` that keeps `window` bytes of history, charged to `account`.
    ///
    /// # Errors
    /// Fails if the account is exhausted.
    pub(in crate::codec::zstd) fn new(
        account: &Account,
        frame: &Header,
        window: u64,
        dictionary: Option<&Arc<V07Dictionary>>,
    ) -> Result<Self> {
        let mut decoder = Self {
            window: Window::new(account)?,
            tree: HuffmanTable::default(),
            tables: Tables::default(),
            recent: RepeatOffsets::INITIAL,
            literals: Vec::new(),
        };
        decoder.renew(frame, window, dictionary)?;
        Ok(decoder)
    }

    /// Resets it for another frame; its memory is reused.
    ///
    /// # Errors
    /// As [`Decoder::new`].
    pub(in crate::codec::zstd) fn renew(
        &mut self,
        frame: &Header,
        window: u64,
        dictionary: Option<&Arc<V07Dictionary>>,
    ) -> Result<()> {
        self.recent = RepeatOffsets::INITIAL;
        self.tree.clear();
        self.tables.clear();
        if let Some(dictionary) = dictionary {
            self.tree.clone_from(&dictionary.tree);
            self.tables.clone_from(&dictionary.tables);
            self.recent = dictionary.recent;
        }
        let before = dictionary.map_or(&[][..], |dictionary| &dictionary.content);
        self.window.renew(window, frame.max_block(), before)
    }

    /// Memory allocated for history.
    pub(in crate::codec::zstd) fn footprint(&self) -> usize {
        self.window.footprint()
    }

    /// Decodes a block with stored bytes `src`; all content before it was returned.
    ///
    /// # Errors
    /// Fails if the block is malformed. The decoder is unusable afterwards.
    pub(in crate::codec::zstd) fn block(&mut self, block: ZstdBlockHeader, src: &[u8]) -> Result<()> {
        self.window.make_room()?;
        match block.kind {
            BlockKind::Compressed => self.compressed(src),
            _ => self.window.plain(block, src),
        }
    }

    /// Returns content of the last block in `dst`, up to its length; returns the number of bytes.
    pub(in crate::codec::zstd) fn give(&mut self, dst: &mut [u8]) -> usize {
        self.window.give(dst)
    }

    fn compressed(&mut self, src: &[u8]) -> Result<()> {
        if src.len() < 3 {
            return Err(Error::corrupt("shorter than 3 bytes", "compressed block"));
        }
        let rest = literals::read(src, &mut self.tree, &mut self.literals)?;
        let sequences = Sequences::open(rest, &mut self.tables, Dialect::V07)?;
        self.window.execute(&mut self.literals, sequences.map(|sequences| SequenceOffsets(sequences, &mut self.recent)))
    }
}
