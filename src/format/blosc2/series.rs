//! A series of chunks: where each lies, how long it is decoded, and the few that are open.
//!
//! Reference: section 3 (index chunk, special entries, variable sizes), section 5 (sparse frames).
//! Read: nothing at opening; entries as they are asked for, 16 KiB of the index at a time; headers of all
//! chunks only where their sizes are not all the same.
//! Limits: opened chunks take [`OPEN`] bytes, and no more than the account has memory for.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use crate::account::Account;
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::limits::{Charge, Limits};
use crate::once::Once;

use super::chunk::{Chunk, Place, fill_special};
use super::filter::Item;
use super::header::{Header, Special};
use super::memory::ChunkKey;
use super::store::Store;
use super::stored_map::StoredMap;

/// Bytes that opened chunks may take together.
const OPEN: u64 = 64 << 20;
/// Opened chunks kept at most.
const OPENED: usize = 64;
/// Most decoded bytes of a chunk.
const MAX_CHUNK: u64 = i32::MAX as u64;
/// Entries of the index that are decoded at a time.
const WINDOW: u64 = 2048;

/// The chunks of a frame, or a single chunk.
#[derive(Debug)]
pub(super) struct Series {
    /// Its number among all series of the container.
    id: u64,
    store: Store,
    /// The index chunk; without one there is a single chunk.
    index: Option<Index>,
    count: u64,
    sizes: Sizes,
    item: Item,
    opened: Mutex<Opened>,
}

#[derive(Debug)]
enum Sizes {
    /// Every chunk has `chunk` bytes, the last one what is left of `total`.
    Fixed { total: u64, chunk: u64 },
    /// As the chunks' headers say; `total` in all.
    Listed { total: u64, list: Once<Arc<Listed>> },
}

/// The sizes of chunks of different sizes.
#[derive(Debug)]
pub(super) struct Listed {
    /// The end of each chunk in the decoded bytes; a chunk of unknown size has none.
    pub(super) ends: Arc<[u64]>,
    /// Chunks whose size cannot be known, in order.
    pub(super) unknown: Vec<u64>,
    _charge: Option<Charge>,
}

/// What the index says of a chunk.
#[derive(Debug)]
pub(super) enum Entry {
    /// It is not stored.
    Special(Special),
    FileExtent(Place),
}

impl Series {
    /// A single chunk of `size` decoded bytes.
    pub(super) fn single(place: Place, size: u64, item: Item) -> Self {
        Self {
            id: item.memory.series(),
            store: Store::Single(place),
            index: None,
            count: 1,
            sizes: Sizes::Fixed { total: size, chunk: size },
            item,
            opened: Mutex::default(),
        }
    }

    /// `count` chunks of `chunk` bytes, `total` in all; with `chunk` 0 the chunks say their sizes. `id` is the number by
    /// which `index` was opened.
    pub(super) fn indexed(id: u64, store: Store, index: Chunk, count: u64, total: u64, chunk: u64, item: Item) -> Self {
        let sizes = match chunk {
            0 => Sizes::Listed { total, list: Once::new() },
            _ => Sizes::Fixed { total, chunk },
        };
        let index = Some(Index { chunk: index, window: Mutex::default(), stored: StoredMap::default() });
        Self { id, store, index, count, sizes, item, opened: Mutex::default() }
    }

    /// No chunks.
    pub(super) fn empty(store: Store, item: Item) -> Self {
        let sizes = Sizes::Fixed { total: 0, chunk: 1 };
        Self { id: item.memory.series(), store, index: None, count: 0, sizes, item, opened: Mutex::default() }
    }

    /// How many chunks there are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Decoded bytes, as the frame says.
    pub(super) fn total(&self) -> u64 {
        match self.sizes {
            Sizes::Fixed { total, .. } | Sizes::Listed { total, .. } => total,
        }
    }

    /// What blocks may need to know.
    pub(super) fn item(&self) -> &Item {
        &self.item
    }

