//! The contents of the cache: pieces in LRU order within a byte budget, recent failures, and prefetched pieces that
//! were not used yet. The owner guards it with one lock.
//!
//! A decode reserves its bytes first. Reserving evicts old pieces, and the buffer of an evicted piece, already mapped,
//! is reused for the new one.
//!
//! Invariant: after a call that reports completion, the bytes held are within the current budget, and so are the bytes
//! held plus the bytes reserved, unless the reserved bytes alone exceed it.
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

/// A blob's id and a piece number.
pub(super) type Key = (u64, u64);

/// How long a failure is remembered: the kernel retries a page right after its readahead failed.
const REMEMBER: Duration = Duration::from_secs(1);
/// How long an unused prefetched piece counts against the prefetch limit.
const FRESH: Duration = Duration::from_secs(2);
/// Maximum number of remembered failures.
const FAILURES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);
/// Maximum number of pieces evicted per lock acquisition.
const SWEEP: usize = 32;

/// Counters of the cache since it was created, and its current size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requested pieces that were present.
    pub hits: u64,
    /// Requested pieces that were missing.
    pub misses: u64,
    /// Pieces that were decoded, including failures.
    pub decodes: u64,
    /// Of these, the prefetched ones.
    pub ahead: u64,
    /// Of these, the ones that failed.
    pub failures: u64,
    /// Bytes held now.
    pub held: u64,
    /// The most bytes held at any one time.
    pub peak: u64,
    /// Pieces held now.
    pub pieces: u64,
}

/// A piece in the cache.
struct Slot {
    piece: Piece,
    /// Prefetched and not requested yet.
    ahead: bool,
}

/// Result of an attempt to make room.
pub(super) enum Eviction {
    /// Done; with the buffer of an evicted piece if one fits.
    Made(Option<Vec<u8>>),
    /// Not finished: call again after releasing the lock.
    NotYet,
}

pub(super) struct Lru {
    /// Maximum bytes held if `other_users` is unused.
    most: u64,
    /// Budget of other users of the same memory.
    other_users: Budget,
    pieces: LruCache<Key, Slot>,
    /// Allocated bytes of `pieces`.
    bytes: u64,
    /// Bytes reserved for pieces that are being decoded.
    reserved: u64,
    failures: LruCache<Key, (Instant, Error)>,
    /// Prefetched pieces that were not used yet: their size, and since when.
    prefetched: HashMap<Key, (u64, Instant)>,
    prefetched_bytes: u64,
    /// Incremented by each clear; a decode started in an earlier epoch is not kept.
    pub(super) epoch: u64,
    pub(super) stats: Stats,
}

impl Lru {
    pub(super) fn new(most: u64, other_users: Budget) -> Self {
        Self {
            most,
            other_users,
            pieces: LruCache::unbounded(),
            bytes: 0,
            reserved: 0,
            failures: LruCache::new(FAILURES),
            prefetched: HashMap::new(),
            prefetched_bytes: 0,
            epoch: 0,
            stats: Stats::default(),
        }
    }

    /// The current budget: what `other_users` leaves, but at least a quarter of the maximum.
    fn budget(&self) -> u64 {
        self.most.saturating_sub(self.other_users.used()).max(self.most / 4)
    }

    /// Returns the piece and makes it the most recently used.
    pub(super) fn find(&mut self, key: Key) -> Option<Piece> {
        let slot = self.pieces.get_mut(&key)?;
        self.stats.hits += 1;
        let piece = slot.piece.clone();
        if std::mem::take(&mut slot.ahead) {
            self.clear_prefetched(key);
        }
        Some(piece)
    }

    /// Whether the piece is present; does not change the LRU order.
    pub(super) fn holds(&self, key: Key) -> bool {
        self.pieces.contains(&key)
    }

    /// The error of the piece, if it failed within the last second.
    pub(super) fn failure(&mut self, key: Key) -> Option<Error> {
        let (since, error) = self.failures.peek(&key)?;
        if since.elapsed() < REMEMBER {
            return Some(error.clone());
        }
        self.failures.pop(&key);
        None
    }

    /// Records that the piece could not be decoded.
    pub(super) fn fail(&mut self, key: Key, error: Error) {
        self.stats.failures += 1;
        self.clear_prefetched(key);
        self.failures.put(key, (Instant::now(), error));
    }

    /// Reserves `len` bytes for a piece about to be decoded.
    pub(super) fn reserve(&mut self, len: u64) {
        self.reserved = self.reserved.saturating_add(len);
    }

