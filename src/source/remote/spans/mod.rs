//! The spans of one object, in memory and in flight.
//!
//! Spans do not overlap, so that no byte is fetched twice while it is kept. They are charged to the account, up to a
//! share of it, and the least recently used make room for others. A file on disk is one span, so a span comes either
//! from disk or from the server.
//!
//! Ten bytes at 1 MiB are read: the span from there to 1 MiB + 32 KiB is fetched. Then the same with ten bytes more
//! before and after that span are read: three spans cover them, the ten bytes before, the span that is there, and the
//! 32 KiB after it. The first and the last are fetched.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use crate::account::Account;
use crate::bytes::to_u64;
use crate::error::Result;
use crate::limits::{Charge, zeroed};
use crate::lru_list::LruList;
use crate::sync::{Mutex, MutexGuard};

use super::disk::Disk;
use super::span::Span;
use super::streams::{LARGEST, RangeAhead, SMALLEST};

/// Smallest range that is fetched ahead by itself; a smaller rest of an object is fetched with what is before it.
const LEAST_AHEAD: u64 = 1 << 20;
/// The end of an object is fetched as one: indexes, manifests and trailers lie there.
pub(super) const TAIL: u64 = 16 << 10;
/// Largest range of one request for announced ranges. All of them are requested at once, and a connection brings only
/// so much in a round trip.
const ANNOUNCED: u64 = 8 << 20;
/// Ranges with smaller gaps between them are fetched as one.
const GAP: u64 = 64 << 10;
/// The cost of a span besides its bytes.
const OVERHEAD: u64 = 256;

/// The spans of one object.
#[derive(Debug)]
pub(super) struct Spans {
    size: u64,
    account: Account,
    /// Maximum number of bytes.
    most: u64,
    disk: Option<Arc<Disk>>,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// By their start.
    spans: BTreeMap<u64, (Arc<Span>, Option<Charge>)>,
    /// Their starts, weighed in bytes.
    used: LruList<u64, ()>,
}

/// The spans that a read needs.
#[derive(Debug, Default)]
pub(super) struct Needed {
    /// The spans that cover it.
    pub(super) cover: Vec<Arc<Span>>,
    /// The spans to fetch, some of them ahead of the read.
    pub(super) fetch: Vec<Arc<Span>>,
}

impl Spans {
    /// For an object of `size` bytes, with at most `most` bytes of `account`.
    pub(super) fn new(size: u64, account: &Account, most: u64, disk: Option<Arc<Disk>>) -> Self {
        let kept = Kept { spans: BTreeMap::new(), used: LruList::unbounded() };
        Self { size, account: account.clone(), most, disk, kept: Mutex::new(kept) }
    }

    /// Keeps the bytes of `head`, which was fetched before the size was known, as far as the object goes; returns the
    /// span, unless there are none.
    ///
    /// # Errors
    /// As [`Span::push`].
    pub(super) fn insert_head(&self, head: &Span) -> Result<Option<Arc<Span>>> {
        let mut bytes = zeroed(head.missing_from().min(self.size), "bytes of an object")?;
        head.copy(0, &mut bytes)?;
        self.insert(0, &bytes)
    }

    /// Keeps `bytes`, which begin at `start`, where nothing is yet, if there is room; returns the span, unless there are
    /// none.
    ///
    /// # Errors
    /// As [`Span::push`].
    pub(super) fn insert(&self, start: u64, bytes: &[u8]) -> Result<Option<Arc<Span>>> {
        let range = start..start.saturating_add(to_u64(bytes.len()));
        if range.is_empty() {
            return Ok(None);
        }
        let span = Arc::new(Span::new(range.clone()));
        span.push(bytes)?;
        let mut kept = self.lock();
        if let Some(charge) = self.make_room(&mut kept, &range) {
            kept.insert(&span, Some(charge));
        }
        Ok(Some(span))
    }

