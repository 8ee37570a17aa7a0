//! Lists of S3 (`ListObjectsV2`): the request for a page, and the names in the reply.
//!
//! Keys are requested URL-encoded, since a key may have characters that XML cannot have. Keys that are not file names
//! are left out: an empty segment, `.` and `..`, control characters.
//!
//! Limits: [`MOST`] bytes of a reply.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use reqwest::StatusCode;
use tokio::time::{Instant, sleep, timeout_at};

use super::address::{Address, Clients};
use super::reply::{self, Failure};
use super::session::{self, Session};
use crate::error::{Error, Result};
use crate::source::pages::Pages;
use crate::source::seen::Seen;

/// Entries of a page: the most that S3 gives.
pub(super) const PAGE: u32 = 1000;
/// Most bytes of a reply: a thousand of the longest keys, encoded, with their attributes.
const MOST: usize = 8 << 20;
/// The first and the longest pause between requests.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(3);
/// A request without any answer is given up after this part of the time-out, and made again.
const TRIES: u32 = 3;

/// An object, as a list describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectEntry {
    pub(super) size: u64,
    /// Seconds since 1970.
    pub(super) modified: i64,
    /// With its quotes.
    pub(super) etag: Option<String>,
}

/// The objects that a list names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Query<'a> {
    /// The beginning of the keys that the names leave out.
    pub(super) base: &'a str,
    /// The beginning of the keys.
    pub(super) prefix: &'a str,
    pub(super) depth: Depth,
    /// Most entries of a page.
    pub(super) most: u32,
}

/// Which of the objects below a prefix a list names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Objects in the directory, and the directories in it.
    One,
    /// All, with their paths.
    All,
}

impl ObjectEntry {
    /// Its state.
    pub(super) fn seen(&self) -> Seen {
        Seen::far(self.size, self.modified, self.etag.as_deref())
    }
}

/// Some entries below a prefix.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// Their names below the prefix; without an object, that of a prefix.
    pub(super) entries: Vec<(String, Option<ObjectEntry>)>,
    /// Where the next page begins.
    pub(super) next: Option<String>,
}

/// The page of `asked` that begins at `from`.
///
/// # Errors
/// [`crate::error::Kind::Io`] if the server refuses, or does not answer within `timeout`.
pub(super) fn page(
    (address, session): (&Address, &Session),
    timeout: Duration,
    asked: Query<'_>,
    from: Option<&str>,
) -> Result<Page> {
    let (runtime, clients) = session.enter(address)?;
    session::wait(&runtime, fetch(address, &clients, timeout, asked, from))
}

/// Passes the path of each object below `address`, and the object, to `each`, until that returns false.
///
/// # Errors
/// As [`page`]; [`crate::error::Kind::Unsupported`] if its server has no lists; errors of `each`.
pub(super) fn all_below(
    (address, session): (&Address, &Session),
    timeout: Duration,
    each: &mut dyn FnMut(&str, &ObjectEntry) -> Result<bool>,
) -> Result<()> {
    address.has_lists()?;
    let base = address.base();
    let asked = Query { base: &base, prefix: &base, depth: Depth::All, most: PAGE };
    let mut pages = Pages::default();
    while !pages.is_end() {
        let page = page((address, session), timeout, asked, pages.from())?;
        let objects = page.entries.iter().filter_map(|(name, object)| Some((name, object.as_ref()?)));
        let mut found = 0_usize;
        for (name, object) in objects {
            found = found.saturating_add(1);
            if !each(name, object)? {
                return Ok(());
            }
        }
        pages.read(found, page.next)?;
    }
    Ok(())
}

async fn fetch(
    address: &Address,
    clients: &Clients,
    timeout: Duration,
    asked: Query<'_>,
    from: Option<&str>,
) -> Result<Page> {
    let now = Instant::now();
    let end = now.checked_add(timeout).unwrap_or(now);
    let mut query: Vec<(&str, String)> = vec![
        ("list-type", "2".to_owned()),
        ("encoding-type", "url".to_owned()),
        ("max-keys", asked.most.to_string()),
        ("prefix", asked.prefix.to_owned()),
    ];
    query.extend((asked.depth == Depth::One).then(|| ("delimiter", "/".to_owned())));
    query.extend(from.map(|from| ("continuation-token", from.to_owned())));
    let mut pause = PAUSE;
    loop {
        let part = Instant::now().checked_add(timeout.checked_div(TRIES).unwrap_or_default()).unwrap_or(end);
        let answer = timeout_at(part.min(end), ask(address, clients, &query));
        let over = |_| Err(Failure::Passing("the server does not answer".to_owned(), None));
        let (why, wait) = match answer.await.unwrap_or_else(over) {
            Ok(text) => return Page::parse(&text, asked).ok_or_else(invalid),
            Err(Failure::Lasting(error)) => return Err(error),
            Err(Failure::Passing(why, wait)) => (why, wait.unwrap_or_default().max(pause)),
        };
        if Instant::now().checked_add(wait).is_none_or(|next| next >= end) {
            let said = format!("no answer within {} s: {why}", timeout.as_secs());
            return Err(Error::io(io::Error::new(io::ErrorKind::TimedOut, said), "list of objects"));
        }
        tracing::debug!("{}: {why}; asking again", address.shown().display());
        sleep(wait).await;
        pause = pause.saturating_mul(2).min(LONGEST);
    }
}

