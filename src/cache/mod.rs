//! The cache of decoded pieces: bounded in bytes, and each piece is decoded by one thread at a time.
//!
//! [`Cache::peek`] never decodes or waits; [`Cache::get`] decodes on the calling thread or waits for the decode in
//! progress; [`Cache::fetch_async`] waits without a thread. Decoding and freeing memory happen without the lock.
//!
//! Limits: cached pieces and spare buffers at most the budget; a larger piece is served and not cached. In addition,
//! one buffer per running decode. Unused prefetched pieces at most half the budget. Data read once in order takes about
//! 16 MiB, whatever the budget (`queues`).
//!
//! Invariants: a panic in a decoder becomes an error; every piece that is waited for is being decoded or queued.
#![forbid(unsafe_code)]

mod announce;
mod decoding;
mod in_flight;
mod prefetch;
mod queues;
mod readahead;
mod runs;
mod spare;
mod store;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use crate::account::Account;
use crate::error::Result;
use crate::format::{BlobRef, Fetch, Piece, PieceKey};
use crate::pool::Pool;
use crate::sync::{Mutex, MutexGuard};
use crate::wanted::{self, Callers, Then, is_given_up};

use in_flight::InFlight;
use runs::Runs;
use store::Store;

pub use crate::pool::Job;
pub use announce::announce;
pub use prefetch::Prefetch;
pub use readahead::Readahead;
pub use store::Stats;

type SourceCheck = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// Decoded pieces, and the workers that decode them.
pub struct Cache {
    state: Mutex<CacheState>,
    budget: u64,
    pool: Pool,
    source_check: OnceLock<SourceCheck>,
    /// For jobs on the pool.
    me: Weak<Cache>,
}

struct CacheState {
    store: Store,
    /// The pieces that are being decoded or queued.
    in_flight_pieces: HashMap<PieceKey, Arc<InFlight>>,
    runs: Runs,
}

impl CacheState {
    /// Whether the piece is present, prefetched or being decoded.
    fn is_known(&self, key: PieceKey) -> bool {
        self.store.holds(key) || self.store.is_prefetched(key) || self.in_flight_pieces.contains_key(&key)
    }
}

/// Result of a lookup.
enum CacheLookup {
    /// The piece is present, or its recent failure is.
    Ready(Result<Piece>),
    /// Another caller has requested it and it is not finished.
    InFlight(Arc<InFlight>),
    /// A thread that is decoding a run will reach it.
    Coming(Arc<InFlight>),
    /// The piece was missing: the caller must see that it is decoded.
    Claimed(Arc<InFlight>),
}

/// Where the requests that wait for a piece are answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deliver {
    /// On the thread that has decoded it.
    Here,
    /// On another worker if one is free: this one has more to decode.
    Elsewhere,
}

impl Cache {
    /// Creates a cache of at most `budget` bytes that decodes on at most `workers` threads, in addition to its callers.
    /// Starts no thread yet.
    pub fn new(budget: u64, workers: usize) -> Arc<Self> {
        Self::sharing(budget, budget, workers, Account::new(0, 0))
    }

    /// Like [`Cache::new`], sharing `total` bytes with the users of `account`: if both would exceed them, bytes charged
    /// there reduce what the cache may hold, down to a quarter of its budget.
    pub fn sharing(budget: u64, total: u64, workers: usize, account: Account) -> Arc<Self> {
        let pool = Pool::new(workers, "decode");
        let store = Store::new(budget, total, account);
        let state = Mutex::new(CacheState { store, in_flight_pieces: HashMap::new(), runs: Runs::default() });
        Arc::new_cyclic(|me| Self { state, budget, pool, source_check: OnceLock::new(), me: me.clone() })
    }

    /// Sets the check that runs after each decode and must pass before its bytes are cached and served: that the
    /// container is still the file that was opened. If it fails, the cache is cleared. Only the first call has any
    /// effect.
    pub fn source_check(&self, check: impl Fn() -> Result<()> + Send + Sync + 'static) {
        // Replacing the check would drop a guarantee that the first caller relies on.
        let _ = self.source_check.set(Box::new(check));
    }

    /// The maximum number of bytes held.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// The maximum number of decoding threads, not counting callers.
    pub fn workers(&self) -> usize {
        self.pool.workers()
    }

    /// Returns the piece if it is present and no gate withholds it. Never waits for a decode. For readers: a request
    /// may start readahead.
    pub fn peek(&self, blob: &BlobRef, piece: u64) -> Option<Piece> {
        let in_order = blob.in_order().inspect(|blob| blob.note_read(piece));
        let key = (blob.id(), piece);
        let kept = self.lock().store.find(key);
        let own = || {
            let bytes = in_order?.ready(piece)?;
            // A prefetch that is still queued would decode it again once the blob has freed it.
            let mut state = self.lock();
            state.store.clear_prefetched(key);
            state.store.stats.hits += 1;
            Some(bytes)
        };
        kept.or_else(own).filter(|_| blob.gate(piece).is_none())
    }

    /// Whether the piece is cached; does not count as a use.
    pub fn holds(&self, blob: &BlobRef, piece: u64) -> bool {
        self.lock().store.holds((blob.id(), piece))
    }

    /// Whether the piece is cached, prefetched or being decoded; does not count as a use.
    pub fn is_known(&self, blob: &BlobRef, piece: u64) -> bool {
        self.lock().is_known((blob.id(), piece))
    }

