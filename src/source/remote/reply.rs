//! Meaning of the reply to a range request: bytes, a reason to retry, or an error for the user.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::error::Error as StdError;
use std::io;
use std::ops::Range;
use std::time::Duration;

use reqwest::header::{ACCEPT_RANGES, CONTENT_ENCODING, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use crate::error::{Error, Kind};

use super::version::{ContentRange, Version};

/// Bytes of an error's body that are read, for the code that S3 puts there.
const BODY: usize = 4096;

/// Why a request brought no bytes, or not all.
#[derive(Debug)]
pub(super) enum Failure {
    /// It may succeed later; not before the given time, if the server says so.
    Passing(String, Option<Duration>),
    /// It will not succeed.
    Lasting(Error),
}

impl Failure {
    /// It will not succeed: `why`.
    pub(super) fn lasting(kind: io::ErrorKind, why: impl Into<String>) -> Self {
        Self::Lasting(Error::io(io::Error::new(kind, why.into()), "object"))
    }

    /// The object is another version.
    pub(super) fn changed() -> Self {
        Self::Lasting(Error::new(Kind::Changed, "object"))
    }

    /// A request failed before there was a reply, or while its body was read.
    pub(super) fn of(error: reqwest::Error, is_open: bool) -> Self {
        let (is_connect, is_timeout, is_redirect) = (error.is_connect(), error.is_timeout(), error.is_redirect());
        let error = error.without_url();
        let why = cause(&error);
        if let Some(tls) = find::<rustls::Error>(&error) {
            return match tls {
                rustls::Error::InvalidCertificate(_) => {
                    let why =
                        format!("the server's certificate is not trusted: {tls}; SSL_CERT_FILE names authorities");
                    Self::lasting(io::ErrorKind::PermissionDenied, why)
                }
                _ => Self::lasting(io::ErrorKind::InvalidData, format!("TLS: {tls}")),
            };
        }
        if is_redirect {
            return Self::lasting(
                io::ErrorKind::NotConnected,
                format!("the server's redirection is not followed: {why}"),
            );
        }
        if is_connect && !is_timeout && !is_open {
            return Self::lasting(io::ErrorKind::NotConnected, format!("cannot connect to the server: {why}"));
        }
        let what = if is_connect { "cannot connect to the server" } else { "the connection broke" };
        Self::Passing(format!("{what}: {why}"), None)
    }
}

/// The innermost cause, in words.
fn cause(error: &dyn StdError) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    crate::error::os_message(&io::Error::other(error.to_string()))
}

/// The cause of type `E`.
fn find<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // The source of an I/O error is that of the error in it.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.map(|inner| -> &(dyn StdError + 'static) { inner });
        next = inner.or_else(|| error.source());
    }
    None
}

/// The version that `reply` is of, and the range that it brings; it begins at `asked.start`.
///
/// `pinned` is the version it must be; `None` for the first reply.
pub(super) async fn accepted(
    reply: Response,
    asked: &Range<u64>,
    pinned: Option<&Version>,
) -> Result<(Response, Version, Range<u64>), Failure> {
    let (status, headers) = (reply.status(), reply.headers().clone());
    let content = ContentRange::of(&headers);
    match status {
        StatusCode::PARTIAL_CONTENT => {}
        // The first byte is out of range only if there is none.
        StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::OK
            if pinned.is_none() && is_empty(&reply, content.as_ref()) =>
        {
            let version = Version::of(&headers, 0);
            return Ok((reply, version, 0..0));
        }
        StatusCode::OK => return Err(no_ranges(&headers, pinned)),
        _ => return Err(refusal(reply, pinned.is_some()).await),
    }
    if is_encoded(&headers) {
        return Err(Failure::lasting(io::ErrorKind::Unsupported, "the server compresses what it sends"));
    }
    let Some(ContentRange { range, size }) = content else {
        let why = "the server does not say which bytes it sends, or how large the object is";
        return Err(Failure::lasting(io::ErrorKind::InvalidData, why));
    };
    let version = Version::of(&headers, size);
    if pinned.is_some_and(|pinned| !pinned.is_same(&version)) {
        return Err(Failure::changed());
    }
    if range.start != asked.start || range.end > asked.end {
        let why =
            format!("the server sent bytes {} to {} for {} to {}", range.start, range.end, asked.start, asked.end);
        return Err(Failure::lasting(io::ErrorKind::InvalidData, why));
    }
    Ok((reply, version, range))
}

