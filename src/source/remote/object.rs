//! One object: its spans, in memory and in flight, and its readers.
//!
//! Invariants: bytes of a version other than the opened one are never returned; no reader waits for a request that has
//! ended.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout};

use crate::account::Account;
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};

use crate::source::origin::{Need, Origin, Part};
use crate::source::{RemoteOptions, combined};
use crate::wanted::{self, GivenUp, Wanted, is_given_up};

use super::address::{Address, Clients};
use super::disk::Disk;
use super::fetch::{Fetch, Opening};
use super::session::{self, Session, first};
use super::span::Span;
use super::spans::{Needed, Spans, TAIL, joined};
use super::streams::{RangeAhead, Streams};
use super::tail::Tail;
use super::version::Version;
use super::writes::Writes;

/// Bytes that are fetched when the object is opened.
pub(super) const HEAD: u64 = 16 << 10;
/// A range is near if at most this part of it is missing, or this many bytes.
const NEAR: u64 = 16;
const NEAR_BYTES: u64 = 64 << 10;
/// How long the end waits for writes to disk.
const WRITTEN: Duration = Duration::from_secs(5);
/// Number of times that a reader joins a request of others before it makes its own.
const JOINS: usize = 3;

/// An object on a server.
#[derive(Debug)]
pub(super) struct Object {
    shared: Arc<ObjectState>,
    session: Arc<Session>,
    streams: Mutex<Streams>,
    /// Whether ranges are announced before they are read.
    is_announced: AtomicBool,
    since: Option<i64>,
}

/// The state that requests share with the object.
#[derive(Debug)]
struct ObjectState {
    address: Arc<Address>,
    version: Arc<Version>,
    spans: Spans,
    disk: Option<Arc<Disk>>,
    writes: Arc<Writes>,
    timeout: Duration,
    /// Set when another version was seen; never cleared.
    changed: AtomicBool,
}

/// Fails a span whose fetch has ended for any reason, so that no reader waits for ever.
struct Guard {
    shared: Arc<ObjectState>,
    span: Arc<Span>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.span.cancel();
        self.shared.spans.settle(&self.span);
    }
}

impl Object {
    /// Opens the object at `address`, and pins its current version; takes at most `most` bytes of memory. The end of a
    /// long container is likely to be read next, and is fetched at the same time.
    ///
    /// # Errors
    /// [`Kind::Io`] if the server cannot be reached or refuses; [`Kind::Unsupported`] if it has no way to tell versions
    /// apart; [`Kind::Usage`] if the version is not the one that the user expects.
    pub(super) fn open(
        address: Address,
        session: &Arc<Session>,
        options: &RemoteOptions,
        account: &Account,
        most: u64,
        is_long: bool,
    ) -> Result<Self> {
        let address = Arc::new(address);
        let disk = options.cache.as_ref().map(|cache| Disk::new(cache, &address.identity())).transpose()?;
        let (runtime, clients) = session.enter(&address)?;
        let head = Span::new(0..HEAD);
        wanted::spend(HEAD)?;
        let known = disk.as_ref().and_then(Disk::known);
        let fetch = Fetch { address: address.clone(), clients, timeout: options.timeout, pinned: None, known };
        let with_tail = is_long && fetch.known.is_none();
        let (Opening { version, since }, tail) = session::wait(&runtime, begin(fetch, &head, with_tail))?;
        check_version(&version, options)?;
        let disk = disk.map(Arc::new);
        if let Some(disk) = &disk {
            disk.pin(&version);
        }
        let spans = Spans::new(version.size, account, most, disk.clone());
        let mut there = vec![spans.insert_head(&head)?];
        if let Some(Tail { start, bytes, .. }) = tail {
            let own = usize::try_from(HEAD.saturating_sub(start)).unwrap_or(usize::MAX);
            there.push(spans.insert(start.max(HEAD), bytes.get(own..).unwrap_or_default())?);
        }
        if let Some(disk) = &disk {
            there.iter().flatten().for_each(|span| disk.store(span));
        }
        let (version, timeout) = (Arc::new(version), options.timeout);
        let (writes, changed) = (Arc::default(), AtomicBool::new(false));
        let shared = ObjectState { address, version, spans, disk, writes, timeout, changed };
        let streams = Mutex::new(Streams::new(most / 2));
        let is_announced = AtomicBool::new(false);
        Ok(Self { shared: Arc::new(shared), session: session.clone(), streams, is_announced, since })
    }

    /// When it was opened, by the clock of its server.
    pub(super) fn since(&self) -> Option<i64> {
        self.since
    }

