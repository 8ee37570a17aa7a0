//! NFS version 3, read-only: for `mount -t nfs` where there is no FUSE.
//!
//! The protocol is our own: `nfs3_server` allocates what a request says of its length, on any number of connections, for
//! clients that know no secret; one of them could end the server.
//!
//! Limits: connections, the size of requests and replies, requests of a connection at once, and how slow a client may be; so
//! replies take at most 128 MiB.
#![forbid(unsafe_code)]

mod calls;
mod export;
mod xdr;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{sleep, timeout};

use super::admission::Admission;
use super::budget::Budget;
use super::tree::ServedTree;
use export::Export;

/// Connections at a time; others wait to be accepted.
const CONNECTIONS: usize = 64;
/// Requests of one connection at a time.
const REQUESTS: usize = 4;
/// Largest request, in bytes: those that read are short.
const LARGEST: usize = 8 << 10;
/// How long a client may take for the rest of a request, or for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// Listens on `at` and serves `tree`; returns the server and its port.
///
/// # Errors
/// If the address cannot be used.
pub(super) async fn listen(
    at: SocketAddr,
    tree: Arc<ServedTree>,
    admission: Arc<Admission>,
    budget: Budget,
) -> io::Result<(impl Future<Output = ()> + Send, u16)> {
    let export = Arc::new(Export::new(tree, admission, budget)?);
    let listener = TcpListener::bind(at).await?;
    let port = listener.local_addr()?.port();
    Ok((accept(listener, export), port))
}

async fn accept(listener: TcpListener, export: Arc<Export>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    while let Ok(permit) = room.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let export = export.clone();
                tokio::spawn(async move {
                    if let Err(e) = connection(stream, export).await {
                        tracing::debug!("NFS: {e}");
                    }
                    drop(permit);
                });
            }
            Err(e) => {
                tracing::warn!("NFS: accept: {e}");
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// Answers the requests of a connection until it ends.
async fn connection(stream: TcpStream, export: Arc<Export>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut requests, replies) = stream.into_split();
    let (replies, room) = (Arc::new(Mutex::new(replies)), Arc::new(Semaphore::new(REQUESTS)));
    while let Some(request) = next(&mut requests).await? {
        let Ok(permit) = room.clone().acquire_owned().await else { break };
        let (export, replies) = (export.clone(), replies.clone());
        tokio::spawn(async move {
            let reply = calls::answer(&export, &request).await;
            let mut replies = replies.lock().await;
            if let Err(e) = timeout(PATIENCE, reply_to(&mut replies, reply)).await.unwrap_or_else(|e| Err(e.into())) {
                tracing::debug!("NFS: {e}");
                // The bytes after it would be out of step.
                let _ = replies.shutdown().await;
            }
            drop(permit);
        });
    }
    Ok(())
}

/// The next request; `None` at the end of the connection.
async fn next(requests: &mut OwnedReadHalf) -> io::Result<Option<Vec<u8>>> {
    // A client may be idle for as long as it likes, between requests.
    if requests.peek(&mut [0]).await? == 0 {
        return Ok(None);
    }
    timeout(PATIENCE, record(requests)).await?.map(Some)
}

/// A request, which may come in fragments.
async fn record(requests: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let mut record = Vec::new();
    loop {
        let word = requests.read_u32().await?;
        let (is_last, len, start) = (word >> 31 == 1, (word & 0x7fff_ffff) as usize, record.len());
        if len == 0 && !is_last || len > LARGEST - start {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the request is too large"));
        }
        record.resize(start + len, 0);
        requests.read_exact(record.get_mut(start..).unwrap_or_default()).await?;
        if is_last {
            return Ok(record);
        }
    }
}

/// Sends `reply`, or ends the connection if there is none.
async fn reply_to(replies: &mut OwnedWriteHalf, reply: Option<Vec<u8>>) -> io::Result<()> {
    let Some(reply) = reply else { return replies.shutdown().await };
    let header = 1 << 31 | u32::try_from(reply.len()).unwrap_or(0);
    replies.write_all(&header.to_be_bytes()).await?;
    replies.write_all(&reply).await
}
