//! The body of a reply: bytes that are known, or a range of a file, read a block at a time: one while the client takes the
//! one before, if there is a thread and room to spare, else when it has taken that.
#![forbid(unsafe_code)]

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::task::JoinError;

use super::budget::{Budget, LEAST, ReplyRoom};
use super::crowd::Answering;
use super::tree::Served;
use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::limits::zeroed;

/// Bytes that are read at a time: first, while the client waits for the status, and then while there is room. Threads wake
/// each other once for each block.
const FIRST: u64 = 512 << 10;
const BLOCK: u64 = 2 << 20;
/// A range up to this size is read before the status is sent, so that a broken chunk of an array is an error of its own.
const WHOLE: u64 = 4 << 20;

/// The body of a reply.
#[derive(Debug)]
pub(super) struct ReplyBody {
    /// Bytes to send next.
    ready: Option<Bytes>,
    /// The rest of a file.
    rest: Option<BodyRest>,
    /// Of the connection that the reply is for.
    _answering: Option<Answering>,
}

/// A range of a file.
struct BodyRest {
    file: Served,
    range: Range<u64>,
    budget: Budget,
    reading: Option<Reading>,
}

type Reading = Pin<Box<dyn Future<Output = Result<Result<Bytes>, JoinError>> + Send>>;

impl fmt::Debug for BodyRest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyRest").field("file", &self.file).field("range", &self.range).finish_non_exhaustive()
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
        let room = budget.room(if len <= WHOLE { len } else { FIRST });
        let first = range.start..range.start + room.len();
        let bytes = room.filled(|buffer| file.read(first.start, buffer))?;
        if len <= WHOLE {
            check(&file, first.end..range.end)?;
        }
        let range = first.end..range.end;
        let rest = (!range.is_empty()).then(|| BodyRest { file, range, budget: budget.clone(), reading: None });
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

impl BodyRest {
    /// Reads the next block, once a thread is free.
    fn read(&self) -> Reading {
        let room = self.budget.room(self.next_len());
        Box::pin(self.budget.clone().run(self.block(room)))
    }

    /// Starts to read the next block. It never waits for a thread: a client that takes nothing would keep its turn.
    fn read_ahead(&mut self) {
        let room = self.budget.spare_room(self.next_len());
        let reading = room.and_then(|room| self.budget.run_now(self.block(room)));
        self.reading = reading.map(|reading| Box::pin(reading) as Reading);
    }

    fn next_len(&self) -> u64 {
        self.budget.part().clamp(FIRST, BLOCK).min(self.range.end - self.range.start)
    }

    /// The work that fills `room` with the next block.
    fn block(&self, room: ReplyRoom) -> impl FnOnce() -> Result<Bytes> + Send + use<> {
        let (file, at) = (self.file.clone(), self.range.start);
        move || room.filled(|buffer| file.read(at, buffer))
    }
}

impl ReplyBody {
    /// Sends `bytes`, and starts to read what follows.
    fn send(&mut self, bytes: Bytes) -> Poll<Option<Result<Frame<Bytes>>>> {
        if let Some(rest) = &mut self.rest {
            rest.read_ahead();
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        if let Some(bytes) = self.ready.take() {
            return self.send(bytes);
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
        self.send(bytes)
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_none() && self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::super::tree::{Resource, ServedTree};
    use super::*;
    use crate::archive::{Archive, Options};

    const LEN: u64 = 10 * BLOCK + 5;

    /// A file of [`LEN`] bytes, each the low byte of its offset in steps of 251.
    fn file(dir: &tempfile::TempDir) -> (Served, Vec<u8>) {
        let content: Vec<u8> = (0..LEN).map(|i| (i / 251) as u8).collect();
        let path = dir.path().join("x.zst");
        std::fs::write(&path, zstd::encode_all(&*content, 1).unwrap()).unwrap();
        let archive = Archive::open(&path, &Options::default()).unwrap();
        let Resource::File(file) = ServedTree::one(archive).resolve("data.raw").unwrap() else { panic!() };
        (file, content)
    }

    async fn next(body: &mut ReplyBody) -> Bytes {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await.unwrap().unwrap();
        frame.into_data().unwrap()
    }

    fn held(budget: &Budget) -> u64 {
        budget.figures().iter().find(|figure| figure.name == "reply_bytes").unwrap().value
    }

    async fn rest(mut body: ReplyBody, mut got: Vec<u8>) -> Vec<u8> {
        while !body.is_end_stream() {
            got.extend(next(&mut body).await);
        }
        got
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
    }

    #[test]
    fn a_block_is_read_while_the_one_before_is_sent() {
        run(async {
            let (dir, budget) = (tempfile::tempdir().unwrap(), Budget::new(1));
            let (file, content) = file(&dir);
            let mut body = ReplyBody::reading(file, 0..LEN, &budget).unwrap();
            let first = next(&mut body).await;
            let ahead = async {
                while held(&budget) < to_u64(first.len()) + BLOCK.min(LEN - to_u64(first.len())) {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(Duration::from_secs(60), ahead).await.unwrap();
            let got = rest(body, first.to_vec()).await;
            assert!(got == content);
            drop(first);
            assert_eq!(held(&budget), 0);
        });
    }

    #[test]
    fn nothing_is_read_ahead_without_room_or_a_thread_to_spare() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let (file, content) = file(&dir);
            for lacks_room in [true, false] {
                let budget = Budget::new(1);
                let mut body = ReplyBody::reading(file.clone(), 0..LEN, &budget).unwrap();
                let (go, gone) = std::sync::mpsc::channel::<()>();
                let taken = lacks_room.then(|| budget.room(40 << 20));
                let busy = (!lacks_room).then(|| budget.run_now(move || gone.recv()).unwrap());
                let before = held(&budget);
                let first = next(&mut body).await;
                sleep(Duration::from_millis(20)).await;
                assert_eq!(held(&budget), before, "lacks room: {lacks_room}");
                drop((go, taken));
                if let Some(busy) = busy {
                    busy.await.unwrap().unwrap_err();
                }
                assert!(rest(body, first.to_vec()).await == content);
            }
        });
    }
}
