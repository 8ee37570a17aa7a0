//! Checksums over stretches of the container, and the gate that keeps bytes back until one is known.
//!
//! A [`Gate`] stands before bytes that a checksum covers as a whole (FZM: one CRC-32 over the
//! payload). Its check runs once, on all cores, when the first such byte is asked for.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;

use crate::bytes::{FileOffset, narrow, wide};
use crate::error::{Error, Result};
use crate::limits::zeroed;
use crate::source::Source;

/// When a checksum that covers much more than what is read is computed.
#[derive(Debug, Clone, Default)]
pub enum Verify {
    /// Before the first byte that it covers is served.
    #[default]
    First,
    /// Beside the reading; reads fail from the moment that it fails.
    Background(Beside),
    /// Not at all.
    Off,
}

/// The checks that were begun beside the reading; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Beside(Arc<Begun>);

#[derive(Debug, Default)]
struct Begun {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: u64,
    failed: Option<Error>,
}

impl Beside {
    /// Waits until all of them have ended.
    ///
    /// # Errors
    /// That of the first that failed.
    pub fn settle(&self) -> Result<()> {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.0.ended.wait_while(state, |state| state.running > 0);
        state.unwrap_or_else(PoisonError::into_inner).failed.clone().map_or(Ok(()), Err)
    }

    fn begin(&self) -> Running {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).running += 1;
        Running(self.clone())
    }
}

/// A check that was begun and has not ended; one that panics ends too.
struct Running(Beside);

impl Running {
    fn ends(&self, verdict: Result<()>) {
        let mut state = self.0.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failed = state.failed.take().or(verdict.err());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.state.lock().unwrap_or_else(PoisonError::into_inner).running -= 1;
        self.0.0.ended.notify_all();
    }
}

/// Bytes read at a time while a checksum is computed.
const STRIDE: u64 = 1 << 20;

/// CRC-32 (IEEE, reflected, as zlib) of `len` bytes at `at`, read and computed on all cores.
///
/// On threads of its own: a thread of a pool that waits here would take up other work of the pool,
/// which may ask for the very checksum it is computing.
///
/// # Errors
/// As [`Source::read`].
pub fn crc32(source: &Source, at: FileOffset, len: u64, what: &'static str) -> Result<u32> {
    let strides = len.div_ceil(STRIDE);
    let next = AtomicU64::new(0);
    let work = || -> Result<Vec<(u64, crc32fast::Hasher)>> {
        let mut parts = Vec::new();
        let mut buffer = zeroed(STRIDE.min(len), what)?;
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= strides {
                return Ok(parts);
            }
            let start = i.saturating_mul(STRIDE);
            let n = narrow(STRIDE.min(len.saturating_sub(start)), what)?;
            let bytes = buffer.get_mut(..n).unwrap_or_default();
            source.read(at.plus(start), bytes, what)?;
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(bytes);
            parts.push((i, hasher));
        }
    };
    let cores = thread::available_parallelism().map_or(1, |n| wide(n.get()));
    let mut parts = thread::scope(|scope| {
        // Where the system has no more threads, those that there are do it.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..cores.min(strides)).filter_map(spawn).collect();
        let mut parts = work()?;
        for other in others {
            parts.extend(other.join().map_err(|_| Error::corrupt("the checksum thread died", what))??);
        }
        Ok::<_, Error>(parts)
    })?;
    parts.sort_unstable_by_key(|(i, _)| *i);
    let mut whole = crc32fast::Hasher::new();
    for (_, part) in &parts {
        whole.combine(part);
    }
    Ok(whole.finalize())
}

type Check = dyn Fn() -> Result<()> + Send + Sync;

/// A check that runs once, and keeps bytes back until it has passed.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    mode: Verify,
    check: Box<Check>,
    verdict: OnceLock<Result<()>>,
    started: OnceLock<()>,
}

