//! Sums at regular places of a stream, from which decoding can start; computed as far as needed.
//!
//! A stream with bytes that depend on all earlier ones is scanned once, from the front. A sequential reader scans as it
//! reads; a jump first scans everything before its target. Nothing is scanned twice.
//!
//! One thread scans at a time, and holds no lock while it reads and decodes. Other threads that need entries still
//! unknown wait until the scan has found them, not until it ends.
//!
//! Invariant: entry 0 is 0; known entries are final.
#![forbid(unsafe_code)]

use std::sync::{PoisonError, RwLock};

use super::Context;
use super::array_store::ArrayStore;
use crate::account::decode_budget;
use crate::error::{Error, Kind, Result};
use crate::sync::{Mutex, MutexGuard};
use crate::wanted::Condition;

/// The entries, 8 bytes each.
pub(super) struct Checkpoints {
    cx: Context,
    what: &'static str,
    /// Total number of entries, at least 1.
    count: u64,
    known: RwLock<Scanned>,
    scan: Mutex<Scan>,
    /// Notified when the scan has found entries, and when it ends.
    advanced: Condition,
}

/// Whether a thread scans, and the error that ended the scan for good.
#[derive(Default)]
struct Scan {
    is_running: bool,
    failure: Option<Error>,
}

/// The right to scan, of one thread at a time; given up on drop, also when unwinding.
struct ScanGuard<'a>(&'a Checkpoints);

impl Drop for ScanGuard<'_> {
    fn drop(&mut self) {
        self.0.scan().is_running = false;
        self.0.advanced.notify_all();
    }
}

struct Scanned {
    /// Created for the first entry after entry 0.
    entries: Option<ArrayStore>,
    count: u64,
    last: u64,
}

/// Progress of the scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frontier {
    /// Strides scanned; the last known entry belongs to the next stride.
    pub(super) scanned: u64,
    /// The last known entry.
    pub(super) last: u64,
}

impl Checkpoints {
    /// For a stream with `count` places, with only the first one known.
    pub(super) fn new(count: u64, cx: &Context, what: &'static str) -> Self {
        let known = RwLock::new(Scanned { entries: None, count: 1, last: 0 });
        let (scan, advanced) = (Mutex::default(), Condition::new());
        Self { cx: cx.clone(), what, count: count.max(1), known, scan, advanced }
    }

    /// Progress of the scan.
    pub(super) fn frontier(&self) -> Frontier {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        Frontier { scanned: known.count.saturating_sub(1), last: known.last }
    }

    /// Checks that a place `bytes` after the frontier is within the limit of a scan.
    ///
    /// # Errors
    /// Fails with [`Kind::TooLarge`] if not, before any work is done.
    pub(super) fn within_reach(&self, bytes: u64) -> Result<()> {
        let limit = self.limit();
        if bytes <= limit {
            return Ok(());
        }
        Err(Error::new(Kind::TooLarge { value: bytes, limit }, "bytes to decode before this offset"))
    }

    fn scan(&self) -> MutexGuard<'_, Scan> {
        self.scan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limit(&self) -> u64 {
        self.cx.build_limit(self.count.saturating_mul(8))
    }

    /// Entry `index`, if it is known.
    pub(super) fn get(&self, index: u64) -> Result<Option<u64>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.entry(index, self.what)
    }

    /// The number of known entries before the first for which `before` is false; entries must be ascending.
    pub(super) fn partition_point(&self, before: impl Fn(u64) -> bool) -> Result<u64> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let (mut low, mut high) = (0, known.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match known.entry(middle, self.what)? {
                Some(entry) if before(entry) => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// Scans until `enough` returns true, or to the end. `next` gets the frontier and appends at least one following
    /// entry; no lock is held meanwhile.
    ///
    /// # Errors
    /// Fails as `next` does; an error about the bytes ends the scan for good. Fails if there is no space for the
    /// entries.
    pub(super) fn reach(
        &self,
        enough: impl Fn(Frontier) -> bool,
        mut next: impl FnMut(Frontier, &mut Vec<u64>) -> Result<()>,
    ) -> Result<()> {
        let done = |frontier: Frontier| enough(frontier) || frontier.scanned.saturating_add(1) >= self.count;
        if done(self.frontier()) {
            return Ok(());
        }
        let mut scan = self.scan();
        loop {
            if done(self.frontier()) {
                return Ok(());
            }
            if let Some(e) = &scan.failure {
                return Err(e.clone());
            }
            if !scan.is_running {
                break;
            }
            scan = self.advanced.wait(&self.scan, scan)?;
        }
        scan.is_running = true;
        drop(scan);
        let _turn = ScanGuard(self);
        let scanned = decode_budget::build(&self.cx.account, self.limit(), || {
            let mut entries = Vec::new();
            loop {
                let frontier = self.frontier();
                if done(frontier) {
                    return Ok(());
                }
                entries.clear();
                next(frontier, &mut entries)?;
                self.add(frontier, &entries)?;
                // A thread that has not seen these entries is waiting once it has released the lock.
                drop(self.scan());
                self.advanced.notify_all();
            }
        });
        if let Err(e) = &scanned
            && decode_budget::is_final(e)
        {
            self.scan().failure = Some(e.clone());
        }
        scanned
    }

    /// Adds the entries that follow `frontier`; does nothing if another thread already did.
    pub(super) fn add(&self, frontier: Frontier, entries: &[u64]) -> Result<()> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.count != frontier.scanned.saturating_add(1) {
            return Ok(());
        }
        for &entry in entries {
            if known.count >= self.count {
                return Err(Error::corrupt("more entries than expected", self.what));
            }
            let at = known.count.saturating_mul(8);
            if known.entries.is_none() {
                known.entries = Some(ArrayStore::new(self.count.saturating_mul(8), &self.cx.account, self.what)?);
            }
            if let Some(store) = &mut known.entries {
                store.write(at, &entry.to_le_bytes())?;
            }
            known.count += 1;
            known.last = entry;
        }
        if entries.is_empty() { Err(Error::corrupt("the scan does not advance", self.what)) } else { Ok(()) }
    }
}

