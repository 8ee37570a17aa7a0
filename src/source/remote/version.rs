//! The version of an object: the reply headers that identify its bytes, compared with every reply.
//!
//! Servers are asked to answer only for this version (`If-Match`), but several ignore that, so every reply is compared
//! too. A strong entity tag identifies the bytes. A weak one may stay the same when they change, so the time of the
//! last change counts too; without a tag, time and size must suffice.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;
use std::time::SystemTime;

use reqwest::header::{CONTENT_RANGE, DATE, ETAG, HeaderMap, HeaderName, LAST_MODIFIED};

/// One version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    /// As the server writes it, with its quotes.
    pub(super) etag: Option<String>,
    /// As the server writes it.
    pub(super) modified: Option<String>,
    pub(super) size: u64,
}

/// The time of a reply by the clock of its server: seconds since 1970.
pub(super) fn date(headers: &HeaderMap) -> Option<i64> {
    text(headers, &DATE).as_deref().and_then(seconds)
}

impl Version {
    /// The version that the headers of a reply describe, of an object of `size` bytes.
    pub(super) fn of(headers: &HeaderMap, size: u64) -> Self {
        Self { etag: text(headers, &ETAG), modified: text(headers, &LAST_MODIFIED), size }
    }

    /// Whether it can be distinguished from another version.
    pub(super) fn is_pinned(&self) -> bool {
        self.etag.is_some() || self.modified.is_some()
    }

    /// Whether a reply that describes `other` is of this version.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let is_same_tag = self.etag.is_none() || self.etag == other.etag;
        let is_same_time = self.strong_etag().is_some() || self.modified == other.modified;
        is_same_tag && is_same_time && self.size == other.size
    }

    /// The `ETag` if a server may be asked to match it: a weak one never does.
    pub(super) fn strong_etag(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !etag.starts_with("W/"))
    }

    /// Whether the `ETag` is the one that the user gave, with or without its quotes.
    pub(super) fn has_etag(&self, wanted: &str) -> bool {
        let bare = |etag: &str| etag.trim_matches('"').to_owned();
        self.etag.as_deref().is_some_and(|etag| bare(etag) == bare(wanted))
    }

    /// The time of the last change: seconds and nanoseconds since 1970; 1970 if the server does not say.
    pub(super) fn mtime(&self) -> (i64, i64) {
        (self.modified.as_deref().and_then(seconds).unwrap_or(0), 0)
    }
}

/// The range of a reply, and the size of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContentRange {
    /// Empty for a reply that has no bytes.
    pub(super) range: Range<u64>,
    pub(super) size: u64,
}

