//! The reply for a file: its bytes or a range of them, under the conditions of the request (RFC 9110).
#![forbid(unsafe_code)]

use std::ops::Range;
use std::time::{Duration, SystemTime};

use hyper::header::{self, HeaderMap, HeaderName};
use hyper::{Method, StatusCode};

use super::body::ReplyBody;
use super::budget::Budget;
use super::reply::{Reply, empty, failed_at, refused, reply, set};
use super::tree::Served;

/// Answers `method`, which is GET or HEAD, for `file`.
pub(super) fn answer(method: &Method, headers: &HeaderMap, file: Served, budget: &Budget) -> Reply {
    let (tag, mtime) = (file.etag(), file.mtime);
    let len = file.len;
    let mut answer = match conditions(headers, &tag, mtime) {
        Some(status) => empty(status),
        None => bytes(method, headers, file, &tag, budget),
    };
    set(&mut answer, header::ACCEPT_RANGES, "bytes");
    if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
        set(&mut answer, header::CONTENT_RANGE, &format!("bytes */{len}"));
    }
    if answer.status().is_success() || answer.status() == StatusCode::NOT_MODIFIED {
        set(&mut answer, header::ETAG, &tag);
        set(&mut answer, header::LAST_MODIFIED, &http_date(mtime));
        // Asked each time whether it is still the same, which costs a request and no decoding.
        set(&mut answer, header::CACHE_CONTROL, "no-cache");
    }
    answer
}

fn bytes(method: &Method, headers: &HeaderMap, file: Served, tag: &str, budget: &Budget) -> Reply {
    let (whole, mtime, path) = (0..file.len, file.mtime, file.path.clone());
    let kind = content_type(&file.name);
    let is_for_this = text(headers, &header::IF_RANGE).is_none_or(|of| of == tag || is_same_time(of, mtime));
    let asked = text(headers, &header::RANGE).filter(|_| is_for_this && method == Method::GET);
    let (status, range) = match asked.map(|asked| asked_range(asked, file.len)) {
        None | Some(Asked::Whole) => (StatusCode::OK, whole.clone()),
        Some(Asked::Part(range)) => (StatusCode::PARTIAL_CONTENT, range),
        Some(Asked::Nothing) => {
            return refused(StatusCode::RANGE_NOT_SATISFIABLE, "the range is past the end of the file");
        }
    };
    let body =
        if method == Method::HEAD { Ok(ReplyBody::of("")) } else { ReplyBody::reading(file, range.clone(), budget) };
    let mut answer = match body {
        Ok(body) => reply(status, kind, body),
        Err(e) => return failed_at(&path, &e),
    };
    set(&mut answer, header::CONTENT_LENGTH, &(range.end - range.start).to_string());
    if status == StatusCode::PARTIAL_CONTENT {
        let last = range.end.saturating_sub(1);
        set(&mut answer, header::CONTENT_RANGE, &format!("bytes {}-{last}/{}", range.start, whole.end));
    }
    if kind == "image/svg+xml" {
        // A picture of a container never runs a script, even if it is opened by itself.
        set(&mut answer, header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; sandbox");
    }
    answer
}

/// The range that a header `Range` selects.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// All: the header is of another unit, malformed, or of several ranges.
    Whole,
    /// These bytes.
    Part(Range<u64>),
    /// None that there are.
    Nothing,
}

fn asked_range(header: &str, len: u64) -> Asked {
    let Some((first, last)) = header.strip_prefix("bytes=").and_then(|range| range.trim().split_once('-')) else {
        return Asked::Whole;
    };
    let number = |text: &str| -> Option<Option<u64>> {
        match text {
            "" => Some(None),
            // A number that does not fit is past every end.
            _ if text.bytes().all(|byte| byte.is_ascii_digit()) => Some(Some(text.parse().unwrap_or(u64::MAX))),
            _ => None,
        }
    };
    match (number(first), number(last)) {
        (Some(Some(first)), Some(last)) if last.is_none_or(|last| first <= last) => {
            let end = last.map_or(len, |last| last.saturating_add(1).min(len));
            if first < end { Asked::Part(first..end) } else { Asked::Nothing }
        }
        (Some(None), Some(Some(count))) if count > 0 && len > 0 => Asked::Part(len.saturating_sub(count)..len),
        (Some(None), Some(Some(_))) => Asked::Nothing,
        _ => Asked::Whole,
    }
}

