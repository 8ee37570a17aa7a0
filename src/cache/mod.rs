//! Decoded pieces: kept within a budget of bytes, each decoded by one thread at a time.
//!
//! [`Cache::peek`] answers at once or not at all; [`Cache::get`] decodes in the caller or waits for whoever
//! is decoding the piece; [`Cache::want`] waits without a thread. Decoding happens without the lock,
//! and so does giving memory back.
//!
//! Limits: pieces and spare buffers together at most the budget; a larger piece is served and not
//! kept; besides, one buffer for each decode that runs. Hints at most half the budget.
//!
//! Invariants: a decode that panics is an error like any other; nobody waits for a piece that nobody decodes.
#![forbid(unsafe_code)]

mod flight;
mod pool;
mod readahead;
mod store;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::bytes::narrow;
use crate::error::{Error, Result};
use crate::format::{BlobRef, Fetch, Piece};
use crate::limits::zeroed;

use flight::Flight;
use pool::Pool;
use store::{Key, Room, Store};

pub use pool::Job;
pub use readahead::Readahead;
pub use store::Stats;

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
    flights: HashMap<Key, Arc<Flight>>,
}

/// What asking for a piece comes to.
enum Found {
    /// It is there, or is known not to be had.
    Now(Result<Piece>),
    /// Somebody decodes it.
    Flying(Arc<Flight>),
    /// Nobody does: this flight is the caller's to fly.
    Yours(Arc<Flight>),
}

impl Cache {
    /// A cache of at most `budget` bytes, decoding on at most `workers` threads besides those of its
    /// callers. Starts no thread yet.
    pub fn new(budget: u64, workers: usize) -> Arc<Self> {
        let pool = Pool::new(workers);
        let store = Store::new(budget);
        let state = Mutex::new(State { store, flights: HashMap::new() });
        Arc::new_cyclic(|me| Self { state, budget, pool, guard: OnceLock::new(), me: me.clone() })
    }