    /// The version that is served.
    pub(super) fn version(&self) -> &Version {
        &self.shared.version
    }

    fn unchanged(&self) -> Result<()> {
        if self.shared.changed.load(Ordering::Acquire) { Err(Error::new(Kind::Changed, "object")) } else { Ok(()) }
    }

    /// The spans that cover `ranges`, which are sorted and are read, or announced; starts requests for the missing
    /// ones.
    fn cover(&self, ranges: &[Range<u64>], announced: Option<Need>) -> Result<Needed> {
        self.unchanged()?;
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = |range: Range<u64>| {
            // Many small reads of headers do not predict later reads, and announced ranges are known.
            let is_known = range.end <= HEAD
                || announced.is_none()
                    && self.is_announced.load(Ordering::Relaxed)
                    && self.shared.spans.missing(&range) == 0;
            let is_ahead = announced == Some(Need::Ahead);
            let exactly = RangeAhead { until: range.end, hole: 0 };
            let ahead = if is_known { exactly } else { streams.record(&range, is_ahead) };
            (range, ahead)
        };
        let ranges: Vec<_> = joined(ranges).into_iter().map(ahead).collect();
        drop(streams);
        let needed = self.shared.spans.needed(&ranges, announced.is_some());
        let guards = needed.fetch.iter().map(|span| Guard { shared: self.shared.clone(), span: span.clone() });
        let guards: Vec<Guard> = guards.collect();
        if !guards.is_empty() {
            guards.iter().try_for_each(|guard| wanted::spend(guard.span.len()))?;
            let (runtime, clients) = self.session.enter(&self.shared.address)?;
            let given_up = Wanted::current().unwrap_or_default().flag();
            for guard in guards {
                let span = guard.span.clone();
                let left = abandoned(span.clone(), given_up.clone());
                self.session.run(&runtime, &span, first(guard.fetch(clients.clone()), left));
            }
        }
        Ok(needed)
    }

    /// Cancels fetches that this reader alone has waited for, or would have.
    fn leave(&self, needed: &Needed) {
        let is_own = |span: &Arc<Span>| needed.cover.iter().chain(&needed.fetch).any(|own| Arc::ptr_eq(own, span));
        self.session.cancel(|span| is_own(span) && !span.is_awaited());
    }

    /// Cancels the fetches in flight, and waits until the rest is on disk.
    fn end(&self) {
        self.session.cancel(|span| self.shared.spans.has(span) && !span.is_done());
        self.shared.writes.wait(WRITTEN);
    }

    /// Fills `parts`, which lie in `cover`; also says which span has failed.
    fn copy(
        cover: &[Arc<Span>],
        parts: &mut [Part<'_>],
        what: &'static str,
    ) -> std::result::Result<(), (Error, Arc<Span>)> {
        for part in parts {
            let range = range(part);
            for span in cover.iter().filter(|span| span.range().start < range.end && range.start < span.range().end) {
                let copied = span.copy(range.start, part.dst);
                copied.map_err(|e| (e.within(what).at(part.at), span.clone()))?;
            }
        }
        Ok(())
    }
}

/// The range of `part`.
fn range(part: &Part<'_>) -> Range<u64> {
    part.at.0..part.at.0.saturating_add(to_u64(part.dst.len()))
}

impl Guard {
    /// Fills the span, from disk or from the server, and stores on disk what comes from the server.
    async fn fetch(self, clients: Clients) {
        if let Some(disk) = self.shared.disk.clone().filter(|disk| disk.has(&self.span.range())) {
            let span = self.span.clone();
            if spawn_blocking(move || disk.load(&span)).await.unwrap_or(false) {
                return;
            }
        }
        let ObjectState { address, version, timeout, .. } = &*self.shared;
        let (address, pinned) = (address.clone(), Some(version.clone()));
        let fetch = Fetch { address, clients, timeout: *timeout, pinned, known: None };
        let write = self.shared.disk.clone().map(|disk| (disk, self.shared.writes.begin()));
        match fetch.run(&self.span).await {
            Ok(_) => {
                if let Some((disk, write)) = write {
                    let span = self.span.clone();
                    let store = move || {
                        disk.store(&span);
                        drop(write);
                    };
                    spawn_blocking(store).await.ok();
                }
            }
            Err(error) => {
                if matches!(error.kind(), Kind::Changed) {
                    self.shared.changed.store(true, Ordering::Release);
                }
                self.span.fail(error);
            }
        }
    }
}

/// Returns once the work that has started the request for `span` was given up, and nobody else waits for it: that work may
/// have announced it only, and never read it.
async fn abandoned(span: Arc<Span>, given_up: Arc<GivenUp>) {
    given_up.wait().await;
    span.left().await;
}

/// Makes the first request, for `head`, and at the same time that for the end.
async fn begin(fetch: Fetch, head: &Span, with_tail: bool) -> Result<(Opening, Option<Tail>)> {
    let began = Instant::now();
    // Given up when it is dropped.
    let mut tail = JoinSet::new();
    if with_tail {
        tail.spawn(fetch.clone().tail(TAIL));
    }
    let opening = fetch.run(head).await;
    let late = opening.as_ref().map_or(Duration::ZERO, |opening| patience(opening.version.size, began.elapsed()));
    let came = timeout(late, tail.join_next()).await;
    let opening = opening?;
    let tail = came.ok().and_then(|came| came?.ok()?).filter(|tail| opening.version.is_same(&tail.version));
    Ok((opening, tail))
}

/// How long the end of an object of `size` bytes is waited for, whose beginning `took` so long: to ask again would take
/// as long.
fn patience(size: u64, took: Duration) -> Duration {
    if size > HEAD { took } else { Duration::ZERO }
}

/// Whether `version` may be served.
fn check_version(version: &Version, options: &RemoteOptions) -> Result<()> {
    if let Some(expected) = options.expect.as_deref().filter(|expected| !version.has_etag(expected)) {
        let why = match &version.etag {
            Some(etag) => format!("the object has the ETag {etag}, not {expected}"),
            None => "the server gives no ETag, so expect= cannot be checked".to_owned(),
        };
        return Err(Error::new(Kind::Usage(why.into()), "expect"));
    }
    // An empty object cannot mix the bytes of two versions.
    if version.size > 0 && !version.is_pinned() && !options.unpinned {
        let why = "the server gives neither ETag nor Last-Modified, so a change would go unnoticed; -o unpinned reads \
                   it all the same";
        return Err(Error::unsupported(why, "object"));
    }
    Ok(())
}

impl Origin for Object {
    fn len(&self) -> u64 {
        self.shared.version.size
    }

    fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
        self.read_parts(&mut [Part { at, dst }], what)
    }

    fn read_parts(&self, parts: &mut [Part<'_>], what: &'static str) -> Result<()> {
        let mut ranges: Vec<Range<u64>> = parts.iter().map(range).filter(|range| !range.is_empty()).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut joins = 0;
        loop {
            wanted::check()?;
            let needed = self.cover(&ranges, None)?;
            match Self::copy(&needed.cover, parts, what) {
                Ok(()) => return Ok(()),
                Err((e, _)) if is_given_up(&e) && wanted::is_ahead() => return Err(e),
                // Given up by this reader, or by all others that waited.
                Err((e, _)) if is_given_up(&e) => {
                    wanted::check().inspect_err(|_| self.leave(&needed))?;
                    continue;
                }
                // The request was made by others, and may have been close to its time limit.
                Err((_, span)) if joins < JOINS && !needed.fetch.iter().any(|own| Arc::ptr_eq(own, &span)) => {}
                Err((e, _)) => return Err(e),
            }
            joins = joins.saturating_add(1);
        }
    }

    fn announce(&self, ranges: &[Range<u64>], need: Need) {
        self.is_announced.store(true, Ordering::Relaxed);
        // A failure is that of the read.
        self.cover(ranges, Some(need)).ok();
    }

    fn mtime(&self) -> (i64, i64) {
        self.shared.version.mtime()
    }

    fn etag(&self) -> Option<&str> {
        self.shared.version.etag.as_deref()
    }

    fn fingerprint(&self) -> Option<[u8; 32]> {
        let ObjectState { address, version, .. } = &*self.shared;
        let etag = version.strong_etag()?;
        self.unchanged().ok()?;
        Some(combined("object", &[address.identity().as_bytes(), etag.as_bytes(), &version.size.to_le_bytes()]))
    }

    fn is_same_in_memory(&self) -> bool {
        self.unchanged().is_ok()
    }

    fn check(&self) -> Result<()> {
        self.unchanged()
    }

    fn set_changed(&self) {
        self.shared.changed.store(true, Ordering::Release);
    }

    fn is_far(&self) -> bool {
        true
    }

    fn is_near(&self, range: Range<u64>) -> bool {
        let len = range.end.saturating_sub(range.start);
        self.shared.spans.missing(&range) <= (len / NEAR).max(NEAR_BYTES)
    }

    fn cancel(&self) {
        self.session.cancel(|span| !span.is_awaited());
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.end();
        self.shared.spans.clear();
    }
}

#[cfg(test)]
#[path = "tests/object.rs"]
mod tests;
