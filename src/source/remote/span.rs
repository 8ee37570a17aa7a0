//! A span: a range of an object that one request fetches; readers take its bytes as they arrive.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::PoisonError;
use std::task::{Poll, Waker};

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::limits::zeroed;
use crate::sync::{Mutex, MutexGuard};
use crate::wanted::{self, Condition};

/// A range of an object, being fetched or complete.
pub(super) struct Span {
    range: Range<u64>,
    state: Mutex<SpanState>,
    arrived: Condition,
}

#[derive(Default)]
struct SpanState {
    /// All of the range, or nothing before the first byte has arrived.
    bytes: Vec<u8>,
    /// How many of them have arrived.
    there: usize,
    failed: Option<Error>,
    /// Readers that wait for its bytes, readahead not counted.
    waiting: usize,
    /// Woken when the last of them has left.
    left: Option<Waker>,
}

impl Span {
    pub(super) fn new(range: Range<u64>) -> Self {
        Self { range, state: Mutex::default(), arrived: Condition::new() }
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    pub(super) fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// Start of the missing bytes.
    pub(super) fn missing_from(&self) -> u64 {
        self.range.start.saturating_add(to_u64(self.lock().there))
    }

    /// Whether no more bytes are coming.
    pub(super) fn is_done(&self) -> bool {
        let state = self.lock();
        state.failed.is_some() || to_u64(state.there) >= self.len()
    }

    /// Appends bytes that have arrived. Bytes beyond the range, or of a span that has failed, are dropped.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn push(&self, bytes: &[u8]) -> Result<()> {
        let mut state = self.lock();
        if state.failed.is_some() {
            return Ok(());
        }
        if state.bytes.is_empty() {
            state.bytes = zeroed(self.len(), "bytes of an object")?;
        }
        let SpanState { bytes: all, there, .. } = &mut *state;
        let room = all.get_mut(*there..).unwrap_or_default();
        let n = room.len().min(bytes.len());
        for (dst, src) in room.get_mut(..n).into_iter().zip(bytes.get(..n)) {
            dst.copy_from_slice(src);
        }
        *there = there.saturating_add(n);
        drop(state);
        self.arrived.notify_all();
        Ok(())
    }

    /// Ends the span: the missing bytes are not coming.
    pub(super) fn fail(&self, error: Error) {
        self.lock().failed.get_or_insert(error);
        self.arrived.notify_all();
    }

    /// Ends the span, unless it is whole, because nobody waits for it any more.
    pub(super) fn cancel(&self) {
        let mut state = self.lock();
        if to_u64(state.there) < self.len() {
            state.failed.get_or_insert_with(wanted::given_up);
        }
        drop(state);
        self.arrived.notify_all();
    }

    /// Whether readers wait for it.
    pub(super) fn is_awaited(&self) -> bool {
        self.lock().waiting > 0
    }

    /// Returns once no reader waits for it.
    pub(super) async fn left(&self) {
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.waiting == 0 {
                return Poll::Ready(());
            }
            state.left = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Whether the span has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.lock().failed.is_some()
    }

    /// Passes the bytes so far to `work`.
    pub(super) fn with<T>(&self, work: impl FnOnce(&[u8]) -> T) -> T {
        let state = self.lock();
        work(state.bytes.get(..state.there).unwrap_or_default())
    }

    /// Copies the part of `dst`, which begins at `at`, that this span has; waits for it.
    ///
    /// # Errors
    /// The error of the request; `EINTR` if the reader has given up.
    pub(super) fn copy(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        let end = at.saturating_add(to_u64(dst.len())).min(self.range.end);
        let start = at.max(self.range.start);
        let index = |from: u64, to: u64| usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
        let (from, to) = (index(self.range.start, start), index(self.range.start, end));
        let is_early = |state: &mut SpanState| state.there < to && state.failed.is_none();
        let mut state = self.lock();
        if is_early(&mut state) {
            let counted = usize::from(!wanted::is_ahead());
            state.waiting = state.waiting.saturating_add(counted);
            let waited = self.arrived.wait_while(&self.state, state, is_early).map(drop);
            state = self.lock();
            state.waiting = state.waiting.saturating_sub(counted);
            if state.waiting == 0
                && let Some(left) = state.left.take()
            {
                left.wake();
            }
            waited?;
        }
        if let Some(error) = state.failed.as_ref().filter(|_| state.there < to) {
            return Err(error.clone());
        }
        let target = dst.get_mut(index(at, start)..index(at, end));
        match target.zip(state.bytes.get(from..to)) {
            Some((dst, src)) => dst.copy_from_slice(src),
            None => return Err(Error::new(Kind::Truncated { need: end, have: self.range.end }, "object")),
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, SpanState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({:?})", self.range)
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../../tests/models/span.rs"]
mod models;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;

    use super::*;
    use crate::clock::wait_until;

    #[test]
    fn readers_take_what_has_arrived_and_wait_for_the_rest() {
        let span = Span::new(100..110);
        span.push(&[0, 1, 2, 3]).unwrap();
        let mut dst = [9; 6];
        span.copy(98, &mut dst).unwrap();
        assert_eq!((dst, span.missing_from(), span.is_done()), ([9, 9, 0, 1, 2, 3], 104, false));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut dst = [9; 8];
                span.copy(106, &mut dst).map(|()| dst)
            });
            span.push(&[4, 5, 6, 7, 8, 9, 10, 11]).unwrap();
            assert_eq!(reader.join().unwrap().unwrap(), [6, 7, 8, 9, 9, 9, 9, 9]);
        });
        assert!(span.is_done() && span.missing_from() == 110);
    }

    #[test]
    fn who_waits_is_counted_while_it_waits() {
        let span = Arc::new(Span::new(0..10));
        let (asked, seen) = (span.clone(), Rc::new(Cell::new(false)));
        let was = seen.clone();
        let is_wanted = move || {
            was.set(asked.is_awaited());
            false
        };
        let read = wanted::while_wanted(is_wanted, || span.copy(0, &mut [0; 10]));
        assert!(wanted::is_given_up(&read.unwrap_err()) && seen.get() && !span.is_awaited());
    }

    #[test]
    fn who_reads_ahead_is_not_counted() {
        let span = Span::new(0..10);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| wanted::ahead(|| span.copy(0, &mut [0; 10])));
            let other = scope.spawn(|| span.copy(0, &mut [0; 10]));
            wait_until(|| span.is_awaited());
            assert_eq!(span.lock().waiting, 1);
            span.push(&[0; 10]).unwrap();
            reader.join().unwrap().unwrap();
            other.join().unwrap().unwrap();
        });
        assert!(!span.is_awaited());
    }

    #[test]
    fn a_span_that_is_cancelled_has_failed_unless_it_is_whole() {
        let span = Span::new(0..2);
        span.push(&[1]).unwrap();
        span.cancel();
        span.push(&[2]).unwrap();
        assert!(span.has_failed() && wanted::is_given_up(&span.copy(0, &mut [0; 2]).unwrap_err()));
        let whole = Span::new(0..1);
        whole.push(&[1]).unwrap();
        whole.cancel();
        assert!(!whole.has_failed());
    }

    #[test]
    fn a_span_that_fails_keeps_what_had_arrived() {
        let span = Span::new(0..10);
        span.push(&[1, 2]).unwrap();
        span.fail(Error::new(Kind::Changed, "file"));
        let mut dst = [0; 2];
        span.copy(0, &mut dst).unwrap();
        assert_eq!(dst, [1, 2]);
        assert!(span.copy(1, &mut dst).is_err() && span.has_failed() && span.is_done());
    }
}
