//! The body of a reply: bytes that are known, or a range of a file, read a block at a time when the client takes it.
#![forbid(unsafe_code)]

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinHandle, spawn_blocking};

use super::tree::Served;
use crate::bytes::to_u64;
use crate::error::{Error, Result};

/// Bytes that are read at a time.
const BLOCK: u64 = 512 << 10;
/// A range up to this size is read before the status is sent, so that a broken chunk of an array is an error of its own.
pub(super) const WHOLE: u64 = 4 << 20;

/// The body of a reply.
#[derive(Debug)]
pub(super) struct ReplyBody {
    /// Bytes to send next.
    ready: Option<Bytes>,
    /// The rest of a file.
    rest: Option<Rest>,
    /// Held while the reply is in progress.
    _permit: Option<OwnedSemaphorePermit>,
}

/// A range of a file.
#[derive(Debug)]
struct Rest {
    file: Served,
    range: Range<u64>,
    reading: Option<JoinHandle<Result<Bytes>>>,
}

impl ReplyBody {
    /// A body of `bytes`.
    pub(super) fn of(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let ready = (!bytes.is_empty()).then_some(bytes);
        Self { ready, rest: None, _permit: None }
    }

    /// A body of the bytes of `file` in `range`. Reads the first of them, so that an error there is an error of the request.
    ///
    /// # Errors
    /// As [`Served::read`].
    pub(super) fn reading(file: Served, range: Range<u64>) -> Result<Self> {
        let len = range.end - range.start;
        let first = if len <= WHOLE { range.clone() } else { range.start..range.start + BLOCK };
        let bytes = block(&file, &first)?;
        let left = first.end..range.end;
        let rest = (!left.is_empty()).then_some(Rest { file, range: left, reading: None });
        Ok(Self { rest, ..Self::of(bytes) })
    }

    /// Keeps `permit` until the body is sent or dropped.
    pub(super) fn holding(self, permit: OwnedSemaphorePermit) -> Self {
        Self { _permit: Some(permit), ..self }
    }

    /// The length in bytes.
    pub(super) fn len(&self) -> u64 {
        let rest = self.rest.as_ref().map_or(0, |rest| rest.range.end - rest.range.start);
        self.ready.as_ref().map_or(0, |bytes| to_u64(bytes.len())) + rest
    }
}

fn block(file: &Served, range: &Range<u64>) -> Result<Bytes> {
    let mut buffer = crate::limits::zeroed(range.end - range.start, "block of a reply")?;
    file.read(range.start, &mut buffer)?;
    Ok(buffer.into())
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        if let Some(bytes) = self.ready.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let reading = rest.reading.get_or_insert_with(|| {
            let range = rest.range.start..rest.range.end.min(rest.range.start + BLOCK);
            let file = rest.file.clone();
            spawn_blocking(move || block(&file, &range))
        });
        let read = ready!(Pin::new(reading).poll(cx));
        rest.reading = None;
        let bytes = match read {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(e)) => {
                tracing::warn!("{}: {e}", rest.file.name);
                self.rest = None;
                return Poll::Ready(Some(Err(e)));
            }
            Err(e) => {
                self.rest = None;
                return Poll::Ready(Some(Err(Error::io(e.into(), "reply"))));
            }
        };
        rest.range.start += to_u64(bytes.len());
        if rest.range.is_empty() {
            self.rest = None;
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
