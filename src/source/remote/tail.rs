//! The end of an object, requested together with its beginning: most containers have their index there, and waiting for
//! the size first would take another round trip.
//!
//! It is optional: requested once, and if the reply is late, of another version, or otherwise unexpected, the end is
//! fetched like everything else.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use reqwest::StatusCode;
use tokio::time::timeout;

use crate::bytes::to_u64;

use super::fetch::Fetch;
use super::reply::is_encoded;
use super::version::{ContentRange, Version};

/// The last bytes of an object.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) version: Version,
    /// Where they begin.
    pub(super) start: u64,
    pub(super) bytes: Vec<u8>,
}

impl Fetch {
    /// Fetches the last `len` bytes of an object, or all that it has, with one request.
    pub(super) async fn tail(self, len: u64) -> Option<Tail> {
        timeout(self.timeout, self.tail_of(len)).await.ok()?
    }

    async fn tail_of(&self, len: u64) -> Option<Tail> {
        let url = self.address.url(&self.clients).await.ok()?;
        let mut reply = self.ask(url, Some(format!("bytes=-{len}")), None).await.ok()?;
        let headers = reply.headers();
        let ContentRange { range, size } = ContentRange::of(headers)?;
        let is_tail = range == (size.saturating_sub(len)..size);
        if reply.status() != StatusCode::PARTIAL_CONTENT || is_encoded(headers) || !is_tail {
            return None;
        }
        let version = Version::of(headers, size);
        let len = range.end.saturating_sub(range.start);
        let mut bytes = Vec::new();
        while let Some(part) = reply.chunk().await.ok()? {
            bytes.extend_from_slice(&part);
            if to_u64(bytes.len()) > len {
                return None;
            }
        }
        (to_u64(bytes.len()) == len).then_some(Tail { version, start: range.start, bytes })
    }
}
