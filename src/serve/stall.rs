//! Notices a client that takes next to nothing of its reply, which would hold memory and a place for ever.
#![forbid(unsafe_code)]

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;

use crate::bytes::to_u64;

/// How long a client may take less than [`LEAST`].
const STALL: Duration = Duration::from_secs(60);
/// Bytes of a reply.
const LEAST: u64 = 16 << 10;

/// Bytes that a client has taken, times two; odd while a write waits for it.
#[derive(Debug, Clone, Default)]
pub(super) struct Stalled(Arc<AtomicU64>);

impl Stalled {
    /// Returns when writes wait for a client that has taken less than [`LEAST`] in [`STALL`].
    pub(super) async fn wait(self) {
        let mut last = 0;
        loop {
            let now = self.0.load(Ordering::Relaxed);
            if now % 2 == 1 && last % 2 == 1 && now - last < 2 * LEAST {
                return;
            }
            last = now;
            sleep(STALL).await;
        }
    }

    /// Whether a write waits for the client.
    pub(super) fn is_sending(&self) -> bool {
        self.0.load(Ordering::Relaxed) % 2 == 1
    }

    fn note(&self, written: &Poll<io::Result<usize>>) {
        let now = self.0.load(Ordering::Relaxed) & !1;
        // Only the task of the connection writes.
        let now = match written {
            Poll::Pending => now | 1,
            Poll::Ready(written) => now + 2 * written.as_ref().map_or(0, |n| to_u64(*n)),
        };
        self.0.store(now, Ordering::Relaxed);
    }
}

/// A connection whose writes are watched.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    stalled: Stalled,
    /// Bytes written to all clients.
    sent: Arc<AtomicU64>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, stalled: Stalled, sent: Arc<AtomicU64>) -> Self {
        Self { stream, stalled, sent }
    }

    fn note(&self, written: &Poll<io::Result<usize>>) {
        self.stalled.note(written);
        if let Poll::Ready(Ok(count)) = written {
            self.sent.fetch_add(to_u64(*count), Ordering::Relaxed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::timeout;

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(test);
    }

    #[test]
    fn only_a_client_that_takes_next_to_nothing_of_a_reply_is_a_stall() {
        run(async {
            let (near, mut far) = duplex(4);
            let stalled = Stalled::default();
            let mut near = Watched::new(near, stalled.clone(), Arc::default());
            // Nothing to send: idle is not a stall.
            assert!(timeout(10 * STALL, stalled.clone().wait()).await.is_err());
            let writer = tokio::spawn(async move { near.write_all(&vec![0; 8 * LEAST as usize]).await });
            // Slow, but it takes something.
            let waiting = tokio::spawn(stalled.wait());
            for _ in 0..4 {
                far.read_exact(&mut vec![0; LEAST as usize]).await.unwrap();
                sleep(STALL / 8 * 7).await;
            }
            assert!(!waiting.is_finished());
            far.read_exact(&mut [0; 4]).await.unwrap();
            timeout(3 * STALL, waiting).await.unwrap().unwrap();
            writer.abort();
        });
    }
}
