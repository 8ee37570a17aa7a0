//! The blocks of an opened chunk: reads ranges of their decoded bytes.
//!
//! Reference: sections 6.3 to 6.8 (layouts), 14 (random access).
//! Read: the tables at open; the blocks that are needed, those close together at once.
//! Checked: the tables against the chunk, at open; streams, when they are decoded.
//! Limits: tables take at most five times their stored size while they are read, three times after that, and are
//! charged; a block larger than a piece is decoded once for all pieces in it.
//!
//! Bytes 100,000 to 139,999 of a chunk with blocks of 64 KiB are in blocks 1 and 2, whose stored bytes follow each
//! other: one read. Of block 1 the last 31,072 bytes are copied, of block 2 the first 8,928.
#![forbid(unsafe_code)]

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use crate::account::{Buffer, Pages};
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::codec::pace::STRIDE;
use crate::error::{Error, Result};
use crate::limits::{Charge, Limits, zeroed};
use crate::once::Once;

use super::block::BlockDecoder;
use super::block_offsets::BlockOffsets;
use super::codec::{Algorithm, ChunkDictionary, Contexts};
use super::decode_buffers::{DecodeBuffers, sized};
use super::filter::FilterPipeline;
use super::header::{ChunkHeader, ChunkKind};
use super::item_spec::ItemSpec;
use super::memory::{Active, ChunkKey, ContainerMemory, INDEX};
use super::stored_chunk::StoredChunk;

/// Larger blocks are decoded whole into a kept buffer, even if all of the block is read.
pub(super) const BIG: u64 = 4 << 20;
/// The same limits if only a part of a block is read: about a piece, and less for the index chunk, which is read a few
/// entries at a time.
const PART: u64 = 1 << 20;
const PART_OF_INDEX: u64 = 32 << 10;
/// Tables up to this many bytes are not charged.
const SMALL: u64 = 64 << 10;
/// Maximum size of a prepared dictionary.
const DICTIONARY: u64 = 64 << 10;

/// The blocks of a chunk, and their decoding parameters.
#[derive(Debug)]
pub(super) struct ChunkBlocks {
    decoder: BlockDecoder,
    stored: StoredChunk,
    offsets: BlockOffsets,
    /// The decoded first block, if DELTA refers to it and it is not large.
    reference: Once<Vec<u8>>,
    key: ChunkKey,
    memory: Arc<ContainerMemory>,
    /// Blocks larger than this are kept whole if only a part of them is read.
    max_part: u64,
    /// For the tables.
    charge: Option<Charge>,
}

/// The decoded first block of a chunk.
enum Reference<'a> {
    None,
    Small(&'a [u8]),
    Big(Arc<Buffer>),
}

impl Reference<'_> {
    fn get(&self) -> Option<&[u8]> {
        match self {
            Self::None => None,
            Self::Small(bytes) => Some(bytes),
            Self::Big(block) => Some(block),
        }
    }
}

impl ChunkBlocks {
    /// Reads the tables of the chunk `key`.
    pub(super) fn open(header: &ChunkHeader, stored: &StoredChunk, item: &ItemSpec, key: ChunkKey) -> Result<Self> {
        let size = if header.kind == ChunkKind::Blocks { header.blocksize.into() } else { 0 };
        Limits::check(size, item.memory.block_limit, "blocksize").map_err(|e| e.at(stored.at(8)))?;
        let tables = BlockOffsets::max_memory(header, item).filter(|&bytes| bytes > SMALL);
        let charge = tables.map(|bytes| item.memory.account().charge(bytes, "block table")).transpose()?;
        let offsets = BlockOffsets::read(header, stored, item)?;
        let algorithm = Algorithm::of(header.codec, stored.at(0));
        let dictionary = match (&offsets.dictionary, &algorithm) {
            (Some(range), Ok(algorithm)) => {
                let bytes = stored.get(range.start, range.end - range.start, "dictionary")?;
                let ready = ChunkDictionary::new(*algorithm, bytes);
                Some(ready.map_err(|e| e.at(stored.at(range.start)))?)
            }
            _ => None,
        };
        let pipeline = FilterPipeline::new(header, item).map_err(|e| e.at(stored.at(0)))?;
        Ok(Self {
            decoder: BlockDecoder { header: header.clone(), algorithm, dictionary, pipeline },
            stored: stored.clone(),
            offsets,
            reference: Once::new(),
            key,
            memory: Arc::clone(&item.memory),
            max_part: if key.chunk == INDEX { PART_OF_INDEX } else { PART },
            charge,
        })
    }

    /// File offset of the block that contains decoded byte `offset`.
    pub(super) fn at(&self, offset: u64) -> FileOffset {
        self.stored.at(self.offsets.stored(self.offsets.locate(offset)).0)
    }

