//! The page for people: a directory as a list that needs no script, and what the script makes of it.
//!
//! Safe against names and texts of a container: all are escaped, and characters that change how others are shown are
//! written as escapes; the policy allows no script but ours, and nothing from elsewhere.
#![forbid(unsafe_code)]

mod html;
mod viewer;

use std::path::PathBuf;

use hyper::header::{self, HeaderMap};
use hyper::{Method, StatusCode};
use xxhash_rust::xxh3::xxh3_128;

use super::body::ReplyBody;
use super::file::conditions;
use super::reply::{Reply, empty, reply, set};

/// The folder of what the page is made of, below the root.
const OWN: &str = "-/";
/// The folder of the viewer.
const VIEWER: &str = "viewer/";

const SCRIPT: &str = "text/javascript; charset=utf-8";
/// The assets of the page: name, media type, content.
const ASSETS: [(&str, &str, &[u8]); 6] = [
    ("page.css", "text/css; charset=utf-8", include_bytes!("page.css")),
    ("page.js", SCRIPT, include_bytes!("page.js")),
    ("view.js", SCRIPT, include_bytes!("view.js")),
    ("plot.js", SCRIPT, include_bytes!("plot.js")),
    ("dom.js", SCRIPT, include_bytes!("dom.js")),
    ("icon.svg", "image/svg+xml", include_bytes!("icon.svg")),
];

/// How the page is shown.
#[derive(Debug, Default)]
pub struct Page {
    /// Origins whose pages may show it in a frame, as in a policy; empty: its own.
    pub frames: Vec<String>,
    /// The name of the root.
    pub name: String,
    /// The folder of a static viewer.
    pub viewer: Option<PathBuf>,
}

impl Page {
    /// Whether `origin` can be one of its frames: what cannot would be read as something else.
    pub fn is_origin(origin: &str) -> bool {
        !origin.is_empty() && origin.bytes().all(|byte| byte.is_ascii_graphic() && !b";,'\"".contains(&byte))
    }

    /// The policy of the page.
    pub(super) fn policy(&self) -> String {
        format!(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; \
             base-uri 'none'; form-action 'none'; {}",
            self.frame_ancestors()
        )
    }

    fn frame_ancestors(&self) -> String {
        let own = ["'self'"].into_iter();
        let frames = self.frames.iter().map(String::as_str).filter(|frame| Self::is_origin(frame));
        format!("frame-ancestors {}", own.chain(frames).collect::<Vec<_>>().join(" "))
    }

    /// Answers `method`, which is GET or HEAD, for the part of the page at `sent`, a path as sent; `None` if there is none:
    /// an entry of the tree with its name is behind `%2D/` (`decoded` is the same for both).
    pub(super) fn answer(&self, method: &Method, headers: &HeaderMap, sent: &str, decoded: &str) -> Option<Reply> {
        let name = decoded.strip_prefix(OWN).filter(|_| sent.starts_with(OWN))?;
        let below = name.strip_prefix(VIEWER).or_else(|| (format!("{name}/") == VIEWER).then_some(""));
        if let (Some(below), Some(dir)) = (below, &self.viewer) {
            return Some(viewer::answer(self, method, headers, dir, below));
        }
        let (_, kind, bytes) = ASSETS.iter().find(|(own, ..)| *own == name)?;
        Some(given(method, headers, kind, bytes.to_vec()))
    }
}

/// The reply with `bytes`, which the client may already have.
fn given(method: &Method, headers: &HeaderMap, kind: &'static str, bytes: Vec<u8>) -> Reply {
    let tag = format!("\"{:032x}\"", xxh3_128(&bytes));
    let len = bytes.len();
    let mut answer = if let Some(status) = conditions(headers, &tag, 0) {
        empty(status)
    } else {
        let body = if method == Method::HEAD { ReplyBody::of("") } else { ReplyBody::of(bytes) };
        let mut answer = reply(StatusCode::OK, kind, body);
        set(&mut answer, header::CONTENT_LENGTH, &len.to_string());
        answer
    };
    set(&mut answer, header::ETAG, &tag);
    set(&mut answer, header::CACHE_CONTROL, "no-cache");
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_one_word_of_a_policy() {
        for (origin, is_one) in [
            ("*", true),
            ("http://localhost:*", true),
            ("https://[::1]:8888", true),
            ("", false),
            ("a b", false),
            ("x;script-src", false),
            ("a,b", false),
            ("'none'", false),
            ("a\n", false),
            ("\u{fc}", false),
        ] {
            assert_eq!(Page::is_origin(origin), is_one, "{origin}");
        }
    }

    #[test]
    fn the_policy_allows_our_script_alone_and_the_frames_that_the_user_names() {
        let page = Page { frames: vec!["http://127.0.0.1:*".into(), "x; script-src *".into()], ..Page::default() };
        let policy = page.policy();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
        assert!(policy.ends_with("frame-ancestors 'self' http://127.0.0.1:*"), "{policy}");
        assert!(!policy.contains("unsafe"));
    }

    #[test]
    fn what_the_page_is_made_of_needs_nothing_from_elsewhere() {
        for (name, _, bytes) in ASSETS {
            let text = std::str::from_utf8(bytes).unwrap();
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for word in ["http:", "https:", "eval(", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"] {
                assert!(!text.contains(word), "{name}: {word}");
            }
        }
    }
}
