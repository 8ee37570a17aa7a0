//! The tables of a chunk: the location of its blocks, and which decoded bytes they contain.
//!
//! Reference: sections 6.1 (b: rounding), 6.3, 6.6 (dictionary), 6.8 (VL-blocks).
//! Checked: each block starts after the tables and inside the chunk; the sizes of VL-blocks add up to the chunk.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::limits::Limits;

use super::header::{ChunkHeader, ChunkKind};
use super::item_spec::ItemSpec;
use super::stored_chunk::StoredChunk;

/// Maximum size of a dictionary.
const MAX_DICTIONARY: u64 = 32768;

/// Stored and decoded locations of the blocks of a chunk.
#[derive(Debug)]
pub(super) struct BlockOffsets {
    /// Stored bytes of each block, from the first byte of its streams to the next block.
    spans: Vec<(u32, u32)>,
    sizes: BlockSizes,
    /// Decoded size of the chunk.
    nbytes: u64,
    /// Location of the dictionary in the chunk.
    pub(super) dictionary: Option<Range<u64>>,
}

#[derive(Debug)]
enum BlockSizes {
    /// Every block has this many bytes; the last one may have fewer.
    Uniform(u64),
    /// The decoded end of each block.
    Ends(Vec<u32>),
}

/// The actual size of blocks of recorded size `size`: C-Blosc2 3.0.0 to 3.3.5 may have used whole items of `width`
/// bytes without recording it.
fn rounded(size: u32, width: u32) -> u32 {
    if size > width { size - size.checked_rem(width).unwrap_or(0) } else { size }
}

impl BlockOffsets {
    /// Maximum memory that the tables after `header` take, including temporary buffers.
    pub(super) fn max_memory(header: &ChunkHeader, item: &ItemSpec) -> Option<u64> {
        let count = match header.kind {
            ChunkKind::VlBlocks { count } => count,
            ChunkKind::Blocks => {
                let sizes =
                    [header.typesize.into(), item.typesize(header)].map(|width| rounded(header.blocksize, width));
                header.nbytes.div_ceil(sizes.into_iter().min().filter(|&size| size > 0)?)
            }
            _ => return None,
        };
        // A start as stored and as a number, a span, and an end or the sorted start. A table larger than the chunk is
        // refused later.
        let starts = u64::from(count).saturating_mul(4);
        (starts <= header.cbytes.into()).then_some(starts.saturating_mul(5))
    }

    /// Reads and checks the tables after `header`.
    pub(super) fn read(header: &ChunkHeader, stored: &StoredChunk, item: &ItemSpec) -> Result<Self> {
        match header.kind {
            ChunkKind::VlBlocks { count } => Self::variable(header, stored, item, count),
            _ => Self::uniform(header, stored, item),
        }
    }

    fn uniform(header: &ChunkHeader, stored: &StoredChunk, item: &ItemSpec) -> Result<Self> {
        let (size, width) = (header.blocksize, u32::from(header.typesize));
        let mut blocksize = rounded(size, width);
        let frame = item.typesize(header);
        let in_doubt = width == 1 && frame > 255 && rounded(size, frame) != size;
        let read = |blocksize: u32| Starts::read(header, stored, header.nbytes.div_ceil(blocksize));
        let mut starts = read(blocksize);
        if in_doubt && !matches!(&starts, Ok(s) if s.first() == Some(s.tables)) {
            blocksize = rounded(size, frame);
            starts = read(blocksize);
        }
        let starts = starts?;
        // Upper bound of a stored block: all streams raw, one size per stream, and some slack.
        let max_stored = 2 * u64::from(blocksize) + 8 * u64::from(width) + 1024;
        let spans = starts.spans(header, stored, max_stored)?;
        let sizes = BlockSizes::Uniform(blocksize.into());
        Ok(Self { spans, sizes, nbytes: header.nbytes.into(), dictionary: starts.dictionary })
    }