    /// The ranges of the file with the blocks that contain the decoded bytes in `part`, which is not empty.
    pub(super) fn stored(&self, part: &Range<u64>) -> Vec<Range<u64>> {
        let blocks = self.offsets.locate(part.start)..=self.offsets.locate(part.end - 1);
        let range = |i| {
            let (start, end) = self.offsets.stored(i);
            self.stored.at(start).0..self.stored.at(end).0
        };
        blocks.map(range).collect()
    }

    /// Maximum memory that it takes and that is not charged.
    pub(super) fn cost(&self) -> u64 {
        let block = u64::from(self.decoder.header.blocksize);
        let mut cost = to_u64(size_of::<Self>());
        cost += if self.charge.is_none() { self.offsets.cost() } else { 0 };
        cost += if self.decoder.pipeline.has_delta() && block <= BIG { block } else { 0 };
        cost + self.offsets.dictionary.as_ref().map_or(0, |_| DICTIONARY)
    }

    /// Fills `dst`, which is not empty, with the decoded bytes from `from` on.
    pub(super) fn read(&self, from: u64, dst: &mut [u8]) -> Result<()> {
        let last = self.offsets.locate(from + (to_u64(dst.len()) - 1));
        let first = self.offsets.locate(from);
        let reference = self.reference_of(last)?;
        self.memory.with_buffers(|buffers| {
            let mut stored = std::mem::take(&mut buffers.stored);
            let run = self.fetch(first..=last, from..from + to_u64(dst.len()), &mut stored);
            let mut rest = dst;
            let result = run.and_then(|run| {
                for i in first..=last {
                    let (start, end) = self.offsets.decoded(i);
                    let skip = (from.max(start) - start) as usize;
                    let len = rest.len().min((end - start) as usize - skip);
                    let (part, more) = std::mem::take(&mut rest).split_at_mut(len);
                    rest = more;
                    match (i, reference.get()) {
                        (0, Some(block)) => part.copy_from_slice(&block[skip..skip + len]),
                        (_, reference) => self.part(i, &run, reference, skip, part, buffers)?,
                    }
                }
                Ok(())
            });
            buffers.stored = stored;
            result
        })
    }

    /// Whether a block of `len` bytes is decoded into a kept buffer to read `part` bytes.
    fn is_kept(&self, len: u64, part: u64) -> bool {
        len > if part == len { BIG } else { self.max_part }
    }

    /// Fills `part` with the bytes of block `i` from `skip` on.
    fn part(
        &self,
        i: usize,
        run: &StoredRun<'_>,
        reference: Option<&[u8]>,
        skip: usize,
        part: &mut [u8],
        buffers: &mut DecodeBuffers,
    ) -> Result<()> {
        let (start, end) = self.offsets.decoded(i);
        let (len, short) = ((end - start) as usize, self.offsets.is_short(i));
        let within = |e: Error| e.within(format_args!("block {i}"));
        if self.is_kept(to_u64(len), to_u64(part.len())) {
            let (_active, block) = self.kept(i, reference).map_err(within)?;
            part.copy_from_slice(&block[skip..skip + part.len()]);
            block.release_around(skip..skip + part.len());
            return Ok(());
        }
        let mut buffer = Vec::new();
        if part.len() == len {
            let cur = run.cursor(i, &mut buffer)?;
            return self.decoder.decode(cur, short, reference, part, buffers).map_err(within);
        }
        let mut whole = std::mem::take(&mut buffers.whole);
        let result = sized(&mut whole, len, "block").and_then(|whole| {
            let cur = run.cursor(i, &mut buffer)?;
            self.decoder.decode(cur, short, reference, whole, buffers).map_err(within)?;
            part.copy_from_slice(&whole[skip..skip + part.len()]);
            Ok(())
        });
        buffers.whole = whole;
        result
    }

    /// Block `i`, decoded whole and kept for reads of its other parts.
    fn kept(&self, i: usize, reference: Option<&[u8]>) -> Result<(Active<'_>, Arc<Buffer>)> {
        self.memory.block((self.key, i), || {
            let (start, end) = self.offsets.decoded(i);
            let (len, short) = ((end - start) as usize, self.offsets.is_short(i));
            let (from, to) = self.offsets.stored(i);
            self.decoder.preflight(&self.stored, from..to, len, short)?;
            self.stored.check_len(from, to - from, "block")?;
            let lens = [to_u64(len), to_u64(self.decoder.second_len(len)), to - from];
            let (active, [mut block, mut second, mut stored]) = self.memory.allocate(lens)?;
            let pages = [block.pages(), second.pages(), stored.pages()];
            let mut pace = || pages.iter().for_each(Pages::release);
            let mut at = from;
            for bytes in stored.chunks_mut(STRIDE) {
                self.stored.read(at, bytes, "block")?;
                at += to_u64(bytes.len());
                pace();
            }
            let cur = Cursor::new(&stored, self.stored.at(from));
            let mut contexts = Contexts::default();
            self.decoder.decode_with(cur, short, reference, &mut block, &mut second, &mut contexts, &mut pace)?;
            pace();
            Ok((active, block))
        })
    }

