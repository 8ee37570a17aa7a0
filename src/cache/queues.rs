//! Which pieces stay in memory: those read once in order pass through a small ring; those read again stay.
//!
//! - `ahead`: pieces that were decoded before their first request.
//! - `ring`: pieces read in order, from their first request on; first in, first out; with `ahead` about [`RING`] bytes.
//!   A hit here changes nothing: a reader takes a piece in several requests, and two readers may follow each other
//!   closely.
//! - `recent` and `main`: S3-FIFO over the rest of the budget. A piece read out of order, prefetched or not, enters
//!   `recent`; if it is used again before it leaves, it moves to `main`, where used pieces get up to three more rounds.
//!   Uses that follow the decode, or each other, within [`CORRELATED`] decodes count as one.
//! - `ghosts`: keys of evicted pieces, for at most a budget's worth of bytes. A piece decoded again enters `main`.
//!
//! A view of an N-dimensional array returns to the pieces of a row of chunks once per row of elements. If such reuse is
//! seen just behind the end of the ring, the ring grows, at most to three quarters of the budget and beyond [`WIDE`]
//! only where memory is free, and shrinks slowly when it is no longer seen.
//!
//! A budget of 256 MiB, pieces of 1 MiB, and a view that returns to each piece after 40 MiB: at first the ring has its
//! usual size of 16 MiB, and each piece is decoded again. Each return that a ghost reports adds two pieces to the
//! wanted size, from 8 MiB on, up to 50 MiB, 40 and a quarter. Now the ring reaches over 40 MiB. Up to 64 MiB (its
//! share) other pieces give way to it, up to 192 MiB it takes what is free.
//!
//! Decodes for some traces, with a budget of 256 pieces of 1 MiB (in parentheses the most MiB held). 2Q means an LRU
//! list as `main` and no moves from `recent`, otherwise the same:
//!
//! | trace | LRU | 2Q with ring | S3-FIFO with ring |
//! |---|---|---|---|
//! | one pass over 1024 pieces; two interleaved scans of 512 | 1024 (256) | 1024 (16) | 1024 (16) |
//! | 20,000 random reads of 1024 pieces, Zipf | 5410 (256) | 5250 (256) | 4695 (256) |
//! | one pass over 1024 with 2048 reads of 100 hot pieces | 1188 (256) | 1125 (116) | 1125 (116) |
//! | 4000 Zipf reads of 200, one pass over 1024, again 4000 | 1419 (256) | 1228 (213) | 1228 (213) |
//! | 200 pieces, read in order twice or three times | 200 (200) | 385 (200) | 385 (200) |
//! | 10 rows of 60 chunks, each row read 16 times | 600 (256) | 676 (149) | 676 (149) |
//!
//! S3-FIFO needs a tenth fewer decodes for random reads, and a hit does not reorder a list. The last two rows show the
//! price of the ring: a second pass decodes again, a third does not, and the first row of chunks shows its width.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use crate::bytes::to_u64;
use crate::format::{Piece, PieceKey};
use crate::lru_list::LruList;

/// Bytes for sequential readers: the ring and their prefetched pieces, unless one of them needs more.
pub(super) const RING: u64 = 16 << 20;
/// The size up to which reuse enlarges the ring at the cost of `recent` and `main`.
const WIDE: u64 = 64 << 20;
/// The ring and `ahead` have at least this many pieces before one is evicted for their size alone.
const FEW: usize = 2;
/// The number of decodes within which further uses of a piece count as one.
const CORRELATED: u64 = 8;
/// Maximum number of uses counted, that is of further rounds in `main`.
const USES: u8 = 3;
/// Maximum number of ghosts.
pub(super) const GHOSTS: NonZeroUsize = NonZeroUsize::MIN.saturating_add((32 << 10) - 1);
/// A prefetched piece unused for this long may be evicted first if memory is needed.
pub(super) const FRESH: Duration = Duration::from_secs(2);
/// A prefetched piece unused for this long was left behind by a reader that went elsewhere.
pub(super) const ABANDONED: Duration = Duration::from_secs(10);

/// The least that a piece counts for, since its entry takes memory too.
pub(super) const LEAST: u64 = 512;

/// How a piece is read, as far as its reader knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadOrder {
    /// After the piece before it.
    Sequential,
    /// Alone, by a reader that jumps.
    Random,
    /// To be inferred from the piece before it.
    Unknown,
}

/// A piece in memory.
pub(super) struct Slot {
    pub(super) piece: Piece,
    /// Prefetched and not requested yet.
    pub(super) ahead: bool,
    /// Prefetched for a reader that jumps.
    is_random: bool,
    since: Instant,
    /// The position in the ring: the value of [`Queues::passed`] on entry.
    entered: u64,
    /// Uses counted, and the value of [`Queues::decodes`] at the last one.
    uses: u8,
    counted: u64,
}

impl Slot {
    fn bytes(&self) -> u64 {
        to_u64(self.piece.capacity()).max(LEAST)
    }

