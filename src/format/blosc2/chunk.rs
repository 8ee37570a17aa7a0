//! Opened chunks: the header is read at open, and the tables if there are blocks; items are decoded on demand.
//!
//! Reference: sections 6.1 and 6.2.
//! Read: small chunks whole; of large ones the header and the tables, then the bytes that are needed.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::source::Source;

use super::chunk_blocks::ChunkBlocks;
use super::decode_buffers::sized;
use super::fill::Fill;
use super::header::{ChunkHeader, ChunkKind};
use super::item_spec::ItemSpec;
use super::memory::ChunkKey;
use super::stored_chunk::{ChunkLocation, StoredChunk};

/// Chunks up to this size are read whole at open.
const AT_ONCE: u64 = 4096;

/// An opened chunk.
#[derive(Debug)]
pub(super) struct Chunk {
    header: ChunkHeader,
    stored: StoredChunk,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Fill(Fill),
    Memcpyed,
    Blocks(Box<ChunkBlocks>),
    /// Any part of the chunk needs something unknown.
    Unknown(Box<Error>),
}

impl Chunk {
    /// Opens the chunk `key` at `location`.
    pub(super) fn open(location: &ChunkLocation, item: &ItemSpec, key: ChunkKey) -> Result<Self> {
        let ChunkLocation { source, at, max_len } = location;
        let there = source.len().saturating_sub(at.0).min(*max_len);
        let mut all = source.get(*at, there.min(AT_ONCE), "chunk header")?;
        let header = ChunkHeader::parse(&all, *at, *max_len)?;
        let is_all = to_u64(all.len()) >= u64::from(header.cbytes);
        all.truncate(header.cbytes as usize);
        let stored = StoredChunk::new(source, *at, is_all.then_some(all));
        let body = match header.kind {
            ChunkKind::Empty => Body::Fill(Fill::zeros()),
            ChunkKind::Special(special) => Body::Fill(Fill::open(special, &header, &stored)?),
            ChunkKind::Memcpyed => Body::Memcpyed,
            ChunkKind::Unknown(part) => Body::Unknown(Box::new(part.error(*at))),
            ChunkKind::Blocks | ChunkKind::VlBlocks { .. } => match ChunkBlocks::open(&header, &stored, item, key) {
                Err(e) if e.is_unknown() => Body::Unknown(Box::new(e)),
                blocks => Body::Blocks(Box::new(blocks?)),
            },
        };
        Ok(Self { header, stored, body })
    }

    /// The range of the file in which the header of a chunk is, and its tables unless they are large.
    pub(super) fn head(location: &ChunkLocation) -> Range<u64> {
        let start = location.at.0;
        start..start.saturating_add(location.max_len.min(AT_ONCE))
    }

    /// The ranges of the file from which the decoded bytes in `part` are decoded, block by block; `None` if they are in
    /// memory.
    pub(super) fn stored(&self, part: &Range<u64>) -> Option<Vec<Range<u64>>> {
        if self.stored.all().is_some() || part.is_empty() {
            return None;
        }
        match &self.body {
            Body::Fill(_) | Body::Unknown(_) => None,
            Body::Memcpyed => {
                let at = |at: u64| self.stored.at(self.header.len.saturating_add(at)).0;
                Some(std::iter::once(at(part.start)..at(part.end)).collect())
            }
            Body::Blocks(blocks) => Some(blocks.stored(part)),
        }
    }

    /// The file that the chunk is read from.
    pub(super) fn source(&self) -> &Arc<Source> {
        self.stored.source()
    }

    /// The chunk's header.
    pub(super) fn header(&self) -> &ChunkHeader {
        &self.header
    }

    /// Decoded size in bytes.
    pub(super) fn len(&self) -> u64 {
        self.header.nbytes.into()
    }

    /// Whether the chunk repeats one value: then there are no streams to verify.
    pub(super) fn is_fill(&self) -> bool {
        matches!(self.body, Body::Fill(_))
    }

    /// Whether all items of `size` bytes are the same, as the header shows.
    pub(super) fn is_constant(&self, size: u64) -> bool {
        matches!(&self.body, Body::Fill(fill) if fill.is_same(size))
    }

    /// File offset of decoded byte `offset`, or of the block that it is decoded from.
    pub(super) fn at(&self, offset: u64) -> FileOffset {
        match &self.body {
            Body::Fill(_) | Body::Unknown(_) => self.stored.at(self.header.len),
            Body::Memcpyed => self.stored.at(self.header.len.saturating_add(offset)),
            Body::Blocks(blocks) => blocks.at(offset),
        }
    }

    /// Most bytes of memory that the opened chunk can take.
    pub(super) fn cost(&self) -> u64 {
        let blocks = if let Body::Blocks(blocks) = &self.body { blocks.cost() } else { 0 };
        to_u64(size_of::<Self>()) + self.stored.all().map_or(0, |all| to_u64(all.len())) + blocks
    }

    /// Fills `dst` with the decoded bytes from `from` on. The range must be inside the chunk.
    pub(super) fn read(&self, from: u64, dst: &mut [u8]) -> Result<()> {
        match &self.body {
            _ if dst.is_empty() => Ok(()),
            Body::Fill(fill) => fill.read(&self.stored, self.header.len, from, dst),
            Body::Memcpyed => self.stored.read(self.header.len.saturating_add(from), dst, "memcpyed bytes"),
            Body::Blocks(blocks) => blocks.read(from, dst),
            Body::Unknown(error) => Err((**error).clone()),
        }
    }

    /// Decodes `range`, about `step` bytes at a time, and discards the result. All blocks that overlap the range are
    /// decoded; a large one only if the range contains its first byte, so that adjacent ranges decode it once.
    pub(super) fn verify(&self, range: Range<u64>, step: u64) -> Result<()> {
        if let Body::Blocks(blocks) = &self.body {
            return blocks.verify(range, step);
        }
        let mut buffer = Vec::new();
        let mut from = range.start;
        while from < range.end {
            let len = step.min(range.end - from);
            self.read(from, sized(&mut buffer, len as usize, "piece")?)?;
            from += len;
        }
        Ok(())
    }
}
