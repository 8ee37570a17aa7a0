//! Answers one request.
#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap};
use hyper::{Method, Request, StatusCode};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::admission::Admission;
use super::reply::{Reply, empty, failed, refused, set};
use super::tree::{Resource, ServedTree};
use super::{file, listing, url_path};

/// Replies in progress.
const REPLIES: usize = 128;

/// Answers requests.
#[derive(Debug)]
pub(super) struct Handler {
    tree: ServedTree,
    admission: Admission,
    allow_origin: Option<String>,
    replies: Arc<Semaphore>,
}

impl Handler {
    pub(super) fn new(tree: ServedTree, admission: Admission, allow_origin: Option<String>) -> Self {
        Self { tree, admission, allow_origin, replies: Arc::new(Semaphore::new(REPLIES)) }
    }

    /// Answers `request`.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Reply, Infallible> {
        let permit = self.replies.clone().acquire_owned().await;
        let handler = self.clone();
        let (parts, _) = request.into_parts();
        let answer = spawn_blocking(move || handler.find(&parts.method, parts.uri.path(), &parts.headers)).await;
        let mut answer = answer.unwrap_or_else(|_| {
            refused(StatusCode::INTERNAL_SERVER_ERROR, "the request failed, which is a bug of fzmfs; please report it")
        });
        self.cross_origin(&mut answer);
        let Ok(permit) = permit else { return Ok(answer) };
        Ok(answer.map(|body| body.holding(permit)))
    }

    fn find(&self, method: &Method, path: &str, headers: &HeaderMap) -> Reply {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        if !host.is_some_and(|host| self.admission.is_own(host)) {
            return refused(StatusCode::MISDIRECTED_REQUEST, "not a name of this server; --host NAME adds one");
        }
        let Some(path) = self.admission.below(path) else {
            return refused(StatusCode::NOT_FOUND, "the address lacks the secret path that fzmfs serve has printed");
        };
        if method == Method::OPTIONS {
            let mut answer = empty(StatusCode::NO_CONTENT);
            answer.headers_mut().remove(header::CONTENT_LENGTH);
            set(&mut answer, header::ALLOW, ALLOWED);
            return answer;
        }
        if method != Method::GET && method != Method::HEAD {
            let mut answer = refused(StatusCode::METHOD_NOT_ALLOWED, "read-only");
            set(&mut answer, header::ALLOW, ALLOWED);
            return answer;
        }
        let Some(decoded) = url_path::decoded(path) else {
            return refused(StatusCode::NOT_FOUND, "no entry can have this path");
        };
        match self.tree.resolve(&decoded) {
            Ok(Resource::File(found)) if path.ends_with('/') => {
                refused(StatusCode::NOT_FOUND, &format!("{} is not a directory", found.name))
            }
            Ok(Resource::File(found)) => file::answer(method, headers, found),
            Ok(Resource::Directory(_)) if !path.is_empty() && !path.ends_with('/') => self.redirect(path),
            Ok(Resource::Directory(entries)) => listing::answer(method, headers, &decoded, &entries),
            Err(e) => failed(&e),
        }
    }

    /// To the directory `path` with a slash, so that relative links in its page lead below it.
    fn redirect(&self, path: &str) -> Reply {
        let mut answer = empty(StatusCode::MOVED_PERMANENTLY);
        set(&mut answer, header::LOCATION, &format!("{}{path}/", self.admission.prefix()));
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
            "range, if-range, if-match, if-none-match, if-modified-since",
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

/// The methods that are answered.
const ALLOWED: &str = "GET, HEAD, OPTIONS";
