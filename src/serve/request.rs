//! Answers one request.
#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode, Uri};
use tokio::time::timeout;

use super::admission::Admission;
use super::budget::Budget;
use super::metrics::{self, Metrics};
use super::page::Page;
use super::reply::{Reply, empty, failed_at, refused, set};
use super::tree::{Resource, ServedTree};
use super::{dav, file, listing, propfind, slice, url_path};

/// Answers requests.
#[derive(Debug)]
pub(super) struct Handler {
    pub(super) tree: Arc<ServedTree>,
    pub(super) admission: Arc<Admission>,
    pub(super) allow_origin: Option<String>,
    pub(super) page: Page,
    pub(super) budget: Budget,
    pub(super) metrics: Arc<Metrics>,
    /// Whether the metrics are served.
    pub(super) shows_metrics: bool,
}

impl Handler {
    /// Answers `request` of `client`.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: Option<SocketAddr>,
    ) -> Result<Reply, Infallible> {
        let (parts, body) = request.into_parts();
        let (method, uri) = (parts.method.clone(), parts.uri.clone());
        let mut answer = match self.at_once(&parts.method, &parts.uri, &parts.headers) {
            Some(answer) => answer,
            None if parts.method.as_str() == PROPFIND => self.properties(parts, body).await,
            None => self.found(parts).await,
        };
        self.cross_origin(&mut answer);
        self.metrics.replied(answer.status());
        tracing::info!(
            target: "fzmfs::request",
            "{} {method} {} {}",
            client.map_or_else(|| "-".to_owned(), |client| client.ip().to_string()),
            // Never the secret path, nor what somebody takes for it.
            self.admission.below(uri.path()).map_or_else(|| "-".to_owned(), |path| format!("/{path}")),
            answer.status().as_u16()
        );
        Ok(answer)
    }

    /// The reply to a request that is not for the tree, or needs nothing of it.
    fn at_once(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Reply> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (host, more) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next());
        let Some(host) = host.filter(|_| more.is_none()) else {
            return Some(refused(StatusCode::BAD_REQUEST, "one header Host is needed"));
        };
        let absolute = uri.authority().map_or(host, |authority| authority.as_str());
        if !self.admission.is_own(host) || !self.admission.is_own(absolute) {
            return Some(refused(StatusCode::MISDIRECTED_REQUEST, "not a name of this server; --host NAME adds one"));
        }
        if self.admission.below(uri.path()).is_none() {
            let why = "the address lacks the secret path that fzmfs serve has printed";
            return Some(refused(StatusCode::NOT_FOUND, why));
        }
        if self.shows_metrics && method == Method::GET && self.admission.below(uri.path()) == Some(metrics::PATH) {
            return Some(self.metrics.answer(&self.tree, &self.budget));
        }
        if method == Method::GET || method == Method::HEAD || method.as_str() == PROPFIND {
            return None;
        }
        let is_question = method == Method::OPTIONS;
        let mut answer =
            if is_question { empty(StatusCode::OK) } else { refused(StatusCode::METHOD_NOT_ALLOWED, "read-only") };
        set(&mut answer, header::ALLOW, ALLOWED);
        // Class 1 of WebDAV: without locks, so that nobody tries to write.
        set(&mut answer, header::HeaderName::from_static("dav"), "1");
        set(&mut answer, header::HeaderName::from_static("ms-author-via"), "DAV");
        Some(answer)
    }

    /// Answers PROPFIND.
    async fn properties(self: &Arc<Self>, Parts { uri, headers, .. }: Parts, body: Incoming) -> Reply {
        let body = match timeout(BODY_TIME, received(body)).await {
            Ok(Some(body)) => body,
            Ok(None) => return refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large, or broke off"),
            Err(_) => return refused(StatusCode::REQUEST_TIMEOUT, "the body did not come"),
        };
        let Some(asked) = propfind::parse(&body) else {
            return refused(StatusCode::BAD_REQUEST, "the body is not a propfind of WebDAV");
        };
        let Some(with_entries) = propfind::with_entries(&headers) else { return dav::too_deep() };
        let me = self.clone();
        self.working(move || {
            let path = me.admission.below(uri.path()).unwrap_or_default();
            dav::answer(&me.tree, (&me.page.name, &me.admission.prefix()), path, with_entries, &asked)
        })
        .await
    }

    async fn found(self: &Arc<Self>, Parts { method, uri, headers, .. }: Parts) -> Reply {
        let me = self.clone();
        self.working(move || me.find(&method, &uri, &headers)).await
    }

    async fn working(&self, work: impl FnOnce() -> Reply + Send + 'static) -> Reply {
        self.budget.clone().run(work).await.unwrap_or_else(|_| {
            let why = "the request failed, which is a bug of fzmfs; please report it";
            refused(StatusCode::INTERNAL_SERVER_ERROR, why)
        })
    }

    /// Answers GET or HEAD from the tree.
    fn find(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Reply {
        let full = uri.path();
        let path = self.admission.below(full).unwrap_or_default();
        let Some(decoded) = url_path::decoded(path) else {
            return refused(StatusCode::NOT_FOUND, "no entry can have this path");
        };
        let query = uri.query().unwrap_or("");
        let page = self.page.answer(method, headers, path, &decoded);
        if let Some(answer) = page.or_else(|| slice::answer(&self.tree, method, headers, &decoded, query)) {
            return answer;
        }
        match self.tree.resolve(&decoded) {
            Ok(Resource::File(found)) if path.ends_with('/') => {
                refused(StatusCode::NOT_FOUND, &format!("{} is not a directory", found.name))
            }
            Ok(Resource::File(found)) => file::answer(method, headers, found, &self.budget),
            Ok(Resource::Directory(_)) if !full.ends_with('/') => self.redirect(path),
            Ok(Resource::Directory(entries)) => listing::answer(method, headers, &decoded, &entries, &self.page),
            Err(e) => failed_at(&decoded, &e),
        }
    }

    /// To the directory `path` with a slash, so that relative links in its page lead below it.
    fn redirect(&self, path: &str) -> Reply {
        let mut answer = empty(StatusCode::MOVED_PERMANENTLY);
        let slash = if path.is_empty() { "" } else { "/" };
        set(&mut answer, header::LOCATION, &format!("{}{path}{slash}", self.admission.prefix()));
        answer
    }

    /// Lets pages of the origin that the user named read the reply, errors too.
    fn cross_origin(&self, answer: &mut Reply) {
        let Some(origin) = &self.allow_origin else { return };
        set(answer, header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        set(answer, header::ACCESS_CONTROL_ALLOW_METHODS, ALLOWED);
        set(
            answer,
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "range, if-range, if-match, if-none-match, if-modified-since, depth, content-type",
        );
        set(
            answer,
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            "content-range, content-length, accept-ranges, etag, last-modified, date",
        );
        set(answer, header::ACCESS_CONTROL_MAX_AGE, "600");
        if origin != "*" {
            answer.headers_mut().append(header::VARY, header::HeaderValue::from_static("origin"));
        }
    }
}

/// The body of a request; `None` if it is larger than [`BODY`] or breaks off.
async fn received(mut body: Incoming) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame.ok()?.into_data() {
            out.extend_from_slice(&data);
        }
        if out.len() > BODY {
            return None;
        }
    }
    Some(out)
}

/// The methods that are answered.
const ALLOWED: &str = "GET, HEAD, OPTIONS, PROPFIND";
const PROPFIND: &str = "PROPFIND";
/// Largest body of a request, in bytes.
const BODY: usize = 64 << 10;
/// How long a body may take.
const BODY_TIME: Duration = Duration::from_secs(20);