impl ContentRange {
    /// The header `Content-Range`: `bytes 0-9/100`, or `bytes */100`; `None` if it is missing, invalid, or without the
    /// size.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = text(headers, &CONTENT_RANGE)?;
        let (range, size) = value.strip_prefix("bytes ")?.trim().split_once('/')?;
        let size = size.parse().ok()?;
        if range == "*" {
            return Some(Self { range: 0..0, size });
        }
        let (first, last) = range.split_once('-')?;
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        let range = first..last.checked_add(1)?;
        (first <= last && range.end <= size).then_some(Self { range, size })
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Seconds since 1970 of a date of HTTP: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn seconds(date: &str) -> Option<i64> {
    let since = httpdate::parse_http_date(date).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

/// Seconds since 1970 of a year, a month from 0 and a day, and of hours, minutes and seconds.
#[expect(clippy::arithmetic_side_effects, reason = "every part is checked to be small")]
pub(super) fn since_1970(
    (year, month, day): (i64, i64, i64),
    (hours, minutes, seconds): (i64, i64, i64),
) -> Option<i64> {
    let is_date = (1970..=9999).contains(&year) && (0..12).contains(&month) && (1..=31).contains(&day);
    if !is_date || [hours, minutes, seconds].iter().any(|n| !(0..=60).contains(n)) {
        return None;
    }
    // Years that begin in March, so that a leap day is the last day of its year.
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + hours * 3600 + minutes * 60 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_of_http_is_seconds_since_1970() {
        for (date, want) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Thu, 29 Feb 2024 23:59:59 GMT", Some(1_709_251_199)),
            ("Fri, 01 Mar 2024 00:00:00 GMT", Some(1_709_251_200)),
            ("Sun, 31 Dec 2000 12:00:00 GMT", Some(978_264_000)),
            ("Sun, 06 Nox 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 99999 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49", None),
            ("", None),
        ] {
            assert_eq!(seconds(date), want, "{date}");
        }
    }

    #[test]
    fn a_date_is_seconds_since_1970_and_what_no_calendar_has_is_none() {
        const MIDNIGHT: (i64, i64, i64) = (0, 0, 0);
        for (date, want) in [
            ((1970, 0, 1), Some(0)),
            ((1970, 1, 1), Some(31)),
            ((1970, 2, 1), Some(59)),
            ((1972, 1, 29), Some(789)),
            ((1972, 2, 1), Some(790)),
            ((2000, 1, 29), Some(11_016)),
            ((2100, 2, 1), Some(47_541)),
            ((9999, 11, 31), Some(2_932_896)),
            ((1969, 11, 31), None),
            ((10_000, 0, 1), None),
            ((1970, -1, 1), None),
            ((1970, 12, 1), None),
            ((1970, 0, 0), None),
            ((1970, 0, 32), None),
        ] {
            assert_eq!(since_1970(date, MIDNIGHT), want.map(|days: i64| days * 86_400), "{date:?}");
        }
        assert_eq!(since_1970((1970, 0, 2), (1, 2, 3)), Some(86_400 + 3600 + 120 + 3));
        for time in [(61, 0, 0), (0, 61, 0), (0, 0, 61), (-1, 0, 0), (0, 0, -1)] {
            assert_eq!(since_1970((1970, 0, 1), time), None, "{time:?}");
        }
    }

    #[test]
    fn a_content_range_must_be_whole_and_within_the_size() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_RANGE, value.parse().unwrap());
            ContentRange::of(&headers).map(|range| (range.range, range.size))
        };
        assert_eq!(of("bytes 0-9/100"), Some((0..10, 100)));
        assert_eq!(of("bytes 99-99/100"), Some((99..100, 100)));
        assert_eq!(of("bytes */0"), Some((0..0, 0)));
        for value in ["bytes 0-100/100", "bytes 5-4/100", "bytes 0-9/*", "bytes 0-9", "items 0-9/100", "bytes -9/100"] {
            assert_eq!(of(value), None, "{value}");
        }
        assert_eq!(of(&format!("bytes 0-{0}/{0}", u64::MAX)), None);
        assert_eq!(ContentRange::of(&HeaderMap::new()), None);
    }

    #[test]
    fn versions_differ_by_etag_or_else_by_time_and_always_by_size() {
        let version = |etag: Option<&str>, modified: Option<&str>, size| Version {
            etag: etag.map(str::to_owned),
            modified: modified.map(str::to_owned),
            size,
        };
        let pinned = version(Some("\"a\""), Some("then"), 10);
        assert!(pinned.is_same(&version(Some("\"a\""), None, 10)) && pinned.has_etag("a") && pinned.has_etag("\"a\""));
        assert!(!pinned.is_same(&version(Some("\"b\""), Some("then"), 10)));
        assert!(!pinned.is_same(&version(None, Some("then"), 10)));
        assert!(!pinned.is_same(&version(Some("\"a\""), Some("then"), 11)));
        let weak = version(Some("W/\"a\""), Some("then"), 10);
        assert!(weak.is_same(&weak.clone()) && weak.is_pinned());
        assert!(!weak.is_same(&version(Some("W/\"a\""), Some("now"), 10)));
        assert!(!weak.is_same(&version(Some("W/\"b\""), Some("then"), 10)));
        let dated = version(None, Some("then"), 10);
        assert!(dated.is_same(&version(Some("\"a\""), Some("then"), 10)) && !dated.is_same(&version(None, None, 10)));
        assert!(dated.is_pinned() && !version(None, None, 10).is_pinned());
        assert_eq!(version(Some("W/\"a\""), None, 1).strong_etag(), None);
    }
}
