//! What the tests of objects share: a server that fails as it is told, buckets on it, and the settings of S3.
#![forbid(unsafe_code)]
#![allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing, reason = "for tests")]

use std::cell::RefCell;
use std::fmt::Write as _;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

use crate::account::Account;
use crate::bytes::FileOffset;
use crate::error::Error;
use crate::source::{RemoteOptions, Source};

#[allow(dead_code, reason = "the tests of the suite use all of it")]
#[path = "../../../tests/suite/support/server.rs"]
mod server;

pub(super) use server::{Fault, Object as Served, Request, Server};

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
/// When the objects of the server were changed.
pub(super) const MODIFIED: i64 = 784_111_777;

thread_local! {
    static SETTINGS: RefCell<Option<AmazonS3Builder>> = const { RefCell::new(None) };
}

/// The settings of S3 in place of those of the environment, if a test has some.
pub(super) fn settings() -> Option<AmazonS3Builder> {
    SETTINGS.with(|settings| settings.borrow().clone())
}

/// Settings of this thread, while this lives.
pub(super) struct S3(());

impl S3 {
    /// A server of S3 at `endpoint`, with credentials or for all to read.
    pub(super) fn at(endpoint: &str, is_public: bool) -> Self {
        let settings = AmazonS3Builder::new().with_region("us-east-1").with_allow_http(true).with_endpoint(endpoint);
        let settings = if is_public {
            settings.with_config(AmazonS3ConfigKey::SkipSignature, "true")
        } else {
            settings.with_access_key_id("id").with_secret_access_key("secret")
        };
        SETTINGS.set(Some(settings));
        Self(())
    }

    pub(super) fn on(server: &Server) -> Self {
        Self::at(server.url("").trim_end_matches('/'), false)
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        SETTINGS.set(None);
    }
}

/// Bytes that do not repeat soon.
pub(super) fn noise(len: u64) -> Vec<u8> {
    // As long as no part that is read.
    let block: Vec<u8> = (0..65_521_u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    let mut bytes = block.repeat((len as usize).div_ceil(block.len()));
    bytes.truncate(len as usize);
    bytes
}

/// An object of `len` bytes.
pub(super) fn object(len: u64) -> Served {
    Served::new(noise(len))
}

/// Options with a time-out that is longer than any test runs.
pub(super) fn patient() -> RemoteOptions {
    RemoteOptions { timeout: Duration::from_secs(1 << 20), ..RemoteOptions::default() }
}

pub(super) fn account() -> Account {
    Account::new(256 << 20, 0)
}

/// Puts `objects` into the bucket `b`; each list is the whole one from now on.
pub(super) fn fill(server: &Server, objects: &[(&str, Served)]) {
    let list = list(objects, None);
    for (key, object) in objects {
        server.put(&format!("b/{key}"), object.clone());
    }
    server.put("b", Served::new(list.clone().into_bytes()));
    server.put("b/", Served::new(list.into_bytes()));
}

/// A list of `objects`, which the page at `next` follows.
pub(super) fn list(objects: &[(&str, Served)], next: Option<&str>) -> String {
    let mut list = format!("<ListBucketResult><IsTruncated>{}</IsTruncated>", next.is_some());
    if let Some(next) = next {
        write!(list, "<NextContinuationToken>{next}</NextContinuationToken>").unwrap();
    }
    for (key, object) in objects {
        let (tag, len) = (object.etag.as_deref().unwrap_or_default(), object.bytes.len());
        write!(
            list,
            "<Contents><Key>{key}</Key><LastModified>1994-11-06T08:49:37.000Z</LastModified>\
             <ETag>{}</ETag><Size>{len}</Size></Contents>",
            tag.replace('"', "&quot;")
        )
        .unwrap();
    }
    list + "</ListBucketResult>"
}

/// The answer to a request for a list.
pub(super) fn page(objects: &[(&str, Served)], next: Option<&str>) -> Fault {
    Fault::Answer(200, Vec::new(), list(objects, next))
}

/// An answer with headers and a body.
pub(super) fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Fault {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Fault::Answer(status, headers, body.to_owned())
}

/// The requests since the last call: lists, ends of objects, and others.
pub(super) fn counts(server: &Server) -> (usize, usize, usize) {
    let log = server.take_log();
    let is_list = |request: &&Request| request.target.contains("list-type=2");
    let is_tail = |request: &&Request| request.headers.get("range").is_some_and(|range| range.starts_with("bytes=-"));
    let (lists, tails) = (log.iter().filter(is_list).count(), log.iter().filter(is_tail).count());
    (lists, tails, log.len() - lists - tails)
}

/// Fails unless `source`, an object of 16 MiB, keeps a read of 600 KiB until another such read takes its place.
#[track_caller]
pub(super) fn keeps_one_mib(server: &Server, source: &Source) {
    let asked = |(at, len): &(u64, u64)| {
        server.take_log();
        source.get(FileOffset(*at), *len, "x").unwrap();
        counts(server).2
    };
    // The small read is served once the span that had no room is gone.
    let reads = [(MIB, 600 * KIB), (10 * MIB, 10), (MIB, 600 * KIB), (6 * MIB, 600 * KIB), (MIB, 600 * KIB)];
    assert_eq!(reads.each_ref().map(asked), [1, 1, 0, 1, 1]);
}

/// The kind of the I/O error that `error` is, in words.
#[track_caller]
pub(super) fn io_kind(error: &Error) -> std::io::ErrorKind {
    match error.kind() {
        crate::error::Kind::Io(io) => io.kind(),
        _ => panic!("{error}"),
    }
}