/// Whether the first `reply` is that for an object without bytes.
fn is_empty(reply: &Response, content: Option<&ContentRange>) -> bool {
    match reply.status() {
        StatusCode::OK => reply.content_length() == Some(0),
        _ => content.is_some_and(|content| content.size == 0),
    }
}

/// Whether the server refuses the range without saying how large the object is.
pub(super) fn refuses_range(reply: &Response) -> bool {
    reply.status() == StatusCode::RANGE_NOT_SATISFIABLE && ContentRange::of(reply.headers()).is_none()
}

/// A reply with the whole object.
fn no_ranges(headers: &HeaderMap, pinned: Option<&Version>) -> Failure {
    if pinned.is_some_and(Version::is_pinned) {
        let size = headers.get(reqwest::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let version = Version::of(headers, size.unwrap_or(0));
        if pinned.is_some_and(|pinned| size.is_some() && !pinned.is_same(&version)) {
            return Failure::changed();
        }
    }
    let said = headers.get(ACCEPT_RANGES).is_some_and(|value| value == "bytes");
    let but = if said { ", although it says so" } else { "" };
    let why = format!("the server does not serve parts of the object (HTTP ranges){but}; download it and use the copy");
    Failure::lasting(io::ErrorKind::Unsupported, why)
}

/// A reply without any part of the object.
pub(super) async fn refusal(mut reply: Response, is_open: bool) -> Failure {
    let (status, wait) = (reply.status(), retry_after(reply.headers()));
    let mut body = Vec::new();
    while let Ok(Some(bytes)) = reply.chunk().await {
        body.extend(bytes.iter().take(BODY.saturating_sub(body.len())));
        if body.len() >= BODY {
            break;
        }
    }
    let code = s3_code(&body).map_or(String::new(), |code| format!(", {code}"));
    let said = format!("HTTP {}{code}", status.as_u16());
    match status {
        // The object that was opened is not there any more.
        StatusCode::PRECONDITION_FAILED
        | StatusCode::NOT_FOUND
        | StatusCode::GONE
        | StatusCode::RANGE_NOT_SATISFIABLE
            if is_open =>
        {
            Failure::changed()
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            Failure::lasting(io::ErrorKind::NotFound, format!("no such object ({said})"))
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            let why = format!("no permission to read it ({said})");
            Failure::lasting(io::ErrorKind::PermissionDenied, why)
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Failure::Passing(said, wait),
        _ if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => Failure::Passing(said, wait),
        _ => Failure::lasting(io::ErrorKind::Other, format!("the server refuses the request ({said})")),
    }
}

/// Whether the bytes of a reply are not those of the object.
pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_ENCODING).is_some_and(|value| value != "identity")
}

/// `Retry-After` in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    Some(Duration::from_secs(headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?))
}

/// The content of `<Code>` in an error of S3.
fn s3_code(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    let code = text.split_once("<Code>")?.1.split_once("</Code>")?.0;
    Some(code).filter(|code| code.len() <= 64 && code.bytes().all(|b| b.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::os_error;

    #[test]
    fn the_code_of_an_error_of_s3_is_found_and_nothing_else_is_shown() {
        assert_eq!(s3_code(b"<?xml?><Error><Code>NoSuchKey</Code><Message>x</Message>"), Some("NoSuchKey"));
        for body in ["", "<Code>a b</Code>", "<Code>", "</Code><Code>"] {
            assert_eq!(s3_code(body.as_bytes()), None, "{body}");
        }
    }

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn what_a_reply_says_of_its_bytes_and_of_the_next_attempt_is_understood() {
        for (field, encoded) in [("identity", false), ("gzip", true), ("br", true)] {
            assert_eq!(is_encoded(&headers(&[("content-encoding", field)])), encoded, "{field}");
        }
        assert!(!is_encoded(&headers(&[])));
        for (field, wait) in [("0", Some(0)), (" 7 ", Some(7)), ("soon", None), ("-1", None)] {
            assert_eq!(retry_after(&headers(&[("retry-after", field)])), wait.map(Duration::from_secs), "{field}");
        }
        assert_eq!(retry_after(&headers(&[])), None);
    }

    #[test]
    fn the_innermost_cause_is_found_through_wrapped_errors() {
        let tls = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let wrapped = io::Error::other(io::Error::other(tls));
        assert!(find::<rustls::Error>(&wrapped).is_some());
        assert!(find::<rustls::Error>(&os_error(libc::ECONNREFUSED)).is_none());
    }
}
