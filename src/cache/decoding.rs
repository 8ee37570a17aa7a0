//! The decodes of the cache: each ends its flight and caches its result.
//!
//! Invariants: a panic of a decoder is an error; bytes of a changed source are neither cached nor served.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::in_flight::InFlight;
use super::store::DecodeRoom;
use super::{Cache, Deliver};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::{BlobRef, Layout, Piece};
use crate::limits::zeroed;
use crate::wanted::is_given_up;

impl Cache {
    /// Decodes the piece of a flight that this thread has claimed, caches it and completes the flight.
    pub(super) fn decode(&self, flight: &Arc<InFlight>, blob: &BlobRef, piece: u64, deliver: Deliver) -> Result<Piece> {
        let mut epoch = Some(self.lock().store.epoch);
        let decoded = catch(piece, || {
            if let Some(piece) = blob.in_order().and_then(|blob| blob.ready_soon(piece)) {
                // The blob keeps it.
                epoch = None;
                return Ok(piece);
            }
            let (_aside, mut bytes) = self.buffer(&blob.layout()?, piece)?;
            blob.decode(piece, &mut bytes)?;
            Ok(Arc::new(bytes))
        });
        // A changed source yields bytes and errors of another file.
        let result = self.unchanged().and(decoded);
        let result = Self::check_gate(blob, piece, result);
        self.complete(flight, (blob, piece), epoch, &result, deliver);
        result
    }

    /// Like [`Cache::decode`], for consecutive pieces: in one batch, or one by one if the batch fails.
    pub(super) fn decode_batch(&self, blob: &BlobRef, row: &[(u64, Arc<InFlight>)]) {
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
    /// given up is done again for the waiters that have not.
    fn complete(
        &self,
        flight: &Arc<InFlight>,
        (blob, piece): (&BlobRef, u64),
        epoch: Option<u64>,
        result: &Result<Piece>,
        deliver: Deliver,
    ) {
        let key = (blob.id(), piece);
        let mut room = DecodeRoom::default();
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
        let mut room = DecodeRoom::new(self.len);
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