    /// Evicts old pieces for `len` reserved bytes. The first evicted piece of a fitting size becomes the buffer; the
    /// others go to `gone`, to be dropped without the lock.
    pub(super) fn make_room_for(&mut self, len: u64, gone: &mut Vec<Piece>) -> Eviction {
        if len > self.budget() {
            return Eviction::Made(None);
        }
        let done = self.make_room(gone);
        let fits = |piece: &Piece| (len..=len.saturating_mul(2)).contains(&to_u64(piece.capacity()));
        while let Some(i) = gone.iter().position(fits) {
            // If a reader still holds the piece, its buffer cannot be reused.
            if let Ok(buffer) = Arc::try_unwrap(gone.swap_remove(i)) {
                return Eviction::Made(Some(buffer));
            }
        }
        if done { Eviction::Made(None) } else { Eviction::NotYet }
    }

    /// Releases `len` reserved bytes.
    pub(super) fn release(&mut self, len: u64) {
        self.reserved = self.reserved.saturating_sub(len);
    }

    /// Inserts `piece`, unless it is larger than the budget. On `false`, drop `gone` without the lock and call again.
    pub(super) fn keep(&mut self, key: Key, piece: &Piece, gone: &mut Vec<Piece>) -> bool {
        let bytes = to_u64(piece.capacity());
        if bytes > self.budget() {
            self.clear_prefetched(key);
            return true;
        }
        let ahead = self.prefetched.contains_key(&key);
        if let Some(old) = self.pieces.put(key, Slot { piece: piece.clone(), ahead }) {
            self.bytes -= to_u64(old.piece.capacity());
            gone.push(old.piece);
        }
        self.bytes += bytes;
        let done = self.make_room(gone);
        self.stats.peak = self.stats.peak.max(self.bytes);
        done
    }

    /// Evicts the oldest pieces until held plus reserved bytes fit the budget, at most `SWEEP` per call. Returns
    /// whether it has finished.
    fn make_room(&mut self, gone: &mut Vec<Piece>) -> bool {
        let budget = self.budget();
        for _ in 0..SWEEP {
            if self.bytes.saturating_add(self.reserved) <= budget {
                return true;
            }
            let Some((key, slot)) = self.pieces.pop_lru() else { return true };
            self.bytes -= to_u64(slot.piece.capacity());
            if slot.ahead {
                self.clear_prefetched(key);
            }
            gone.push(slot.piece);
        }
        false
    }

    /// Counts `bytes` as prefetched. Refuses if the piece is known, or if unused prefetched pieces would exceed half of
    /// the budget.
    pub(super) fn mark_prefetched(&mut self, key: Key, bytes: u64) -> bool {
        if self.holds(key) || self.prefetched.contains_key(&key) || self.failures.contains(&key) {
            return false;
        }
        let half = self.budget() / 2;
        if self.prefetched_bytes.saturating_add(bytes) > half {
            // Stale entries, for a reader that went elsewhere, no longer count.
            let Self { prefetched, prefetched_bytes, .. } = self;
            prefetched.retain(|_, (bytes, since)| {
                let fresh = since.elapsed() < FRESH;
                if !fresh {
                    *prefetched_bytes -= *bytes;
                }
                fresh
            });
        }
        if self.prefetched_bytes.saturating_add(bytes) > half {
            return false;
        }
        self.prefetched.insert(key, (bytes, Instant::now()));
        self.prefetched_bytes += bytes;
        true
    }

    /// Whether the piece was prefetched and neither requested nor evicted since.
    pub(super) fn is_prefetched(&self, key: Key) -> bool {
        self.prefetched.contains_key(&key)
    }

    /// Stops counting the piece as prefetched.
    pub(super) fn clear_prefetched(&mut self, key: Key) {
        if self.prefetched.is_empty() {
            return;
        }
        if let Some((bytes, _)) = self.prefetched.remove(&key) {
            self.prefetched_bytes -= bytes;
        }
    }

    /// Removes everything, including failures. Returns what the caller must drop without the lock.
    pub(super) fn clear(&mut self) -> impl Sized + use<> {
        self.epoch += 1;
        (self.bytes, self.prefetched_bytes) = (0, 0);
        self.prefetched.clear();
        self.failures.clear();
        std::mem::replace(&mut self.pieces, LruCache::unbounded())
    }

    /// The counters and the current size.
    pub(super) fn stats(&self) -> Stats {
        Stats { held: self.bytes, pieces: to_u64(self.pieces.len()), ..self.stats }
    }
}
