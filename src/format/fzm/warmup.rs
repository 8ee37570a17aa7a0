//! Long work that a stream needs before a piece can be decoded, done in the background.
//!
//! The first read of a stream may sort millions of outliers or decode a whole array; a read far behind all earlier ones
//! may have to sum up everything in between (see [`Setup`]). That takes seconds, and a worker that did it would not
//! serve other files meanwhile. A [`Warmup`] therefore gives such a request a gate to wait at: a check thread reads one
//! byte at the place of the request, and the request continues when that has ended.
//!
//! Invariants: a stream is warmed up at one place at a time; a gate always opens, because an error that reading gives
//! again is left to the reader. A warm-up that failed for another reason fails the requests that wait for it; the next
//! request starts one at its own place. A caller that decodes without waiting at the gate does the work itself.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::checksum::{ChecksumGate, Threads, Verify};
use crate::error::Result;

use super::stream::Setup;

/// Bytes after the last decoded place that a worker may scan: a fraction of a second.
const NEAR: u64 = 256 << 20;

type Read = dyn Fn(u64) -> Result<()> + Send + Sync;

/// The setup of a stream.
pub(super) struct Warmup {
    setup: Setup,
    /// Reads some bytes at a place of the stream.
    read: Arc<Read>,
    threads: Threads,
    /// The end of the decoded part; 0 before the first piece.
    reached: AtomicU64,
    /// The place being warmed up.
    pending: Mutex<Option<Pending>>,
}

/// A warm-up that has not ended, or not been noticed.
struct Pending {
    place: u64,
    gate: ChecksumGate,
    /// Whether it ended with an error that says nothing about the stream.
    has_failed: Arc<AtomicBool>,
}

impl Warmup {
    /// For a stream with this setup, on `threads`. `read` reads some bytes at a place of it.
    pub(super) fn new(
        setup: Setup,
        threads: &Threads,
        read: impl Fn(u64) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        let (read, threads, pending) = (Arc::new(read), threads.clone(), Mutex::default());
        Self { setup, read, threads, reached: AtomicU64::new(0), pending }
    }

    /// The gate to wait at before reading at `at`; `None` if that takes no long work. Returns at once.
    pub(super) fn gate(&self, at: u64) -> Option<ChecksumGate> {
        if self.is_ready(at) {
            return None;
        }
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Pending { place, gate, has_failed }) = &*pending
            && !has_failed.load(Ordering::Acquire)
        {
            if gate.verdict().is_none() {
                return Some(gate.clone());
            }
            self.advance(place.saturating_add(1));
            if self.is_ready(at) {
                *pending = None;
                return None;
            }
        }
        let (read, has_failed) = (Arc::clone(&self.read), Arc::new(AtomicBool::new(false)));
        let failed = Arc::clone(&has_failed);
        let gate = ChecksumGate::new(&Verify::First, 0, &self.threads, move || match read(at) {
            Err(e) if !e.is_lasting() => {
                failed.store(true, Ordering::Release);
                Err(e)
            }
            _ => Ok(()),
        });
        *pending = Some(Pending { place: at, gate: gate.clone(), has_failed });
        Some(gate)
    }

    /// Records that the bytes up to `end` were decoded.
    pub(super) fn advance(&self, end: u64) {
        self.reached.fetch_max(end, Ordering::Relaxed);
    }

    fn is_ready(&self, at: u64) -> bool {
        let reached = self.reached.load(Ordering::Relaxed);
        match self.setup {
            Setup::None => true,
            Setup::Once => reached > 0,
            Setup::Scan => reached > 0 && at <= reached.saturating_add(NEAR),
        }
    }
}

impl fmt::Debug for Warmup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Warmup({:?}, to {})", self.setup, self.reached.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::clock::PATIENCE;
    use crate::error::Error;

    /// A warm-up that reports the places it reads; the test ends its reads.
    fn warmup(setup: Setup) -> (Warmup, mpsc::Receiver<u64>, mpsc::Sender<Result<()>>) {
        let ((started, starts), (end, ends)) = (mpsc::channel(), mpsc::channel());
        let ends = Mutex::new(ends);
        let read = move |at| {
            started.send(at).unwrap();
            ends.lock().unwrap().recv_timeout(PATIENCE).unwrap()
        };
        (Warmup::new(setup, &Threads::new(1), read), starts, end)
    }

    /// Waits at `gate` without blocking; the result arrives at the receiver.
    fn park(gate: &ChecksumGate) -> mpsc::Receiver<Result<()>> {
        let (tx, rx) = mpsc::channel();
        gate.when_open(move |outcome| tx.send(outcome).unwrap());
        rx
    }

    #[test]
    fn requests_wait_without_a_thread_while_the_stream_is_built_once() {
        let (warmup, starts, end) = warmup(Setup::Once);
        let waiting: Vec<_> = (0..100).map(|i| park(&warmup.gate(i << 20).unwrap())).collect();
        assert_eq!(starts.recv_timeout(PATIENCE).unwrap(), 0);
        assert!(waiting.iter().all(|rx| rx.try_recv().is_err()), "the build has not ended");
        end.send(Err(Error::corrupt("the first chunk is broken", "x"))).unwrap();
        assert!(waiting.iter().all(|rx| rx.recv_timeout(PATIENCE).unwrap().is_ok()));
        assert!(warmup.gate(0).is_none() && warmup.gate(1 << 40).is_none() && starts.try_recv().is_err());
    }

    #[test]
    fn an_error_that_may_pass_fails_the_request_and_the_next_one_tries_again() {
        let (warmup, _starts, end) = warmup(Setup::Once);
        let gate = warmup.gate(0).unwrap();
        end.send(Err(Error::no_memory("x"))).unwrap();
        assert!(park(&gate).recv_timeout(PATIENCE).unwrap().is_err());
        end.send(Ok(())).unwrap();
        assert!(park(&warmup.gate(0).unwrap()).recv_timeout(PATIENCE).unwrap().is_ok());
        assert!(warmup.gate(0).is_none());
    }

    #[test]
    fn a_place_that_cannot_be_read_now_does_not_keep_others_from_being_read() {
        let (warmup, starts, end) = warmup(Setup::Scan);
        let far = park(&warmup.gate(1 << 40).unwrap());
        end.send(Err(Error::no_memory("x"))).unwrap();
        assert!(far.recv_timeout(PATIENCE).unwrap().is_err());
        let near = park(&warmup.gate(7).unwrap());
        end.send(Ok(())).unwrap();
        assert!(near.recv_timeout(PATIENCE).unwrap().is_ok());
        assert_eq!(starts.try_iter().collect::<Vec<_>>(), [1 << 40, 7]);
        assert!(warmup.gate(7).is_none() && warmup.gate(1 << 40).is_some());
    }

    #[test]
    fn only_a_far_jump_in_a_scanned_stream_waits() {
        let (warmup, starts, end) = warmup(Setup::Scan);
        warmup.advance(1 << 20);
        assert!(warmup.gate(NEAR).is_none());
        let far = park(&warmup.gate(1 << 40).unwrap());
        assert_eq!(starts.recv_timeout(PATIENCE).unwrap(), 1 << 40);
        assert!(warmup.gate(NEAR).is_none(), "what was read stays readable meanwhile");
        end.send(Ok(())).unwrap();
        assert!(far.recv_timeout(PATIENCE).unwrap().is_ok());
        assert!(warmup.gate(1 << 40).is_none() && warmup.gate((1 << 40) + 2 * NEAR).is_some());
        let (cheap, ..) = self::warmup(Setup::None);
        assert!(cheap.gate(1 << 40).is_none());
    }
}
