//! The client of HTTP: its TLS, redirections and limits.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Url;
use reqwest::redirect::Policy;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// Redirections that are followed.
const REDIRECTS: usize = 5;
/// When authorities are read again: they may be replaced while a daemon runs.
const AGAIN: Duration = Duration::from_secs(10);

/// A client with TLS by rustls on ring, and the authorities of the system or of `SSL_CERT_FILE`.
///
/// # Errors
/// In words, if TLS is not possible.
pub(super) fn new() -> Result<reqwest::Client, String> {
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots())
        .with_no_client_auth();
    let redirect = Policy::custom(|attempt| match refused(attempt.previous(), attempt.url()) {
        Some(why) => attempt.error(why),
        None => attempt.follow(),
    });
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .http1_only()
        .connect_timeout(CONNECT)
        .redirect(redirect)
        .referer(false)
        .retry(reqwest::retry::never())
        .user_agent(concat!("fzmfs/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|e| e.without_url().to_string())
}

/// Why a redirection to `next` is not followed, after requests to `previous`; `None` if it is.
fn refused(previous: &[Url], next: &Url) -> Option<String> {
    let was_secret = previous.iter().any(|url| url.scheme() == "https");
    if previous.len() > REDIRECTS {
        Some("too many redirections".to_owned())
    } else if was_secret && next.scheme() != "https" {
        // Never from TLS to plain text.
        Some("a redirection from https to http".to_owned())
    } else if !matches!(next.scheme(), "http" | "https") {
        Some(format!("to {}:", next.scheme()))
    } else {
        None
    }
}

/// Authorities that were read, when, and where the environment said that they are: a file, a folder.
struct Authorities {
    roots: Arc<RootCertStore>,
    read: Instant,
    named: [Option<OsString>; 2],
}

impl Authorities {
    /// Whether they need not be read again `now`, if the environment says that they are where `named` says.
    fn are_of(&self, named: &[Option<OsString>; 2], now: Instant) -> bool {
        self.named == *named && now.duration_since(self.read) < AGAIN
    }
}

/// The authorities of the system, or of the files that the environment names. There are well over a hundred of them, and
/// a process may open thousands of archives: they are read once in a while, and when the environment names others.
fn roots() -> Arc<RootCertStore> {
    static LAST: Mutex<Option<Authorities>> = Mutex::new(None);
    let (named, now) = (["SSL_CERT_FILE", "SSL_CERT_DIR"].map(env::var_os), Instant::now());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(last) = last.as_ref().filter(|last| last.are_of(&named, now)) {
        return last.roots.clone();
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let roots = Arc::new(roots);
    *last = Some(Authorities { roots: roots.clone(), read: now, named });
    roots
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test")]
    use super::*;

    #[test]
    fn a_redirection_is_followed_a_few_times_to_no_other_protocol_and_never_to_plain_text() {
        let urls = |scheme: &str, count: usize| vec![Url::parse(&format!("{scheme}://h/x")).unwrap(); count];
        for (previous, next, why) in [
            (urls("http", 1), "http", None),
            (urls("http", 5), "https", None),
            (urls("https", 5), "https", None),
            (urls("http", 6), "http", Some("too many redirections")),
            (urls("http", 7), "http", Some("too many redirections")),
            (urls("https", 1), "http", Some("a redirection from https to http")),
            ([urls("https", 1), urls("http", 1)].concat(), "http", Some("a redirection from https to http")),
            (urls("http", 1), "ftp", Some("to ftp:")),
        ] {
            assert_eq!(refused(&previous, &urls(next, 1)[0]).as_deref(), why, "{previous:?} {next}");
        }
    }

    #[test]
    fn authorities_are_read_again_after_a_while_and_where_the_environment_names_others() {
        let (now, named) = (Instant::now(), |file: Option<&str>| [file.map(OsString::from), None]);
        let read = Authorities { roots: Arc::new(RootCertStore::empty()), read: now, named: named(Some("a")) };
        for (file, after, are) in [
            (Some("a"), Duration::ZERO, true),
            (Some("a"), AGAIN.checked_sub(Duration::from_nanos(1)).unwrap(), true),
            (Some("a"), AGAIN, false),
            (Some("b"), Duration::ZERO, false),
            (None, Duration::ZERO, false),
        ] {
            assert_eq!(read.are_of(&named(file), now + after), are, "{file:?} {after:?}");
        }
    }
}
