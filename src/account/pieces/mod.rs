//! Keeps decoded pieces that are expensive to decode again, in memory first and then in a temporary file.
//!
//! A writer thread writes the file, so decoders do not wait for the disk. Until a piece is written, it is read from
//! memory.
//!
//! Limits: the account's memory and disk budgets; in addition, at most `WAITING` pieces queued for the writer (their
//! memory is not charged) and as many free buffers, or as [`Pieces::forget`] says. Fewer if the memory is small.
//!
//! Invariant: a piece is read from the file only after all of its bytes were written.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::limits::{Budget, Charge, zeroed};
use crate::platform::{FileExt, unnamed};
use crate::pool::Pool;
use crate::sync::{Condvar, Mutex, MutexGuard};

use super::Account;
use super::spill::directory;

/// Maximum pieces queued for the writer before [`Pieces::put`] blocks, and maximum free buffers kept for reuse.
const WAITING: u64 = 8;
/// Bytes of the account's memory for each of them, and of a buffer that is kept.
const MEMORY: u64 = 2 << 20;

/// A store of decoded pieces.
#[derive(Debug)]
pub struct Pieces {
    shared: Arc<PiecesShared>,
    /// The next owner number.
    next: AtomicU64,
    /// One thread, which writes the file. Pieces that wait for it are given up with the store.
    writer: Pool,
}

/// Key of a piece: the owner's number and the piece number.
type OwnedKey = (u64, u64);

#[derive(Debug)]
struct PiecesShared {
    account: Account,
    is_on: bool,
    /// Whether each byte is read once, in order.
    reads_once: bool,
    /// Created for the first piece that does not fit in memory; `None` if that failed.
    file: OnceLock<Option<File>>,
    state: Mutex<PiecesState>,
    /// Signaled when a piece was written, or given up.
    written: Condvar,
}

#[derive(Debug, Default)]
struct PiecesState {
    pieces: HashMap<OwnedKey, Location>,
    /// Pieces queued for the writer.
    waiting: Vec<OwnedKey>,
    spare: Vec<Vec<u8>>,
    /// Where the next piece is written in the file.
    end: u64,
}

#[derive(Debug)]
enum Location {
    Memory {
        bytes: Arc<Vec<u8>>,
        /// Charged to memory; to disk if the piece is queued for the writer.
        charge: Charge,
    },
    File {
        at: u64,
        len: usize,
        _charge: Charge,
    },
}

impl Pieces {
    /// Creates a store that keeps pieces while `account` has room. Allocates nothing until the first piece is put.
    pub fn new(account: Account) -> Arc<Self> {
        Self::with(account, true, false)
    }

    /// Like [`Pieces::new`], for a reader that reads each byte once, in order.
    pub fn read_once(account: Account) -> Arc<Self> {
        Self::with(account, true, true)
    }

    /// Creates a store that keeps nothing.
    pub fn off() -> Arc<Self> {
        Self::with(Account::new(0, 0), false, false)
    }

    /// A store of the same kind and account, with nothing in it: for another container.
    #[must_use]
    pub fn renewed(&self) -> Arc<Self> {
        Self::with(self.shared.account.clone(), self.shared.is_on, self.shared.reads_once)
    }

    fn with(account: Account, is_on: bool, reads_once: bool) -> Arc<Self> {
        let (file, state, written) = (OnceLock::new(), Mutex::default(), Condvar::new());
        Arc::new(Self {
            shared: Arc::new(PiecesShared { account, is_on, reads_once, file, state, written }),
            next: AtomicU64::new(0),
            writer: Pool::new(1, "spill"),
        })
    }

    /// Allocates `count` consecutive owner numbers and returns the first.
    pub fn owners(&self, count: u64) -> u64 {
        self.next.fetch_add(count, Ordering::Relaxed)
    }

    /// Whether the store keeps pieces at all.
    pub fn is_on(&self) -> bool {
        self.shared.is_on
    }

    /// Whether each byte is read once, in order.
    pub fn reads_once(&self) -> bool {
        self.shared.reads_once
    }

    /// A buffer of `len` bytes with unspecified content, to be filled and passed to [`Pieces::put`].
    ///
    /// # Errors
    /// `ENOMEM` if the allocation fails.
    pub fn buffer(&self, len: usize) -> Result<Vec<u8>> {
        let spare = self.shared.lock().spare.pop();
        match spare.filter(|buffer| buffer.capacity() >= len) {
            Some(mut buffer) => {
                buffer.resize(len, 0);
                Ok(buffer)
            }
            None => zeroed(to_u64(len), "decoded piece"),
        }
    }

