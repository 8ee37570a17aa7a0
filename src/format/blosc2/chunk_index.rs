//! The chunks of a frame, or a single chunk: location and decoded size of each, and the opened chunks.
//!
//! Reference: section 3 (index chunk, special entries, variable sizes), section 5 (sparse frames).
//! Read: nothing at open; index entries on demand; the headers of all chunks only if their sizes differ.
//! Limits: see `listed_sizes`; the chunks used last stay open, [`OPEN`] of them.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;
use crate::once::Once;
use crate::recent::Recent;

use super::chunk::Chunk;
use super::chunk_store::ChunkStore;
use super::fill::fill_special;
use super::header::ChunkHeader;
use super::index_chunk::{self, IndexChunk};
use super::item_spec::ItemSpec;
use super::listed_sizes::ListedSizes;
use super::memory::ChunkKey;
use super::special::Special;
use super::stored_chunk::ChunkLocation;

/// The chunks of a frame, or a single chunk.
#[derive(Debug)]
pub(super) struct ChunkIndex {
    /// Unique within the container.
    id: u64,
    store: ChunkStore,
    /// The index chunk; `None` for a single chunk or none.
    index: Option<IndexChunk>,
    count: u64,
    sizes: ChunkSizes,
    item: ItemSpec,
    open_chunks: Recent<u64, Arc<Chunk>>,
}

/// Maximum number of open chunks, and of bytes that they take.
const OPEN: (NonZeroUsize, u64) = (NonZeroUsize::new(64).unwrap(), 64 << 20);

#[derive(Debug)]
enum ChunkSizes {
    /// Every chunk has `chunk` bytes, the last one the rest of `total`.
    Fixed { total: u64, chunk: u64 },
    /// Sizes are in the headers of the chunks; their sum is `total`.
    Listed { total: u64, list: Once<Arc<ListedSizes>> },
}

/// An entry of the index.
#[derive(Debug)]
pub(super) enum IndexEntry {
    /// The chunk is not stored: it repeats a value.
    Special(Special),
    Stored(ChunkLocation),
}

impl ChunkIndex {
    /// A single chunk of `size` decoded bytes.
    pub(super) fn single(location: ChunkLocation, size: u64, item: ItemSpec) -> Self {
        Self {
            id: item.memory.new_index(),
            store: ChunkStore::Single(location),
            index: None,
            count: 1,
            sizes: ChunkSizes::Fixed { total: size, chunk: size },
            item,
            open_chunks: Recent::within(OPEN.0, OPEN.1),
        }
    }

    /// `count` chunks of `chunk` bytes and `total` bytes in all; if `chunk` is 0, sizes are in the chunk headers.
    /// `id` is the number that `index` was opened with.
    pub(super) fn indexed(
        id: u64,
        store: ChunkStore,
        index: Chunk,
        count: u64,
        total: u64,
        chunk: u64,
        item: ItemSpec,
    ) -> Self {
        let sizes = match chunk {
            0 => ChunkSizes::Listed { total, list: Once::new() },
            _ => ChunkSizes::Fixed { total, chunk },
        };
        let index = Some(IndexChunk::new(index, count, item.memory.account().clone()));
        Self { id, store, index, count, sizes, item, open_chunks: Recent::within(OPEN.0, OPEN.1) }
    }

    /// No chunks.
    pub(super) fn empty(store: ChunkStore, item: ItemSpec) -> Self {
        let sizes = ChunkSizes::Fixed { total: 0, chunk: 1 };
        Self {
            id: item.memory.new_index(),
            store,
            index: None,
            count: 0,
            sizes,
            item,
            open_chunks: Recent::within(OPEN.0, OPEN.1),
        }
    }

    /// How many chunks there are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Decoded size according to the frame.
    pub(super) fn total(&self) -> u64 {
        match self.sizes {
            ChunkSizes::Fixed { total, .. } | ChunkSizes::Listed { total, .. } => total,
        }
    }

    /// The frame's parameters for its blocks.
    pub(super) fn item(&self) -> &ItemSpec {
        &self.item
    }

    /// Where the chunks are stored.
    pub(super) fn store(&self) -> &ChunkStore {
        &self.store
    }

    /// Size of every chunk but the last, if all are the same.
    pub(super) fn fixed(&self) -> Option<u64> {
        match self.sizes {
            ChunkSizes::Fixed { chunk, .. } => Some(chunk),
            ChunkSizes::Listed { .. } => None,
        }
    }

    /// Whether the index repeats a single entry.
    pub(super) fn is_constant(&self) -> bool {
        self.index.as_ref().is_some_and(IndexChunk::is_constant)
    }

    /// The index entry of chunk `i`.
    pub(super) fn entry(&self, i: u64) -> Result<IndexEntry> {
        match &self.index {
            None if i < self.count => self.store.location(0).map(IndexEntry::Stored),
            None => Err(Error::corrupt(format!("no chunk {i}"), "number of chunks")),
            Some(index) => self.decoded(i, index, index.entry(i)?),
        }
    }

