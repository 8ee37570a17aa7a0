//! Prefetching: decodes pieces before they are requested, consecutive ones in batches if their blob supports it.
//!
//! Invariant: an accepted piece is decoded, requested or dropped; a refused one leaves no state.
#![forbid(unsafe_code)]

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use crate::format::{BlobRef, Need};

use super::Cache;
use super::announce::announce;
use super::in_flight::InFlight;
use super::queues::ReadOrder;

/// Bytes of small pieces that are queued as one job: to wake a worker takes about as long as to decode 16 KiB.
const JOB: u64 = 64 << 10;

impl Cache {
    /// Starts a list of pieces to decode at low priority.
    pub fn prefetch_batch(&self) -> Prefetch<'_> {
        self.batch(ReadOrder::Sequential)
    }

    /// As [`Cache::prefetch_batch`], for one of many files that are read whole, each perhaps several times; it consists
    /// of `pieces` of `blob`. If they do not continue earlier reads, access is random, and the pieces are kept.
    pub fn prefetch_whole(&self, blob: &BlobRef, pieces: &RangeInclusive<u64>) -> Prefetch<'_> {
        let order = self.lock().store.order_of_whole(blob.id(), pieces);
        self.batch(order)
    }

    fn batch(&self, order: ReadOrder) -> Prefetch<'_> {
        Prefetch { cache: self, order, row: None, far: Vec::new(), taken: true }
    }

    /// Decodes `pieces` at low priority. Drops those beyond half the budget or beyond the queue limit. Returns whether
    /// all were accepted or not needed.
    pub fn prefetch(&self, blob: &BlobRef, pieces: Range<u64>) -> bool {
        // Finding the length would decode.
        if blob.known_len().is_none() {
            return false;
        }
        let Ok(layout) = blob.layout() else { return false };
        let mut hints = self.prefetch_batch();
        let range = pieces.start..pieces.end.min(layout.count());
        let all = range.into_iter().all(|piece| {
            let bounds = layout.range(piece);
            hints.add(blob, piece, bounds.end.saturating_sub(bounds.start))
        });
        hints.send() && all
    }

    /// Decodes the pieces that were not requested meanwhile.
    fn ahead(&self, blob: &BlobRef, pieces: Range<u64>) {
        let mut in_flight_pieces: Vec<(u64, Arc<InFlight>)> = Vec::new();
        let mut state = self.lock();
        for piece in pieces {
            let key = (blob.id(), piece);
            if state.store.is_prefetched(key) && !state.store.holds(key) && !state.in_flight_pieces.contains_key(&key) {
                state.store.stats.ahead += 1;
                let flight = Arc::new(InFlight::new(true));
                state.in_flight_pieces.insert(key, flight.clone());
                in_flight_pieces.push((piece, flight));
            }
        }
        drop(state);
        for row in in_flight_pieces.chunk_by(|(a, _), (b, _)| a + 1 == *b) {
            let batch = usize::try_from(blob.batch()).unwrap_or(usize::MAX).max(1);
            for pieces in row.chunks(batch) {
                let flights: Vec<_> = pieces.iter().map(|(_, flight)| flight).collect();
                Self::for_those(&flights, || self.decode_batch(blob, pieces));
            }
        }
    }
}

/// Consecutive pieces that are queued together.
#[derive(Debug)]
struct PieceRow {
    blob: BlobRef,
    pieces: Range<u64>,
    /// Whether they continue each other (see `runs`).
    is_run: bool,
    /// The maximum number of pieces.
    most: u64,
}

/// A list of pieces to prefetch, in order.
#[derive(Debug)]
pub struct Prefetch<'a> {
    cache: &'a Cache,
    order: ReadOrder,
    /// Not queued yet.
    row: Option<PieceRow>,
    /// The far ones, which are announced together before they are queued.
    far: Vec<PieceRow>,
    taken: bool,
}

impl Prefetch<'_> {
    /// Adds a piece of `bytes` bytes. Returns whether all pieces so far were accepted.
    pub fn add(&mut self, blob: &BlobRef, piece: u64, bytes: u64) -> bool {
        let key = (blob.id(), piece);
        if self.cache.lock().is_known(key) || blob.in_order().is_some_and(|blob| blob.is_coming(piece)) {
            return self.taken;
        }
        // A worker must not block on a checksum for a prefetch. The blob is not asked under the lock of the cache.
        if blob.gate(piece).is_some() {
            self.taken = false;
            return false;
        }
        let mut state = self.cache.lock();
        if state.is_known(key) {
            return self.taken;
        }
        if !state.store.mark_prefetched(key, bytes, self.order) {
            self.taken = false;
            return false;
        }
        drop(state);
        let is_run = blob.is_run(piece);
        if let Some(row) = &mut self.row
            && row.blob.id() == blob.id()
            && row.pieces.end == piece
            && row.is_run == is_run
            && piece - row.pieces.start < row.most
        {
            row.pieces.end += 1;
            return self.taken;
        }
        self.flush();
        let most = if is_run { u64::MAX } else { blob.batch().max(JOB / bytes.max(1)) };
        self.row = Some(PieceRow { blob: blob.clone(), pieces: piece..piece.saturating_add(1), is_run, most });
        self.taken
    }

    /// Queues the remaining pieces. Returns whether all were accepted or not needed.
    pub fn send(mut self) -> bool {
        self.finish();
        self.taken
    }

    fn finish(&mut self) {
        self.flush();
        let far = std::mem::take(&mut self.far);
        if far.is_empty() {
            return;
        }
        let of = |row: &PieceRow| row.pieces.clone().map(|piece| (row.blob.clone(), piece)).collect::<Vec<_>>();
        let pieces: Vec<_> = far.iter().flat_map(of).collect();
        // Without it, they are only slower.
        self.cache.pool.hint(Box::new(move || announce(&pieces, Need::Ahead)));
        for row in far {
            self.queue(row);
        }
    }

    /// Queues the consecutive pieces as one job, unless they are far.
    fn flush(&mut self) {
        match self.row.take() {
            Some(row) if row.blob.is_far() => self.far.push(row),
            Some(row) => self.queue(row),
            None => {}
        }
    }

    fn queue(&mut self, PieceRow { blob, pieces: row, is_run, .. }: PieceRow) {
        if is_run {
            self.taken &= self.cache.decode_run(&blob, row);
            return;
        }
        let (me, mine, pieces) = (self.cache.me.clone(), blob.clone(), row.clone());
        let job = move || {
            if let Some(cache) = me.upgrade() {
                cache.ahead(&mine, pieces);
            }
        };
        if !self.cache.pool.hint(Box::new(job)) {
            self.taken = false;
            let mut state = self.cache.lock();
            row.for_each(|piece| state.store.clear_prefetched((blob.id(), piece)));
        }
    }
}

impl Drop for Prefetch<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}
