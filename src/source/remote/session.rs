//! A session with a server: the runtime of its requests, an HTTP client with its connections, and the credentials of
//! S3.
//!
//! It starts at the first request. The objects of one container share a session, and are given up together.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::wanted::{self, Wanted};

use super::address::{Address, Clients};
use super::span::Span;

/// The requests for the objects of one container, and the client for them.
#[derive(Default)]
pub(super) struct Session {
    open: Arc<Mutex<Option<OpenSession>>>,
    /// The requests that are being made.
    requests: Mutex<Vec<Request>>,
}

struct Request {
    span: Arc<Span>,
    task: AbortHandle,
}

struct OpenSession {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    clients: Clients,
}

impl Session {
    /// A session with the runtime, the clients and the credentials of `other`: for another container in the same
    /// bucket.
    pub(super) fn sharing(other: &Self) -> Self {
        Self { open: other.open.clone(), requests: Mutex::default() }
    }

    /// The runtime and the clients, started if necessary.
    ///
    /// # Errors
    /// [`crate::error::Kind::Io`] if no thread can be started; [`crate::error::Kind::Usage`] if the settings of S3 in
    /// the environment are not valid.
    pub(super) fn enter(&self, address: &Address) -> Result<(Handle, Clients)> {
        let mut current = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let open = match current.take() {
            Some(open) => open,
            None => OpenSession::new(address)?,
        };
        let open = current.insert(open);
        let runtime = open.runtime.as_ref().ok_or_else(|| Error::io(io::Error::other("no runtime"), "request"))?;
        Ok((runtime.handle().clone(), open.clients.clone()))
    }

    /// Runs the request `work` for `span`.
    pub(super) fn run(&self, runtime: &Handle, span: &Arc<Span>, work: impl Future<Output = ()> + Send + 'static) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.retain(|request| !request.task.is_finished());
        requests.push(Request { span: span.clone(), task: runtime.spawn(work).abort_handle() });
    }

    /// Cancels the requests for spans for which `is_given_up`; their waiters ask again.
    pub(super) fn cancel(&self, is_given_up: impl Fn(&Arc<Span>) -> bool) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.retain(|Request { span, task }| {
            let stays = task.is_finished() || !is_given_up(span);
            if !stays {
                // Cancelled before a waiter can ask again.
                span.cancel();
                task.abort();
            }
            stays
        });
    }
}

/// The result of the one of both that ends first; drops the other.
pub(super) async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Pending => other.as_mut().poll(cx),
        done @ Poll::Ready(_) => done,
    })
    .await
}

/// The result of `work`, which is dropped once the caller has given it up.
///
/// # Errors
/// The errors of `work`; `EINTR`.
pub(super) fn wait<T>(runtime: &Handle, work: impl Future<Output = Result<T>>) -> Result<T> {
    wanted::check()?;
    // Without a caller that could: never.
    let given_up = Wanted::current().unwrap_or_default().flag().wait();
    runtime.block_on(async {
        let mut work = pin!(first(async { Some(work.await) }, async {
            given_up.await;
            None
        }));
        loop {
            let done = match wanted::until_question() {
                Some(most) => timeout(most, work.as_mut()).await.unwrap_or(None),
                None => work.as_mut().await,
            };
            match done {
                Some(done) => return done,
                None => wanted::check()?,
            }
        }
    })
}

impl OpenSession {
    fn new(address: &Address) -> Result<Self> {
        let mut builder = Builder::new_multi_thread();
        // The other threads look up names.
        builder.worker_threads(1).max_blocking_threads(4).thread_name("remote").enable_io().enable_time();
        let runtime = builder.build().map_err(|e| Error::io(e, "thread"))?;
        let clients = address.clients()?;
        Ok(Self { runtime: Some(runtime), clients })
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test")]
    use std::future::{pending, ready};
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::clock::{PATIENCE, wait_until};

    fn address() -> Address {
        Address::parse("http://127.0.0.1:1/x").unwrap()
    }

    fn span() -> Arc<Span> {
        Arc::new(Span::new(0..10))
    }

    /// A request that does not end; what it returns is closed once the request is dropped.
    async fn request(alive: Sender<()>) {
        pending::<()>().await;
        drop(alive);
    }

    #[test]
    fn only_what_is_given_up_and_has_not_ended_is_cancelled() {
        let session = Session::default();
        let (runtime, _) = session.enter(&address()).unwrap();
        let [left, kept, ended] = [span(), span(), span()];
        let [(left_lives, left_ends), (kept_lives, kept_ends)] = [channel(), channel()];
        session.run(&runtime, &ended, ready(()));
        let is_finished = || session.requests.lock().unwrap()[0].task.is_finished();
        wait_until(is_finished);
        session.cancel(|_| true);
        assert!(!ended.has_failed());
        session.run(&runtime, &left, request(left_lives));
        session.run(&runtime, &kept, request(kept_lives));
        // The one that has ended is forgotten.
        assert_eq!(session.requests.lock().unwrap().len(), 2);
        session.cancel(|span| Arc::ptr_eq(span, &left));
        assert!(left.has_failed() && !kept.has_failed());
        assert_eq!(session.requests.lock().unwrap().len(), 1);
        assert!(left_ends.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
        assert!(kept_ends.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty));
        session.cancel(|_| true);
        assert!(kept.has_failed());
    }

    #[test]
    fn sessions_of_one_bucket_share_what_they_have_opened_and_not_their_requests() {
        let first = Session::default();
        let shared = Session::sharing(&first);
        let (runtime, _) = first.enter(&address()).unwrap();
        assert_eq!(shared.enter(&address()).unwrap().0.id(), runtime.id());
        assert_ne!(Session::default().enter(&address()).unwrap().0.id(), runtime.id());
        let span = span();
        first.run(&runtime, &span, pending());
        shared.cancel(|_| true);
        assert!(!span.has_failed());
    }

    #[test]
    fn a_session_may_end_within_another_runtime_and_does_not_wait_for_its_threads() {
        let session = Session::default();
        let (runtime, _) = session.enter(&address()).unwrap();
        let (_never, ends) = channel::<()>();
        runtime.spawn_blocking(move || ends.recv());
        let other = Builder::new_current_thread().build().unwrap();
        other.block_on(async { drop(session) });
    }
}
