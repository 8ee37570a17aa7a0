//! The reply for a directory: a page for people, JSON for programs that ask for it.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

use hyper::header::{self, HeaderMap};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::body::ReplyBody;
use super::reply::{Reply, reply, set};
use super::tree::Listed;
use super::url_path::encoded;
use crate::archive::EntryKind;
use crate::text::escaped;

/// The page needs no script, and nothing from elsewhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'self'";

/// Answers `method`, which is GET or HEAD, for the directory at `path`, of these entries.
pub(super) fn answer(method: &Method, headers: &HeaderMap, path: &str, entries: &[Listed]) -> Reply {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let is_json = accepted.contains("application/json");
    let (kind, text) = if is_json {
        ("application/json", json(path, entries))
    } else {
        ("text/html; charset=utf-8", html(path, entries))
    };
    let len = text.len();
    let body = if method == Method::HEAD { ReplyBody::of("") } else { ReplyBody::of(text) };
    let mut answer = reply(StatusCode::OK, kind, body);
    set(&mut answer, header::CONTENT_LENGTH, &len.to_string());
    set(&mut answer, header::VARY, "accept");
    set(&mut answer, header::CACHE_CONTROL, "no-cache");
    set(&mut answer, header::CONTENT_SECURITY_POLICY, POLICY);
    answer
}

fn json(path: &str, entries: &[Listed]) -> String {
    let entry = |entry: &Listed| json!({ "name": entry.name, "type": word(entry.kind), "size": entry.size });
    json!({ "path": path, "entries": entries.iter().map(entry).collect::<Vec<Value>>() }).to_string()
}

fn word(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link => "link",
    }
}

fn html(path: &str, entries: &[Listed]) -> String {
    let title = if path.is_empty() { "fzmfs".to_owned() } else { markup(path) };
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{title}</title>\
         <style>body{{font-family:system-ui,sans-serif;margin:2em;max-width:60em}}table{{border-collapse:collapse;width:100%}}\
         td,th{{text-align:left;padding:.2em .6em}}td:last-child,th:last-child{{text-align:right}}</style>\
         <h1>{title}</h1>\n<table><thead><tr><th scope=\"col\">Name<th scope=\"col\">Bytes</thead><tbody>\n",
    );
    if !path.is_empty() {
        out.push_str("<tr><td><a href=\"../\">..</a><td>\n");
    }
    for Listed { name, kind, size } in entries {
        let slash = if *kind == EntryKind::Directory { "/" } else { "" };
        let size = size.map_or(String::new(), |size| size.to_string());
        let _ = writeln!(out, "<tr><td><a href=\"{}{slash}\">{}{slash}</a><td>{size}", encoded(name), markup(name));
    }
    out.push_str("</tbody></table></html>\n");
    out
}

/// Text of a container as text of a page: without markup, and without characters that change how others are shown.
fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in escaped(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_container_are_never_markup() {
        let name = "<script>alert(\"1\")</script>'&\u{202e}";
        let entries = [Listed { name: name.to_owned(), kind: EntryKind::File, size: Some(3) }];
        let page = html(name, &entries);
        assert!(!page.contains("<script") && !page.contains('\u{202e}'), "{page}");
        assert!(page.contains("href=\"%3Cscript%3E") && page.contains("&lt;script&gt;"), "{page}");
        let value: Value = serde_json::from_str(&json(name, &entries)).unwrap();
        assert_eq!((&value["path"], &value["entries"][0]["name"]), (&name.into(), &name.into()));
    }
}