    /// Whether there are spare buffers with mapped memory.
    pub fn has_spare(&self) -> bool {
        !self.shared.lock().spare.is_empty()
    }

    /// Takes back a buffer that was not needed. One of over [`MEMORY`] bytes is freed.
    pub fn recycle(&self, buffer: Vec<u8>) {
        self.shared.lock().recycle(buffer, self.shared.waiting());
    }

    /// Keeps `bytes` as piece `piece` of `owner`; returns them if they are not kept. Blocks while the writer's queue is
    /// full.
    pub fn put(&self, owner: u64, piece: u64, bytes: Vec<u8>) -> Option<Vec<u8>> {
        if self.is_on() { self.shared.put((owner, piece), bytes, &self.writer) } else { Some(bytes) }
    }

    /// The memory budget of the store.
    pub fn memory(&self) -> &Budget {
        self.shared.account.memory()
    }

    /// Removes the pieces `pieces` of `owner` from memory, not from the file. Keeps buffers for reuse until there are
    /// `spare` free ones.
    pub fn forget(&self, owner: u64, pieces: Range<u64>, spare: usize) {
        let mut gone = Vec::new();
        let mut state = self.shared.lock();
        for piece in pieces {
            let key = (owner, piece);
            if matches!(state.pieces.get(&key), Some(Location::Memory { .. }))
                && !state.waiting.contains(&key)
                && let Some(Location::Memory { bytes, .. }) = state.pieces.remove(&key)
            {
                match Arc::try_unwrap(bytes) {
                    Ok(bytes) if state.spare.len() < spare => state.spare.push(bytes),
                    Ok(bytes) => gone.push(Arc::new(bytes)),
                    Err(shared) => gone.push(shared),
                }
            }
        }
        let excess = state.spare.len().min(spare.max(self.shared.waiting()));
        let excess = state.spare.split_off(excess);
        drop(state);
        drop((gone, excess));
    }

    /// Removes pieces of any owner from memory until that has `bytes` free. If all together are too few, none is removed;
    /// returns whether they suffice.
    pub fn shed(&self, bytes: u64) -> bool {
        let memory = self.memory();
        let missing = bytes.saturating_sub(memory.total().saturating_sub(memory.used()));
        let (mut gone, mut free) = (Vec::new(), 0_u64);
        let mut state = self.shared.lock();
        let PiecesState { pieces, waiting, .. } = &mut *state;
        let len_of = |key: &OwnedKey, place: &Location| match place {
            Location::Memory { bytes, .. } if !waiting.contains(key) => to_u64(bytes.len()),
            Location::Memory { .. } | Location::File { .. } => 0,
        };
        let suffices = pieces.iter().map(|(key, place)| len_of(key, place)).sum::<u64>() >= missing;
        if suffices {
            gone.extend(pieces.extract_if(|key, place| {
                let len = if free < missing { len_of(key, place) } else { 0 };
                free = free.saturating_add(len);
                len > 0
            }));
        }
        drop(state);
        drop(gone);
        suffices
    }

    /// Piece `piece` of `owner`, if it is in memory.
    pub fn in_memory(&self, owner: u64, piece: u64) -> Option<Arc<Vec<u8>>> {
        match self.shared.lock().pieces.get(&(owner, piece))? {
            Location::Memory { bytes, .. } => Some(Arc::clone(bytes)),
            Location::File { .. } => None,
        }
    }

    /// Whether piece `piece` of `owner` is kept with `len` bytes. Does not read.
    pub fn has(&self, owner: u64, piece: u64, len: usize) -> bool {
        let is_kept = |place: &Location| match place {
            Location::Memory { bytes, .. } => bytes.len() == len,
            Location::File { len: stored, .. } => *stored == len,
        };
        self.is_on() && self.shared.lock().pieces.get(&(owner, piece)).is_some_and(is_kept)
    }