    fn variable(header: &ChunkHeader, stored: &StoredChunk, item: &ItemSpec, count: u32) -> Result<Self> {
        let Starts { at: starts, tables, dictionary } = Starts::read(header, stored, count)?;
        let mut spans = Vec::with_capacity(starts.len());
        let mut ends = Vec::with_capacity(starts.len());
        let mut total = 0_u64;
        let mut sizes = stored.small_reads();
        for (i, &start) in starts.iter().enumerate() {
            let entry = stored.at(header.len + 4 * to_u64(i));
            let end = starts.get(i + 1).copied().unwrap_or(header.cbytes);
            if u64::from(start) < tables || end > header.cbytes || end.saturating_sub(start) <= 4 {
                let why = format!("block {i} starts at {start}, the next one at {end}");
                return Err(Error::corrupt(why, "bstarts").at(entry));
            }
            let size = i32::from_le_bytes(sizes.array(stored.at(start.into()), "block size")?);
            total += match u64::try_from(size) {
                Ok(size) if size > 0 => size,
                _ => {
                    return Err(Error::corrupt(format!("must be at least 1, is {size}"), "block size")
                        .at(stored.at(start.into())));
                }
            };
            if total > header.nbytes.into() {
                let why = format!("the blocks add up to {total} bytes or more, the chunk has {}", header.nbytes);
                return Err(Error::corrupt(why, "block size").at(stored.at(start.into())));
            }
            Limits::check(size.unsigned_abs().into(), item.memory.block_limit, "block size")
                .map_err(|e| e.at(stored.at(start.into())))?;
            // As for other blocks: its stored bytes are not much larger than the block.
            let max_stored = 2 * u64::from(size.unsigned_abs()) + 4096;
            spans.push((start + 4, (u64::from(start) + 4 + max_stored).min(end.into()) as u32));
            ends.push(total as u32);
        }
        if total != u64::from(header.nbytes) {
            let why = format!("the blocks add up to {total} bytes, the chunk has {}", header.nbytes);
            return Err(Error::corrupt(why, "nbytes").at(stored.at(4)));
        }
        Ok(Self { spans, sizes: BlockSizes::Ends(ends), nbytes: header.nbytes.into(), dictionary })
    }

    /// The block that contains decoded byte `offset`, which must be inside the chunk.
    pub(super) fn locate(&self, offset: u64) -> usize {
        match &self.sizes {
            BlockSizes::Uniform(size) => (offset / size) as usize,
            BlockSizes::Ends(ends) => ends.partition_point(|&end| u64::from(end) <= offset),
        }
    }

    /// Start and end of the decoded bytes of block `i`.
    pub(super) fn decoded(&self, i: usize) -> (u64, u64) {
        match &self.sizes {
            BlockSizes::Uniform(size) => (to_u64(i) * size, (to_u64(i) * size + size).min(self.nbytes)),
            BlockSizes::Ends(ends) => (i.checked_sub(1).map_or(0, |i| ends[i].into()), ends[i].into()),
        }
    }

    /// Start and end of the stored bytes of block `i` in the chunk.
    pub(super) fn stored(&self, i: usize) -> (u64, u64) {
        let (start, end) = self.spans[i];
        (start.into(), end.into())
    }

    /// Whether block `i` is the last one and shorter than the others.
    pub(super) fn is_short(&self, i: usize) -> bool {
        matches!(&self.sizes, BlockSizes::Uniform(size) if self.nbytes - to_u64(i) * size < *size)
    }

    /// Size of the tables in memory.
    pub(super) fn cost(&self) -> u64 {
        to_u64(self.spans.len()) * 12
    }
}

/// The table of block starts, and the dictionary that follows it.
struct Starts {
    at: Vec<u32>,
    /// End of the tables: no block starts before it.
    tables: u64,
    dictionary: Option<Range<u64>>,
}

