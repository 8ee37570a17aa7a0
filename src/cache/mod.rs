//! Decoded pieces: kept within a budget of bytes, each decoded by one thread at a time.
//!
//! [`Cache::peek`] answers at once or not at all; [`Cache::get`] decodes in the caller or waits for whoever
//! is decoding the piece; [`Cache::fetch_async`] waits without a thread. Decoding happens without the lock,
//! and so does giving memory back.
//!
//! Limits: pieces and spare buffers together at most the budget; a larger piece is served and not
//! kept; besides, one buffer for each decode that runs. Hints at most half the budget.
//!
//! Invariants: a decode that panics is an error like any other; nobody waits for a piece that nobody decodes.
#![forbid(unsafe_code)]

mod in_flight;
mod lru;
mod prefetch;
mod readahead;

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::bytes::to_usize;
use crate::error::{Error, Result};
use crate::format::{BlobRef, Fetch, Layout, Piece};
use crate::limits::{Budget, zeroed};
use crate::pool::Pool;

use in_flight::InFlight;
use lru::{Eviction, Key, Store};

pub use crate::pool::Job;
pub use in_flight::Then;
pub use lru::Stats;
pub use prefetch::Prefetch;
pub use readahead::Readahead;

type Guard = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// Decoded pieces, and the workers that decode them.
pub struct Cache {
    state: Mutex<State>,
    budget: u64,
    pool: Pool,
    guard: OnceLock<Guard>,
    /// For jobs of the pool.
    me: Weak<Cache>,
}

struct State {
    store: Store,
    /// The pieces that are being decoded, or are about to be.
    flights: HashMap<Key, Arc<InFlight>>,
}

/// What asking for a piece comes to.
enum Found {
    /// It is there, or is known not to be had.
    Now(Result<Piece>),
    /// Somebody decodes it.
    InFlight(Arc<InFlight>),
    /// Nobody does: this flight is the caller's to fly.
    Claimed(Arc<InFlight>),
}

impl Cache {
    /// A cache of at most `budget` bytes, decoding on at most `workers` threads besides those of its
    /// callers. Starts no thread yet.
    pub fn new(budget: u64, workers: usize) -> Arc<Self> {
        Self::sharing(budget, workers, Budget::new(0))
    }

    /// As [`Cache::new`], where what is charged to `beside` lies in the same memory: the cache holds as much less, but
    /// a quarter of its budget in any case.
    pub fn sharing(budget: u64, workers: usize, beside: Budget) -> Arc<Self> {
        let pool = Pool::new(workers, "decode");
        let store = Store::new(budget, beside);
        let state = Mutex::new(State { store, flights: HashMap::new() });
        Arc::new_cyclic(|me| Self { state, budget, pool, guard: OnceLock::new(), me: me.clone() })
    }

    /// Sets what has to hold after a decode for its bytes to be kept and served: that the container is
    /// still the file that was opened. Where it fails all pieces are forgotten. Can be set once.
    pub fn source_check(&self, check: impl Fn() -> Result<()> + Send + Sync + 'static) {
        // A second guard would silently drop the first one's promise: the first stays.
        let _ = self.guard.set(Box::new(check));
    }

    /// The bytes that it may hold.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// The most threads that decode at a time, besides callers'.
    pub fn workers(&self) -> usize {
        self.pool.workers()
    }

    /// The piece if it is there. Never waits for a decode.
    pub fn peek(&self, blob: &BlobRef, piece: u64) -> Option<Piece> {
        let kept = self.lock().store.find((blob.id(), piece));
        kept.or_else(|| blob.ready(piece))
    }

    /// Whether the piece is there; asking does not keep it.
    pub fn holds(&self, blob: &BlobRef, piece: u64) -> bool {
        self.lock().store.holds((blob.id(), piece))
    }

    /// The piece: decoded in the caller, or by whoever is decoding it already.
    ///
    /// # Errors
    /// As [`crate::format::Blob::decode`]; an error is remembered for about a second. A panic is an error.
    pub fn get(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        let flight = match self.find((blob.id(), piece), true) {
            Found::Now(result) => return result,
            Found::Claimed(flight) => flight,
            Found::InFlight(flight) if flight.claim() => flight,
            Found::InFlight(flight) => return flight.wait(),
        };
        self.decode(&flight, blob, piece)
    }

    /// Hands the piece to `then` once it is there or is known not to be had: at once where it is, else on the thread
    /// that has decoded it, which is a worker if nobody decodes it yet. Never waits: any number may want one piece and
    /// take no thread meanwhile, and what has come does not queue behind what has yet to be decoded.
    ///
    /// The gate of the piece has to be decided (see [`crate::format::Blob::gate`]), or a worker waits for it.
    pub fn fetch_async(&self, blob: &BlobRef, piece: u64, then: Then) {
        match self.find((blob.id(), piece), false) {
            Found::Now(result) => then(result),
            Found::InFlight(flight) => flight.after(then),
            Found::Claimed(flight) => {
                flight.after(then);
                let (me, blob) = (self.me.clone(), blob.clone());
                self.submit(Box::new(move || {
                    if let Some(cache) = me.upgrade().filter(|_| flight.claim()) {
                        // Whoever waits has the result from the flight.
                        let _ = cache.decode(&flight, &blob, piece);
                    }
                }));
            }
        }
    }

    /// Runs `job` on a worker, before all hints. It may wait for pieces, but see [`Cache::fetch_async`].
    pub fn submit(&self, job: Job) {
        self.pool.demand(job);
    }

