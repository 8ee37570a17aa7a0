//! Connections: accepted within a limit, ended when their client stalls, drained at the end.
#![forbid(unsafe_code)]

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::crowd::Crowd;
use super::metrics::Metrics;
use super::request::Handler;
use super::stall::{Stalled, Watched};
use crate::platform::most_descriptors;
use crate::platform::net::Signals;

/// Connections at a time, and at most half of the descriptors; another one waits until there is a place, or one that waits for
/// a request leaves (`crowd`).
const CONNECTIONS: usize = 4096;
/// Largest header of a request, in bytes.
const HEADER: usize = 32 << 10;
/// How long a client may take to send the header of a request, the first one or another.
const HEADER_TIME: Duration = Duration::from_secs(20);
/// How long replies may take to end after a signal, unless another one comes.
const DRAIN: Duration = Duration::from_secs(10);

/// Accepts connections until one of `signals` comes or `input` has ended, then waits for replies in progress.
pub(super) async fn accept(
    listener: TcpListener,
    handler: Arc<Handler>,
    metrics: Arc<Metrics>,
    mut signals: Signals,
    input: impl Future<Output = ()>,
) -> io::Result<()> {
    let graceful = GracefulShutdown::new();
    let (room, crowd) = (Arc::new(Semaphore::new(CONNECTIONS.min(most_descriptors() / 2))), Crowd::default());
    let mut input = pin!(input);
    loop {
        let accepted = tokio::select! {
            accepted = accepted(&listener, &room, &crowd) => accepted,
            () = signals.recv() => break,
            () = &mut input => break,
        };
        let (stream, permit) = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                // No descriptor is left, or the client has gone.
                tracing::warn!("accept: {e}");
                sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        stream.set_nodelay(true).ok();
        let client = stream.peer_addr().ok();
        let (stalled, connected) = (Stalled::default(), metrics.connected());
        let member = crowd.member(stalled.clone());
        let (handler, asked) = (handler.clone(), member.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // A client that has sent all it will may still read.
            .half_close(true)
            .header_read_timeout(HEADER_TIME)
            .max_buf_size(HEADER)
            .serve_connection(
                TokioIo::new(Watched::new(stream, stalled.clone(), metrics.sent.clone())),
                service_fn(move |request| {
                    let answering = asked.answering();
                    let answer = handler.clone().answer(request, client);
                    async move { answer.await.map(|reply| reply.map(|body| body.holding(answering))) }
                }),
            );
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => if let Err(e) = ended { tracing::debug!("connection: {e}") },
                () = stalled.wait() => tracing::debug!("connection: the client takes nothing"),
                () = member.leaves() => tracing::debug!("connection: it leaves its place to another one"),
            }
            drop((permit, connected));
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = sleep(DRAIN) => {}
        () = signals.recv() => {}
    }
    Ok(())
}

/// The next connection, and its place.
async fn accepted(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
    crowd: &Crowd,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let (stream, _) = listener.accept().await?;
    let permit = tokio::select! {
        biased;
        permit = room.clone().acquire_owned() => permit,
        () = crowd.make_room() => room.clone().acquire_owned().await,
    };
    Ok((stream, permit.map_err(io::Error::other)?))
}
