//! Fetches one span: asks, checks every reply against the pinned version, and asks again where that may help.
//!
//! A body that breaks off is continued where it ended, of the same version only. Time runs while nothing arrives: a
//! server that sends less than [`PROGRESS`] bytes within the time-out has failed.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE};
use reqwest::{StatusCode, Url};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::bytes::to_u64;
use crate::error::Error;

use super::address::{Address, Clients};
use super::reply::{self, Failure};
use super::span::Span;
use super::version::{self, Version};

/// Bytes within the time-out that count as an answer.
const PROGRESS: u64 = 64 << 10;
/// The first and the longest pause between requests.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(3);
/// A request that brings almost nothing within this part of the time-out is given up and made again: its connection may
/// be at fault.
const TRIES: u32 = 3;
/// Bytes within that part that count as progress.
const SOME: u64 = 16 << 10;

/// A request for the bytes of one object.
#[derive(Debug, Clone)]
pub(super) struct Fetch {
    pub(super) address: Arc<Address>,
    pub(super) clients: Clients,
    pub(super) timeout: Duration,
    /// The version that every reply must be of; `None` for the first request.
    pub(super) pinned: Option<Arc<Version>>,
    /// The version whose first bytes are cached already; for the first request.
    pub(super) known: Option<Version>,
}

/// The first reply.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) version: Version,
    /// Its time by the clock of the server.
    pub(super) since: Option<i64>,
}

/// When the server has failed.
struct Clock {
    timeout: Duration,
    /// The last progress.
    since: Instant,
    /// Bytes since then.
    bytes: u64,
    /// Start of the current request, and its bytes.
    tried: Instant,
    brought: u64,
    /// The next pause between requests.
    pause: Duration,
}

impl Clock {
    fn end(&self) -> Instant {
        self.since.checked_add(self.timeout).unwrap_or(self.since)
    }

    fn new(timeout: Duration) -> Self {
        let now = Instant::now();
        Self { timeout, since: now, bytes: 0, tried: now, brought: 0, pause: PAUSE }
    }

    /// Begins a request.
    fn begin(&mut self) {
        (self.tried, self.brought) = (Instant::now(), 0);
    }

    /// When the current request fails.
    fn try_end(&self) -> Instant {
        let part = self.timeout.checked_div(TRIES).unwrap_or_default();
        self.tried.checked_add(part).unwrap_or(self.tried).min(self.end())
    }

    /// The pause before the next request: the longer, the more of them have brought nothing.
    fn pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(LONGEST);
        pause
    }

    fn arrived(&mut self, bytes: usize) {
        let bytes = to_u64(bytes);
        self.pause = PAUSE;
        self.brought = self.brought.saturating_add(bytes);
        if self.brought >= SOME {
            self.begin();
        }
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= PROGRESS {
            self.restart();
        }
    }

    fn restart(&mut self) {
        (self.since, self.bytes) = (Instant::now(), 0);
    }
}

impl Fetch {
    /// Fetches `span`, up to the end of the object; returns its version. If that is the known version, nothing is
    /// fetched.
    ///
    /// # Errors
    /// [`crate::error::Kind::Changed`] for another version; [`crate::error::Kind::Io`] if the server refuses, or the
    /// time is over.
    pub(super) async fn run(self, span: &Span) -> Result<Opening, Error> {
        let mut clock = Clock::new(self.timeout);
        let (mut pinned, mut since) = (self.pinned.as_deref().cloned(), None);
        loop {
            let (why, wait) = match self.once(span, &mut pinned, &mut since, &mut clock).await {
                Ok(true) => match pinned {
                    Some(version) => return Ok(Opening { version, since }),
                    None => ("the server sent no bytes".to_owned(), None),
                },
                Ok(false) => match pinned {
                    Some(version) if span.missing_from() >= span.range().end.min(version.size) => {
                        return Ok(Opening { version, since });
                    }
                    _ => ("the server sent less than it was asked for".to_owned(), None),
                },
                Err(Failure::Lasting(error)) => return Err(error),
                Err(Failure::Passing(why, wait)) => (why, wait),
            };
            let wait = wait.unwrap_or_default().max(clock.pause());
            let next = Instant::now().checked_add(wait).unwrap_or(clock.end());
            if next >= clock.end() {
                let said = format!("no answer within {} s: {why}", self.timeout.as_secs());
                return Err(Error::io(io::Error::new(io::ErrorKind::TimedOut, said), "object"));
            }
            tracing::debug!("{}: {why}; asking again", self.address.shown().display());
            sleep_until(next).await;
        }
    }

