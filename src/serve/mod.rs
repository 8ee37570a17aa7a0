//! Serves the tree of a container, or of a directory of containers, over HTTP: for programs without FUSE.
//!
//! A request is admitted (`admission`), its path resolved in the tree (`tree`), and answered with a file (`file`) or a
//! directory (`listing`; `dav` for WebDAV). Waiting for clients is asynchronous; opening, decoding and waiting for servers
//! is not, and runs on other threads, a block of a body at a time: a slow client occupies no thread (`budget`).
//!
//! Limits: connections, header size and time (`connection`), who leaves when there are too many (`crowd`), requests at once
//! and the bytes of replies (`budget`), and how slow a client may be (`stall`).
#![forbid(unsafe_code)]

mod admission;
mod body;
mod budget;
mod connection;
mod crowd;
mod dav;
mod figure;
mod file;
mod listening;
mod listing;
mod metrics;
mod nfs;
mod page;
mod propfind;
mod reply;
mod request;
mod slice;
mod stall;
mod tree;
mod url_path;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use budget::Budget;
use metrics::Metrics;
use request::Handler;

pub use admission::Admission;
pub use listening::listener;
pub use page::Page;
pub use tree::ServedTree;

/// Where and for whom a tree is served.
#[derive(Debug)]
pub struct ServeOptions {
    /// Where connections come to: [`listener`].
    pub listener: TcpListener,
    /// Which requests are answered.
    pub admission: Admission,
    /// The origin whose pages may read replies (CORS), or `*`; `None` for the same origin only.
    pub allow_origin: Option<String>,
    /// Requests that are answered at once, each on a thread that waits for files, decoders and servers; others wait.
    pub threads: usize,
    /// The page of directories.
    pub page: Page,
    /// The port for NFS, at the same IP address.
    pub nfs: Option<u16>,
    /// Whether `-/metrics` tells what the server does.
    pub metrics: bool,
    /// Whether the end of standard input ends the server, as a signal does.
    pub until_eof: bool,
}

/// Where a tree is served.
#[derive(Debug)]
pub struct Addresses {
    /// The URL.
    pub url: String,
    /// The port of NFS, and the path to mount.
    pub nfs: Option<(u16, String)>,
}

/// Serves `tree` until SIGTERM or SIGINT, then lets replies in progress end for up to ten seconds. Calls `ready` once clients
/// can connect.
///
/// # Errors
/// If the address cannot be used.
pub fn serve(tree: ServedTree, options: ServeOptions, ready: impl FnOnce(&Addresses)) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(options.threads + usize::from(options.until_eof))
        .thread_name("fzmfs-serve")
        .enable_all()
        .build()?;
    let ServeOptions { listener, admission, allow_origin, threads, page, nfs, metrics, until_eof } = options;
    let (tree, admission, budget) = (Arc::new(tree), Arc::new(admission), Budget::new(threads));
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let mut addresses =
            Addresses { url: format!("http://{}{}", admission.shown(address), admission.prefix()), nfs: None };
        if let Some(port) = nfs {
            let at = SocketAddr::new(address.ip(), port);
            let (serving, port) = nfs::listen(at, tree.clone(), admission.clone(), budget.clone()).await?;
            tokio::spawn(serving);
            addresses.nfs = Some((port, admission.prefix()));
        }
        let (shows_metrics, metrics) = (metrics, Arc::<Metrics>::default());
        let counted = metrics.clone();
        let handler = Handler { tree, admission, allow_origin, page, budget, metrics, shows_metrics };
        // A reader of the address may send one at once.
        let signals = crate::platform::net::Signals::handled()?;
        ready(&addresses);
        connection::accept(listener, Arc::new(handler), counted, signals, end_of_input(until_eof)).await
    });
    // A reply that waits for a server does not hold up the end.
    runtime.shutdown_background();
    served
}

/// Waits until nothing holds the other end of standard input any more; for ever unless `until_eof`.
async fn end_of_input(until_eof: bool) {
    if until_eof {
        tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await.ok();
    } else {
        std::future::pending::<()>().await;
    }
}
