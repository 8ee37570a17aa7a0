//! Replies: their headers, and errors as JSON.
#![forbid(unsafe_code)]

use std::io::ErrorKind;

use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::json;

use super::body::ReplyBody;
use crate::error::{Error, Kind};

/// A reply.
pub(super) type Reply = Response<ReplyBody>;

/// A reply with a body of type `kind`.
pub(super) fn reply(status: StatusCode, kind: &'static str, body: ReplyBody) -> Reply {
    let len = body.len();
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    set(&mut reply, header::CONTENT_TYPE, kind);
    set(&mut reply, header::CONTENT_LENGTH, &len.to_string());
    set(&mut reply, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    // The address holds the capability.
    set(&mut reply, header::REFERRER_POLICY, "no-referrer");
    reply
}

/// A reply without a body.
pub(super) fn empty(status: StatusCode) -> Reply {
    let mut reply = reply(status, "text/plain", ReplyBody::of(""));
    reply.headers_mut().remove(header::CONTENT_TYPE);
    if status == StatusCode::NOT_MODIFIED {
        reply.headers_mut().remove(header::CONTENT_LENGTH);
    }
    reply
}

/// A refusal of the request itself.
pub(super) fn refused(status: StatusCode, why: &str) -> Reply {
    reply(status, "application/json", ReplyBody::of(json!({ "error": why }).to_string()))
}

/// The reply for an entry that cannot be served: 404 only where there is none, and never 403, which to some clients is the
/// same: so that none takes a broken chunk for a missing one.
pub(super) fn failed(error: &Error) -> Reply {
    let status = match error.kind() {
        Kind::NotFound => StatusCode::NOT_FOUND,
        // Below a file, there is nothing.
        Kind::Io(io) if matches!(io.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => StatusCode::NOT_FOUND,
        Kind::NoRoom { .. } => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    refused(status, &error.explain())
}

/// As [`failed`], for the entry at `path`; the log tells of what is broken.
pub(super) fn failed_at(path: &str, error: &Error) -> Reply {
    let reply = failed(error);
    if reply.status().is_server_error() {
        tracing::warn!("{path}: {error}");
    }
    reply
}

/// Sets a header to a value that may come from a container: what no header can hold is left out.
pub(super) fn set(reply: &mut Reply, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        reply.headers_mut().insert(name, value);
    }
}