    /// One request for the missing bytes. Sets `pinned` by the first reply; returns whether that is the known version.
    async fn once(
        &self,
        span: &Span,
        pinned: &mut Option<Version>,
        since: &mut Option<i64>,
        clock: &mut Clock,
    ) -> Result<bool, Failure> {
        let asked = span.missing_from()..span.range().end;
        let is_open = pinned.is_some();
        let over = |_| Failure::Passing("the server does not answer".to_owned(), None);
        // Credentials have their own time-out.
        let url = self.address.url(&self.clients).await;
        let url = url.map_err(|why| Failure::lasting(io::ErrorKind::PermissionDenied, why))?;
        clock.begin();
        let ask = |range| self.ask(url.clone(), range, pinned.as_ref());
        let bytes = format!("bytes={}-{}", asked.start, asked.end.saturating_sub(1));
        let mut reply = timeout_at(clock.try_end(), ask(Some(bytes))).await.map_err(over)??;
        if !is_open && reply::refuses_range(&reply) {
            // An empty object has no first byte; only its whole says that it is empty.
            reply = timeout_at(clock.try_end(), ask(None)).await.map_err(over)??;
            if reply.status() == StatusCode::OK && reply.content_length() != Some(0) {
                return Err(Failure::Passing("the server says that the object has no first byte".to_owned(), None));
            }
        }
        *since = version::date(reply.headers());
        if let Some(known) = self.known.as_ref().filter(|_| !is_open && reply.status() == StatusCode::NOT_MODIFIED) {
            *pinned = Some(known.clone());
            return Ok(true);
        }
        let (mut reply, version, range) =
            timeout_at(clock.try_end(), reply::accepted(reply, &asked, pinned.as_ref())).await.map_err(over)??;
        *pinned = Some(version);
        let mut left = range.end.saturating_sub(range.start);
        while left > 0 {
            let bytes = timeout_at(clock.try_end(), reply.chunk()).await.map_err(over)?;
            let Some(bytes) = bytes.map_err(|e| Failure::of(e, is_open))? else {
                return Err(Failure::Passing("the body of the reply broke off".to_owned(), None));
            };
            let bytes = bytes.get(..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))).unwrap_or_default();
            left = left.saturating_sub(to_u64(bytes.len()));
            span.push(bytes).map_err(Failure::Lasting)?;
            clock.arrived(bytes.len());
        }
        Ok(false)
    }

    /// Sends a request for the bytes `range`, as HTTP writes it, or for all.
    pub(super) async fn ask(
        &self,
        url: Url,
        range: Option<String>,
        pinned: Option<&Version>,
    ) -> Result<reqwest::Response, Failure> {
        let mut request = self.clients.client.get(url).header(ACCEPT_ENCODING, "identity");
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        if let Some(version) = pinned {
            if let Some(etag) = version.strong_etag() {
                request = request.header(IF_MATCH, etag);
            } else if let Some(modified) = &version.modified {
                request = request.header(IF_UNMODIFIED_SINCE, modified);
            }
        } else if let Some(etag) = self.known.as_ref().and_then(Version::strong_etag) {
            request = request.header(IF_NONE_MATCH, etag);
        }
        request.send().await.map_err(|e| Failure::of(e, pinned.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that was started, and whose last request began, an hour from now, so that both can be seen to begin again.
    fn clock() -> (Clock, Instant) {
        let mut clock = Clock::new(Duration::from_secs(30));
        let later = clock.since.checked_add(Duration::from_secs(3600)).unwrap();
        (clock.since, clock.tried) = (later, later);
        (clock, later)
    }

    #[test]
    fn a_request_goes_on_while_some_bytes_come_and_all_of_them_while_many_do() {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap();
        for (arrived, tries_again, starts_again) in [
            (vec![SOME - 1], false, false),
            (vec![SOME], true, false),
            (vec![SOME - 1, 1], true, false),
            (vec![PROGRESS - 1], true, false),
            (vec![PROGRESS], true, true),
            (vec![PROGRESS - SOME, SOME], true, true),
        ] {
            let (mut clock, was) = clock();
            for &n in &arrived {
                clock.arrived(bytes(n));
            }
            assert_eq!((clock.tried < was, clock.since < was), (tries_again, starts_again), "{arrived:?}");
            // Bytes that were counted are not counted again.
            assert!(clock.brought < SOME && clock.bytes < PROGRESS, "{arrived:?}");
        }
        let (mut clock, was) = clock();
        clock.arrived(1);
        clock.begin();
        assert!(clock.tried < was && clock.brought == 0 && clock.bytes == 1);
        assert!(clock.try_end() < clock.end());
    }

    #[test]
    fn pauses_become_longer_until_something_comes() {
        let (mut clock, _) = clock();
        let pauses = |clock: &mut Clock| [(); 7].map(|()| clock.pause().as_millis());
        assert_eq!(pauses(&mut clock), [100, 200, 400, 800, 1600, 3000, 3000]);
        clock.arrived(1);
        assert_eq!(pauses(&mut clock)[..2], [100, 200]);
    }
}