    /// Returns the piece, decoding it on the calling thread if no other thread does.
    ///
    /// # Errors
    /// As [`crate::format::Blob::decode`]; an error is remembered for about a second. A panic becomes an error.
    pub fn get(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        loop {
            wanted::check()?;
            let flight = match self.find((blob.id(), piece), true) {
                CacheLookup::Ready(result) => return Self::check_gate(blob, piece, result),
                CacheLookup::Claimed(flight) => flight,
                CacheLookup::InFlight(flight) if flight.claim() => flight,
                CacheLookup::InFlight(flight) | CacheLookup::Coming(flight) => match flight.wait() {
                    // Given up by the thread that decoded it, or by this caller.
                    Err(e) if is_given_up(&e) => continue,
                    result => return result,
                },
            };
            return self.decode(&flight, blob, piece, Deliver::Here);
        }
    }

    /// Calls `then` with the piece or the error: immediately if it is known, otherwise on the thread that decodes the
    /// piece, which is a worker if no thread decodes it yet (or this thread, if no worker can be started). Never waits
    /// for another thread, so any number of callers can wait for one piece without blocking, and a cached piece does
    /// not queue behind pieces still to be decoded.
    ///
    /// The gate of the piece must be decided (see [`crate::format::Blob::gate`]), or a worker blocks on it.
    pub fn fetch_async(&self, blob: &BlobRef, piece: u64, mut then: Then<Piece>) {
        loop {
            let (flight, is_new) = match self.find((blob.id(), piece), false) {
                CacheLookup::Ready(result) => return then(Self::check_gate(blob, piece, result)),
                CacheLookup::InFlight(flight) | CacheLookup::Coming(flight) => (flight, false),
                CacheLookup::Claimed(flight) => (flight, true),
            };
            let Some(again) = flight.after(then) else {
                if is_new {
                    self.demand(blob, piece, flight);
                }
                return;
            };
            then = again;
        }
    }

    /// Has a worker decode the piece of `flight`, unless another thread claims it before.
    fn demand(&self, blob: &BlobRef, piece: u64, flight: Arc<InFlight>) {
        let (me, blob) = (self.me.clone(), blob.clone());
        self.submit(Box::new(move || {
            if let Some(cache) = me.upgrade().filter(|_| flight.claim()) {
                // The waiting callers get the result from the flight.
                let _ = Self::for_those(&[&flight], || cache.decode(&flight, &blob, piece, Deliver::Here));
            }
        }));
    }

    /// Runs `work` for the callers of `flights`, until all of them have given up.
    fn for_those<T>(flights: &[&Arc<InFlight>], work: impl FnOnce() -> T) -> T {
        if !flights.iter().any(|flight| flight.was_awaited()) {
            return wanted::ahead(work);
        }
        let all = Arc::new(Callers::default());
        let wanted = all.work();
        for callers in flights.iter().filter_map(|flight| flight.callers()) {
            callers.join(&all);
            Callers::leave(callers);
        }
        Callers::leave(all);
        wanted.within(work)
    }

    /// Runs `job` on a worker, before all prefetches. It may wait for pieces, but see [`Cache::fetch_async`].
    pub fn submit(&self, job: Job) {
        self.pool.demand(job);
    }

    /// Removes all pieces, failures and queued prefetches; decodes in progress are served but not cached.
    pub fn clear(&self) {
        self.pool.forget_hints();
        let mut state = self.lock();
        state.runs.forget_queued();
        let gone = state.store.clear();
        drop(state);
        drop(gone);
    }

    /// The counters and the current size.
    pub fn stats(&self) -> Stats {
        self.lock().store.stats()
    }

    /// The clock that ages failures and prefetched pieces.
    #[cfg(test)]
    fn clock(&self) -> crate::clock::Clock {
        self.lock().store.clock.clone()
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up a piece; if it is missing, registers a decode, claimed for the caller if `fly`.
    fn find(&self, key: PieceKey, fly: bool) -> CacheLookup {
        let mut state = self.lock();
        if let Some(piece) = state.store.find(key) {
            return CacheLookup::Ready(Ok(piece));
        }
        state.store.stats.misses += 1;
        if let Some(error) = state.store.failure(key) {
            return CacheLookup::Ready(Err(error));
        }
        state.store.request_prefetched(key);
        let is_coming = state.runs.will_reach(key);
        if let Some(flight) = state.in_flight_pieces.get(&key) {
            return if is_coming { CacheLookup::Coming(flight.clone()) } else { CacheLookup::InFlight(flight.clone()) };
        }
        let flight = Arc::new(InFlight::new(fly && !is_coming));
        state.in_flight_pieces.insert(key, flight.clone());
        if is_coming { CacheLookup::Coming(flight) } else { CacheLookup::Claimed(flight) }
    }

    /// Returns a decoded piece unless its checksum has failed since its decode began.
    fn check_gate(blob: &BlobRef, piece: u64, found: Result<Piece>) -> Result<Piece> {
        let bytes = found?;
        blob.gate(piece).map_or(Ok(()), |gate| gate.wait())?;
        Ok(bytes)
    }
}

impl Fetch for Cache {
    fn piece(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        self.get(blob, piece)
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("budget", &self.budget).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../tests/models/cache.rs"]
mod models;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod traces;
