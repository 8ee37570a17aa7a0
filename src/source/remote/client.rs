//! The client of HTTP: its TLS, redirections and limits.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

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
    // Never from TLS to plain text.
    let redirect = Policy::custom(|attempt| {
        let was_secret = attempt.previous().iter().any(|url| url.scheme() == "https");
        if attempt.previous().len() > REDIRECTS {
            attempt.error("too many redirections")
        } else if was_secret && attempt.url().scheme() != "https" {
            attempt.error("a redirection from https to http")
        } else if !matches!(attempt.url().scheme(), "http" | "https") {
            let why = format!("to {}:", attempt.url().scheme());
            attempt.error(why)
        } else {
            attempt.follow()
        }
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

/// Authorities that were read, when, and where the environment said that they are: a file, a folder.
struct Authorities {
    roots: Arc<RootCertStore>,
    read: Instant,
    named: [Option<OsString>; 2],
}

/// The authorities of the system, or of the files that the environment names. There are well over a hundred of them, and
/// a process may open thousands of archives: they are read once in a while, and when the environment names others.
fn roots() -> Arc<RootCertStore> {
    static LAST: Mutex<Option<Authorities>> = Mutex::new(None);
    let (named, now) = (["SSL_CERT_FILE", "SSL_CERT_DIR"].map(env::var_os), Instant::now());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(last) = last.as_ref().filter(|last| last.named == named && now.duration_since(last.read) < AGAIN) {
        return last.roots.clone();
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let roots = Arc::new(roots);
    *last = Some(Authorities { roots: roots.clone(), read: now, named });
    roots
}
