//! The cache of decoded pieces: bounded in bytes, and each piece is decoded by one thread at a time.
//!
//! [`Cache::peek`] never decodes or waits; [`Cache::get`] decodes on the calling thread or waits for the decode in
//! progress; [`Cache::fetch_async`] waits without a thread. Decoding and freeing memory happen without the lock.
//!
//! Limits: cached pieces and spare buffers at most the budget; a larger piece is served and not cached. In addition,
//! one buffer per running decode. Unused prefetched pieces at most half the budget. What is read once in order takes
//! about 16 MiB, whatever the budget (`queues`).
//!
//! Invariants: a panic in a decoder becomes an error; every piece that is waited for is being decoded or queued.
#![forbid(unsafe_code)]

mod announce;
mod in_flight;
mod prefetch;
mod queues;
mod readahead;
mod runs;
mod spare;
mod store;

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::account::Account;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::{BlobRef, Fetch, Layout, Piece};
use crate::limits::zeroed;
use crate::pool::Pool;
use crate::wanted::{self, is_given_up, while_wanted};

use in_flight::{Awaited, InFlight};
use queues::Key;
use runs::Runs;
use store::{Room, Store};

pub use crate::pool::Job;
pub use announce::announce;
pub use in_flight::Then;
pub use prefetch::Prefetch;
pub use readahead::Readahead;
pub use store::Stats;

type SourceCheck = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// Decoded pieces, and the workers that decode them.
pub struct Cache {
    state: Mutex<State>,
    budget: u64,
    pool: Pool,
    source_check: OnceLock<SourceCheck>,
    /// For jobs on the pool.
    me: Weak<Cache>,
}

struct State {
    store: Store,
    /// The pieces that are being decoded or queued.
    in_flight_pieces: HashMap<Key, Arc<InFlight>>,
    runs: Runs,
}

impl State {
    /// Whether the piece is present, prefetched or being decoded.
    fn is_known(&self, key: Key) -> bool {
        self.store.holds(key) || self.store.is_prefetched(key) || self.in_flight_pieces.contains_key(&key)
    }
}

/// Result of a lookup.
enum Found {
    /// The piece is present, or its recent failure is.
    Ready(Result<Piece>),
    /// Another caller has requested it and it is not finished.
    InFlight(Arc<InFlight>),
    /// A run that a thread is decoding comes to it.
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
        let state = Mutex::new(State { store, in_flight_pieces: HashMap::new(), runs: Runs::default() });
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