    /// What the chunks are stored in.
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Bytes of every chunk but the last, where they are all the same.
    pub(super) fn fixed(&self) -> Option<u64> {
        match self.sizes {
            Sizes::Fixed { chunk, .. } => Some(chunk),
            Sizes::Listed { .. } => None,
        }
    }

    /// Whether all entries of the index are the same: one stands for all.
    pub(super) fn is_constant(&self) -> bool {
        self.index.as_ref().is_some_and(|index| index.chunk.is_fill())
    }

    /// What the index says of chunk `i`.
    pub(super) fn entry(&self, i: u64) -> Result<Entry> {
        match &self.index {
            None if i < self.count => self.store.place(0).map(Entry::FileExtent),
            None => Err(Error::corrupt(format!("no chunk {i}"), "number of chunks")),
            Some(index) => match index.entry(i, self.count)? {
                position @ 0.. => self.store.place(position.unsigned_abs()).map(Entry::FileExtent),
                _ => index.special(i, self.count).map(Entry::Special),
            }
            .map_err(|e| e.at(index.chunk.at(8 * i))),
        }
    }

    /// The first chunk from number `i` on that is stored. Gaps of any length cost nothing once they are known.
    ///
    /// # Errors
    /// Where the index cannot be read now.
    pub(super) fn next_stored(&self, i: u64) -> Result<Option<u64>> {
        match &self.index {
            None => Ok(Some(i).filter(|&i| i < self.count)),
            // A hundred million special chunks in one entry of the index: nothing to look through.
            Some(index) if index.chunk.is_fill() => {
                Ok(Some(i).filter(|&i| i < self.count && index.entry(i, self.count).is_ok_and(|entry| entry >= 0)))
            }
            Some(index) => index.stored.next(&index.chunk, i, self.count),
        }
    }

    /// Where chunk `i` lies, if it is stored.
    pub(super) fn place(&self, i: u64) -> Result<Option<Place>> {
        match self.entry(i)? {
            Entry::Special(_) => Ok(None),
            Entry::FileExtent(place) => Ok(Some(place)),
        }
    }

    /// The header of chunk `i`, if it is stored; where it lies.
    pub(super) fn header(&self, i: u64) -> Result<Option<(Place, Header)>> {
        let Some(place) = self.place(i)? else { return Ok(None) };
        let header = place.header().map_err(|e| self.store.in_file(&place.source, e))?;
        Ok(Some((place, header)))
    }

    /// The range of chunk `i` in the decoded bytes.
    pub(super) fn range(&self, i: u64) -> Result<std::ops::Range<u64>> {
        match &self.sizes {
            Sizes::Fixed { total, chunk } => {
                let start = i.saturating_mul(*chunk).min(*total);
                Ok(start..start.saturating_add(*chunk).min(*total))
            }
            Sizes::Listed { .. } => {
                let list = self.listed()?;
                if list.unknown.binary_search(&i).is_ok() {
                    return Err(self.why_unknown(i));
                }
                let end = |i: u64| {
                    let end = usize::try_from(i).ok().and_then(|i| list.ends.get(i).copied());
                    end.ok_or_else(|| Error::corrupt(format!("no chunk {i}"), "number of chunks"))
                };
                Ok(i.checked_sub(1).map_or(Ok(0), end)?..end(i)?)
            }
        }
    }

    /// The chunk that holds decoded byte `offset`.
    pub(super) fn locate(&self, offset: u64) -> Result<u64> {
        match &self.sizes {
            Sizes::Fixed { chunk, .. } => Ok(offset / (*chunk).max(1)),
            Sizes::Listed { .. } => Ok(to_u64(self.listed()?.ends.partition_point(|&end| end <= offset))),
        }
    }

    /// The sizes of chunks that say their own: reads the header of each, once.
    pub(super) fn listed(&self) -> Result<Arc<Listed>> {
        let Sizes::Listed { list, total } = &self.sizes else {
            return Ok(Arc::new(Listed { ends: Arc::from([]), unknown: Vec::new(), _charge: None }));
        };
        list.get(|| self.list(*total).map(Arc::new)).cloned()
    }

