//! Counters and gauges of the server, in the text format of Prometheus.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hyper::StatusCode;

use super::body::ReplyBody;
use super::budget::Budget;
use super::figure::Figure;
use super::reply::{Reply, reply};
use super::tree::ServedTree;

/// Where they are, below the root.
pub(super) const PATH: &str = "-/metrics";
const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The counters since the start.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    /// Replies by status.
    replies: Mutex<BTreeMap<u16, u64>>,
    /// Bytes written to clients.
    pub(super) sent: Arc<AtomicU64>,
    /// Connections now, and all so far.
    connections: AtomicU64,
    accepted: AtomicU64,
}

/// A connection, while it is open.
#[derive(Debug)]
pub(super) struct Connected(Arc<Metrics>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    /// Counts a connection until the returned value is dropped.
    pub(super) fn connected(self: &Arc<Self>) -> Connected {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Connected(self.clone())
    }

    /// Counts a reply.
    pub(super) fn replied(&self, status: StatusCode) {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        *replies.entry(status.as_u16()).or_default() += 1;
    }

    /// The reply with all figures.
    pub(super) fn answer(&self, tree: &ServedTree, budget: &Budget) -> Reply {
        let mut out = String::new();
        let _ = write!(out, "# HELP fzmfs_replies_total Replies, by status.\n# TYPE fzmfs_replies_total counter\n");
        for (status, count) in &*self.replies.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = writeln!(out, "fzmfs_replies_total{{status=\"{status}\"}} {count}");
        }
        let [connections, accepted, sent] =
            [&self.connections, &self.accepted, &*self.sent].map(|count| count.load(Ordering::Relaxed));
        let figure = |name, grows, value, what| Figure { name, grows, value, what };
        let own = [
            figure("sent_bytes_total", true, sent, "Bytes written to clients."),
            figure("connections_total", true, accepted, "Connections accepted."),
            figure("connections", false, connections, "Connections now."),
        ];
        for Figure { name, grows, value, what } in own.into_iter().chain(budget.figures()).chain(tree.figures()) {
            let kind = if grows { "counter" } else { "gauge" };
            let _ = write!(out, "# HELP fzmfs_{name} {what}\n# TYPE fzmfs_{name} {kind}\nfzmfs_{name} {value}\n");
        }
        reply(StatusCode::OK, TYPE, ReplyBody::of(out))
    }
}
