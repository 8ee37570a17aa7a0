//! The state across the blocks of a frame, and the execution of sequences.
//!
//! Decoded content is in one buffer, preceded by the dictionary; when the buffer is full, content older than the window
//! is dropped.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::account::{Account, Buffer};
use crate::bytes::to_u64;
use crate::error::{Error, Result};

use super::super::header::{Block, BlockKind, Header, MAX_BLOCK};
use super::dictionary::Dictionary;
use super::sequences::{RepeatOffsets, Sequence, Sequences};
use super::tables::{Dialect, Tables};
use super::{huffman, literals};
use crate::codec::lz_writer::LzWriter;
use crate::codec::simd_dispatch::{self, SimdLoop, SimdOps};

/// Bytes after a block, and after its literals, that copies may overwrite and overread.
const ROOM: usize = 64;
/// Bytes beyond the window, at least and at most, before the content is moved to the front of the buffer.
const SLACK: std::ops::Range<usize> = 8 * MAX_BLOCK..32 << 20;

const HISTORY: &str = "history of a decoder";

/// Decodes the blocks of one frame, in order.
#[derive(Debug)]
pub(in crate::codec::zstd) struct Decoder {
    window: usize,
    max_block: usize,
    /// The account that the buffer is charged to.
    account: Account,
    /// History and content, up to `end`; free space after it.
    buffer: Buffer,
    end: usize,
    tree: huffman::Table,
    tables: Tables,
    recent: RepeatOffsets,
    literals: Vec<u8>,
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
        dictionary: Option<&Arc<Dictionary>>,
    ) -> Result<Self> {
        let mut decoder = Self {
            account: account.clone(),
            window: 0,
            max_block: 0,
            buffer: account.buffer(0, HISTORY)?,
            end: 0,
            tree: huffman::Table::default(),
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
        dictionary: Option<&Arc<Dictionary>>,
    ) -> Result<()> {
        self.window = usize::try_from(window).unwrap_or(usize::MAX / 4).max(1024);
        self.max_block = frame.max_block();
        (self.end, self.recent) = (0, RepeatOffsets::INITIAL);
        self.tree.clear();
        self.tables.clear();
        if let Some(dictionary) = dictionary {
            self.end = dictionary.content.len();
            if self.buffer.len() < self.end {
                self.buffer = self.account.buffer(to_u64(self.end), HISTORY)?;
            }
            self.buffer[..self.end].copy_from_slice(&dictionary.content);
            // Matches may reach the dictionary until the window has moved past it.
            self.window = self.window.saturating_add(self.end);
            self.tree.clone_from(&dictionary.tree);
            self.tables.clone_from(&dictionary.tables);
            self.recent = dictionary.recent;
        }
        Ok(())
    }

    /// Memory allocated for history.
    pub(in crate::codec::zstd) fn footprint(&self) -> usize {
        self.buffer.len()
    }

    /// Decodes a block with stored bytes `src`; returns the size of its content.
    ///
    /// # Errors
    /// Fails if the block is malformed. The decoder is unusable afterwards.
    pub(in crate::codec::zstd) fn block(&mut self, block: Block, src: &[u8]) -> Result<usize> {
        self.make_room()?;
        let start = self.end;
        match block.kind {
            BlockKind::Raw => {
                self.output(src.len())?.copy_from_slice(src);
                self.end += src.len();
            }
            BlockKind::Run => {
                let &byte = src.first().ok_or_else(|| Error::corrupt("byte missing", "RLE block"))?;
                let size = block.size as usize;
                self.output(size)?.fill(byte);
                self.end += size;
            }
            BlockKind::Compressed => self.compressed(src)?,
            BlockKind::End => {}
        }
        Ok(self.end - start)
    }

    /// The last `n` bytes of the last block's content.
    pub(in crate::codec::zstd) fn tail(&self, n: usize) -> &[u8] {
        &self.buffer[self.end - n..self.end]
    }

    /// Makes space for a block after `end`, dropping history that no match can reach.
    fn make_room(&mut self) -> Result<()> {
        let need = self.max_block + ROOM;
        if self.buffer.len() - self.end >= need {
            return Ok(());
        }
        // The buffer grows with the content up to the window plus slack; after that the content is moved.
        let slack = self.window.clamp(SLACK.start, SLACK.end);
        if self.end > self.window.saturating_add(slack) {
            let keep = self.end - self.window;
            self.buffer.copy_within(keep..self.end, 0);
            self.end = self.window;
        }
        let want = self.end + need;
        if self.buffer.len() < want {
            let most = self.window.saturating_add(slack + need);
            let len = want.max(self.buffer.len().saturating_mul(2).min(most));
            let mut grown = self.account.buffer(to_u64(len), HISTORY)?;
            grown[..self.end].copy_from_slice(&self.buffer[..self.end]);
            self.buffer = grown;
        }
        // Pages of a spilled buffer return to memory when a match accesses them.
        self.buffer.release(0..self.buffer.len());
        Ok(())
    }

    fn output(&mut self, size: usize) -> Result<&mut [u8]> {
        if size > self.max_block {
            return Err(Error::corrupt(format!("{size} bytes, the maximum is {}", self.max_block), "block size"));
        }
        let end = self.end;
        self.buffer.get_mut(end..end + size).ok_or_else(|| Error::corrupt("exceeds the buffer", "block size"))
    }

    fn compressed(&mut self, src: &[u8]) -> Result<()> {
        if src.len() < 3 {
            return Err(Error::corrupt("shorter than 3 bytes", "compressed block"));
        }
        let rest = literals::read(src, &mut self.tree, &mut self.literals)?;
        let count = self.literals.len();
        // Copies read whole vectors past the end.
        self.literals.resize(count + ROOM, 0);
        let limit = self.end + self.max_block;
        let out =
            self.buffer.get_mut(..limit + ROOM).ok_or_else(|| Error::corrupt("exceeds the buffer", "block size"))?;
        let (mut at, mut used) = (self.end, 0);
        if let Some(sequences) = Sequences::open(rest, &mut self.tables, Dialect::V07)? {
            let writer = LzWriter::new(out, at, &self.literals);
            let recent = &mut self.recent;
            (at, used) = simd_dispatch::run(Execution { sequences, recent, writer, window: self.window })?;
        }
        let Some(rest) = self.literals[..count].get(used..) else { return Err(Error::corrupt(FEW, "sequence")) };
        let end = at + rest.len();
        if end > limit {
            return Err(Error::corrupt("decodes to more than the maximum block size", "compressed block"));
        }
        out[at..end].copy_from_slice(rest);
        self.end = end;
        Ok(())
    }
}

const FEW: &str = "needs more literals than there are";

/// The sequences of a block and the state they act on.
struct Execution<'a> {
    sequences: Sequences<'a>,
    recent: &'a mut RepeatOffsets,
    writer: LzWriter<'a>,
    window: usize,
}

impl SimdLoop for Execution<'_> {
    /// The end of the output and the number of literals used; both may slightly exceed the valid range.
    type Output = Result<(usize, usize)>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
    fn run(self, vectors: impl SimdOps) -> Self::Output {
        let Self { sequences, recent, mut writer, window } = self;
        let refused = sequences.each(recent, |s| {
            let Sequence { literals, matched, offset } = s;
            offset <= window
                && (writer.short::<16>(vectors, literals, matched, offset)
                    || writer.long(vectors, literals, matched, offset))
        })?;
        match refused {
            None => Ok((writer.pos(), writer.taken())),
            Some(Sequence { literals, offset, .. }) => Err(if offset > window.min(writer.pos() + literals as usize) {
                Error::corrupt(format!("offset {offset} is before the window"), "sequence")
            } else {
                Error::corrupt(
                    "needs more literals than there are, or decodes to more than the maximum block size",
                    "sequence",
                )
            }),
        }
    }
}