    /// Decodes all blocks that overlap `range`, at most `step` bytes or one block at a time, and discards the result. A
    /// large block is decoded only if `range` contains its first byte, so that adjacent ranges decode it once.
    pub(super) fn verify(&self, range: Range<u64>, step: u64) -> Result<()> {
        let mut buffer = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let mut i = self.offsets.locate(at);
            let (start, mut end) = self.offsets.decoded(i);
            if end - start > BIG {
                if start >= range.start {
                    let reference = self.reference_of(i)?;
                    self.kept(i, reference.get()).map_err(|e| e.within(format_args!("block {i}")))?;
                }
                at = end;
                continue;
            }
            while end < range.end && end - at < step {
                i += 1;
                let (start, next) = self.offsets.decoded(i);
                if next - start > BIG {
                    break;
                }
                end = next;
            }
            end = end.min(range.end);
            self.read(at, sized(&mut buffer, (end - at) as usize, "piece")?)?;
            at = end;
        }
        Ok(())
    }

    /// The decoded first block, if the filters of block `i` refer to it.
    fn reference_of(&self, i: usize) -> Result<Reference<'_>> {
        // DELTA treats each VL-block as a first block.
        let is_needed =
            self.decoder.pipeline.has_delta() && !matches!(self.decoder.header.kind, ChunkKind::VlBlocks { .. });
        if is_needed && i > 0 { self.reference() } else { Ok(Reference::None) }
    }

    /// The decoded first block.
    fn reference(&self) -> Result<Reference<'_>> {
        let within = |e: Error| e.within("block 0");
        let (start, end) = self.offsets.decoded(0);
        if end - start > BIG {
            // A decode that needs room does not wait for a reference: its user may be waiting for room too.
            return self.kept(0, None).map(|(_, block)| Reference::Big(block)).map_err(within);
        }
        let make = || {
            let (len, short) = ((end - start) as usize, self.offsets.is_short(0));
            let mut buffer = Vec::new();
            let cur = self.run(&[], 0).cursor(0, &mut buffer)?;
            let mut block = zeroed(to_u64(len), "block")?;
            self.memory.with_buffers(|buffers| self.decoder.decode(cur, short, None, &mut block, buffers))?;
            Ok(block)
        };
        self.reference.get(|| make().map_err(within)).map(|block| Reference::Small(block))
    }

    /// The blocks with their stored bytes from `start` on; `bytes` may be empty.
    fn run<'a>(&'a self, bytes: &'a [u8], start: u64) -> StoredRun<'a> {
        StoredRun { blocks: self, bytes, start }
    }

    /// Reads the stored bytes of `blocks` at once if they are close together and none is a kept block. `wanted` is the
    /// range of decoded bytes to be read.
    fn fetch<'a>(
        &'a self,
        blocks: RangeInclusive<usize>,
        wanted: Range<u64>,
        buffer: &'a mut Vec<u8>,
    ) -> Result<StoredRun<'a>> {
        if let Some(all) = self.stored.all() {
            return Ok(self.run(all, 0));
        }
        let mut span = (u64::MAX, 0);
        let mut sum = 0;
        for i in blocks {
            let (start, end) = self.offsets.decoded(i);
            let part = end.min(wanted.end) - start.max(wanted.start);
            if self.is_kept(end - start, part) {
                // It may already be decoded.
                return Ok(self.run(&[], 0));
            }
            let (start, end) = self.offsets.stored(i);
            span = (span.0.min(start), span.1.max(end));
            sum += end - start;
        }
        if span.1 - span.0 > 2 * sum {
            return Ok(self.run(&[], 0));
        }
        if let Some(bytes) = self.stored.source().as_slice(self.stored.at(span.0), span.1 - span.0) {
            return Ok(self.run(bytes, span.0));
        }
        let bytes = sized(buffer, (span.1 - span.0) as usize, "blocks")?;
        let bytes = &mut bytes[..(span.1 - span.0) as usize];
        self.stored.read(span.0, bytes, "blocks")?;
        Ok(self.run(bytes, span.0))
    }
}

/// The stored bytes of some blocks; `start` is their position in the chunk.
struct StoredRun<'a> {
    blocks: &'a ChunkBlocks,
    bytes: &'a [u8],
    start: u64,
}

impl<'a> StoredRun<'a> {
    /// The streams of block `i`: from these bytes, or else read into `buffer`.
    fn cursor<'b>(&self, i: usize, buffer: &'b mut Vec<u8>) -> Result<Cursor<'b>>
    where
        'a: 'b,
    {
        let (start, end) = self.blocks.offsets.stored(i);
        let at = self.blocks.stored.at(start);
        let inside =
            start.checked_sub(self.start).and_then(|s| Some(s as usize..(end.checked_sub(self.start)?) as usize));
        if let Some(bytes) = inside.and_then(|range| self.bytes.get(range)) {
            return Ok(Cursor::new(bytes, at));
        }
        *buffer = self.blocks.stored.get(start, end - start, "block")?;
        Ok(Cursor::new(buffer, at))
    }
}