    /// Forgets all pieces, failures and hints; decodes that run now are served and not kept.
    pub fn clear(&self) {
        self.pool.forget_hints();
        let gone = self.lock().store.clear();
        drop(gone);
    }

    /// What it has done and holds.
    pub fn stats(&self) -> Stats {
        self.lock().store.stats()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for a piece; `decode` says whether the caller decodes it at once if nobody does.
    fn find(&self, key: Key, fly: bool) -> Found {
        let mut state = self.lock();
        if let Some(piece) = state.store.find(key) {
            return Found::Now(Ok(piece));
        }
        state.store.stats.misses += 1;
        if let Some(error) = state.store.failure(key) {
            return Found::Now(Err(error));
        }
        state.store.used(key);
        if let Some(flight) = state.flights.get(&key) {
            return Found::InFlight(flight.clone());
        }
        let flight = Arc::new(InFlight::new(fly));
        state.flights.insert(key, flight.clone());
        Found::Claimed(flight)
    }

    /// Decodes the piece of a flight that this thread has to fly, keeps it and tells everybody.
    fn decode(&self, flight: &InFlight, blob: &BlobRef, piece: u64) -> Result<Piece> {
        let epoch = self.lock().store.epoch;
        let decoded = catch(piece, || {
            if let Some(piece) = blob.ready(piece) {
                return Ok(piece);
            }
            let (_aside, mut bytes) = self.buffer(&blob.layout()?, piece)?;
            blob.decode(piece, &mut bytes)?;
            Ok(Arc::new(bytes))
        });
        let result = decoded.and_then(|piece| self.unchanged().map(|()| piece));
        self.complete(flight, (blob.id(), piece), epoch, &result);
        result
    }

    /// As [`Cache::decode`], for pieces in a row: all in one go, or one by one where that fails.
    fn decode_batch(&self, blob: &BlobRef, row: &[(u64, Arc<InFlight>)]) {
        let [(first, _), _, ..] = row else {
            // Whoever waits has the result from the flight.
            return row.iter().for_each(|(piece, flight)| _ = self.decode(flight, blob, *piece));
        };
        let epoch = self.lock().store.epoch;
        let decoded = catch(*first, || {
            let layout = blob.layout()?;
            let buffers = row.iter().map(|(piece, _)| self.buffer(&layout, *piece));
            let mut buffers = buffers.collect::<Result<Vec<_>>>()?;
            let mut pieces: Vec<_> = buffers.iter_mut().map(|(_, bytes)| bytes.as_mut_slice()).collect();
            blob.decode_many(*first, &mut pieces)?;
            Ok(buffers.into_iter().map(|(_, bytes)| Arc::new(bytes)).collect::<Vec<Piece>>())
        });
        match decoded.and_then(|pieces| self.unchanged().map(|()| pieces)) {
            Ok(pieces) => row.iter().zip(pieces).for_each(|((piece, flight), bytes)| {
                self.complete(flight, (blob.id(), *piece), epoch, &Ok(bytes));
            }),
            Err(_) => row.iter().for_each(|(piece, flight)| _ = self.decode(flight, blob, *piece)),
        }
    }

    /// Keeps what came of a flight begun at `epoch` and tells everybody.
    fn complete(&self, flight: &InFlight, key: Key, epoch: u64, result: &Result<Piece>) {
        let mut gone = Vec::new();
        loop {
            let mut state = self.lock();
            let done = match result {
                Ok(piece) if state.store.epoch == epoch => state.store.keep(key, piece, &mut gone),
                Ok(_) => true,
                Err(error) => {
                    state.store.fail(key, error.clone());
                    true
                }
            };
            if done {
                state.store.stats.decodes += 1;
                state.flights.remove(&key);
                break;
            }
            drop(state);
            gone.clear();
        }
        drop(gone);
        flight.complete(result);
    }

    /// The guard's word; where it fails nothing that was decoded counts any more.
    fn unchanged(&self) -> Result<()> {
        let Some(guard) = self.guard.get() else { return Ok(()) };
        guard().inspect_err(|_| self.clear())
    }

    /// A buffer to decode a piece into, and its bytes set aside meanwhile.
    fn buffer(&self, layout: &Layout, piece: u64) -> Result<(Reservation<'_>, Vec<u8>)> {
        let range = layout.range(piece);
        let len = range.end.saturating_sub(range.start);
        let aside = Reservation::new(self, len);
        let bytes = match aside.buffer() {
            Some(mut bytes) => {
                bytes.resize(to_usize(len, "piece")?, 0);
                bytes
            }
            None => zeroed(len, "piece")?,
        };
        Ok((aside, bytes))
    }
}

/// Runs a decoder; its panic is an error.
fn catch<T>(piece: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_default();
        tracing::error!(piece, "the decoder panicked: {text}");
        Err(Error::corrupt(format!("the decoder panicked: {text}"), "piece"))
    })
}

/// Bytes set aside in the store while a piece is decoded.
struct Reservation<'a> {
    cache: &'a Cache,
    len: u64,
}

impl<'a> Reservation<'a> {
    fn new(cache: &'a Cache, len: u64) -> Self {
        cache.lock().store.reserve(len);
        Self { cache, len }
    }

    /// Makes room; gives the buffer of an old piece if one fits.
    fn buffer(&self) -> Option<Vec<u8>> {
        let mut gone = Vec::new();
        loop {
            let answer = self.cache.lock().store.make_room_for(self.len, &mut gone);
            match answer {
                Eviction::Made(buffer) => return buffer,
                Eviction::NotYet => gone.clear(),
            }
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.cache.lock().store.release(self.len);
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

#[cfg(test)]
mod tests;