    fn count_use(&mut self, decodes: u64) {
        if decodes.saturating_sub(self.counted) >= CORRELATED {
            self.uses = self.uses.saturating_add(1).min(USES);
            self.counted = decodes;
        }
    }
}

/// A queue, first in, first out, weighed in bytes.
type PieceQueue = LruList<PieceKey, Slot>;

/// The trace that an evicted piece leaves.
struct Ghost {
    bytes: u64,
    /// Its position in the ring, if it was there.
    entered: Option<u64>,
}

/// One step towards a limit.
pub(super) enum QueueStep {
    /// The limits are kept, or nothing is left to evict.
    Done,
    /// A piece has moved within the queues.
    Moved,
    /// A piece was evicted.
    Evicted(PieceKey, Slot),
}

/// The pieces in memory, in the queues that the module describes.
pub(super) struct Queues {
    ahead: PieceQueue,
    ring: PieceQueue,
    recent: PieceQueue,
    main: PieceQueue,
    /// Weighed in the bytes that they had.
    ghosts: LruList<PieceKey, Ghost>,
    /// Bytes that have ever entered the ring.
    passed: u64,
    /// The size of the ring that the reuse seen so far needs.
    wanted: u64,
    /// Pieces that were ever inserted.
    decodes: u64,
}

impl Queues {
    pub(super) fn new() -> Self {
        let queue = PieceQueue::unbounded;
        let (ahead, ring, recent, main, ghosts) = (queue(), queue(), queue(), queue(), LruList::bounded(GHOSTS));
        Self { ahead, ring, recent, main, ghosts, passed: 0, wanted: 0, decodes: 0 }
    }

    /// Allocated bytes of all pieces.
    pub(super) fn bytes(&self) -> u64 {
        self.ahead.weight() + self.ring.weight() + self.recent.weight() + self.main.weight()
    }

    pub(super) fn len(&self) -> usize {
        self.ahead.len() + self.ring.len() + self.recent.len() + self.main.len()
    }

    pub(super) fn holds(&self, key: PieceKey) -> bool {
        [&self.ring, &self.main, &self.ahead, &self.recent].into_iter().any(|queue| queue.contains(&key))
    }

    /// Returns the piece for a request, and whether it was prefetched and is requested for the first time.
    pub(super) fn find(&mut self, key: PieceKey) -> Option<(Piece, bool)> {
        if let Some(slot) = self.ring.peek_mut(&key) {
            let (piece, distance) = (slot.piece.clone(), self.passed - slot.entered);
            self.reused(distance, to_u64(piece.capacity()));
            return Some((piece, false));
        }
        for queue in [&mut self.main, &mut self.recent] {
            if let Some(slot) = queue.peek_mut(&key) {
                slot.count_use(self.decodes);
                return Some((slot.piece.clone(), std::mem::take(&mut slot.ahead)));
            }
        }
        let mut slot = self.ahead.remove(&key)?;
        slot.ahead = false;
        let piece = slot.piece.clone();
        if slot.is_random {
            slot.counted = self.decodes;
            push(&mut self.recent, key, slot);
        } else {
            self.enter_ring(key, slot);
        }
        Some((piece, true))
    }

    /// Inserts a decoded piece: `ahead` if it was prefetched and not requested yet. Returns the one it replaces.
    pub(super) fn insert(
        &mut self,
        key: PieceKey,
        piece: &Piece,
        ahead: bool,
        order: ReadOrder,
        budget: u64,
        now: Instant,
    ) -> Option<Piece> {
        let queues = [&mut self.ring, &mut self.main, &mut self.ahead, &mut self.recent];
        let old = queues.into_iter().find_map(|queue| queue.remove(&key));
        self.decodes += 1;
        let (piece, counted) = (piece.clone(), self.decodes);
        let is_random = order == ReadOrder::Random;
        let slot = Slot { piece, ahead, is_random, since: now, entered: 0, uses: 0, counted };
        if let Some(ghost) = self.ghosts.remove(&key) {
            let distance = ghost.entered.map(|entered| self.passed - entered);
            // A ring cannot hold a piece that returns later.
            if let Some(distance) = distance.filter(|&distance| distance <= budget / 4 * 3) {
                self.reused(distance, ghost.bytes);
            }
            push(&mut self.main, key, slot);
        } else if ahead {
            push(&mut self.ahead, key, slot);
        } else if order == ReadOrder::Sequential || (order == ReadOrder::Unknown && self.continues(key)) {
            self.enter_ring(key, slot);
        } else {
            push(&mut self.recent, key, slot);
        }
        old.map(|slot| slot.piece)
    }

    /// One step towards a ring within its limit after `coming` more bytes.
    pub(super) fn trim(&mut self, budget: u64, coming: u64, now: Instant) -> QueueStep {
        let left = |slot: &Slot| now.saturating_duration_since(slot.since) >= ABANDONED;
        if self.ring.len() > FEW && self.ring.weight().saturating_add(coming) > self.ring_limit(budget) {
            return self.evict_from_ring();
        }
        if self.ahead.len() > FEW && self.ahead.weight() > RING && self.oldest_ahead().is_some_and(left) {
            return self.evict_ahead();
        }
        QueueStep::Done
    }

