//! Which chunks of an index are stored. The index is searched region by region, so that a listing can skip gaps.
//!
//! Read: every region of the index once, when a search first reaches it; again only if its bits were dropped.
//! Limits: a region is one block of the index, or about [`REGION`] entries if blocks are shorter or very long. One bit
//! per entry is kept for the [`KEPT`] regions searched last, and one bit per region for all others.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::limits::zeroed;
use crate::once::Once;

use super::chunk::Chunk;
use super::chunk_blocks::BIG;

/// Minimum number of entries in a region.
const REGION: u64 = 1 << 15;
/// Number of regions with their bits kept, enough for several concurrent listings.
const KEPT: usize = 8;
/// Size of an entry in bytes.
const ENTRY: u64 = 8;

/// A map of the index entries that refer to stored chunks.
#[derive(Debug, Default)]
pub(super) struct StoredMap(Mutex<MapState>);

#[derive(Debug, Default)]
struct MapState {
    /// One bit per region: set if it contains no stored chunk.
    empty: Vec<u64>,
    /// The regions searched last, oldest first, with one bit per entry.
    last: VecDeque<(u64, Arc<Region>)>,
    /// Number of entries decoded so far, for tests.
    decoded: u64,
}

/// One bit for each entry of a region: set if the chunk is stored.
type Region = Once<Vec<u64>>;

impl StoredMap {
    /// The first stored chunk of `index` in the range `from..count`. Entries in a corrupt part of the index count as
    /// not stored.
    ///
    /// # Errors
    /// Fails if the index cannot be read now; corruption is not an error.
    pub(super) fn next(&self, index: &Chunk, from: u64, count: u64) -> Result<Option<u64>> {
        self.search(region(index), from, count, |start, len| scan(index, start, len))
    }

    /// Like [`StoredMap::next`], with regions of `region` entries. `scan` returns the bits of a range of entries; it is
    /// called without a lock, so that a slow read of one region does not delay searches in others.
    fn search(
        &self,
        region: u64,
        from: u64,
        count: u64,
        scan: impl Fn(u64, u64) -> Result<Vec<u64>>,
    ) -> Result<Option<u64>> {
        let mut at = from;
        while at < count {
            let number = at / region;
            let start = number * region;
            if let Some(bits) = self.region(number) {
                let bits = bits.get(|| {
                    let len = region.min(count - start);
                    self.lock().decoded += len;
                    scan(start, len)
                })?;
                if let Some(found) = first_set(bits, at - start) {
                    return Ok(Some(start + found));
                }
                if at == start {
                    set(&mut self.lock().empty, number);
                }
            }
            at = start.saturating_add(region);
        }
        Ok(None)
    }

    /// The bits of region `number`, which may not be computed yet; `None` if it contains no stored chunk.
    fn region(&self, number: u64) -> Option<Arc<Region>> {
        let mut state = self.lock();
        if is_set(&state.empty, number) {
            return None;
        }
        let known = state.last.iter().position(|(last, _)| *last == number);
        let entry = known.and_then(|i| state.last.remove(i)).unwrap_or_else(|| (number, Arc::default()));
        let bits = Arc::clone(&entry.1);
        state.last.push_back(entry);
        if state.last.len() > KEPT {
            state.last.pop_front();
        }
        Some(bits)
    }

    fn lock(&self) -> MutexGuard<'_, MapState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of entries that all searches so far have decoded.
    #[cfg(test)]
    pub(super) fn decoded(&self) -> u64 {
        self.lock().decoded
    }
}

/// Number of entries in a region of `index`: whole blocks, so that no block is decoded for two regions.
fn region(index: &Chunk) -> u64 {
    let block = (u64::from(index.header().blocksize) / ENTRY).max(1);
    if block * ENTRY > BIG { REGION } else { REGION.div_ceil(block) * block }
}

/// One bit for each of the `len` entries of `index` from `start` on: set if the chunk is stored.
fn scan(index: &Chunk, start: u64, len: u64) -> Result<Vec<u64>> {
    let mut bits = Vec::new();
    let mut bytes = zeroed(len * ENTRY, "index chunk")?;
    let Err(error) = index.read(start * ENTRY, &mut bytes) else {
        mark(&bytes, 0, &mut bits);
        return Ok(bits);
    };
    // A corrupt block affects only its own entries.
    let block = (u64::from(index.header().blocksize) / ENTRY).clamp(REGION / 16, REGION);
    let mut at = 0;
    let tolerate = |e: Error| if e.is_lasting() { Ok(()) } else { Err(e.within("index chunk")) };
    tolerate(error)?;
    while at < len {
        let n = block.min(len - at);
        let bytes = bytes.get_mut(..(n * ENTRY) as usize).unwrap_or_default();
        match index.read((start + at) * ENTRY, bytes) {
            Ok(()) => mark(bytes, at, &mut bits),
            Err(e) => tolerate(e)?,
        }
        at += n;
    }
    Ok(bits)
}

