//! The contents of the cache within a byte budget: the pieces in their queues, spare buffers, recent failures, and
//! which pieces are prefetched. The owner guards it with one lock.
//!
//! A decode reserves its bytes first. Reserving evicts pieces, and the buffer of an evicted piece, already mapped, is
//! reused for the new one or kept as a spare.
//!
//! Invariant: after a call that reports completion, the bytes held and spare are within the current budget, and so are
//! they plus the bytes reserved, unless the reserved bytes alone exceed it.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::bytes::to_u64;
use crate::clock::Clock;
use crate::error::Error;
use crate::format::{Piece, PieceKey};
use crate::recent::Recent;

use super::queues::{FRESH, LEAST, QueueStep, Queues, ReadOrder, Slot};
use super::spare::Spare;

/// How long a failure is remembered: the kernel retries a page right after its readahead failed.
const REMEMBER: Duration = Duration::from_secs(1);
/// Maximum number of remembered failures.
const FAILURES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);
/// Maximum number of steps of eviction per lock acquisition.
const SWEEP: usize = 32;
/// The number of decodes between a file that is read whole and the one after it: readers take several at once.
const TOGETHER: u64 = 32;
/// Maximum number of pieces evicted for one decode because the ring is too large.
const TRIMMED: usize = 2;

/// Counters of the cache since it was created, and its current size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requested pieces that were present.
    pub hits: u64,
    /// Requested pieces that were missing.
    pub misses: u64,
    /// Pieces that were decoded, including failures.
    pub decodes: u64,
    /// Bytes of the pieces that were decoded without failure, and of those that containers have decoded on their own.
    pub decoded_bytes: u64,
    /// Of the pieces that were decoded, the prefetched ones.
    pub ahead: u64,
    /// Of these, the ones that failed.
    pub failures: u64,
    /// Bytes held now.
    pub held: u64,
    /// Bytes that other users of the same memory hold.
    pub beside: u64,
    /// Bytes of buffers that wait for another piece.
    pub spare: u64,
    /// The most bytes held and spare at any one time.
    pub peak: u64,
    /// Pieces held now.
    pub pieces: u64,
}

/// The buffer for one decode, and the memory to be dropped without the lock.
#[derive(Default)]
pub(super) struct DecodeRoom {
    /// The size of the buffer needed; 0 for none.
    len: u64,
    /// A buffer that fits.
    pub(super) buffer: Option<Vec<u8>>,
    /// Pieces evicted for the size of the ring alone.
    trimmed: usize,
    /// The piece is inserted; only room is still to be made.
    kept: bool,
    gone: (Vec<Piece>, Vec<Vec<u8>>),
}

impl DecodeRoom {
    pub(super) fn new(len: u64) -> Self {
        Self { len, ..Self::default() }
    }

    /// Frees memory. Call it without the lock.
    pub(super) fn sweep(&mut self) {
        self.gone = (Vec::new(), Vec::new());
    }
}

/// A prefetched piece.
struct Mark {
    bytes: u64,
    since: Instant,
    order: ReadOrder,
    /// It is requested, and its decode not finished.
    requested: bool,
}

pub(super) struct Store {
    /// Maximum bytes held.
    most: u64,
    /// Maximum bytes held, together with the bytes of `beside`.
    total: u64,
    /// Charged by other users of the same memory.
    beside: Account,
    pub(super) clock: Clock,
    queues: Queues,
    spare: Spare,
    /// Bytes reserved for pieces that are being decoded.
    reserved: u64,
    failures: Recent<PieceKey, (Instant, Error)>,
    /// Prefetched pieces that were not used or not decoded yet.
    prefetched: HashMap<PieceKey, Mark>,
    /// Bytes of prefetched pieces that were neither requested nor left unused for long.
    prefetched_bytes: u64,
    /// Incremented by each clear; a decode started in an earlier epoch is not kept.
    pub(super) epoch: u64,
    pub(super) stats: Stats,
}

impl Store {
    pub(super) fn new(most: u64, total: u64, beside: Account) -> Self {
        Self {
            most,
            total,
            beside,
            clock: Clock::default(),
            queues: Queues::new(),
            spare: Spare::default(),
            reserved: 0,
            failures: Recent::new(FAILURES),
            prefetched: HashMap::new(),
            prefetched_bytes: 0,
            epoch: 0,
            stats: Stats::default(),
        }
    }

    /// The current budget: the bytes that `beside` leaves, but at least a quarter of the maximum.
    fn budget(&self) -> u64 {
        self.total.saturating_sub(self.beside.memory().used()).min(self.most).max(self.most / 4)
    }

