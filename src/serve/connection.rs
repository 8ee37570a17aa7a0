//! Connections: accepted within a limit, ended when their client stalls, drained at the end.
#![forbid(unsafe_code)]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use rustix::process::{Resource, getrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::metrics::Metrics;
use super::request::Handler;
use super::stall::{Stalled, Watched};

/// Connections at a time, and at most half of the descriptors; others wait to be accepted.
const CONNECTIONS: usize = 4096;
/// Largest header of a request, in bytes.
const HEADER: usize = 32 << 10;
/// How long a client may take to send the header of a request, the first one or another.
const HEADER_TIME: Duration = Duration::from_secs(20);
/// How long replies may take to end after a signal, unless another one comes.
const DRAIN: Duration = Duration::from_secs(10);

/// Accepts connections until SIGTERM or SIGINT, then waits for replies in progress.
pub(super) async fn accept(listener: TcpListener, handler: Arc<Handler>, metrics: Arc<Metrics>) -> io::Result<()> {
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let graceful = GracefulShutdown::new();
    let descriptors = getrlimit(Resource::Nofile).current.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let room = Arc::new(Semaphore::new(CONNECTIONS.min(descriptors / 2)));
    loop {
        let accepted = tokio::select! {
            accepted = async { (room.clone().acquire_owned().await, listener.accept().await) } => accepted,
            _ = terminated.recv() => break,
            _ = interrupted.recv() => break,
        };
        let (permit, stream) = match accepted {
            (Ok(permit), Ok((stream, _))) => (permit, stream),
            (_, Err(e)) => {
                // No descriptor is left, or the client has gone.
                tracing::warn!("accept: {e}");
                sleep(Duration::from_millis(20)).await;
                continue;
            }
            (Err(_), _) => break,
        };
        stream.set_nodelay(true).ok();
        let (stalled, connected) = (Stalled::default(), metrics.connected());
        let handler = handler.clone();
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // A client that has sent all it will may still read.
            .half_close(true)
            .header_read_timeout(HEADER_TIME)
            .max_buf_size(HEADER)
            .serve_connection(
                TokioIo::new(Watched::new(stream, stalled.clone(), metrics.sent.clone())),
                service_fn(move |request| handler.clone().answer(request)),
            );
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => if let Err(e) = ended { tracing::debug!("connection: {e}") },
                () = stalled.wait() => tracing::debug!("connection: the client takes nothing"),
            }
            drop((permit, connected));
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = sleep(DRAIN) => {}
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    Ok(())
}
