//! The reply for a directory: a page for people, JSON for programs that ask for it.
#![forbid(unsafe_code)]

use hyper::header::{self, HeaderMap};
use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::body::ReplyBody;
use super::page::Page;
use super::reply::{Reply, reply, set};
use super::tree::ServedEntry;
use crate::archive::EntryKind;

/// Answers `method`, which is GET or HEAD, for the directory at `path`, of these entries.
pub(super) fn answer(method: &Method, headers: &HeaderMap, path: &str, entries: &[ServedEntry], page: &Page) -> Reply {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let is_json = accepted.contains("application/json");
    let (kind, text) = if is_json {
        ("application/json", json(path, entries))
    } else {
        ("text/html; charset=utf-8", page.html(path, entries))
    };
    let len = text.len();
    let body = if method == Method::HEAD { ReplyBody::of("") } else { ReplyBody::of(text) };
    let mut answer = reply(StatusCode::OK, kind, body);
    set(&mut answer, header::CONTENT_LENGTH, &len.to_string());
    set(&mut answer, header::VARY, "accept");
    set(&mut answer, header::CACHE_CONTROL, "no-cache");
    set(&mut answer, header::CONTENT_SECURITY_POLICY, &page.policy());
    answer
}

fn json(path: &str, entries: &[ServedEntry]) -> String {
    let entry = |entry: &ServedEntry| {
        let mut value = json!({ "name": entry.name, "type": word(entry.kind), "size": entry.size });
        if !entry.attributes.is_empty() {
            let attributes = entry.attributes.iter().map(|(key, text)| (key.clone(), text.clone().into()));
            value["attributes"] = attributes.collect::<Map<String, Value>>().into();
        }
        value
    };
    json!({ "path": path, "entries": entries.iter().map(entry).collect::<Vec<Value>>() }).to_string()
}

fn word(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link => "link",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_names_as_they_are() {
        let name = "<script>'\u{202e}";
        let attributes = vec![("dtype".to_owned(), "<f4".to_owned())];
        let entries = [ServedEntry { name: name.to_owned(), kind: EntryKind::File, size: Some(3), attributes }];
        let value: Value = serde_json::from_str(&json(name, &entries)).unwrap();
        let entry = &value["entries"][0];
        assert_eq!((&value["path"], &entry["name"], &entry["size"]), (&name.into(), &name.into(), &3.into()));
        assert_eq!(entry["attributes"]["dtype"], "<f4");
    }
}