    /// Why the size of chunk `i` is not known.
    pub(super) fn why_unknown(&self, i: u64) -> Error {
        match self.header(i) {
            Err(e) => e.within(format_args!("chunk {i}")),
            Ok(_) => Error::corrupt(format!("the size of chunk {i} is not known"), "special entry"),
        }
    }

    fn list(&self, total: u64) -> Result<Listed> {
        // A frame has no reason to name a chunk twice: so many entries cannot be.
        Limits::check(self.count, self.store.most_chunks(), "number of chunks")?;
        // A size, later the end, and perhaps a number among those that are not known.
        let bytes = self.count.saturating_mul(8 + 8 + 8);
        let charge = self.item.memory.account().charge(bytes, "sizes of chunks")?;
        let mut sizes = Vec::new();
        let mut unknown = Vec::new();
        let mut special = Vec::new();
        let mut sum = 0_u64;
        for i in 0..self.count {
            let size = match self.header(i) {
                Ok(Some((_, header))) => header.nbytes.into(),
                Ok(None) => {
                    special.push(i);
                    0
                }
                Err(e) if !e.is_lasting() => return Err(e.within(format_args!("chunk {i}"))),
                Err(_) => {
                    unknown.push(i);
                    0
                }
            };
            sum = sum.saturating_add(size);
            if sum > total {
                return Err(Error::corrupt(format!("chunks of more than {total} bytes"), "nbytes"));
            }
            sizes.push(size);
        }
        match special.as_slice() {
            // An entry says no size; what is missing is that of the only one.
            [i] if unknown.is_empty() && total - sum <= MAX_CHUNK => sizes[*i as usize] = total - sum,
            [] if unknown.is_empty() && sum != total => {
                return Err(Error::corrupt(format!("chunks of {sum} bytes, {total} are promised"), "nbytes"));
            }
            several => {
                unknown.extend(several);
                unknown.sort_unstable();
            }
        }
        let ends = sizes.iter().scan(0, |end, size| {
            *end += size;
            Some(*end)
        });
        Ok(Listed { ends: ends.collect(), unknown, _charge: Some(charge) })
    }

    /// Chunk `i`, opened now or not long ago; `None` if it is only an entry of the index.
    fn chunk(&self, i: u64) -> Result<Option<Arc<Chunk>>> {
        if let Some((chunk, _)) = self.lock().chunks.get(&i) {
            return Ok(Some(chunk.clone()));
        }
        let Entry::FileExtent(place) = self.entry(i)? else { return Ok(None) };
        let range = self.range(i)?;
        let open = || {
            let key = ChunkKey { series: self.id, chunk: i };
            let chunk = match Chunk::open(&place, &self.item, key) {
                // Those that are open may be all that takes the room.
                Err(e) if matches!(e.kind(), Kind::NoRoom { .. }) && self.close() => {
                    Chunk::open(&place, &self.item, key)?
                }
                opened => opened?,
            };
            if chunk.len() != range.end - range.start {
                let why = format!("must be {}, is {}", range.end - range.start, chunk.len());
                return Err(Error::corrupt(why, "nbytes").at(place.at.plus(4)));
            }
            Ok(Arc::new(chunk))
        };
        let chunk = open().map_err(|e| self.store.in_file(&place.source, e))?;
        self.lock().keep(i, chunk.clone(), self.item.memory.account());
        Ok(Some(chunk))
    }

    /// Closes all chunks that are open; whether there were any.
    fn close(&self) -> bool {
        let gone = std::mem::take(&mut *self.lock());
        !gone.chunks.is_empty()
    }