    /// Sets what has to hold after a decode for its bytes to be kept and served: that the container is
    /// still the file that was opened. Where it fails all pieces are forgotten. Can be set once.
    pub fn guard(&self, check: impl Fn() -> Result<()> + Send + Sync + 'static) {
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
        self.lock().store.find((blob.id(), piece))
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
            Found::Yours(flight) => flight,
            Found::Flying(flight) if flight.take_off() => flight,
            Found::Flying(flight) => return flight.wait(),
        };
        self.fly(&flight, blob, piece)
    }

    /// Runs `then` on a worker once the piece is there or is known not to be had; decodes it on a
    /// worker if nobody does. Never waits: many jobs may want one piece and take no thread meanwhile.
    pub fn want(&self, blob: &BlobRef, piece: u64, then: Job) {
        match self.find((blob.id(), piece), false) {
            Found::Now(_) => self.submit(then),
            Found::Flying(flight) => {
                if let Some(then) = flight.after(then) {
                    self.submit(then);
                }
            }
            Found::Yours(flight) => {
                // The flight is new and nobody else has been told to fly it: `then` cannot come back
                // unless a caller of `get` was faster.
                let late = flight.after(then);
                let (me, blob) = (self.me.clone(), blob.clone());
                self.submit(Box::new(move || {
                    if let Some(cache) = me.upgrade().filter(|_| flight.take_off()) {
                        // Whoever waits has the result from the flight.
                        let _ = cache.fly(&flight, &blob, piece);
                    }
                }));
                if let Some(then) = late {
                    self.submit(then);
                }
            }
        }
    }

    /// Decodes `pieces` when there is nothing else to do. Hints beyond half the budget, or more than wait
    /// already, are dropped: gives whether all were taken or were not needed.
    pub fn prefetch(&self, blob: &BlobRef, pieces: Range<u64>) -> bool {
        // A length that is not known yet would have to be decoded for.
        if blob.known_len().is_none() {
            return false;
        }
        let Ok(layout) = blob.layout() else { return false };
        let range = pieces.start..pieces.end.min(layout.count());
        range.into_iter().all(|piece| {
            let bounds = layout.range(piece);
            self.hint(blob, piece, bounds.end.saturating_sub(bounds.start))
        })
    }

    /// As [`Cache::prefetch`], for one piece of `bytes` bytes.
    pub fn hint(&self, blob: &BlobRef, piece: u64, bytes: u64) -> bool {
        let key = (blob.id(), piece);
        let mut state = self.lock();
        if state.store.holds(key) || state.store.expects(key) || state.flights.contains_key(&key) {
            return true;
        }
        if !state.store.expect(key, bytes) {
            return false;
        }
        drop(state);
        let (me, blob) = (self.me.clone(), blob.clone());
        let taken = self.pool.hint(Box::new(move || {
            if let Some(cache) = me.upgrade() {
                cache.ahead(&blob, piece);
            }
        }));
        if !taken {
            self.lock().store.used(key);
        }
        taken
    }

    /// Runs `job` on a worker, before all hints. It may wait for pieces, but see [`Cache::want`].
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

    /// Looks for a piece; `fly` says whether the caller decodes it at once if nobody does.
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
            return Found::Flying(flight.clone());
        }
        let flight = Arc::new(Flight::new(fly));
        state.flights.insert(key, flight.clone());
        Found::Yours(flight)
    }

    /// Decodes a piece that was hinted, unless somebody asked for it meanwhile.
    fn ahead(&self, blob: &BlobRef, piece: u64) {
        let key = (blob.id(), piece);
        let mut state = self.lock();
        if state.store.holds(key) || !state.store.expects(key) || state.flights.contains_key(&key) {
            return;
        }
        state.store.stats.ahead += 1;
        let flight = Arc::new(Flight::new(true));
        state.flights.insert(key, flight.clone());
        drop(state);
        let _ = self.fly(&flight, blob, piece);
    }

    /// Decodes the piece of a flight that this thread has to fly, keeps it and tells everybody.
    fn fly(&self, flight: &Flight, blob: &BlobRef, piece: u64) -> Result<Piece> {
        let key = (blob.id(), piece);
        let epoch = self.lock().store.epoch;
        let result = self.decode(blob, piece).and_then(|piece| self.unchanged().map(|()| piece));

        let mut gone = Vec::new();
        loop {
            let mut state = self.lock();
            let done = match &result {
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
        flight.land(result.clone()).into_iter().for_each(|job| self.submit(job));
        result
    }

    /// The guard's word; where it fails nothing that was decoded counts any more.
    fn unchanged(&self) -> Result<()> {
        let Some(guard) = self.guard.get() else { return Ok(()) };
        guard().inspect_err(|_| self.clear())
    }

    /// Decodes a piece into a buffer of its own.
    fn decode(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        let work = || {
            let range = blob.layout()?.range(piece);
            let len = range.end.saturating_sub(range.start);
            let aside = Aside::new(self, len);
            let mut bytes = match aside.buffer() {
                Some(mut bytes) => {
                    bytes.resize(narrow(len, "piece")?, 0);
                    bytes
                }
                None => zeroed(len, "piece")?,
            };
            blob.decode(piece, &mut bytes)?;
            Ok(Arc::new(bytes))
        };
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| {
            let text = cause.downcast_ref::<&str>().map(|s| (*s).to_owned());
            let text = text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_default();
            tracing::error!(piece, "the decoder panicked: {text}");
            Err(Error::corrupt(format!("the decoder panicked: {text}"), "piece"))
        })
    }
}

/// Bytes set aside in the store while a piece is decoded.
struct Aside<'a> {
    cache: &'a Cache,
    len: u64,
}

impl<'a> Aside<'a> {
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
                Room::Made(buffer) => return buffer,
                Room::NotYet => gone.clear(),
            }
        }
    }
}

impl Drop for Aside<'_> {
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
