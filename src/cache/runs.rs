//! Runs: consecutive pieces that continue each other, decoded by one thread in order.
//!
//! Where each piece is decoded from the end of the one before it, a second thread can only wait for the first, and the
//! decoder's memory would move between their cores with every piece. The thread that decodes a run hands each finished
//! piece to another one, which delivers it meanwhile; requests for pieces that the run will reach wait for it.
//!
//! A run ends when nothing is left to decode; the next pieces requested or prefetched join it. If other jobs find no
//! free thread, it is queued again behind them.
//!
//! Invariant: a requested piece of a run that no thread is decoding is queued as a demand.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use crate::format::{BlobRef, PieceKey};

use super::in_flight::InFlight;
use super::{Cache, Deliver};

/// The runs that are queued or being decoded.
#[derive(Default)]
pub(super) struct Runs {
    runs: Vec<Run>,
    /// The number of the next run.
    next: u64,
}

struct Run {
    number: u64,
    blob: u64,
    /// The pieces that are left.
    pieces: Range<u64>,
    /// Whether a thread is decoding it.
    has_begun: bool,
}

impl Runs {
    /// Adds `pieces` of `blob` to the run that they continue. Returns whether there is one.
    pub(super) fn extend(&mut self, blob: u64, pieces: &Range<u64>) -> bool {
        let run = self.runs.iter_mut().find(|run| run.blob == blob && run.pieces.end == pieces.start);
        run.map(|run| run.pieces.end = pieces.end).is_some()
    }

    /// Adds a run and returns its number.
    fn add(&mut self, blob: u64, pieces: Range<u64>) -> u64 {
        self.next += 1;
        self.runs.push(Run { number: self.next, blob, pieces, has_begun: false });
        self.next
    }

    /// Whether a thread that is decoding a run will reach the piece: it is in the run, or the next one and joins it.
    pub(super) fn will_reach(&mut self, (blob, piece): PieceKey) -> bool {
        let mut begun = self.runs.iter_mut().filter(|run| run.has_begun && run.blob == blob);
        if begun.any(|run| run.pieces.contains(&piece)) {
            return true;
        }
        let mut begun = self.runs.iter_mut().filter(|run| run.has_begun && run.blob == blob);
        begun.find(|run| run.pieces.end == piece).map(|run| run.pieces.end += 1).is_some()
    }

    /// Removes the runs that no thread is decoding, when their jobs are dropped.
    pub(super) fn forget_queued(&mut self) {
        self.runs.retain(|run| run.has_begun);
    }

    fn run(&mut self, number: u64) -> Option<&mut Run> {
        self.runs.iter_mut().find(|run| run.number == number)
    }

    /// Removes a run; returns the pieces that are left.
    fn remove(&mut self, number: u64) -> Range<u64> {
        let i = self.runs.iter().position(|run| run.number == number);
        i.map_or(0..0, |i| self.runs.swap_remove(i).pieces)
    }
}

impl Cache {
    /// Decodes prefetched `pieces`, a run, on one thread. Returns `false` and forgets them if no thread is available.
    pub(super) fn decode_run(&self, blob: &BlobRef, pieces: Range<u64>) -> bool {
        let mut state = self.lock();
        if state.runs.extend(blob.id(), &pieces) {
            return true;
        }
        let number = state.runs.add(blob.id(), pieces);
        drop(state);
        self.queue_run(blob, number)
    }

    /// Queues a run that no thread is decoding.
    fn queue_run(&self, blob: &BlobRef, number: u64) -> bool {
        let (me, mine) = (self.me.clone(), blob.clone());
        let job = move || {
            if let Some(cache) = me.upgrade() {
                cache.go_on(&mine, number);
            }
        };
        let is_queued = self.pool.hint(Box::new(job));
        if !is_queued {
            let mut state = self.lock();
            for piece in state.runs.remove(number) {
                state.store.clear_prefetched((blob.id(), piece));
            }
        }
        is_queued
    }

    /// Decodes the pieces of a run that are prefetched or requested.
    fn go_on(&self, blob: &BlobRef, number: u64) {
        loop {
            let is_short = self.pool.is_short();
            let mut guard = self.lock();
            let state = &mut *guard;
            let Some(run) = state.runs.run(number) else { return };
            if run.pieces.is_empty() {
                state.runs.remove(number);
                return;
            }
            if is_short && std::mem::replace(&mut run.has_begun, false) {
                // At least one piece was decoded since it was queued.
                let pieces = run.pieces.clone();
                drop(guard);
                return self.give_way(blob, number, pieces);
            }
            run.has_begun = true;
            let key = (blob.id(), run.pieces.start);
            run.pieces.start += 1;
            if state.store.holds(key) {
                continue;
            }
            let flight = match state.in_flight_pieces.get(&key) {
                Some(flight) if flight.claim() => flight.clone(),
                None if state.store.is_prefetched(key) => {
                    state.store.stats.ahead += 1;
                    let flight = Arc::new(InFlight::new(true));
                    state.in_flight_pieces.insert(key, flight.clone());
                    flight
                }
                _ => continue,
            };
            drop(guard);
            // The waiting callers get the result from the flight.
            let _ = Self::for_those(&[&flight], || self.decode(&flight, blob, key.1, Deliver::Elsewhere));
        }
    }