/// The status that the conditions of a request give instead of the file.
pub(super) fn conditions(headers: &HeaderMap, tag: &str, mtime: i64) -> Option<StatusCode> {
    let names = |list: &str, weak: bool| {
        let own = |other: &str| other == "*" || other == tag || (weak && other.strip_prefix("W/") == Some(tag));
        list.split(',').any(|other| own(other.trim()))
    };
    if let Some(list) = list(headers, &header::IF_MATCH) {
        if !names(&list, false) {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
    } else if let Some(since) = date(headers, &header::IF_UNMODIFIED_SINCE)
        && time(mtime) > since
    {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    let is_known = match list(headers, &header::IF_NONE_MATCH) {
        Some(list) => names(&list, true),
        None => date(headers, &header::IF_MODIFIED_SINCE).is_some_and(|since| time(mtime) <= since),
    };
    is_known.then_some(StatusCode::NOT_MODIFIED)
}

fn is_same_time(header: &str, mtime: i64) -> bool {
    httpdate::parse_http_date(header).is_ok_and(|date| date == time(mtime))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The values of a header that may be sent in parts.
fn list(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let parts: Vec<_> = headers.get_all(name).iter().filter_map(|part| part.to_str().ok()).collect();
    (!parts.is_empty()).then(|| parts.join(","))
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, name)?).ok()
}

/// A time as HTTP writes it.
pub(super) fn http_date(seconds: i64) -> String {
    httpdate::fmt_http_date(time(seconds))
}

/// A time that HTTP can express, which has whole seconds from 1970 to 9999.
fn time(seconds: i64) -> SystemTime {
    let seconds = u64::try_from(seconds).unwrap_or(0).min(253_402_300_799);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// The media type of a virtual file, by the suffixes that fzmfs gives; of any other file none that a browser acts on.
pub(super) fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, suffix)| suffix) {
        "json" => "application/json",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "txt" | "dot" | "nhdr" | "mhd" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_clamped_and_what_is_no_range_is_the_whole() {
        use Asked::{Nothing, Part, Whole};
        for (header, want) in [
            ("bytes=0-3", Part(0..4)),
            ("bytes=5-5", Part(5..6)),
            ("bytes=5-", Part(5..10)),
            ("bytes=5-99", Part(5..10)),
            ("bytes=-3", Part(7..10)),
            ("bytes=-99", Part(0..10)),
            ("bytes=0-99999999999999999999999", Part(0..10)),
            ("bytes=10-", Nothing),
            ("bytes=99999999999999999999999-", Nothing),
            ("bytes=-0", Nothing),
            ("bytes=3-2", Whole),
            ("bytes=0-1,3-4", Whole),
            ("bytes=", Whole),
            ("bytes=-", Whole),
            ("bytes=a-b", Whole),
            ("bytes=+1-2", Whole),
            ("items=0-1", Whole),
            ("", Whole),
        ] {
            assert_eq!(asked_range(header, 10), want, "{header}");
        }
        assert_eq!(asked_range("bytes=0-", 0), Nothing);
        assert_eq!(asked_range("bytes=-1", 0), Nothing);
    }

    #[test]
    fn conditions_are_those_of_rfc_9110() {
        let tag = "\"a\"";
        let (past, at, future) =
            ("Sat, 01 Jan 2000 00:00:00 GMT", "Sun, 09 Sep 2001 01:46:40 GMT", "Sun, 06 Nov 2033 00:00:00 GMT");
        let given = |pairs: &[(HeaderName, &'static str)]| {
            let headers: HeaderMap =
                pairs.iter().map(|(name, value)| (name.clone(), header::HeaderValue::from_static(value))).collect();
            conditions(&headers, tag, 1_000_000_000).map(|status| status.as_u16())
        };
        let (matches, none) = (header::IF_MATCH, header::IF_NONE_MATCH);
        let (since, unless) = (header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE);
        for (pairs, want) in [
            (vec![], None),
            (vec![(matches.clone(), "\"a\"")], None),
            (vec![(matches.clone(), "*")], None),
            (vec![(matches.clone(), "\"b\", \"a\"")], None),
            (vec![(matches.clone(), "\"b\"")], Some(412)),
            (vec![(matches.clone(), "W/\"a\"")], Some(412)),
            (vec![(none.clone(), "\"a\"")], Some(304)),
            (vec![(none.clone(), "W/\"a\"")], Some(304)),
            (vec![(none.clone(), "*")], Some(304)),
            (vec![(none.clone(), "\"b\"")], None),
            (vec![(none, "\"b\""), (since.clone(), future)], None),
            (vec![(since.clone(), at)], Some(304)),
            (vec![(since.clone(), past)], None),
            (vec![(since, "yesterday")], None),
            (vec![(unless.clone(), past)], Some(412)),
            (vec![(unless.clone(), at)], None),
            (vec![(matches, "\"a\""), (unless, past)], None),
        ] {
            assert_eq!(given(&pairs), want, "{pairs:?}");
        }
    }
}