impl Starts {
    fn read(header: &ChunkHeader, stored: &StoredChunk, count: u32) -> Result<Self> {
        let len = 4 * u64::from(count);
        let mut tables = header.len + len;
        if tables > header.cbytes.into() {
            let why = format!("no room for {count} blocks in a chunk of {} bytes", header.cbytes);
            return Err(Error::corrupt(why, "bstarts").at(stored.at(header.len)));
        }
        let bytes = stored.get(header.len, len, "bstarts")?;
        let at = bytes.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect();
        let mut dictionary = None;
        if header.dictionary {
            let size_at = stored.at(tables);
            let have = u64::from(header.cbytes).saturating_sub(tables + 4);
            let mut size = [0; 4];
            if u64::from(header.cbytes) - tables >= 4 {
                stored.read(tables, &mut size, "dictionary size")?;
            }
            let size = i32::from_le_bytes(size);
            match u64::try_from(size) {
                Ok(len) if (1..=MAX_DICTIONARY).contains(&len) && len <= have => {
                    dictionary = Some(tables + 4..tables + 4 + len);
                    tables += 4 + len;
                }
                _ => {
                    let why = format!("must be 1 to {MAX_DICTIONARY} and at most {have}, is {size}");
                    return Err(Error::corrupt(why, "dictionary size").at(size_at));
                }
            }
        }
        Ok(Self { at, tables, dictionary })
    }

    /// Start of the first stored block.
    fn first(&self) -> Option<u64> {
        self.at.iter().min().map(|&start| start.into())
    }

    /// The span of each block: up to the next start, the end of the chunk, or `max_stored` bytes.
    fn spans(&self, header: &ChunkHeader, stored: &StoredChunk, max_stored: u64) -> Result<Vec<(u32, u32)>> {
        for (i, &start) in self.at.iter().enumerate() {
            if u64::from(start) < self.tables || start >= header.cbytes {
                let why =
                    format!("block {i} starts at {}, outside {}..{}", start.cast_signed(), self.tables, header.cbytes);
                return Err(Error::corrupt(why, "bstarts").at(stored.at(header.len + 4 * to_u64(i))));
            }
        }
        let clipped = |start: u32, end: u32| (start, (u64::from(start) + max_stored).min(end.into()) as u32);
        if self.at.is_sorted_by(|a, b| a < b) {
            let ends = self.at.iter().skip(1).copied().chain([header.cbytes]);
            return Ok(self.at.iter().zip(ends).map(|(&start, end)| clipped(start, end)).collect());
        }
        // Written by several threads: blocks are stored in the order in which they were finished.
        let mut sorted = self.at.clone();
        sorted.sort_unstable();
        let end = |start: u32| sorted.get(sorted.partition_point(|&s| s <= start)).copied().unwrap_or(header.cbytes);
        Ok(self.at.iter().map(|&start| clipped(start, end(start))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::bytes::FileOffset;
    use crate::format::blosc2::memory::ContainerMemory;
    use crate::source::Source;

    /// The tables of a chunk of 1,000 blocks of 255 bytes, with blocks of `blocksize` bytes and items of `typesize`
    /// bytes in its header, and items of `frame` bytes in its frame.
    fn tables(blocksize: u32, typesize: u8, frame: u32) -> (u64, BlockOffsets) {
        let (nbytes, first) = (255_000_u32, 16 + 4 * 1000_u32);
        let cbytes = first + 1000;
        let mut bytes = vec![2, 1, 0x10, typesize];
        bytes.extend([nbytes, blocksize, cbytes].into_iter().chain(first..cbytes).flat_map(u32::to_le_bytes));
        bytes.resize(cbytes as usize, 0);
        let header = ChunkHeader::parse(&bytes[..16], FileOffset(0), cbytes.into()).unwrap();
        let stored = StoredChunk::new(&Source::from_bytes(bytes), FileOffset(0), None);
        let memory = ContainerMemory::new(Account::new(1 << 20, 0), 1 << 30, std::sync::Arc::default());
        let item = ItemSpec { memory, typesize: Some(frame), blockshape: Ok(None) };
        let most = BlockOffsets::max_memory(&header, &item).unwrap();
        (most, BlockOffsets::read(&header, &stored, &item).unwrap())
    }

    #[test]
    fn tables_are_charged_for_the_blocks_that_there_are_after_rounding() {
        for (blocksize, typesize, frame) in [(255, 255, 255), (509, 255, 255), (509, 1, 256)] {
            let (most, offsets) = tables(blocksize, typesize, frame);
            // As stored and as a number, a span, and sorted.
            assert!(most >= to_u64(offsets.spans.len()) * (4 + 4 + 8 + 4), "{blocksize}: {most}");
        }
    }
}