    /// Fills `dst` with the decoded bytes of chunk `i` from `from` on.
    pub(super) fn read(&self, i: u64, from: u64, dst: &mut [u8]) -> Result<()> {
        let within = |e: Error| e.within(format_args!("chunk {i}"));
        if let Some(chunk) = self.chunk(i).map_err(within)? {
            return chunk.read(from, dst).map_err(|e| within(self.store.in_file(chunk.source(), e)));
        }
        let Entry::Special(special) = self.entry(i)? else {
            return Err(within(Error::corrupt("it is stored and is not", "chunk offset")));
        };
        let typesize = self.item.typesize.unwrap_or(1);
        let range = self.range(i)?;
        let at = self.index.as_ref().map_or(FileOffset(0), |index| index.chunk.at(8 * i));
        special.check(range.end - range.start, typesize.into(), at).map_err(within)?;
        fill_special(special, typesize, from, dst);
        Ok(())
    }

    /// Decodes the bytes `range` of chunk `i`, `step` at a time, and forgets them.
    pub(super) fn verify(&self, i: u64, range: std::ops::Range<u64>, step: u64) -> Result<()> {
        let within = |e: Error| e.within(format_args!("chunk {i}"));
        match self.chunk(i).map_err(within)? {
            Some(chunk) if !chunk.is_fill() => {
                chunk.verify(range, step).map_err(|e| within(self.store.in_file(chunk.source(), e)))
            }
            _ => self.read(i, range.start, &mut []),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The chunks that are open.
#[derive(Debug)]
struct Opened {
    chunks: LruCache<u64, (Arc<Chunk>, Charge)>,
    cost: u64,
}

impl Default for Opened {
    fn default() -> Self {
        Self { chunks: LruCache::new(NonZeroUsize::new(OPENED).unwrap_or(NonZeroUsize::MIN)), cost: 0 }
    }
}

impl Opened {
    /// Keeps `chunk` where `account` has memory for it; lets go of those that were not wanted for longest.
    fn keep(&mut self, i: u64, chunk: Arc<Chunk>, account: &Account) {
        let cost = chunk.cost();
        let charge = loop {
            match account.charge(cost, "opened chunk") {
                Ok(charge) if self.cost.saturating_add(cost) <= OPEN || self.chunks.is_empty() => break charge,
                _ => {}
            }
            let Some((_, (old, _))) = self.chunks.pop_lru() else { return };
            self.cost -= old.cost();
        };
        self.cost += cost;
        if let Some((_, (old, _))) = self.chunks.push(i, (chunk, charge)) {
            self.cost -= old.cost();
        }
    }
}

/// The index chunk, of which the entries around the last one asked for are decoded.
#[derive(Debug)]
struct Index {
    chunk: Chunk,
    window: Mutex<Option<(u64, Vec<u8>)>>,
    stored: StoredMap,
}

impl Index {
    /// Entry `i` of `count`: a position, or with its top bit set what the chunk consists of.
    fn entry(&self, i: u64, count: u64) -> Result<i64> {
        let first = i / WINDOW * WINDOW;
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = match &mut *window {
            Some((at, bytes)) if *at == first => bytes,
            other => {
                let mut bytes = vec![0; 8 * WINDOW.min(count.saturating_sub(first)) as usize];
                self.chunk.read(8 * first, &mut bytes).map_err(|e| e.within("index chunk"))?;
                &mut other.insert((first, bytes)).1
            }
        };
        let entry = bytes.as_chunks().0.get((i - first) as usize).copied();
        entry.map(i64::from_le_bytes).ok_or_else(|| Error::corrupt(format!("no chunk {i}"), "index chunk"))
    }

    /// What a negative entry stands for: the top byte says it.
    fn special(&self, i: u64, count: u64) -> Result<Special> {
        match self.entry(i, count)?.to_le_bytes()[7] {
            b if b & 1 != 0 => Ok(Special::Zeros),
            b if b & 4 != 0 => Ok(Special::Uninitialised),
            b if b & 2 != 0 => Ok(Special::Nan),
            b => Err(Error::corrupt(format!("entry {i}: unknown special value {b:#04x}"), "chunk offset")),
        }
    }
}