    /// Fills `dst` with piece `piece` of `owner`. Returns `false` if the piece is not kept with that length.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn get(&self, owner: u64, piece: u64, dst: &mut [u8]) -> Result<bool> {
        if !self.is_on() {
            return Ok(false);
        }
        // Copy and read without holding the lock.
        let found = match self.shared.lock().pieces.get(&(owner, piece)) {
            None => return Ok(false),
            Some(Location::File { at, len, .. }) => Err((*at, *len)),
            Some(Location::Memory { bytes, .. }) => Ok(Arc::clone(bytes)),
        };
        let (at, len) = match found {
            Err(place) => place,
            Ok(bytes) if bytes.len() == dst.len() => {
                dst.copy_from_slice(&bytes);
                return Ok(true);
            }
            Ok(_) => return Ok(false),
        };
        let Some(file) = self.shared.file().filter(|_| len == dst.len()) else { return Ok(false) };
        file.read_exact_at(dst, at).map_err(|e| Error::io(e, "temporary file"))?;
        Ok(true)
    }
}

impl PiecesShared {
    fn lock(&self) -> MutexGuard<'_, PiecesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many pieces may be queued, and how many buffers free.
    fn waiting(&self) -> usize {
        let waiting = (self.account.memory().total() / MEMORY).clamp(1, WAITING);
        usize::try_from(waiting).unwrap_or(1)
    }

    fn file(&self) -> Option<&File> {
        let make = || {
            let dir = directory();
            match unnamed(&dir) {
                Ok(file) => Some(file),
                Err(e) => {
                    tracing::warn!("no temporary file in {}: {e}; decoded data is not kept there", dir.display());
                    None
                }
            }
        };
        self.file.get_or_init(make).as_ref()
    }

    fn put(self: &Arc<Self>, key: OwnedKey, bytes: Vec<u8>, writer: &Pool) -> Option<Vec<u8>> {
        let len = to_u64(bytes.len());
        if let Ok(charge) = self.account.memory().charge(len, "decoded pieces") {
            let place = Location::Memory { bytes: Arc::new(bytes), charge };
            self.lock().pieces.entry(key).or_insert(place);
            return None;
        }
        let Ok(charge) = self.account.disk().charge(len, "decoded pieces") else { return Some(bytes) };
        if self.file().is_none() {
            return Some(bytes);
        }
        let mut state = self.lock();
        while state.waiting.len() >= self.waiting() {
            state = self.written.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.pieces.contains_key(&key) {
            return Some(bytes);
        }
        let bytes = Arc::new(bytes);
        state.pieces.insert(key, Location::Memory { bytes: Arc::clone(&bytes), charge });
        state.waiting.push(key);
        drop(state);
        let writing = Writing { shared: Arc::clone(self), key, bytes: Arc::clone(&bytes), at: None };
        if writer.hint(Box::new(move || writing.run())) {
            return None;
        }
        // Without a thread it is not kept.
        Some(Arc::unwrap_or_clone(bytes))
    }
}

/// A piece that is queued for the writer, or being written; if it is dropped before that is done, the piece is not kept.
struct Writing {
    shared: Arc<PiecesShared>,
    key: OwnedKey,
    bytes: Arc<Vec<u8>>,
    /// Where it is in the file.
    at: Option<u64>,
}

impl Writing {
    fn run(mut self) {
        let Some(file) = self.shared.file() else { return };
        let mut state = self.shared.lock();
        let at = state.end;
        state.end = at.saturating_add(to_u64(self.bytes.len()));
        drop(state);
        match file.write_all_at(&self.bytes, at) {
            Ok(()) => self.at = Some(at),
            Err(e) => tracing::warn!("temporary file: {e}"),
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut state = self.shared.lock();
        state.waiting.retain(|key| *key != self.key);
        if let Some(Location::Memory { charge, .. }) = state.pieces.remove(&self.key)
            && let Some(at) = self.at
        {
            state.pieces.insert(self.key, Location::File { at, len: bytes.len(), _charge: charge });
        }
        if let Some(bytes) = Arc::into_inner(bytes) {
            state.recycle(bytes, self.shared.waiting());
        }
        drop(state);
        self.shared.written.notify_all();
    }
}

impl PiecesState {
    fn recycle(&mut self, bytes: Vec<u8>, most: usize) {
        if self.spare.len() < most && to_u64(bytes.capacity()) <= MEMORY {
            self.spare.push(bytes);
        }
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../../tests/models/pieces.rs"]
mod models;

#[cfg(test)]
mod tests;