fn invalid() -> Error {
    let why = "the server's list of objects cannot be understood";
    Error::io(io::Error::new(io::ErrorKind::InvalidData, why), "list of objects")
}

async fn ask(address: &Address, clients: &Clients, query: &[(&str, String)]) -> std::result::Result<String, Failure> {
    let url = address.list_url(clients, query).await;
    let url = url.map_err(|why| Failure::lasting(io::ErrorKind::PermissionDenied, why))?;
    let mut reply = clients.client.get(url).send().await.map_err(|e| Failure::of(e, false))?;
    if reply.status() != StatusCode::OK {
        return Err(reply::refusal(reply, false).await);
    }
    let mut body = Vec::new();
    while let Some(bytes) = reply.chunk().await.map_err(|e| Failure::of(e, true))? {
        extend(&mut body, &bytes)?;
    }
    String::from_utf8(body).map_err(|_| Failure::Lasting(invalid()))
}

/// Adds `bytes` to the beginning of a reply.
fn extend(body: &mut Vec<u8>, bytes: &[u8]) -> std::result::Result<(), Failure> {
    if body.len().saturating_add(bytes.len()) > MOST {
        return Err(Failure::Lasting(invalid()));
    }
    body.extend_from_slice(bytes);
    Ok(())
}

impl Page {
    /// Parses a reply; `None` if it is not a list.
    fn parse(text: &str, asked: Query<'_>) -> Option<Self> {
        let (_, list) = text.split_once("<ListBucketResult")?;
        let is_encoded = element(list, "EncodingType").is_some_and(|(encoding, _)| encoding == "url");
        let mut page = Self::default();
        let name = |key: &str| {
            let key = unescaped(key);
            let key = if is_encoded { decoded(&key)? } else { key.into_owned() };
            let name = key.strip_prefix(asked.base)?;
            let name = name.strip_suffix('/').unwrap_or(name);
            let is_shown = match asked.depth {
                Depth::One => is_name(name),
                Depth::All => name.split('/').all(is_name),
            };
            is_shown.then(|| name.to_owned())
        };
        let mut rest = list;
        while let Some((object, after)) = element(rest, "Contents") {
            rest = after;
            let key = element(object, "Key")?.0;
            let size = element(object, "Size")?.0.parse().ok()?;
            let modified = element(object, "LastModified").and_then(|(time, _)| seconds(time)).unwrap_or(0);
            let etag = element(object, "ETag").map(|(etag, _)| unescaped(etag).into_owned());
            // A key that ends with `/` marks a directory, which exists without it.
            if !key.ends_with('/')
                && !key.ends_with("%2F")
                && let Some(name) = name(key)
            {
                page.entries.push((name, Some(ObjectEntry { size, modified, etag })));
            }
        }
        let mut rest = list;
        while let Some((prefix, after)) = element(rest, "CommonPrefixes") {
            rest = after;
            page.entries.extend(name(element(prefix, "Prefix")?.0).map(|name| (name, None)));
        }
        let is_more = element(list, "IsTruncated").is_some_and(|(text, _)| text == "true");
        page.next = element(list, "NextContinuationToken").map(|(token, _)| unescaped(token).into_owned());
        if is_more && page.next.is_none() {
            return None;
        }
        page.next = page.next.filter(|_| is_more);
        Some(page)
    }
}

/// Whether `name` can be that of a file.
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains('/') && !name.contains(|c: char| c.is_ascii_control())
}

/// The text in the first element `name`, and the rest after it.
fn element<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let (_, inside) = text.split_once(&format!("<{name}>"))?;
    inside.split_once(&format!("</{name}>"))
}

