//! The body of a reply: bytes that are known, or a range of a file, read a block at a time when the client takes it.
#![forbid(unsafe_code)]

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::task::JoinError;

use super::budget::{Budget, LEAST};
use super::crowd::Answering;
use super::tree::Served;
use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::limits::zeroed;

/// Bytes that are read at a time.
const BLOCK: u64 = 512 << 10;
/// A range up to this size is read before the status is sent, so that a broken chunk of an array is an error of its own.
const WHOLE: u64 = 4 << 20;

/// The body of a reply.
#[derive(Debug)]
pub(super) struct ReplyBody {
    /// Bytes to send next.
    ready: Option<Bytes>,
    /// The rest of a file.
    rest: Option<Rest>,
    /// Of the connection that the reply is for.
    _answering: Option<Answering>,
}

/// A range of a file.
struct Rest {
    file: Served,
    range: Range<u64>,
    budget: Budget,
    reading: Option<Reading>,
}

type Reading = Pin<Box<dyn Future<Output = Result<Result<Bytes>, JoinError>> + Send>>;

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest").field("file", &self.file).field("range", &self.range).finish_non_exhaustive()
    }
}

impl ReplyBody {
    /// A body of `bytes`.
    pub(super) fn of(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self { ready: (!bytes.is_empty()).then_some(bytes), rest: None, _answering: None }
    }

    /// A body of the bytes of `file` in `range`. Reads the first of them, so that an error there is an error of the request.
    ///
    /// # Errors
    /// As [`Served::read`].
    pub(super) fn reading(file: Served, range: Range<u64>, budget: &Budget) -> Result<Self> {
        let len = range.end - range.start;
        let room = budget.room(if len <= WHOLE { len } else { BLOCK });
        let first = range.start..range.start + room.len();
        let bytes = room.filled(|buffer| file.read(first.start, buffer))?;
        if len <= WHOLE {
            check(&file, first.end..range.end)?;
        }
        let range = first.end..range.end;
        let rest = (!range.is_empty()).then(|| Rest { file, range, budget: budget.clone(), reading: None });
        Ok(Self { rest, ..Self::of(bytes) })
    }

    /// The body, which holds `answering` until it is sent.
    pub(super) fn holding(self, answering: Answering) -> Self {
        Self { _answering: Some(answering), ..self }
    }

    /// The length in bytes.
    pub(super) fn len(&self) -> u64 {
        let rest = self.rest.as_ref().map_or(0, |rest| rest.range.end - rest.range.start);
        self.ready.as_ref().map_or(0, |bytes| to_u64(bytes.len())) + rest
    }
}

/// Reads `range` of `file` for its errors alone.
fn check(file: &Served, range: Range<u64>) -> Result<()> {
    let mut scratch = zeroed(LEAST.min(range.end - range.start), "block of a reply")?;
    let mut at = range.start;
    while at < range.end {
        let len = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(scratch.len());
        file.read(at, scratch.get_mut(..len).unwrap_or_default())?;
        at += to_u64(len);
    }
    Ok(())
}

impl Rest {
    /// Starts to read the next block.
    fn read(&self) -> Reading {
        let (file, at) = (self.file.clone(), self.range.start);
        let room = self.budget.room(BLOCK.min(self.range.end - at));
        Box::pin(self.budget.clone().run(move || room.filled(|buffer| file.read(at, buffer))))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        if let Some(bytes) = self.ready.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let Some(mut rest) = self.rest.take() else { return Poll::Ready(None) };
        let mut reading = rest.reading.take().unwrap_or_else(|| rest.read());
        let Poll::Ready(read) = reading.as_mut().poll(cx) else {
            rest.reading = Some(reading);
            self.rest = Some(rest);
            return Poll::Pending;
        };
        let read = read.unwrap_or_else(|e| Err(Error::io(e.into(), "reply")));
        if let Err(e) = &read {
            tracing::warn!("{}: {e}; the reply ends early", rest.file.path);
        }
        let bytes = read?;
        rest.range.start += to_u64(bytes.len());
        if !rest.range.is_empty() {
            self.rest = Some(rest);
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_none() && self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len())
    }
}
