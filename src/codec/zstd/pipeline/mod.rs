//! Our own decoder for long modern frames, on several threads.
//!
//! Reference: section 3 (RFC 8878, 3.1.1.3).
//!
//! Two stages. The literals and sequences of a block depend on other blocks only by the tables that it repeats, and
//! those are found from headers: blocks are decoded that far ahead, several at once. The sequences are then executed in
//! order, by the caller, which also takes part in the first stage.
//!
//! `block`: the first stage. `queue`: blocks between the stages.
//!
//! Limits: [`DEPTH`] blocks for each thread, and [`MEMORY`] bytes in all. Invariant: only the caller reads the file.
#![forbid(unsafe_code)]

mod block;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use xxhash_rust::xxh64::Xxh64;

use crate::account::Account;
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::checksum::Threads;
use crate::error::{Error, Kind, Result};
use crate::limits::Charge;
use crate::source::Source;

use super::checkpoint::{DecoderState, Entropy, RepeatOffsets, Resume};
use super::entropy::{History, ZstdSequence};
use super::frame::Frame;
use super::header;
use super::stored_bytes::StoredBytes;
use super::window::{SequenceStream, Window};
pub(super) use block::Block;
use block::Workspace;
use queue::BlockQueue;

/// Blocks ahead for each thread.
const DEPTH: usize = 8;
/// Threads that are of use beside the one that executes sequences, which takes a third of the time.
const HELPERS: usize = 3;
/// Memory of the blocks in the queue and of those that were executed: no block is added beyond it but the only one.
const MEMORY: usize = 2 << 20;
/// The part of the account's memory that one decoder may take: its window is three times that of libzstd.
const SHARE: u64 = 4;

type FrameBlocks = BlockQueue<Block, Workspace>;

/// The decoder of one frame.
pub(super) struct Pipeline {
    window: Window,
    offsets: RepeatOffsets,
    queue: Arc<FrameBlocks>,
    threads: Threads,
    helpers: usize,
    /// Where the next block to be queued starts, and the tables there.
    at: FileOffset,
    entropy: Entropy,
    /// Whether the last block is queued.
    is_all: bool,
    /// Bytes of the blocks in the queue.
    memory: usize,
    /// Blocks that were executed, for their memory.
    spare: Vec<Block>,
    /// Hash of the content, if the frame has a checksum of all that is decoded.
    hash: Option<Xxh64>,
    is_mismatch: bool,
    charge: Arc<Charge>,
}

/// The sequences of a block, with offset values, and the offsets that they refer to.
struct BlockSequences<'a>(&'a [ZstdSequence], &'a mut RepeatOffsets);

impl SequenceStream for BlockSequences<'_> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is the inner loop of a kernel")]
    fn each(self, mut run: impl FnMut(ZstdSequence) -> bool) -> Result<Option<ZstdSequence>> {
        let mut offsets = *self.1;
        for sequence in self.0 {
            let offset = offsets.resolve(sequence.offset, sequence.literals == 0);
            let sequence = ZstdSequence { offset, ..*sequence };
            if !run(sequence) {
                return Ok(Some(sequence));
            }
        }
        *self.1 = offsets;
        Ok(None)
    }
}

impl Pipeline {
    /// A decoder before the first block of `frame`, or at a checkpoint, with `window` bytes of history; `None` if no other
    /// thread would take part, or its memory would leave too little to others.
    pub(super) fn new(
        frame: &Frame,
        window: u64,
        resume: Option<&Resume>,
        account: &Account,
        threads: &Threads,
    ) -> Option<Self> {
        let helpers = threads.most().saturating_sub(1).min(HELPERS);
        let needed = Window::size(window, frame.header.max_block())?.checked_add(MEMORY)?;
        if helpers == 0 || !threads.is_free() || to_u64(needed) > account.memory().total() / SHARE {
            return None;
        }
        let charge = account.charge_spare(to_u64(MEMORY), "blocks")?;
        let history = resume.map_or(Some(&[][..]), |resume| resume.history(window))?;
        let state = resume.map(|resume| &resume.state);
        Some(Self {
            window: Window::in_memory(account, window, frame.header.max_block(), history)?,
            offsets: state.map_or(RepeatOffsets::INITIAL, DecoderState::repeat_offsets),
            queue: Arc::default(),
            threads: threads.clone(),
            helpers,
            at: state.map_or(frame.blocks_at, |state| state.at),
            entropy: state.map(DecoderState::entropy).cloned().unwrap_or_default(),
            is_all: false,
            memory: 0,
            spare: Vec::new(),
            hash: frame.checksum.filter(|_| resume.is_none()).map(|_| Xxh64::new(0)),
            is_mismatch: false,
            charge: Arc::new(charge),
        })
    }

