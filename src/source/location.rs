//! Location of a container: a local path or a URL.
//!
//! A URL may carry secrets: a password before the host, a signature in the query. [`shown`] is the part that may be
//! printed; the whole is used for requests only.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::platform::{OsStrExt, path_of_url};

/// The schemes of objects on servers.
const REMOTE: [&str; 3] = ["http", "https", "s3"];

/// Where the bytes of a source are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location<'a> {
    /// In a file of this machine.
    Local(Cow<'a, Path>),
    /// On a server: an `http`, `https` or `s3` URL.
    Remote(&'a str),
}

impl<'a> Location<'a> {
    /// The location `path`, as the user gives it. A relative path stays relative.
    ///
    /// # Errors
    /// [`crate::error::Kind::Unsupported`] for other URLs, unless a file has that name.
    pub fn of(path: &'a Path) -> Result<Self> {
        let Some((scheme, rest)) = scheme(path) else { return Ok(Self::Local(Cow::Borrowed(path))) };
        if REMOTE.iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            let refused = || Error::unsupported("a URL that is not UTF-8; write %XX instead of its bytes", "URL");
            return Ok(Self::Remote(path.to_str().ok_or_else(refused)?));
        }
        if scheme.eq_ignore_ascii_case("file") {
            let local = rest.strip_prefix(b"localhost").unwrap_or(rest);
            if !local.starts_with(b"/") {
                return Err(Error::unsupported("a file:// URL with a host; write file:///PATH", "URL"));
            }
            return Ok(Self::Local(Cow::Owned(path_of_url(decoded(local)))));
        }
        if path.exists() {
            return Ok(Self::Local(Cow::Borrowed(path)));
        }
        let why = format!("{scheme}:// URLs; use https://, http://, s3:// or file://");
        Err(Error::unsupported(why, "URL"))
    }

    /// As [`Location::of`] without the error: whether `path` is an object on a server.
    pub fn is_remote(path: &Path) -> bool {
        scheme(path).is_some_and(|(scheme, _)| REMOTE.iter().any(|known| scheme.eq_ignore_ascii_case(known)))
    }
}

/// The scheme of a URL, and what follows `://`.
fn scheme(path: &Path) -> Option<(&str, &[u8])> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.windows(3).position(|mark| mark == b"://").filter(|&end| (2..=16).contains(&end))?;
    let (scheme, rest) = bytes.split_at_checked(end)?;
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
    let scheme = std::str::from_utf8(scheme).ok().filter(|scheme| scheme.bytes().all(|b| plain(&b)))?;
    Some((scheme, rest.get(3..)?))
}

/// Decodes `%XX`; leaves anything else as it is.
fn decoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, next)) = rest.split_first() {
        let digits = next.get(..2).filter(|_| first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = digits.filter(|hex| !hex.starts_with('+')).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(byte.unwrap_or(first));
        rest = if byte.is_some() { next.get(2..).unwrap_or_default() } else { next };
    }
    out
}

/// `path` for messages: of an `http` or `https` URL without user, password, query and fragment, which may be secret;
/// anything else as it is.
pub fn shown(path: &Path) -> Cow<'_, Path> {
    let Some(url) = path.to_str().filter(|_| Location::is_remote(path)) else { return Cow::Borrowed(path) };
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| !scheme.eq_ignore_ascii_case("s3")) else {
        return Cow::Borrowed(path);
    };
    // As URLs are parsed: tabs and line breaks are dropped, a backslash is a slash, and any number of them begin the
    // host.
    let rest = rest.replace(['\t', '\n', '\r'], "").replace('\\', "/");
    let rest = rest.trim_start_matches('/');
    let public = rest.find(['?', '#']).and_then(|end| rest.get(..end)).unwrap_or(rest);
    let (host, path) = public.find('/').and_then(|at| public.split_at_checked(at)).unwrap_or((public, ""));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    Cow::Owned(PathBuf::from(format!("{scheme}://{host}{path}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_told_from_a_path() {
        for path in ["a.fzm", "/a/b", "./http://x", "a://b", "://x", "c d://x", "http:/x", "x"] {
            assert_eq!(Location::of(Path::new(path)).unwrap(), Location::Local(Path::new(path).into()), "{path}");
            assert!(!Location::is_remote(Path::new(path)), "{path}");
        }
        for url in ["s3://bucket/key", "http://h/x", "https://h/x", "HTTPS://h/x?y"] {
            assert_eq!(Location::of(Path::new(url)).unwrap(), Location::Remote(url));
            assert!(Location::is_remote(Path::new(url)), "{url}");
        }
        for (url, path) in [("file:///a/b%20c%2", "/a/b c%2"), ("file://localhost/x", "/x"), ("FILE:///%41", "/A")] {
            assert_eq!(Location::of(Path::new(url)).unwrap(), Location::Local(Path::new(path).into()));
        }
        for url in ["gs://bucket/key", "ftp://h/x", "file://host/x"] {
            assert!(Location::of(Path::new(url)).is_err() && !Location::is_remote(Path::new(url)), "{url}");
        }
    }

    #[test]
    fn what_may_be_secret_is_not_shown() {
        for (url, want) in [
            ("https://me:pass@host:8/a/b.fzm?X-Amz-Signature=1#f", "https://host:8/a/b.fzm"),
            ("http://host?token=1", "http://host"),
            ("http://a@b@host/x@y", "http://host/x@y"),
            ("http:///me:pass@host/x", "http://host/x"),
            ("http://\t/\\\n/me:pa/ss@host/x", "http://me:pa/ss@host/x"),
            ("http://me:pass@host\\x@y", "http://host/x@y"),
            ("s3://bucket/a?b#c@d", "s3://bucket/a?b#c@d"),
            ("/local?x", "/local?x"),
        ] {
            assert_eq!(shown(Path::new(url)), Path::new(want));
        }
    }
}