    /// Returns the piece if it is present and no gate withholds it. Never waits for a decode. For readers: what they
    /// request may start to decode what follows.
    pub fn peek(&self, blob: &BlobRef, piece: u64) -> Option<Piece> {
        blob.note_read(piece);
        let key = (blob.id(), piece);
        let kept = self.lock().store.find(key);
        let own = || {
            let bytes = blob.ready(piece)?;
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
                Found::Ready(result) => return Self::check_gate(blob, piece, result),
                Found::Claimed(flight) => flight,
                Found::InFlight(flight) if flight.claim() => flight,
                Found::InFlight(flight) | Found::Coming(flight) => match flight.wait() {
                    // By whoever decoded it, or by this caller.
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
    pub fn fetch_async(&self, blob: &BlobRef, piece: u64, mut then: Then) {
        loop {
            let (flight, is_new) = match self.find((blob.id(), piece), false) {
                Found::Ready(result) => return then(Self::check_gate(blob, piece, result)),
                Found::InFlight(flight) | Found::Coming(flight) => (flight, false),
                Found::Claimed(flight) => (flight, true),
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

    /// Runs `work` for those who wait for one of `flights`, until all of them have given up.
    fn for_those<T>(flights: &[&Arc<InFlight>], work: impl FnOnce() -> T) -> T {
        match flights.iter().map(|flight| flight.awaited()).max() {
            None | Some(Awaited::No) => return wanted::ahead(work),
            Some(Awaited::Firmly) => return work(),
            Some(Awaited::Perhaps) => {}
        }
        let flights: Vec<_> = flights.iter().map(|flight| Arc::clone(flight)).collect();
        while_wanted(move || flights.iter().any(|flight| flight.is_wanted()), work)
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

    /// What failures and prefetched pieces get old by.
    #[cfg(test)]
    fn clock(&self) -> crate::clock::Clock {
        self.lock().store.clock.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up a piece; if it is missing, registers a decode, claimed for the caller if `fly`.
    fn find(&self, key: Key, fly: bool) -> Found {
        let mut state = self.lock();
        if let Some(piece) = state.store.find(key) {
            return Found::Ready(Ok(piece));
        }
        state.store.stats.misses += 1;
        if let Some(error) = state.store.failure(key) {
            return Found::Ready(Err(error));
        }
        state.store.request_prefetched(key);
        let is_coming = state.runs.will_reach(key);
        if let Some(flight) = state.in_flight_pieces.get(&key) {
            return if is_coming { Found::Coming(flight.clone()) } else { Found::InFlight(flight.clone()) };
        }
        let flight = Arc::new(InFlight::new(fly && !is_coming));
        state.in_flight_pieces.insert(key, flight.clone());
        if is_coming { Found::Coming(flight) } else { Found::Claimed(flight) }
    }

    /// Returns a decoded piece unless its checksum has failed since its decode began.
    fn check_gate(blob: &BlobRef, piece: u64, found: Result<Piece>) -> Result<Piece> {
        let bytes = found?;
        blob.gate(piece).map_or(Ok(()), |gate| gate.wait())?;
        Ok(bytes)
    }

    /// Decodes the piece of a flight that this thread has claimed, caches it and completes the flight.
    fn decode(&self, flight: &Arc<InFlight>, blob: &BlobRef, piece: u64, deliver: Deliver) -> Result<Piece> {
        let mut epoch = Some(self.lock().store.epoch);
        let decoded = catch(piece, || {
            if let Some(piece) = blob.ready_soon(piece) {
                // The blob keeps it.
                epoch = None;
                return Ok(piece);
            }
            let (_aside, mut bytes) = self.buffer(&blob.layout()?, piece)?;
            blob.decode(piece, &mut bytes)?;
            Ok(Arc::new(bytes))
        });
        // What a changed source decodes to, or fails with, is not of the one that was opened.
        let result = self.unchanged().and(decoded);
        let result = Self::check_gate(blob, piece, result);
        self.complete(flight, (blob, piece), epoch, &result, deliver);
        result
    }

    /// Like [`Cache::decode`], for consecutive pieces: in one batch, or one by one if the batch fails.
    fn decode_batch(&self, blob: &BlobRef, row: &[(u64, Arc<InFlight>)]) {
        let [(first, _), _, ..] = row else {
            // The waiting callers get the result from the flight.
            return row.iter().for_each(|(piece, flight)| _ = self.decode(flight, blob, *piece, Deliver::Here));
        };
        let epoch = Some(self.lock().store.epoch);
        let decoded = catch(*first, || {
            let layout = blob.layout()?;
            let buffers = row.iter().map(|(piece, _)| self.buffer(&layout, *piece));
            let mut buffers = buffers.collect::<Result<Vec<_>>>()?;
            let mut pieces: Vec<_> = buffers.iter_mut().map(|(_, bytes)| bytes.as_mut_slice()).collect();
            blob.decode_many(*first, &mut pieces)?;
            Ok(buffers.into_iter().map(|(_, bytes)| Arc::new(bytes)).collect::<Vec<Piece>>())
        });
        match self.unchanged().and(decoded) {
            Ok(pieces) => row.iter().zip(pieces).for_each(|((piece, flight), bytes)| {
                let result = Self::check_gate(blob, *piece, Ok(bytes));
                self.complete(flight, (blob, *piece), epoch, &result, Deliver::Here);
            }),
            Err(_) => row.iter().for_each(|(piece, flight)| _ = self.decode(flight, blob, *piece, Deliver::Here)),
        }
    }

    /// Caches the result of a decode started in `epoch`, if there is one, and completes the flight. A decode that was
    /// given up is done again for those who did not.
    fn complete(
        &self,
        flight: &Arc<InFlight>,
        (blob, piece): (&BlobRef, u64),
        epoch: Option<u64>,
        result: &Result<Piece>,
        deliver: Deliver,
    ) {
        let key = (blob.id(), piece);
        let mut room = Room::default();
        loop {
            let mut state = self.lock();
            let done = match result {
                Ok(piece) if Some(state.store.epoch) == epoch => {
                    let before = key.1.checked_sub(1).map(|before| (key.0, before));
                    let follows = before.is_some_and(|before| state.in_flight_pieces.contains_key(&before));
                    state.store.keep(key, piece, follows, &mut room)
                }
                Ok(_) => {
                    state.store.clear_prefetched(key);
                    true
                }
                Err(error) if is_given_up(error) => {
                    if flight.is_passed_on(error) {
                        drop(state);
                        return self.demand(blob, piece, flight.clone());
                    }
                    // Not broken: the next reader tries again at once.
                    true
                }
                Err(error) => {
                    state.store.fail(key, error.clone());
                    true
                }
            };
            if done {
                state.store.stats.decodes += 1;
                let bytes = result.as_ref().ok().filter(|_| epoch.is_some()).map_or(0, |piece| to_u64(piece.len()));
                state.store.stats.decoded_bytes += bytes;
                state.in_flight_pieces.remove(&key);
                break;
            }
            drop(state);
            room.sweep();
        }
        drop(room);
        let waiting = flight.complete(result);
        if deliver == Deliver::Here || waiting.is_empty() {
            return InFlight::run(waiting, result);
        }
        let result = result.clone();
        if let Some(job) = self.pool.offer(Box::new(move || InFlight::run(waiting, &result))) {
            job();
        }
    }

    /// Runs the source check; clears the cache if it fails.
    fn unchanged(&self) -> Result<()> {
        let Some(source_check) = self.source_check.get() else { return Ok(()) };
        source_check().inspect_err(|_| self.clear())
    }

    /// A buffer to decode a piece into, and the reservation of its bytes.
    fn buffer(&self, layout: &Layout, piece: u64) -> Result<(Reservation<'_>, Vec<u8>)> {
        let range = layout.range(piece);
        let len = range.end.saturating_sub(range.start);
        let reservation = Reservation::new(self, len);
        let bytes = match reservation.buffer() {
            Some(mut bytes) => {
                bytes.resize(to_usize(len, "piece")?, 0);
                bytes
            }
            None => zeroed(len, "piece")?,
        };
        Ok((reservation, bytes))
    }
}

/// Runs a decoder and turns a panic into an error.
fn catch<T>(piece: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::corrupt(format!("the decoder panicked: {text}"), format!("piece {piece}")))
    })
}

/// Bytes reserved in the store while a piece is decoded.
struct Reservation<'a> {
    cache: &'a Cache,
    len: u64,
}

impl<'a> Reservation<'a> {
    fn new(cache: &'a Cache, len: u64) -> Self {
        cache.lock().store.reserve(len);
        Self { cache, len }
    }

    /// Evicts pieces; returns the buffer of one if it fits.
    fn buffer(&self) -> Option<Vec<u8>> {
        let mut room = Room::new(self.len);
        while !self.cache.lock().store.make_room(&mut room) {
            room.sweep();
        }
        room.buffer.take()
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
#[cfg(test)]
mod traces;