/// Sets the bits of the entries in `bytes` that are not negative; the first entry has the number `first`.
fn mark(bytes: &[u8], first: u64, bits: &mut Vec<u64>) {
    for (i, entry) in bytes.as_chunks::<8>().0.iter().enumerate() {
        if i64::from_le_bytes(*entry) >= 0 {
            set(bits, first + to_u64(i));
        }
    }
}

fn is_set(bits: &[u64], i: u64) -> bool {
    usize::try_from(i / 64).ok().and_then(|word| bits.get(word)).is_some_and(|word| word >> (i % 64) & 1 == 1)
}

fn set(bits: &mut Vec<u64>, i: u64) {
    let word = (i / 64) as usize;
    if bits.len() <= word {
        bits.resize(word + 1, 0);
    }
    bits[word] |= 1 << (i % 64);
}

/// The first set bit at or after `from`.
fn first_set(bits: &[u64], from: u64) -> Option<u64> {
    let word = usize::try_from(from / 64).ok()?;
    let first = bits.get(word)? & (u64::MAX << (from % 64));
    let rest = bits.get(word + 1..).unwrap_or_default();
    let mut words = (to_u64(word)..).zip(std::iter::once(first).chain(rest.iter().copied()));
    words.find(|(_, bits)| *bits != 0).map(|(word, bits)| word * 64 + u64::from(bits.trailing_zeros()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::bytes::FileOffset;
    use crate::format::blosc2::item_spec::ItemSpec;
    use crate::format::blosc2::memory::{ChunkKey, ContainerMemory, INDEX};
    use crate::format::blosc2::stored_chunk::ChunkLocation;
    use crate::source::Source;

    /// An uncompressed index of `count` entries; those in `stored` are stored chunks.
    fn index(count: u64, stored: &[u64]) -> Chunk {
        let nbytes = (count * ENTRY) as u32;
        // Version 5, format 1, flags: 32 bytes of header, memcpyed; item size 8; blocks of 32 KiB.
        let mut bytes = vec![5, 1, 0b111, 8];
        bytes.extend([nbytes, 32 << 10, nbytes + 32].iter().flat_map(|n| n.to_le_bytes()));
        bytes.resize(32, 0);
        let special = i64::from_le_bytes([0, 0, 0, 0, 0, 0, 0, 0x81]);
        let entry = |i| if stored.binary_search(&i).is_ok() { 100 } else { special };
        bytes.extend((0..count).flat_map(|i| entry(i).to_le_bytes()));
        let max_len = to_u64(bytes.len());
        let location = ChunkLocation { source: Source::from_bytes(bytes), at: FileOffset(0), max_len };
        let memory = ContainerMemory::new(Account::new(64 << 20, 0), 1 << 30, Arc::default());
        let item = ItemSpec { memory, typesize: Some(8), blockshape: Ok(None) };
        Chunk::open(&location, &item, ChunkKey { index: 0, chunk: INDEX }).unwrap()
    }

    #[test]
    fn gaps_are_skipped_and_every_region_is_decoded_once() {
        let count = 1 << 20;
        for stored in [&[][..], &[0], &[7, 8, 40_000, 999_999, count - 1], &[32_767, 32_768, 65_535, 65_536]] {
            let (index, map) = (index(count, stored), StoredMap::default());
            let mut found = Vec::new();
            let mut at = 0;
            while let Some(next) = map.next(&index, at, count).unwrap() {
                found.push(next);
                at = next + 1;
            }
            assert_eq!(found, stored);
            assert_eq!(map.decoded(), count);
            // Regions known to be empty are not decoded again; a directory without files is listed from memory.
            assert_eq!(map.next(&index, 0, count).unwrap(), stored.first().copied());
            assert!(map.decoded() <= count + stored.len() as u64 * REGION, "{} decoded", map.decoded());
            assert_eq!(map.next(&index, count, count).unwrap(), None);
            assert_eq!(map.next(&index, u64::MAX, count).unwrap(), None);
        }
    }

    #[test]
    fn a_region_is_searched_while_another_is_being_read() {
        let map = StoredMap::default();
        let other = |start, _| {
            assert_eq!(start, 200);
            Ok(vec![1 << 7])
        };
        let scan = |_, _| {
            assert_eq!(map.search(100, 200, 300, other)?, Some(207));
            Ok(vec![1 << 3])
        };
        assert_eq!(map.search(100, 0, 300, scan).unwrap(), Some(3));
        assert_eq!(map.search(100, 4, 300, |_, len| Ok(vec![0; len as usize])).unwrap(), Some(207));
        assert_eq!(map.decoded(), 300);
    }

    #[test]
    fn bits_are_found_in_order() {
        let mut bits = Vec::new();
        let all = [0, 1, 63, 64, 127, 128, 1000];
        for i in all {
            set(&mut bits, i);
        }
        let walk = std::iter::successors(first_set(&bits, 0), |&i| first_set(&bits, i + 1));
        assert_eq!(walk.collect::<Vec<_>>(), all);
        assert!(is_set(&bits, 64) && !is_set(&bits, 65) && !is_set(&bits, 1 << 40));
    }
}