    /// Queues the rest of a run behind the jobs that wait for a thread, and its requested pieces as demands.
    fn give_way(&self, blob: &BlobRef, number: u64, pieces: Range<u64>) {
        let requested = |piece: u64| {
            let flight = self.lock().in_flight_pieces.get(&(blob.id(), piece)).cloned();
            flight.map(|flight| (piece, flight))
        };
        for (piece, flight) in pieces.filter_map(requested) {
            self.demand(blob, piece, flight);
        }
        self.queue_run(blob, number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{MutexGuard, mpsc};
    use std::thread::{self, ThreadId};

    use super::*;
    use crate::cache::tests::occupied;
    use crate::clock::PATIENCE;
    use crate::error::Result;
    use crate::format::testing::{Memory, noise};

    const PIECE: u64 = 1000;
    fn memory() -> (BlobRef, Arc<Memory>) {
        Memory { is_run: true, ..Memory::new(noise((20 * PIECE) as usize), PIECE) }.blob()
    }

    /// Starts a run of `pieces`; none is decoded while the returned guard lives.
    fn begin<'a>(
        cache: &Cache,
        (blob, memory): (&BlobRef, &'a Memory),
        pieces: Range<u64>,
    ) -> MutexGuard<'a, Vec<(u64, ThreadId)>> {
        let held = memory.decoded.lock().unwrap();
        assert!(cache.prefetch(blob, pieces));
        while cache.stats().ahead == 0 {
            thread::yield_now();
        }
        held
    }

    #[test]
    fn a_run_is_extended_at_its_end_by_pieces_of_its_own_blob() {
        let mut runs = Runs::default();
        let (one, other) = (runs.add(1, 0..4), runs.add(2, 0..7));
        assert_ne!(one, other);
        assert!(!runs.extend(1, &(7..8)) && !runs.extend(2, &(4..8)) && !runs.extend(3, &(4..8)));
        assert!(runs.extend(1, &(4..6)));
        // None has begun.
        assert!(!runs.will_reach((1, 0)) && !runs.will_reach((1, 6)));
        runs.run(one).unwrap().has_begun = true;
        assert!(runs.will_reach((1, 5)) && !runs.will_reach((2, 5)) && !runs.will_reach((2, 7)));
        assert!(!runs.will_reach((1, 7)) && runs.will_reach((1, 6)) && runs.will_reach((1, 7)));
        runs.forget_queued();
        assert!(runs.run(other).is_none());
        assert_eq!((runs.remove(one), runs.remove(one)), (0..8, 0..0));
    }

    #[test]
    fn one_thread_decodes_a_run_and_another_one_delivers_it() {
        let (blob, memory) = memory();
        let cache = Cache::new(100 * PIECE, 2);
        let held = begin(&cache, (&blob, &memory), 0..8);
        let (tx, rx) = mpsc::channel();
        // Pieces of the run, and one that joins it.
        for piece in 1..9 {
            let (tx, memory) = (tx.clone(), memory.clone());
            let then = move |result: Result<_>| {
                // The waiter of the first piece is slow.
                while piece == 1 && memory.decoded.lock().unwrap().len() < 12 {
                    thread::yield_now();
                }
                tx.send(result.map(|_| piece)).unwrap();
            };
            cache.fetch_async(&blob, piece, Box::new(then));
        }
        assert!(cache.prefetch(&blob, 9..12));
        drop(held);
        cache.get(&blob, 11).unwrap();
        let mut got: Vec<_> = (1..9).map(|_| rx.recv_timeout(PATIENCE).unwrap().unwrap()).collect();
        got.sort_unstable();
        assert_eq!(got, (1..9).collect::<Vec<_>>());
        let decoded = memory.decoded.lock().unwrap();
        assert_eq!(*decoded, (0..12).map(|piece| (piece, decoded[0].1)).collect::<Vec<_>>());
    }

    #[test]
    fn a_run_gives_way_to_other_jobs_and_loses_none_of_its_pieces() {
        let (blob, memory) = memory();
        let cache = Cache::new(100 * PIECE, 1);
        let held = begin(&cache, (&blob, &memory), 0..20);
        let (tx, rx) = mpsc::channel();
        let (delivered, decoded) = (tx.clone(), memory.clone());
        cache.fetch_async(&blob, 19, Box::new(move |result| delivered.send(result.map(|_| 20)).unwrap()));
        cache.submit(Box::new(move || tx.send(Ok(decoded.decoded.lock().unwrap().len())).unwrap()));
        drop(held);
        let told = [(); 2].map(|()| rx.recv_timeout(PATIENCE).unwrap().unwrap());
        assert_eq!(told, [1, 20], "the job runs after one piece");
        let all: Vec<_> = (0..20).map(|piece| cache.get(&blob, piece).unwrap().to_vec()).collect();
        assert!(all.concat() == memory.bytes && memory.decoded.lock().unwrap().len() == 20);
    }

    #[test]
    fn what_was_dropped_from_the_cache_is_not_decoded() {
        let (blob, memory) = memory();
        let cache = Cache::new(100 * PIECE, 1);
        let go = occupied(&cache);
        assert!(cache.prefetch(&blob, 0..10));
        let (tx, rx) = mpsc::channel();
        cache.fetch_async(&blob, 5, Box::new(move |result| tx.send(result).unwrap()));
        cache.clear();
        assert!(cache.prefetch(&blob, 10..12));
        go.send(()).unwrap();
        assert!(rx.recv_timeout(PATIENCE).unwrap().is_ok());
        while !cache.holds(&blob, 11) {
            thread::yield_now();
        }
        let decoded: Vec<_> = memory.decoded.lock().unwrap().iter().map(|(piece, _)| *piece).collect();
        assert_eq!(decoded, [5, 10, 11]);
    }
}