    /// Returns the piece for a request.
    pub(super) fn find(&mut self, key: PieceKey) -> Option<Piece> {
        let (piece, first) = self.queues.find(key)?;
        self.stats.hits += 1;
        if first {
            self.clear_prefetched(key);
        }
        Some(piece)
    }

    /// Whether the piece is present; does not count as a use.
    pub(super) fn holds(&self, key: PieceKey) -> bool {
        self.queues.holds(key)
    }

    /// The error of the piece, if it failed within the last second.
    pub(super) fn failure(&mut self, key: PieceKey) -> Option<Error> {
        let (since, error) = self.failures.get(&key)?;
        if self.clock.now().saturating_duration_since(since) < REMEMBER {
            return Some(error);
        }
        self.failures.remove(&key);
        None
    }

    /// Records that the piece could not be decoded.
    pub(super) fn fail(&mut self, key: PieceKey, error: Error) {
        self.stats.failures += 1;
        self.clear_prefetched(key);
        self.failures.put(key, (self.clock.now(), error));
    }

    /// Reserves `len` bytes for a piece about to be decoded.
    pub(super) fn reserve(&mut self, len: u64) {
        self.reserved = self.reserved.saturating_add(len);
    }

    /// Evicts pieces for a decode that has its bytes reserved, and finds it a buffer if one is at hand. On `false`,
    /// sweep `room` without the lock and call again.
    pub(super) fn make_room(&mut self, room: &mut DecodeRoom) -> bool {
        if room.len > self.budget() {
            return true;
        }
        if room.buffer.is_none() {
            room.buffer = self.spare.take(room.len);
        }
        let now = self.clock.now();
        // The ring returns to its size slowly, so that each buffer serves a decode.
        while room.trimmed < TRIMMED {
            let QueueStep::Evicted(key, slot) = self.queues.trim(self.budget(), room.len, now) else { break };
            room.trimmed += 1;
            self.evicted(key, slot, true, room);
        }
        self.shrink(room)
    }

    /// Releases `len` reserved bytes.
    pub(super) fn release(&mut self, len: u64) {
        self.reserved = self.reserved.saturating_sub(len);
    }

    /// Inserts `piece`, unless it is larger than the budget; `follows` if the piece before it is being decoded. On
    /// `false`, sweep `room` without the lock and call again.
    pub(super) fn keep(&mut self, key: PieceKey, piece: &Piece, follows: bool, room: &mut DecodeRoom) -> bool {
        if std::mem::replace(&mut room.kept, true) {
            return self.shrink(room);
        }
        let (bytes, budget) = (to_u64(piece.capacity()), self.budget());
        if bytes > budget {
            self.clear_prefetched(key);
            return true;
        }
        let mark = self.prefetched.get(&key).map(|mark| (mark.requested, mark.order));
        let order = if follows { ReadOrder::Sequential } else { ReadOrder::Unknown };
        let (is_ahead, order) = mark.map_or((false, order), |(requested, order)| (!requested, order));
        if !is_ahead {
            self.clear_prefetched(key);
        }
        room.gone.0.extend(self.queues.insert(key, piece, is_ahead, order, budget, self.clock.now()));
        self.shrink(room)
    }

    /// Evicts pieces until the bytes held, spare and reserved fit the budget, in at most `SWEEP` steps. Returns whether
    /// it has finished.
    fn shrink(&mut self, room: &mut DecodeRoom) -> bool {
        let (budget, now) = (self.budget(), self.clock.now());
        for _ in 0..SWEEP {
            let free = budget.saturating_sub(self.reserved);
            if self.queues.bytes().saturating_add(self.spare.bytes()) > free
                && let Some(buffer) = self.spare.drop_one()
            {
                room.gone.1.push(buffer);
                continue;
            }
            match self.queues.shrink(budget, free, now) {
                QueueStep::Done => {
                    self.queues.limit_ghosts(budget);
                    self.stats.peak = self.stats.peak.max(self.queues.bytes() + self.spare.bytes());
                    return true;
                }
                QueueStep::Moved => {}
                QueueStep::Evicted(key, slot) => self.evicted(key, slot, false, room),
            }
        }
        false
    }