    /// The spans for `ranges`, each with what to fetch besides; adds the missing ones. With `is_exact`, the ranges are
    /// announced: small ones are not widened, and any without room are left out.
    pub(super) fn needed(&self, ranges: &[(Range<u64>, RangeAhead)], is_exact: bool) -> Needed {
        let mut kept = self.lock();
        let mut needed = Needed::default();
        for (range, ahead) in ranges {
            let mut until = ahead.until.min(self.size).max(range.end);
            let (window, rest) = (until.saturating_sub(range.end), self.size.saturating_sub(until));
            if window > 0 && rest < LEAST_AHEAD.max(window.min(LARGEST)) {
                until = self.size;
            }
            let ahead = RangeAhead { until, ..*ahead };
            let cover = self.cover(&mut kept, range, ahead, is_exact, &mut needed.fetch);
            let is_wanted = |span: &Arc<Span>| span.range().start < range.end;
            needed.cover.extend(cover.into_iter().filter(is_wanted));
        }
        needed
    }

    /// Covers `range` by spans, and on to `until` while there is room for more than the awaited ones; with `is_exact`,
    /// none is awaited. Adds missing spans, to `fetch` too.
    fn cover(
        &self,
        kept: &mut Kept,
        range: &Range<u64>,
        ahead: RangeAhead,
        is_exact: bool,
        fetch: &mut Vec<Arc<Span>>,
    ) -> Vec<Arc<Span>> {
        let RangeAhead { until, hole } = ahead;
        let mut cover = Vec::new();
        let mut at = range.start;
        // A little more ahead is not worth a request, nor is the part that the next window will fetch.
        let least = if until == self.size { LEAST_AHEAD } else { LARGEST };
        let largest = if until == range.end { ANNOUNCED } else { LARGEST };
        while at < range.end || until.saturating_sub(at) >= least {
            if let Some(span) = kept.at(at) {
                at = span.range().end;
                cover.push(span);
                continue;
            }
            let mut free = kept.free_around(at, self.size);
            let stored = self.disk.as_ref().map(|disk| disk.there(at));
            if let Some(Err(Some(next))) = stored {
                free.end = free.end.min(next);
            }
            let stored = stored.and_then(Result::ok).map(|stored| at..stored.end.min(free.end));
            let until = if free.end.saturating_sub(at) <= hole { free.end.max(until) } else { until };
            let gap = |end: u64| match &stored {
                Some(stored) => stored.clone(),
                None if is_exact => at..end.min(free.end).min(at.saturating_add(largest)),
                None => self.widened(at..end.min(free.end), &free),
            };
            // Without room now, an announced range is fetched when it is read.
            let (awaited, ahead) = (at < range.end && !is_exact, gap(until));
            let (gap, charge) = match self.make_room(kept, &ahead) {
                None if !awaited => break,
                None => {
                    let all = gap(range.end);
                    match self.make_room(kept, &all) {
                        // It is dropped after the read, so it is no longer than the reader's buffer.
                        None => {
                            let most = range.end.min(free.end).min(at.saturating_add(LARGEST));
                            (stored.clone().unwrap_or(at..most), None)
                        }
                        charge => (all, charge),
                    }
                }
                charge => (ahead, charge),
            };
            let span = Arc::new(Span::new(gap.clone()));
            kept.insert(&span, charge);
            fetch.push(span.clone());
            at = gap.end;
            cover.push(span);
        }
        cover
    }

    /// The range to fetch for the missing `gap`, within `free`, which nothing covers.
    fn widened(&self, gap: Range<u64>, free: &Range<u64>) -> Range<u64> {
        let tail = self.size.saturating_sub(TAIL);
        // A small hole before it would take a separate request.
        let is_small = gap.start.saturating_sub(free.start) < SMALLEST;
        let mut start = if is_small { free.start } else { gap.start };
        let mut end = gap.end.max(gap.start.saturating_add(SMALLEST));
        if end > tail && gap.end.saturating_sub(gap.start) <= TAIL {
            start = start.min(tail);
            end = self.size;
        }
        start = start.max(free.start);
        start..end.min(free.end).min(gap.start.saturating_add(LARGEST))
    }