    /// One step towards at most `room` bytes in all queues.
    pub(super) fn shrink(&mut self, budget: u64, room: u64, now: Instant) -> QueueStep {
        if self.bytes() <= room {
            return QueueStep::Done;
        }
        if self.oldest_ahead().is_some_and(|slot| now.saturating_duration_since(slot.since) >= FRESH) {
            return self.evict_ahead();
        }
        if self.ring.len() > FEW && self.ring.weight() > self.ring_share(budget) {
            return self.evict_from_ring();
        }
        if (self.recent.weight() > budget / 10 || self.main.is_empty())
            && let Some((key, slot)) = self.recent.pop()
        {
            if slot.uses > 0 {
                push(&mut self.main, key, Slot { uses: 0, ..slot });
                return QueueStep::Moved;
            }
            self.remember(key, &slot, None);
            return QueueStep::Evicted(key, slot);
        }
        if let Some((key, slot)) = self.main.pop() {
            if slot.uses > 0 {
                push(&mut self.main, key, Slot { uses: slot.uses - 1, ..slot });
                return QueueStep::Moved;
            }
            return QueueStep::Evicted(key, slot);
        }
        match self.evict_from_ring() {
            QueueStep::Done => self.evict_ahead(),
            step => step,
        }
    }

    /// Forgets which pieces were evicted beyond a budget's worth of bytes.
    pub(super) fn limit_ghosts(&mut self, budget: u64) {
        while self.ghosts.weight() > budget {
            self.ghosts.pop();
        }
    }

    /// The limit of the ring while memory is free: enough for a piece of each reader in progress, and for the reuse
    /// that was seen.
    fn ring_limit(&self, budget: u64) -> u64 {
        let free = budget.saturating_sub(self.main.weight() + self.recent.weight() + self.ahead.weight());
        self.ring_usual().max(self.wanted.min(budget / 4 * 3)).min(free).max(self.ring_share(budget))
    }

    /// The size below which the ring is not evicted for other pieces.
    fn ring_share(&self, budget: u64) -> u64 {
        self.ring_usual().min(budget / 4).max(self.wanted.min(budget / 4 * 3).min(WIDE))
    }

    fn ring_usual(&self) -> u64 {
        RING.saturating_sub(self.ahead.weight()).max(self.ahead.weight() / 2)
    }

    /// Whether it is the first piece, or the one before it has just passed.
    fn continues(&self, (blob, piece): PieceKey) -> bool {
        piece.checked_sub(1).is_none_or(|before| self.passes((blob, before), 2))
    }

    /// Whether the piece was read in order, is kept `ahead`, or was decoded within the last `decodes` decodes.
    pub(super) fn passes(&self, key: PieceKey, decodes: u64) -> bool {
        let lately = |slot: &Slot| self.decodes - slot.counted < decodes;
        self.ring.contains(&key) || self.ahead.contains(&key) || self.recent.peek(&key).is_some_and(lately)
    }

    fn enter_ring(&mut self, key: PieceKey, mut slot: Slot) {
        let bytes = slot.bytes();
        self.passed += bytes;
        self.wanted = self.wanted.saturating_sub(bytes / 8);
        slot.entered = self.passed;
        push(&mut self.ring, key, slot);
    }

    /// Records a use of a piece of `bytes` bytes after `distance` other bytes entered the ring. The ring grows by two
    /// pieces per use, so that a single use of an old piece does not enlarge it much.
    fn reused(&mut self, distance: u64, bytes: u64) {
        if distance > RING / 2 {
            let most = self.wanted.max(RING / 2).saturating_add(bytes.saturating_mul(2));
            self.wanted = self.wanted.max(most.min(distance.saturating_add(distance / 4)));
        }
    }

    fn oldest_ahead(&self) -> Option<&Slot> {
        self.ahead.oldest().map(|(_, slot)| slot)
    }

    /// Evicts the oldest prefetched piece. It was never used: nothing to remember.
    fn evict_ahead(&mut self) -> QueueStep {
        self.ahead.pop().map_or(QueueStep::Done, |(key, slot)| QueueStep::Evicted(key, slot))
    }

    fn evict_from_ring(&mut self) -> QueueStep {
        let Some((key, slot)) = self.ring.pop() else { return QueueStep::Done };
        self.remember(key, &slot, Some(slot.entered));
        QueueStep::Evicted(key, slot)
    }

    fn remember(&mut self, key: PieceKey, slot: &Slot, entered: Option<u64>) {
        let bytes = slot.bytes();
        self.ghosts.push(key, Ghost { bytes, entered }, bytes);
    }

    #[cfg(test)]
    pub(super) fn ghosts(&self) -> usize {
        self.ghosts.len()
    }
}

fn push(queue: &mut PieceQueue, key: PieceKey, slot: Slot) {
    let bytes = slot.bytes();
    queue.push(key, slot, bytes);
}
