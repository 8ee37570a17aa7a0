//! What the cache holds, behind one lock: pieces by age within a budget of bytes, failures of the
//! last second, and which pieces were fetched ahead and not used yet.
//!
//! A decode sets its bytes aside first: old pieces make room then, and the buffer of one of
//! them, warm and mapped already, becomes the new piece's.
//!
//! Invariant: pieces held are at most the budget of that moment after each call that says it is done, and together
//! with the bytes set aside unless those alone are more.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::bytes::to_u64;
use crate::error::Error;
use crate::format::Piece;
use crate::limits::Budget;

/// A blob's number and a piece of it.
pub(super) type Key = (u64, u64);

/// How long a failure is remembered: the kernel asks again for a page right after its readahead failed.
const REMEMBER: Duration = Duration::from_secs(1);
/// How long a piece fetched ahead counts as about to be used.
const FRESH: Duration = Duration::from_secs(2);
/// Failures that are remembered.
const FAILURES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);
/// Pieces that are given up at a time under the lock.
const SWEEP: usize = 32;

/// What the cache has done and holds, counted since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Pieces that were asked for and there.
    pub hits: u64,
    /// Pieces that were asked for and not there.
    pub misses: u64,
    /// Pieces that were decoded, or failed to.
    pub decodes: u64,
    /// Of these, how many ahead of being asked for.
    pub ahead: u64,
    /// Of these, how many failed.
    pub failures: u64,
    /// Bytes held now.
    pub held: u64,
    /// The most bytes that were held.
    pub peak: u64,
    /// Pieces held now.
    pub pieces: u64,
}

/// A piece that is held.
struct Slot {
    piece: Piece,
    /// Fetched ahead and not asked for yet.
    ahead: bool,
}

/// What making room came to.
pub(super) enum Eviction {
    /// It is there, with a buffer if an old one fits.
    Made(Option<Vec<u8>>),
    /// Not all of it: to be called again after the lock was given up.
    NotYet,
}

pub(super) struct Store {
    /// The most bytes that may be held where others take none.
    most: u64,
    /// What others take of the same memory.
    beside: Budget,
    pieces: LruCache<Key, Slot>,
    /// Bytes of `pieces`, as allocated.
    bytes: u64,
    /// Bytes set aside for pieces that are being decoded.
    reserved: u64,
    failures: LruCache<Key, (Instant, Error)>,
    /// Hinted and not used yet: their bytes, and since when.
    hinted: HashMap<Key, (u64, Instant)>,
    hinted_bytes: u64,
    /// Counts the times that everything was forgotten: what was begun before is not kept after.
    pub(super) epoch: u64,
    pub(super) stats: Stats,
}

impl Store {
    pub(super) fn new(most: u64, beside: Budget) -> Self {
        Self {
            most,
            beside,
            pieces: LruCache::unbounded(),
            bytes: 0,
            reserved: 0,
            failures: LruCache::new(FAILURES),
            hinted: HashMap::new(),
            hinted_bytes: 0,
            epoch: 0,
            stats: Stats::default(),
        }
    }

    /// Bytes that may be held now: what others leave, and a quarter in any case.
    fn budget(&self) -> u64 {
        self.most.saturating_sub(self.beside.used()).max(self.most / 4)
    }

    /// The piece, which becomes the youngest.
    pub(super) fn find(&mut self, key: Key) -> Option<Piece> {
        let slot = self.pieces.get_mut(&key)?;
        self.stats.hits += 1;
        let piece = slot.piece.clone();
        if std::mem::take(&mut slot.ahead) {
            self.used(key);
        }
        Some(piece)
    }

    /// Whether the piece is held; it does not become younger.
    pub(super) fn holds(&self, key: Key) -> bool {
        self.pieces.contains(&key)
    }

    /// The failure of the piece, if it was within the last second.
    pub(super) fn failure(&mut self, key: Key) -> Option<Error> {
        let (since, error) = self.failures.peek(&key)?;
        if since.elapsed() < REMEMBER {
            return Some(error.clone());
        }
        self.failures.pop(&key);
        None
    }

    /// Remembers that the piece could not be decoded.
    pub(super) fn fail(&mut self, key: Key, error: Error) {
        self.stats.failures += 1;
        self.used(key);
        self.failures.put(key, (Instant::now(), error));
    }

    /// Sets `len` bytes aside for a piece about to be decoded.
    pub(super) fn reserve(&mut self, len: u64) {
        self.reserved = self.reserved.saturating_add(len);
    }