    /// Charges the bytes of `range`, after removing spans that were not used for the longest time, if need be.
    fn make_room(&self, kept: &mut Kept, range: &Range<u64>) -> Option<Charge> {
        let len = range.end.saturating_sub(range.start);
        let cost = len.saturating_add(OVERHEAD);
        for _ in 0..=kept.spans.len() {
            if kept.used.weight().saturating_add(len) <= self.most
                && let Some(charge) = self.account.charge_spare(cost, "bytes of an object")
            {
                return Some(charge);
            }
            let oldest = *kept.used.oldest()?.0;
            match kept.spans.get(&oldest) {
                // On its way: it stays.
                Some((span, _)) if !span.is_done() => _ = kept.used.get(&oldest),
                _ => kept.remove(oldest),
            }
        }
        None
    }

    /// Called when a span is done: forgets it if it failed, or if there was no room for it.
    pub(super) fn settle(&self, span: &Arc<Span>) {
        let mut kept = self.lock();
        let start = span.range().start;
        let is_passing = |(there, charge): &(Arc<Span>, Option<Charge>)| {
            Arc::ptr_eq(there, span) && (charge.is_none() || span.has_failed())
        };
        if kept.spans.get(&start).is_some_and(is_passing) {
            kept.remove(start);
        }
    }

    /// How many bytes of `range` are neither there nor on disk.
    pub(super) fn missing(&self, range: &Range<u64>) -> u64 {
        let kept = self.lock();
        let (mut at, mut missing) = (range.start, 0_u64);
        while at < range.end {
            let next = kept.spans.range(at..).next().map_or(range.end, |(start, _)| (*start).min(range.end));
            let span = kept.spans.range(..=at).next_back().map(|(_, (span, _))| span);
            if let Some(span) = span.filter(|span| span.range().contains(&at) && !span.has_failed()) {
                at = span.range().end;
                continue;
            }
            at = match self.disk.as_ref().map(|disk| disk.there(at)) {
                Some(Ok(there)) => there.end,
                other => {
                    let next = other.and_then(|other| other.err()?).map_or(next, |stored| stored.min(next));
                    // A span that has failed may begin here.
                    let next = next.max(at.saturating_add(1));
                    missing = missing.saturating_add(next.saturating_sub(at));
                    next
                }
            };
        }
        missing
    }

    /// Whether `span` is one of them.
    pub(super) fn has(&self, span: &Arc<Span>) -> bool {
        self.lock().spans.get(&span.range().start).is_some_and(|(own, _)| Arc::ptr_eq(own, span))
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        let mut kept = self.lock();
        *kept = Kept { spans: BTreeMap::new(), used: LruList::unbounded() };
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// The span that has the byte at `at`, or will have it.
    fn at(&mut self, at: u64) -> Option<Arc<Span>> {
        let (start, (span, _)) = self.spans.range(..=at).next_back()?;
        let (start, span) = (*start, span.clone());
        if !span.range().contains(&at) {
            return None;
        }
        if span.has_failed() {
            // Its waiters have the error; later readers try again.
            self.remove(start);
            return None;
        }
        self.used.get(&start);
        Some(span)
    }

    /// The range around `at`, which no span has, up to the next spans.
    fn free_around(&self, at: u64, size: u64) -> Range<u64> {
        let start = self.spans.range(..=at).next_back().map_or(0, |(_, (span, _))| span.range().end);
        let end = self.spans.range(at..).next().map_or(size, |(start, _)| *start);
        start..end
    }

    fn insert(&mut self, span: &Arc<Span>, charge: Option<Charge>) {
        let start = span.range().start;
        self.used.push(start, (), span.len());
        self.spans.insert(start, (span.clone(), charge));
    }

    fn remove(&mut self, start: u64) {
        self.used.remove(&start);
        self.spans.remove(&start);
    }
}

/// Joins ranges, sorted by their start, with small gaps between them.
pub(super) fn joined(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match out.last_mut().filter(|last| range.start <= last.end.saturating_add(GAP)) {
            Some(last) => last.end = last.end.max(range.end),
            None => out.push(range.clone()),
        }
    }
    out
}

#[cfg(all(test, shuttle))]
#[path = "../../../../tests/models/spans.rs"]
mod models;

#[cfg(test)]
mod tests;