    /// Takes the buffer of an evicted piece: for the decode that needs one, as a spare if there is room, or to free it.
    fn evicted(&mut self, key: PieceKey, slot: Slot, spare: bool, room: &mut DecodeRoom) {
        if slot.ahead {
            self.clear_prefetched(key);
        }
        // If a reader still holds the piece, its buffer cannot be reused.
        match Arc::try_unwrap(slot.piece) {
            Ok(buffer) if room.buffer.is_none() && Spare::fits(&buffer, room.len) => room.buffer = Some(buffer),
            Ok(buffer) if spare => self.spare.keep(buffer, &mut room.gone.1),
            Ok(buffer) => room.gone.1.push(buffer),
            Err(piece) => room.gone.0.push(piece),
        }
    }

    /// Counts `bytes` as prefetched. Refuses if the piece is known, or if unused prefetched pieces would exceed half of
    /// the budget.
    pub(super) fn mark_prefetched(&mut self, key: PieceKey, bytes: u64, order: ReadOrder) -> bool {
        if self.holds(key) || self.prefetched.contains_key(&key) || self.failures.contains(&key) {
            return false;
        }
        let (bytes, half, now) = (bytes.max(LEAST), self.budget() / 2, self.clock.now());
        if self.prefetched_bytes.saturating_add(bytes) > half {
            // Stale entries, for a reader that went elsewhere, no longer count.
            let Self { prefetched, prefetched_bytes, .. } = self;
            prefetched.retain(|_, mark| {
                let keep = mark.requested || now.saturating_duration_since(mark.since) < FRESH;
                if !keep {
                    *prefetched_bytes -= mark.bytes;
                }
                keep
            });
        }
        if self.prefetched_bytes.saturating_add(bytes) > half {
            return false;
        }
        self.prefetched.insert(key, Mark { bytes, since: now, order, requested: false });
        self.prefetched_bytes += bytes;
        true
    }

    /// Whether the piece was prefetched and neither requested nor evicted since.
    pub(super) fn is_prefetched(&self, key: PieceKey) -> bool {
        self.prefetched.get(&key).is_some_and(|mark| !mark.requested)
    }

    /// The order in which a file of `pieces` is read as one of many: sequential if two pieces before it, or after it,
    /// were read so, are prefetched or were decoded lately. One is not enough: a window that crosses a border takes
    /// two.
    pub(super) fn order_of_whole(&self, blob: u64, pieces: &RangeInclusive<u64>) -> ReadOrder {
        let passes =
            |piece| self.prefetched.contains_key(&(blob, piece)) || self.queues.passes((blob, piece), TOGETHER);
        let step = (pieces.end() - pieces.start()).saturating_add(1);
        let before = [1, step.saturating_add(1)].map(|by| pieces.start().checked_sub(by));
        // Some readers begin at the end.
        let after = [1, step.saturating_add(1)].map(|by| pieces.end().checked_add(by));
        let is_in_order = before.into_iter().all(|piece| piece.is_none_or(passes))
            || after.into_iter().all(|piece| piece.is_some_and(passes));
        if is_in_order { ReadOrder::Sequential } else { ReadOrder::Random }
    }

    /// Stops counting the piece as prefetched: it is requested, and its decode is not finished.
    pub(super) fn request_prefetched(&mut self, key: PieceKey) {
        if let Some(mark) = self.prefetched.get_mut(&key).filter(|mark| !mark.requested) {
            mark.requested = true;
            self.prefetched_bytes -= mark.bytes;
        }
    }

    /// Forgets that the piece was prefetched.
    pub(super) fn clear_prefetched(&mut self, key: PieceKey) {
        if self.prefetched.is_empty() {
            return;
        }
        if let Some(mark) = self.prefetched.remove(&key).filter(|mark| !mark.requested) {
            self.prefetched_bytes -= mark.bytes;
        }
    }

    /// Removes everything, including failures. Returns what the caller must drop without the lock.
    pub(super) fn clear(&mut self) -> impl Sized + use<> {
        self.epoch += 1;
        self.prefetched_bytes = 0;
        self.prefetched.clear();
        self.failures.clear();
        (std::mem::replace(&mut self.queues, Queues::new()), std::mem::take(&mut self.spare))
    }

    /// The counters and the current size.
    pub(super) fn stats(&self) -> Stats {
        let (held, pieces) = (self.queues.bytes(), to_u64(self.queues.len()));
        let decoded_bytes = self.stats.decoded_bytes.saturating_add_signed(self.beside.decoded_beside());
        let beside = self.beside.memory().used();
        Stats { decoded_bytes, held, pieces, beside, spare: self.spare.bytes(), ..self.stats }
    }

    /// The number of evicted pieces that are remembered.
    #[cfg(test)]
    pub(super) fn ghosts(&self) -> usize {
        self.queues.ghosts()
    }
}
