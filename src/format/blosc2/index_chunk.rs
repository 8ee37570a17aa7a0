//! The index chunk of a frame: an entry of 8 bytes for each chunk.
//!
//! Reference: section 3 (index chunk, special entries).
//! Read: [`WINDOW`] entries at a time, when one of them is requested.
//! Limits: one window is kept, if the account has memory for it.
//!
//! Invariants: the index is read without holding a lock; only callers that need the same window wait for it.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use crate::account::Account;
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::limits::{Charge, zeroed};
use crate::once::Once;

use super::chunk::Chunk;
use super::special::Special;
use super::stored_map::StoredMap;

/// Number of entries that are decoded at a time.
const WINDOW: u64 = 2048;
/// Size of an entry in bytes.
const ENTRY: u64 = 8;

/// The index chunk, and a window of its decoded entries around the last lookup.
#[derive(Debug)]
pub(super) struct IndexChunk {
    chunk: Chunk,
    /// Number of entries.
    count: u64,
    account: Account,
    last: LastWindow,
    stored: StoredMap,
}

/// Decoded entries, and their charge.
type EntryWindow = Once<(Vec<u8>, Charge)>;

/// The window that was requested last, with its number.
#[derive(Debug, Default)]
struct LastWindow(Mutex<Option<(u64, Arc<EntryWindow>)>>);

impl LastWindow {
    /// Window `number`, which may not be read yet; it replaces the previous one.
    fn get(&self, number: u64) -> Arc<EntryWindow> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((same, window)) if *same == number => Arc::clone(window),
            _ => Arc::clone(&last.insert((number, Arc::default())).1),
        }
    }
}

impl IndexChunk {
    /// `chunk` with `count` entries; windows are charged to `account`.
    pub(super) fn new(chunk: Chunk, count: u64, account: Account) -> Self {
        Self { chunk, count, account, last: LastWindow::default(), stored: StoredMap::default() }
    }

    /// Whether all entries are the same.
    pub(super) fn is_constant(&self) -> bool {
        self.chunk.is_constant(ENTRY)
    }

    /// File offset of entry `i`, or of the block that it is decoded from.
    pub(super) fn at(&self, i: u64) -> FileOffset {
        self.chunk.at(ENTRY * i)
    }

    /// Entry `i`: a position, or if negative the value that the chunk repeats.
    ///
    /// # Errors
    /// Fails if there is no such entry, or the index cannot be read.
    pub(super) fn entry(&self, i: u64) -> Result<i64> {
        match self.window(i)? {
            Some(window) => first(i, entries_from(&window, i)),
            None => self.read_one(i),
        }
    }

    /// Entry `i`, and how many entries from it on are known to be the same: at least one.
    ///
    /// # Errors
    /// As [`IndexChunk::entry`].
    pub(super) fn run(&self, i: u64) -> Result<(i64, u64)> {
        let Some(window) = self.window(i)? else {
            return Ok((self.read_one(i)?, if self.is_constant() { self.count - i } else { 1 }));
        };
        let entries = entries_from(&window, i);
        let same = entries.iter().take_while(|entry| Some(*entry) == entries.first()).count();
        Ok((first(i, entries)?, to_u64(same)))
    }