impl Gate {
    /// A gate that opens as `mode` says when `check` passes.
    pub fn new(mode: Verify, check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { mode, check: Box::new(check), verdict: OnceLock::new(), started: OnceLock::new() }))
    }

    /// Returns when bytes behind the gate may be served; may compute for as long as the check takes.
    ///
    /// # Errors
    /// The check's own error, for this and every later caller.
    pub fn pass(&self) -> Result<()> {
        match &self.0.mode {
            Verify::Off => Ok(()),
            Verify::First => self.check(),
            Verify::Background(beside) => {
                self.0.started.get_or_init(|| {
                    let (gate, running) = (self.clone(), beside.begin());
                    rayon::spawn(move || running.ends(gate.check()));
                });
                self.0.verdict.get().cloned().unwrap_or(Ok(()))
            }
        }
    }

    /// Whether [`Gate::pass`] would answer at once.
    pub fn is_decided(&self) -> bool {
        match &self.0.mode {
            Verify::Off => true,
            Verify::First => self.0.verdict.get().is_some(),
            Verify::Background(_) => self.0.started.get().is_some(),
        }
    }

    /// Whether [`Gate::pass`] would say yes, at once.
    pub fn is_open(&self) -> bool {
        match self.0.mode {
            Verify::Off => true,
            Verify::First => self.0.verdict.get().is_some_and(Result::is_ok),
            Verify::Background(_) => self.0.started.get().is_some() && self.0.verdict.get().is_none_or(Result::is_ok),
        }
    }

    /// The verdict, if the check has run.
    pub fn verdict(&self) -> Option<Result<()>> {
        self.0.verdict.get().cloned()
    }

    /// The verdict itself, computed now if it was not: what `verify` asks, whatever the mode.
    ///
    /// # Errors
    /// The check's own error.
    pub fn check(&self) -> Result<()> {
        self.0.verdict.get_or_init(|| (self.0.check)()).clone()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("mode", &self.0.mode)
            .field("verdict", &self.0.verdict.get())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn crc32_in_parts_equals_crc32_in_one_go() {
        let bytes: Vec<u8> = (0..3_500_001_u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        let source = Source::from_bytes(bytes.clone());
        for (at, len) in [(0, bytes.len()), (5, 0), (7, 1), (1, 3_400_000)] {
            let want = crc32fast::hash(&bytes[at..at + len]);
            assert_eq!(crc32(&source, FileOffset(wide(at)), wide(len), "payload").unwrap(), want);
        }
    }

    #[test]
    fn a_gate_asks_once_and_remembers() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let gate = Gate::new(Verify::First, || {
            ASKED.fetch_add(1, Ordering::Relaxed);
            Err(Error::corrupt("no", "x"))
        });
        assert!(!gate.is_decided());
        assert!(gate.pass().is_err() && gate.pass().is_err() && gate.clone().pass().is_err());
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_gate_may_be_asked_from_every_thread_of_a_pool_at_once() {
        let source = Source::from_bytes(vec![1; 20 << 20]);
        let gate = Gate::new(Verify::First, move || crc32(&source, FileOffset(0), 20 << 20, "payload").map(drop));
        (0..1000).into_par_iter().for_each(|_| gate.pass().unwrap());
        assert!(gate.verdict().is_some());
    }

    #[test]
    fn checks_beside_the_reading_are_heard_at_the_end() {
        let beside = Beside::default();
        beside.settle().unwrap();
        let gate = |check: fn() -> Result<()>| Gate::new(Verify::Background(beside.clone()), check);
        let slow = gate(|| {
            thread::sleep(std::time::Duration::from_millis(20));
            Err(Error::corrupt("late", "x"))
        });
        beside.settle().unwrap();
        slow.pass().unwrap();
        gate(|| Ok(())).pass().unwrap();
        assert_eq!(beside.settle().unwrap_err().to_string(), "late (x)");
        assert!(slow.pass().is_err());
    }

    #[test]
    fn a_gate_that_is_off_never_asks_but_verify_does() {
        let gate = Gate::new(Verify::Off, || Err(Error::corrupt("no", "x")));
        gate.pass().unwrap();
        assert!(gate.check().is_err());
        gate.pass().unwrap();
    }
}