    /// The next block, with its literals and sequences; `None` after the last one. Must be executed.
    ///
    /// # Errors
    /// Fails if the file cannot be read or the block is malformed.
    pub(super) fn next(&mut self, stored: &mut StoredBytes, source: &Source, frame: &Frame) -> Result<Option<Block>> {
        let depth = DEPTH * (self.helpers + 1);
        let queued = self.queue.len();
        if !self.is_all && queued <= depth / 2 {
            let mut blocks = Vec::with_capacity(depth);
            while !self.is_all && queued + blocks.len() < depth && (self.memory < MEMORY || queued + blocks.len() == 0)
            {
                match self.read(stored, source, frame) {
                    // The blocks that were read come first.
                    Err(e) if !e.is_lasting() && queued + blocks.len() > 0 => break,
                    Err(e) if !e.is_lasting() => return Err(e),
                    block => {
                        self.is_all |= block.is_err();
                        self.memory += block.as_ref().map_or(0, Block::memory);
                        blocks.push(block);
                        self.trim();
                    }
                }
            }
            self.queue.put(blocks);
            self.call();
        }
        let block = self.queue.take(Workspace::decode)?;
        self.memory = self.memory.saturating_sub(block.as_ref().map_or(0, Block::memory));
        Ok(block)
    }

    /// Reads the next block.
    fn read(&mut self, stored: &mut StoredBytes, source: &Source, frame: &Frame) -> Result<Block> {
        let at = self.at;
        let head = stored.ensure(source, at, header::ZstdBlockHeader::HEADER)?;
        let header = header::ZstdBlockHeader::read(&mut Cursor::new(stored.get(head..), at), &frame.header)?;
        let size = header::ZstdBlockHeader::HEADER + header.stored();
        let start = stored.ensure(source, at, size)?;
        let bytes = stored.get(start + header::ZstdBlockHeader::HEADER..start + size);
        if bytes.len() < header.stored() {
            return Err(Error::corrupt("runs past the end of the frame", "block").at(at));
        }
        let mut block = self.spare.pop().unwrap_or_default();
        block.set(at, header, bytes, &mut self.entropy).map_err(|e| e.at(at))?;
        self.at = at.plus(to_u64(size));
        self.is_all = header.last || (frame.is_cut && self.at >= frame.at.plus(frame.stored));
        Ok(block)
    }

    /// Has other threads take part, as many as are free.
    fn call(&self) {
        while self.queue.admit(self.helpers) {
            let (queue, charge) = (Arc::clone(&self.queue), Arc::clone(&self.charge));
            let help = move || {
                queue.help(Workspace::decode);
                drop(charge);
            };
            if !self.threads.offer(Box::new(help)) {
                self.queue.dismiss();
                return;
            }
        }
    }

    /// Executes the sequences of `block`; all content before it was returned.
    ///
    /// # Errors
    /// Fails if the block is malformed.
    pub(super) fn execute(&mut self, block: &mut Block) -> Result<()> {
        self.window.make_room()?;
        let header = block.header.ok_or_else(|| Error::corrupt("missing", "block header"))?;
        if header.kind == header::BlockKind::Compressed {
            let sequences = BlockSequences(&block.sequences, &mut self.offsets);
            self.window.execute(&mut block.literals, Some(sequences))?;
        } else {
            self.window.plain(header, &block.stored)?;
        }
        if let Some(hash) = &mut self.hash {
            hash.update(self.window.rest());
        }
        Ok(())
    }

    /// Returns content of the last block in `dst`, up to its length; returns the number of bytes.
    pub(super) fn give(&mut self, dst: &mut [u8]) -> usize {
        self.window.give(dst)
    }

    /// Verifies the checksum of `frame`, once all of its content was returned.
    ///
    /// # Errors
    /// [`Kind::Checksum`] if it differs.
    pub(super) fn check(&mut self, frame: &Frame) -> Result<()> {
        let Some((hash, stored)) = self.hash.take_if(|_| self.window.rest().is_empty()).zip(frame.checksum) else {
            return Ok(());
        };
        let computed = hash.digest() as u32;
        if stored == computed {
            return Ok(());
        }
        self.is_mismatch = true;
        let kind = Kind::Checksum { stored: stored.into(), computed: computed.into() };
        Err(Error::new(kind, "content checksum").at(frame.at.plus(frame.stored.saturating_sub(4))))
    }

    /// Whether the content does not match its checksum.
    pub(super) fn is_mismatch(&self) -> bool {
        self.is_mismatch
    }

    /// Keeps the memory of `block` for another one.
    pub(super) fn recycle(&mut self, block: Block) {
        self.spare.push(block);
        self.trim();
    }

    /// Drops executed blocks that take more memory than there is.
    fn trim(&mut self) {
        let mut spare: usize = self.spare.iter().map(Block::memory).sum();
        while self.memory + spare > MEMORY
            && let Some(block) = self.spare.pop()
        {
            spare -= block.memory();
        }
    }

    /// The offsets used last.
    pub(super) fn offsets(&self) -> RepeatOffsets {
        self.offsets
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.queue.close();
    }
}