impl Scanned {
    fn entry(&self, index: u64, what: &'static str) -> Result<Option<u64>> {
        match (&self.entries, index) {
            _ if index >= self.count => Ok(None),
            (_, 0) => Ok(Some(0)),
            (Some(entries), _) => entries.entry(index).map(Some),
            (None, _) => Err(Error::corrupt("an entry is missing", what)),
        }
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../../../tests/models/checkpoints.rs"]
mod models;

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;

    use super::super::testing::context;
    use super::*;

    /// Adds `3 * (scanned + 1)`, two at a time, and counts the calls.
    fn threes(calls: &mut u64, count: u64) -> impl FnMut(Frontier, &mut Vec<u64>) -> Result<()> {
        move |frontier, entries| {
            *calls += 1;
            entries.extend((frontier.scanned + 1..).take(2).filter(|&i| i < count).map(|i| 3 * i));
            Ok(())
        }
    }

    #[test]
    fn a_scan_reads_as_far_as_needed_and_nothing_twice() {
        let (points, mut calls) = (Checkpoints::new(10, &context(), "x"), 0);
        assert_eq!((points.get(0).unwrap(), points.get(1).unwrap()), (Some(0), None));
        points.reach(|f| f.last >= 9, threes(&mut calls, 10)).unwrap();
        assert_eq!((points.frontier(), calls), (Frontier { scanned: 4, last: 12 }, 2));
        points.reach(|f| f.scanned >= 2, threes(&mut calls, 10)).unwrap();
        assert_eq!(calls, 2);
        points.reach(|_| false, threes(&mut calls, 10)).unwrap();
        assert_eq!((points.frontier(), calls), (Frontier { scanned: 9, last: 27 }, 5));
        assert_eq!(points.get(7).unwrap(), Some(21));
        assert_eq!(points.partition_point(|entry| entry <= 7).unwrap(), 3);
        assert_eq!(points.partition_point(|_| true).unwrap(), 10);
    }

    #[test]
    fn a_thread_waits_for_its_own_entry_and_not_for_the_end_of_the_scan() {
        let points = Checkpoints::new(100, &context(), "x");
        let (found, wait) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let next = |frontier: Frontier, entries: &mut Vec<u64>| {
                    if frontier.scanned == 9 {
                        found.wait();
                        wait.wait();
                    }
                    entries.push(frontier.scanned + 1);
                    Ok(())
                };
                points.reach(|_| false, next).unwrap();
            });
            found.wait();
            // The other thread is in the middle of its scan, and stays there: both return without it.
            points.reach(|f| f.scanned >= 9, |_, _| unreachable!()).unwrap();
            assert_eq!(points.get(9).unwrap(), Some(9));
            wait.wait();
            points.reach(|f| f.scanned >= 50, |_, _| Err(Error::corrupt("scanned twice", "x"))).unwrap();
        });
    }

    #[test]
    fn a_scan_that_panics_lets_the_next_thread_scan() {
        let (points, mut calls) = (Checkpoints::new(10, &context(), "x"), 0);
        let panics = || points.reach(|_| false, |_, _| panic!("as the test wants it"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        points.reach(|_| false, threes(&mut calls, 10)).unwrap();
        assert_eq!(points.get(9).unwrap(), Some(27));
    }

    #[test]
    fn a_format_error_ends_the_scan_and_known_entries_stay() {
        let (points, mut calls) = (Checkpoints::new(10, &context(), "x"), 0);
        points.reach(|f| f.scanned >= 4, threes(&mut calls, 10)).unwrap();
        let broken = |_: Frontier, _: &mut Vec<u64>| Err(Error::corrupt("no", "y"));
        assert!(points.reach(|_| false, broken).is_err());
        assert!(points.reach(|_| false, threes(&mut calls, 10)).is_err());
        points.reach(|f| f.scanned >= 4, broken).unwrap();
        assert_eq!(points.get(4).unwrap(), Some(12));
    }
}