/// Replaces the entities of XML.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let known = [("&quot;", "\""), ("&#34;", "\""), ("&lt;", "<"), ("&gt;", ">"), ("&apos;", "'"), ("&#39;", "'")];
    let text = known.iter().fold(text.to_owned(), |text, (entity, by)| text.replace(entity, by));
    Cow::Owned(text.replace("&amp;", "&"))
}

/// Decodes `%XX` and `+`.
fn decoded(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    let mut out = Vec::with_capacity(spaced.len());
    let mut rest = spaced.as_bytes();
    while let Some((&first, next)) = rest.split_first() {
        rest = next;
        if first == b'%' {
            let (digits, after) = next.split_at_checked(2)?;
            rest = after;
            let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
            out.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            out.push(first);
        }
    }
    String::from_utf8(out).ok()
}

/// Seconds since 1970 of a time as `2009-10-12T17:50:30.000Z`.
fn seconds(time: &str) -> Option<i64> {
    let (date, clock) = time.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let clock = clock.trim_end_matches('Z').split('.').next()?;
    let mut clock = clock.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let (hours, minutes, seconds) = (clock.next()??, clock.next()??, clock.next()??);
    super::version::since_1970((year, month.checked_sub(1)?, day), (hours, minutes, seconds))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "a test")]
    use super::*;

    #[test]
    fn a_list_is_read_as_s3_writes_it() {
        let text = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><Name>b</Name><Prefix>p/</Prefix>\
            <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
            <NextContinuationToken>a&amp;b</NextContinuationToken>\
            <Contents><Key>p/</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified><Size>0</Size></Contents>\
            <Contents><Key>p/a+b%2Bc%25.fzm</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified>\
            <ETag>&quot;e&quot;</ETag><Size>7</Size></Contents>\
            <Contents><Key>p/..</Key><Size>1</Size></Contents>\
            <Contents><Key>p/%01</Key><Size>1</Size></Contents>\
            <Contents><Key>other</Key><Size>1</Size></Contents>\
            <CommonPrefixes><Prefix>p/%C3%A4/</Prefix></CommonPrefixes>\
            <CommonPrefixes><Prefix>p//</Prefix></CommonPrefixes></ListBucketResult>";
        let asked = |base, depth| Query { base, prefix: base, depth, most: PAGE };
        let page = Page::parse(text, asked("p/", Depth::One)).unwrap();
        let object = ObjectEntry { size: 7, modified: 1_255_369_830, etag: Some("\"e\"".to_owned()) };
        assert_eq!(page.entries, [("a b+c%.fzm".to_owned(), Some(object)), ("\u{e4}".to_owned(), None)]);
        assert_eq!(page.next.as_deref(), Some("a&b"));
        for text in [
            "",
            "<html>",
            "<ListBucketResult><Contents><Key>x</Key></Contents>",
            "<ListBucketResult><IsTruncated>true</IsTruncated>",
        ] {
            assert_eq!(Page::parse(text, asked("", Depth::One)), None, "{text}");
        }
        for end in 0..text.len() {
            _ = text.get(..end).and_then(|text| Page::parse(text, asked("p/", Depth::One)));
        }
    }

    #[test]
    fn a_reply_is_read_as_far_as_a_list_can_be_long() {
        let mut body = vec![0; MOST - 3];
        extend(&mut body, &[1, 2]).unwrap();
        extend(&mut body, &[3]).unwrap();
        assert_eq!((body.len(), &body[MOST - 3..]), (MOST, &[1, 2, 3][..]));
        assert!(matches!(extend(&mut body, &[4]), Err(Failure::Lasting(_))));
        assert!(matches!(extend(&mut vec![0; MOST - 3], &[0; 5]), Err(Failure::Lasting(_))));
    }

    #[test]
    fn a_list_of_all_below_names_paths_and_none_that_leads_elsewhere() {
        let keys = ["p/a", "p/a/b c", "p/./x", "p/a/../x", "p//x", "p/a//x", "p/a%0A/x", "q/x", "p/d/"];
        let object = |key: &&str| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>");
        let text = format!("<ListBucketResult>{}</ListBucketResult>", keys.iter().map(object).collect::<String>());
        let encoded = text.replace("<ListBucketResult>", "<ListBucketResult><EncodingType>url</EncodingType>");
        for text in [&text.replace("%0A", "\n"), &encoded] {
            let names = |depth| {
                let page = Page::parse(text, Query { base: "p/", prefix: "p/", depth, most: PAGE }).unwrap();
                page.entries.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
            };
            assert_eq!(
                (names(Depth::All), names(Depth::One)),
                (vec!["a".into(), "a/b c".into()], vec!["a".to_owned()])
            );
        }
    }
}