    /// Gives up old pieces for `len` bytes that were set aside: the first one that fits is the buffer,
    /// the rest go to `gone`, to be dropped without the lock.
    pub(super) fn make_room_for(&mut self, len: u64, gone: &mut Vec<Piece>) -> Eviction {
        if len > self.budget() {
            return Eviction::Made(None);
        }
        let done = self.make_room(gone);
        let fits = |piece: &Piece| (len..=len.saturating_mul(2)).contains(&to_u64(piece.capacity()));
        while let Some(i) = gone.iter().position(fits) {
            // A reader may hold on to it still; then it is not ours to write to.
            if let Ok(buffer) = Arc::try_unwrap(gone.swap_remove(i)) {
                return Eviction::Made(Some(buffer));
            }
        }
        if done { Eviction::Made(None) } else { Eviction::NotYet }
    }

    /// The `len` bytes set aside are not needed any more.
    pub(super) fn release(&mut self, len: u64) {
        self.reserved = self.reserved.saturating_sub(len);
    }

    /// Keeps `piece`, unless it is larger than the budget. `false` asks for another call after
    /// the lock was given up and what is in `gone` dropped.
    pub(super) fn keep(&mut self, key: Key, piece: &Piece, gone: &mut Vec<Piece>) -> bool {
        let bytes = to_u64(piece.capacity());
        if bytes > self.budget() {
            self.used(key);
            return true;
        }
        let ahead = self.hinted.contains_key(&key);
        if let Some(old) = self.pieces.put(key, Slot { piece: piece.clone(), ahead }) {
            self.bytes -= to_u64(old.piece.capacity());
            gone.push(old.piece);
        }
        self.bytes += bytes;
        let done = self.make_room(gone);
        self.stats.peak = self.stats.peak.max(self.bytes);
        done
    }

    /// Gives up the oldest pieces until what is held and set aside is within the budget, but only
    /// some at a time; says whether that is so.
    fn make_room(&mut self, gone: &mut Vec<Piece>) -> bool {
        let budget = self.budget();
        for _ in 0..SWEEP {
            if self.bytes.saturating_add(self.reserved) <= budget {
                return true;
            }
            let Some((key, slot)) = self.pieces.pop_lru() else { return true };
            self.bytes -= to_u64(slot.piece.capacity());
            if slot.ahead {
                self.used(key);
            }
            gone.push(slot.piece);
        }
        false
    }

    /// Counts `bytes` as fetched ahead, unless that is known or more than half the budget waits to be used.
    pub(super) fn mark_prefetched(&mut self, key: Key, bytes: u64) -> bool {
        if self.holds(key) || self.hinted.contains_key(&key) || self.failures.contains(&key) {
            return false;
        }
        let half = self.budget() / 2;
        if self.hinted_bytes.saturating_add(bytes) > half {
            // What was fetched ahead long ago for a reader that went elsewhere no longer counts.
            let Self { hinted, hinted_bytes, .. } = self;
            hinted.retain(|_, (bytes, since)| {
                let fresh = since.elapsed() < FRESH;
                if !fresh {
                    *hinted_bytes -= *bytes;
                }
                fresh
            });
        }
        if self.hinted_bytes.saturating_add(bytes) > half {
            return false;
        }
        self.hinted.insert(key, (bytes, Instant::now()));
        self.hinted_bytes += bytes;
        true
    }

    /// Whether the piece was hinted and nobody has asked for it or given it up since.
    pub(super) fn is_prefetched(&self, key: Key) -> bool {
        self.hinted.contains_key(&key)
    }

    /// The piece no longer counts as fetched ahead.
    pub(super) fn used(&mut self, key: Key) {
        if self.hinted.is_empty() {
            return;
        }
        if let Some((bytes, _)) = self.hinted.remove(&key) {
            self.hinted_bytes -= bytes;
        }
    }

    /// Forgets everything, failures too; gives what is to be dropped without the lock.
    pub(super) fn clear(&mut self) -> impl Sized + use<> {
        self.epoch += 1;
        (self.bytes, self.hinted_bytes) = (0, 0);
        self.hinted.clear();
        self.failures.clear();
        std::mem::replace(&mut self.pieces, LruCache::unbounded())
    }

    /// What it has done and holds.
    pub(super) fn stats(&self) -> Stats {
        Stats { held: self.bytes, pieces: to_u64(self.pieces.len()), ..self.stats }
    }
}