    /// The entry of chunk `i` that `index` stores as `value`.
    fn decoded(&self, i: u64, index: &IndexChunk, value: i64) -> Result<IndexEntry> {
        match value {
            position @ 0.. => self.store.location(position.unsigned_abs()).map(IndexEntry::Stored),
            value => index_chunk::special(value).map(IndexEntry::Special),
        }
        .map_err(|e| e.at(index.at(i)))
    }

    /// The index entry of chunk `i`, and how many chunks from it on repeat the same value; 1 if it is stored.
    fn run(&self, i: u64) -> Result<(IndexEntry, u64)> {
        match (&self.index, &self.sizes) {
            (Some(index), ChunkSizes::Fixed { .. }) => {
                let (value, count) = index.run(i)?;
                Ok((self.decoded(i, index, value)?, if value < 0 { count } else { 1 }))
            }
            _ => Ok((self.entry(i)?, 1)),
        }
    }

    /// The first stored chunk from number `i` on. Gaps that were searched before are skipped at no cost.
    ///
    /// # Errors
    /// Fails if the index cannot be read now.
    pub(super) fn next_stored(&self, i: u64) -> Result<Option<u64>> {
        match &self.index {
            None => Ok(Some(i).filter(|&i| i < self.count)),
            Some(index) => index.next_stored(i),
        }
    }

    /// Location of chunk `i`, if it is stored.
    pub(super) fn location(&self, i: u64) -> Result<Option<ChunkLocation>> {
        match self.entry(i)? {
            IndexEntry::Special(_) => Ok(None),
            IndexEntry::Stored(location) => Ok(Some(location)),
        }
    }

    /// Location and header of chunk `i`, if it is stored.
    pub(super) fn header(&self, i: u64) -> Result<Option<(ChunkLocation, ChunkHeader)>> {
        let Some(location) = self.location(i)? else { return Ok(None) };
        let header = location.header().map_err(|e| self.store.with_file_name(&location.source, e))?;
        Ok(Some((location, header)))
    }

    /// The range of chunk `i` in the decoded bytes.
    pub(super) fn range(&self, i: u64) -> Result<Range<u64>> {
        if let ChunkSizes::Listed { .. } = self.sizes
            && self.listed()?.unknown.binary_search(&i).is_ok()
        {
            return Err(self.why_unknown(i));
        }
        self.span(i)
    }

    /// As [`ChunkIndex::range`], but empty for a chunk of unknown size.
    fn span(&self, i: u64) -> Result<Range<u64>> {
        match &self.sizes {
            ChunkSizes::Fixed { total, chunk } => {
                let start = i.saturating_mul(*chunk).min(*total);
                Ok(start..start.saturating_add(*chunk).min(*total))
            }
            ChunkSizes::Listed { .. } => {
                let list = self.listed()?;
                list.range(i).ok_or_else(|| Error::corrupt(format!("no chunk {i}"), "number of chunks"))
            }
        }
    }

    /// Number of the chunk that contains decoded byte `offset`.
    pub(super) fn locate(&self, offset: u64) -> Result<u64> {
        match &self.sizes {
            ChunkSizes::Fixed { chunk, .. } => Ok(offset / (*chunk).max(1)),
            ChunkSizes::Listed { .. } => Ok(to_u64(self.listed()?.ends.partition_point(|&end| end <= offset))),
        }
    }

    /// The sizes of chunks that differ in size; reads all their headers once.
    pub(super) fn listed(&self) -> Result<Arc<ListedSizes>> {
        let ChunkSizes::Listed { list, total } = &self.sizes else { return Ok(Arc::default()) };
        let read = || {
            Limits::check(self.count, self.store.max_chunks(), "number of chunks")?;
            let size = |i| Ok(self.header(i)?.map(|(_, header)| header.nbytes));
            let no_index = || Error::corrupt("sizes are listed without an index", "chunk offset");
            let entry = |i| self.index.as_ref().ok_or_else(no_index)?.run(i);
            ListedSizes::read(self.count, *total, self.item.memory.account(), entry, size).map(Arc::new)
        };
        list.get(read).cloned()
    }

    /// The reason why the size of chunk `i` is unknown.
    pub(super) fn why_unknown(&self, i: u64) -> Error {
        match self.header(i) {
            Err(e) => e.within(format_args!("chunk {i}")),
            Ok(_) => Error::corrupt(format!("the size of chunk {i} is unknown"), "special entry"),
        }
    }