    /// The window that contains entry `i`; `None` if all entries are the same, or there is no room for a window.
    fn window(&self, i: u64) -> Result<Option<Arc<EntryWindow>>> {
        if i >= self.count {
            return Err(none(i));
        }
        if self.is_constant() {
            return Ok(None);
        }
        let first = i / WINDOW * WINDOW;
        let len = ENTRY * WINDOW.min(self.count - first);
        let window = self.last.get(first);
        let read = || {
            let charge = self.account.charge(len, "window of the index")?;
            let mut bytes = zeroed(len, "window of the index")?;
            self.read(first, &mut bytes).map(|()| (bytes, charge))
        };
        match window.get(read).map(drop) {
            Ok(()) => Ok(Some(window)),
            // Slower, but needs no memory.
            Err(e) if matches!(e.kind(), Kind::NoRoom { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn read_one(&self, i: u64) -> Result<i64> {
        let mut bytes = [0; ENTRY as usize];
        self.read(i, &mut bytes).map(|()| i64::from_le_bytes(bytes))
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        self.chunk.read(ENTRY * first, dst).map_err(|e| e.within("index chunk"))
    }

    /// The first stored chunk from number `i` on. Gaps that were searched before are skipped at no cost.
    ///
    /// # Errors
    /// Fails if the index cannot be read now.
    pub(super) fn next_stored(&self, i: u64) -> Result<Option<u64>> {
        // The index repeats one entry, possibly for a hundred million chunks: do not scan it.
        if self.is_constant() {
            return Ok(Some(i).filter(|&i| self.entry(i).is_ok_and(|entry| entry >= 0)));
        }
        self.stored.next(&self.chunk, i, self.count)
    }
}

/// The entries of `window` from entry `i` on.
fn entries_from(window: &EntryWindow, i: u64) -> &[[u8; ENTRY as usize]] {
    let bytes = window.ready().and_then(Result::ok).map_or(&[][..], |(bytes, _)| bytes);
    bytes.as_chunks().0.get((i % WINDOW) as usize..).unwrap_or_default()
}

/// The first of `entries`, which is entry `i`.
fn first(i: u64, entries: &[[u8; ENTRY as usize]]) -> Result<i64> {
    entries.first().map(|entry| i64::from_le_bytes(*entry)).ok_or_else(|| none(i))
}

fn none(i: u64) -> Error {
    Error::corrupt(format!("no chunk {i}"), "index chunk")
}

/// The value of a negative entry, which is in its top byte.
pub(super) fn special(entry: i64) -> Result<Special> {
    match entry.to_le_bytes()[7] {
        0x81 => Ok(Special::Zeros),
        0x82 => Ok(Special::Nan),
        0x84 => Ok(Special::Uninitialised),
        b => Err(Error::unknown(format!("the special value {b:#04x}"), "chunk offset")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::blosc2::item_spec::ItemSpec;
    use crate::format::blosc2::memory::{ChunkKey, ContainerMemory, INDEX};
    use crate::format::blosc2::stored_chunk::ChunkLocation;
    use crate::source::Source;

    /// Ten entries in a chunk that repeats `values`.
    fn repeated(values: &[i64]) -> IndexChunk {
        // Version 5, format 1, explicit filters; item size 8; a repeated value.
        let mut bytes = vec![5, 1, 0b101, 8];
        let lens = [8 * 10, 8 * 10, 32 + 8 * values.len() as u32];
        bytes.extend(lens.iter().flat_map(|n| n.to_le_bytes()));
        bytes.resize(31, 0);
        bytes.push(0x30);
        bytes.extend(values.iter().flat_map(|n| n.to_le_bytes()));
        let max_len = to_u64(bytes.len());
        let location = ChunkLocation { source: Source::from_bytes(bytes), at: FileOffset(0), max_len };
        let account = Account::new(64 << 20, 0);
        let item = ItemSpec {
            memory: ContainerMemory::new(account.clone(), 1 << 30, Arc::default()),
            typesize: Some(8),
            blockshape: Ok(None),
        };
        let chunk = Chunk::open(&location, &item, ChunkKey { index: 0, chunk: INDEX }).unwrap();
        IndexChunk::new(chunk, 10, account)
    }

    #[test]
    fn an_index_that_repeats_several_entries_is_not_constant() {
        let special = i64::from_le_bytes([0, 0, 0, 0, 0, 0, 0, 0x81]);
        let constant = repeated(&[special]);
        assert!(constant.is_constant() && constant.next_stored(0).unwrap().is_none());
        assert_eq!((constant.run(3).unwrap(), constant.entry(9).unwrap()), ((special, 7), special));
        let index = repeated(&[special, special, special, 40, 80]);
        assert!(!index.is_constant());
        for (i, want) in
            [(special, 3), (special, 2), (special, 1), (40, 1), (80, 1)].into_iter().cycle().take(10).enumerate()
        {
            assert_eq!((index.run(i as u64).unwrap(), index.entry(i as u64).unwrap()), (want, want.0), "{i}");
        }
        assert_eq!([0, 4, 5, 9].map(|i| index.next_stored(i).unwrap()), [Some(3), Some(4), Some(8), Some(9)]);
        assert!(index.run(10).is_err() && index.entry(10).is_err());
    }

    #[test]
    fn a_window_is_read_while_another_is_being_read() {
        let (last, account) = (LastWindow::default(), Account::new(100, 0));
        let entries = |byte| Ok((vec![byte; 8], account.charge(8, "window")?));
        let first = last.get(0);
        let read = || {
            let other = last.get(WINDOW);
            assert_eq!(other.get(|| entries(2))?.0, [2; 8]);
            entries(1)
        };
        assert_eq!(first.get(read).unwrap().0, [1; 8]);
        // Only the last one is kept.
        assert_eq!(last.get(WINDOW).get(|| entries(3)).unwrap().0, [2; 8]);
        assert_eq!(last.get(0).get(|| entries(4)).unwrap().0, [4; 8]);
        drop(first);
        assert_eq!(account.memory().used(), 16 - 8);
    }
}