    /// Opens chunk `i`, or returns it from the cache; `None` if it exists only as an index entry.
    pub(super) fn chunk(&self, i: u64) -> Result<Option<Arc<Chunk>>> {
        if let Some(chunk) = self.open_chunks.get(&i) {
            return Ok(Some(chunk));
        }
        let IndexEntry::Stored(location) = self.entry(i)? else { return Ok(None) };
        let range = self.range(i)?;
        let chunk = Arc::new(self.open(i, &location, range.end - range.start)?);
        let cost = chunk.cost();
        Ok(Some(self.open_chunks.charge(i, chunk, cost, self.item.memory.account())))
    }

    /// Whether chunk `i` is open.
    pub(super) fn is_open(&self, i: u64) -> bool {
        self.open_chunks.contains(&i)
    }

    /// Opens chunk `i` of `len` bytes at `location`.
    fn open(&self, i: u64, location: &ChunkLocation, len: u64) -> Result<Chunk> {
        let open = || {
            let key = ChunkKey { index: self.id, chunk: i };
            let chunk = match Chunk::open(location, &self.item, key) {
                // Memory may be short only because of the opened chunks: close them and try again.
                Err(e) if matches!(e.kind(), Kind::NoRoom { .. }) && self.close() => {
                    Chunk::open(location, &self.item, key)?
                }
                opened => opened?,
            };
            if chunk.len() != len {
                let why = format!("must be {len}, is {}", chunk.len());
                return Err(Error::corrupt(why, "nbytes").at(location.at.plus(4)));
            }
            Ok(chunk)
        };
        open().map_err(|e| self.store.with_file_name(&location.source, e))
    }

    /// Closes all opened chunks; returns whether there were any.
    fn close(&self) -> bool {
        let is_any = !self.open_chunks.is_empty();
        self.open_chunks.clear();
        is_any
    }

    /// Fills `dst` with the decoded bytes of chunk `i` from `from` on.
    pub(super) fn read(&self, i: u64, from: u64, dst: &mut [u8]) -> Result<()> {
        let within = |e: Error| e.within(format_args!("chunk {i}"));
        if let Some(chunk) = self.chunk(i).map_err(within)? {
            return chunk.read(from, dst).map_err(|e| within(self.store.with_file_name(chunk.source(), e)));
        }
        let IndexEntry::Special(special) = self.entry(i)? else {
            return Err(within(Error::corrupt("contradictory index entry", "chunk offset")));
        };
        self.check_special(i, special)?;
        fill_special(special, self.special_width(), from, dst);
        Ok(())
    }

    /// Item size of the chunks that exist only as index entries.
    fn special_width(&self) -> u32 {
        self.item.typesize.unwrap_or(1)
    }

    /// Fails if chunk `i`, which is not stored, cannot repeat `special`.
    fn check_special(&self, i: u64, special: Special) -> Result<()> {
        let range = self.range(i)?;
        let at = self.index.as_ref().map_or(FileOffset(0), |index| index.at(i));
        let checked = special.check(range.end - range.start, self.special_width().into(), at);
        checked.map_err(|e| e.within(format_args!("chunk {i}")))
    }

    /// Fills `dst` with the decoded bytes of small chunks from number `first` on. They are not kept open, and chunks of
    /// one repeated value are filled at once.
    pub(super) fn read_small(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let within = |i: u64| move |e: Error| e.within(format_args!("chunk {i}"));
        let mut rest = dst;
        let mut i = first;
        while !rest.is_empty() {
            let chunk = self.span(i)?;
            if chunk.is_empty() {
                i += 1;
                continue;
            }
            let (entry, count) = self.run(i).map_err(within(i))?;
            let range = chunk.start..self.span(i + (count - 1))?.end;
            let len = (range.end - range.start).min(to_u64(rest.len())) as usize;
            let (now, later) = std::mem::take(&mut rest).split_at_mut(len);
            match entry {
                IndexEntry::Special(special) => {
                    // Only the last chunk has another size.
                    self.check_special(i, special)?;
                    self.check_special(i + (count - 1), special)?;
                    fill_special(special, self.special_width(), 0, now);
                }
                IndexEntry::Stored(location) => {
                    let chunk = self.open(i, &location, range.end - range.start).map_err(within(i))?;
                    let file = |e: Error| self.store.with_file_name(chunk.source(), e);
                    chunk.read(0, now).map_err(|e| within(i)(file(e)))?;
                }
            }
            (rest, i) = (later, i + count);
        }
        Ok(())
    }

    /// Decodes `range` of chunk `i`, `step` bytes at a time, and discards the result.
    pub(super) fn verify(&self, i: u64, range: Range<u64>, step: u64) -> Result<()> {
        let within = |e: Error| e.within(format_args!("chunk {i}"));
        match self.chunk(i).map_err(within)? {
            Some(chunk) if !chunk.is_fill() => {
                chunk.verify(range, step).map_err(|e| within(self.store.with_file_name(chunk.source(), e)))
            }
            _ => self.read(i, range.start, &mut []),
        }
    }
}
