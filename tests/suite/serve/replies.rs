//! Replies of `fzmfs serve`: files, their ranges and conditions, directories.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use super::server::{Server, cat, escaped};
use crate::support::opened::data;

const SAMPLE: &str = "fzm/lq1d_f32_noa_rle.fzm";

#[test]
fn every_file_of_a_container_is_served_byte_for_byte() {
    for source in [SAMPLE, "blosc2/n05_5d_f4.b2nd", "blosc2/archive.b2z", "ztensor", "zstd"] {
        let source = data(source);
        let server = Server::start(&source, &[]);
        let (mut tags, paths) = (HashSet::new(), server.files(""));
        assert!(!paths.is_empty());
        for path in paths {
            let (reply, head) = (server.get(&escaped(&path)), server.ask("HEAD", &escaped(&path), ""));
            if source.is_file() {
                assert_eq!((reply.status, reply.body == cat(&source, &path)), (200, true), "{path}");
            }
            assert_eq!(head.body.len(), 0, "{path}");
            assert_eq!(reply.length(), Some(reply.body.len()), "{path}: {}", reply.head);
            assert!(reply.header("date").is_some() && reply.header("content-encoding").is_none(), "{path}");
            assert!(matches!(reply.status, 200 | 500), "{path}: {}", reply.head);
            if reply.status == 200 {
                // Of a broken file too, HEAD tells the length: it decodes nothing.
                assert_eq!((head.status, head.length()), (200, reply.length()), "{path}");
                let tag = reply.header("etag").unwrap();
                assert!(tag.starts_with('"') && tag.ends_with('"') && tags.insert(tag.to_owned()), "{path}: {tag}");
                assert_eq!((head.header("etag"), reply.header("accept-ranges")), (Some(tag), Some("bytes")));
                assert!(reply.header("last-modified").is_some_and(|date| date.ends_with(" gmt")), "{path}");
            }
        }
    }
}

#[test]
fn single_ranges_are_clamped_and_several_are_the_whole() {
    let source = data(SAMPLE);
    let server = Server::start(&source, &[]);
    let whole = cat(&source, "data.raw");
    let len = whole.len();
    for (range, first, end) in [
        ("0-3".to_owned(), 0, 4),
        ("5-5".to_owned(), 5, 6),
        ("7-".to_owned(), 7, len),
        ("-7".to_owned(), len - 7, len),
        (format!("-{}", 2 * len), 0, len),
        (format!("{}-{}", len - 2, 2 * len), len - 2, len),
        ("0-99999999999999999999999".to_owned(), 0, len),
    ] {
        let reply = server.ask("GET", "data.raw", &format!("range: bytes={range}\r\n"));
        assert_eq!((reply.status, reply.body == whole[first..end]), (206, true), "{range}");
        assert_eq!(reply.header("content-range"), Some(&*format!("bytes {first}-{}/{len}", end - 1)), "{range}");
        assert_eq!(reply.length(), Some(end - first), "{range}");
    }
    for range in ["bytes=0-1,3-4", "bytes=3-2", "bytes=a-b", "lines=0-1"] {
        let reply = server.ask("GET", "data.raw", &format!("range: {range}\r\n"));
        assert_eq!((reply.status, reply.body == whole, reply.header("content-range")), (200, true, None), "{range}");
    }
    for range in [format!("{len}-"), format!("{}-{}", 2 * len, 3 * len), "-0".to_owned()] {
        let reply = server.ask("GET", "data.raw", &format!("range: bytes={range}\r\n"));
        assert_eq!((reply.status, reply.header("content-range")), (416, Some(&*format!("bytes */{len}"))), "{range}");
        assert_eq!(reply.length(), Some(reply.body.len()));
    }
    // A range is of what GET gives.
    let head = server.ask("HEAD", "data.raw", "range: bytes=0-3\r\n");
    assert_eq!((head.status, head.length()), (200, Some(len)));
}

#[test]
fn conditions_are_answered() {
    let server = Server::start(&data(SAMPLE), &[]);
    let whole = server.get("data.raw");
    let (tag, date) = (whole.header("etag").unwrap(), whole.header("last-modified").unwrap());
    let len = whole.body.len();
    for (headers, status, bytes) in [
        (format!("if-none-match: {tag}\r\n"), 304, 0),
        (format!("if-none-match: \"x\"\r\nif-none-match: {tag}\r\n"), 304, 0),
        ("if-none-match: \"x\"\r\n".to_owned(), 200, len),
        (format!("if-modified-since: {date}\r\n"), 304, 0),
        (format!("if-match: {tag}\r\n"), 200, len),
        ("if-match: *\r\n".to_owned(), 200, len),
        (format!("if-range: {tag}\r\nrange: bytes=0-3\r\n"), 206, 4),
        (format!("if-range: {date}\r\nrange: bytes=0-3\r\n"), 206, 4),
        ("if-range: \"x\"\r\nrange: bytes=0-3\r\n".to_owned(), 200, len),
        (format!("if-range: W/{tag}\r\nrange: bytes=0-3\r\n"), 200, len),
    ] {
        // Dates are compared as written.
        let headers = headers.replace(date, &title(date));
        let reply = server.ask("GET", "data.raw", &headers);
        assert_eq!((reply.status, reply.body.len()), (status, bytes), "{headers}");
        if status == 304 {
            assert_eq!(reply.header("etag"), Some(tag));
        }
    }
    for headers in ["if-match: \"x\"\r\n".to_owned(), format!("if-match: W/{tag}\r\nrange: bytes=0-3\r\n")] {
        let reply = server.ask("GET", "data.raw", &headers);
        assert_eq!((reply.status, reply.length()), (412, Some(reply.body.len())), "{headers}");
    }
}

/// A date in the case that HTTP has.
fn title(date: &str) -> String {
    let word = |word: &str| {
        let (head, tail) = word.split_at(1);
        if word == "gmt" { "GMT".to_owned() } else { head.to_ascii_uppercase() + tail }
    };
    date.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn another_version_and_other_options_have_another_tag() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.zst");
    fs::write(&file, zstd::encode_all(&[1; 4000][..], 1).unwrap()).unwrap();
    let tag = |options: &[&str]| {
        let server = Server::start(&file, options);
        server.get("data.raw").header("etag").unwrap().to_owned()
    };
    let first = tag(&[]);
    assert_eq!(tag(&[]), first);
    assert_ne!(tag(&["--dtype", "f4"]), first);
    fs::write(&file, zstd::encode_all(&[2; 4001][..], 1).unwrap()).unwrap();
    assert_ne!(tag(&[]), first);
}

#[test]
fn only_reading_is_allowed_and_said() {
    let server = Server::start(&data(SAMPLE), &[]);
    let methods = "get, head, options, propfind";
    for method in ["PUT", "POST", "DELETE", "PATCH", "MKCOL", "LOCK", "TRACE", "CONNECT", "BREW"] {
        let reply = server.ask(method, "data.raw", "content-length: 5\r\n");
        assert_eq!((reply.status, reply.header("allow")), (405, Some(methods)), "{method}");
        assert_eq!(reply.length(), Some(reply.body.len()), "{method}");
    }
    let reply = server.ask("OPTIONS", "data.raw", "");
    assert_eq!((reply.status, reply.header("allow"), reply.length()), (200, Some(methods), Some(0)));
    // Class 1 of WebDAV, without locks.
    assert_eq!(reply.header("dav"), Some("1"));
    // A body changes nothing, and none of it is taken for a request.
    let smuggled = server.request("GET", "missing", "");
    for (headers, body) in [
        (format!("content-length: {}\r\n", smuggled.len()), smuggled.clone()),
        ("transfer-encoding: chunked\r\n".to_owned(), format!("{:x}\r\n{smuggled}\r\n0\r\n\r\n", smuggled.len())),
        ("content-length: 1000000\r\nexpect: 100-continue\r\n".to_owned(), String::new()),
    ] {
        let reply = server.send((server.request("GET", "info.json", &headers) + &body).as_bytes());
        assert_eq!((reply.status, reply.json()["format"].as_str()), (200, Some("fzm")), "{headers}");
        let reply = server.send((server.request("PUT", "data.raw", &headers) + &body).as_bytes());
        assert_eq!((reply.status, reply.error()), (405, "read-only".to_owned()), "{headers}");
    }
}

#[test]
fn pages_of_an_origin_read_every_reply_if_allowed() {
    let source = data(SAMPLE);
    let origin = "https://viewer.example";
    for (options, want) in [(&["--allow-origin", origin][..], Some(origin)), (&["--allow-origin", "*"], Some("*"))] {
        let server = Server::start(&source, options);
        for (method, path, headers, status) in [
            ("GET", "data.raw", "", 200),
            ("GET", "data.raw", "range: bytes=0-3\r\n", 206),
            ("GET", "data.raw", "range: bytes=999999999-\r\n", 416),
            ("GET", "data.raw", "if-match: \"x\"\r\n", 412),
            ("GET", "missing", "", 404),
            ("GET", "", "", 200),
            ("PUT", "data.raw", "", 405),
            ("OPTIONS", "data.raw", "access-control-request-method: GET\r\n", 200),
        ] {
            let reply = server.ask(method, path, &format!("origin: {origin}\r\n{headers}"));
            assert_eq!(reply.status, status, "{method} {path}");
            assert_eq!(reply.header("access-control-allow-origin"), want, "{method} {path}");
            let exposed = reply.header("access-control-expose-headers").unwrap();
            assert!(["content-range", "content-length", "etag"].iter().all(|name| exposed.contains(name)));
            assert!(reply.header("access-control-allow-headers").unwrap().contains("range"));
        }
        let outside =
            server.send(format!("GET / HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.at).as_bytes());
        assert_eq!((outside.status, outside.header("access-control-allow-origin")), (404, want));
    }
    let server = Server::start(&source, &[]);
    assert_eq!(server.get("data.raw").header("access-control-allow-origin"), None);
}

#[test]
fn directories_are_pages_for_people_and_json_for_programs() {
    let server = Server::start(&data(SAMPLE), &[]);
    let page = server.get("");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.body.starts_with(b"<!DOCTYPE html>"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'self'"), "{policy}");
    let list = server.ask("GET", "stages/", "accept: application/json\r\n");
    assert_eq!(list.header("content-type"), Some("application/json"));
    let names: Vec<_> = list.json()["entries"].as_array().unwrap().iter().map(|entry| entry["name"].clone()).collect();
    assert!(names.iter().any(|name| name == "01-rle"), "{names:?}");
    for (path, to) in [("stages", "stages/"), ("stages/01-rle", "stages/01-rle/")] {
        let reply = server.get(path);
        assert_eq!((reply.status, reply.header("location")), (301, Some(&*format!("{}{to}", server.prefix))));
        assert_eq!(reply.length(), Some(0));
    }
    let bare = server.prefix.trim_end_matches('/');
    let head = format!("GET {bare} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.at);
    assert_eq!(server.send(head.as_bytes()).header("location"), Some(&*server.prefix));
    assert_eq!(server.get("data.raw/").status, 404);
    assert_eq!(server.get("pipeline.svg").header("content-security-policy").map(|p| p.contains("sandbox")), Some(true));
}

#[test]
fn metrics_count_what_was_asked_and_decoded() {
    let source = data(SAMPLE);
    let server = Server::start(&source, &["--metrics", "--cache", "16M"]);
    server.get("data.raw");
    server.get("data.raw");
    server.get("missing");
    let reply = server.get("-/metrics");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = String::from_utf8(reply.body).unwrap();
    let figure = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
    };
    assert_eq!((figure("fzmfs_replies_total{status=\"200\"}"), figure("fzmfs_replies_total{status=\"404\"}")), (2, 1));
    assert_eq!(figure("fzmfs_cache_budget_bytes"), 16 << 20);
    assert!(figure("fzmfs_decodes_total") > 0 && figure("fzmfs_decode_failures_total") == 0);
    assert!(text.contains("# HELP fzmfs_decoded_bytes_total Bytes decoded.\n"), "{text}");
    assert!(figure("fzmfs_decoded_bytes_total") > 0 && figure("fzmfs_cache_bytes") > 0);
    assert!(figure("fzmfs_sent_bytes_total") > 2 * cat(&source, "data.raw").len() as u64);
    assert!(figure("fzmfs_connections") >= 1 && figure("fzmfs_connections_total") == 4);
    // Each of them with what it is.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split([' ', '{']).next().unwrap();
        assert!(text.contains(&format!("# HELP {name} ")) && text.contains(&format!("# TYPE {name} ")), "{name}");
    }
    let plain = Server::start(&source, &[]);
    assert_eq!(plain.get("-/metrics").status, 404);
}

#[test]
fn a_served_container_is_a_source_of_fzmfs() {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(data(SAMPLE), dir.path().join("x.fzm")).unwrap();
    let server = Server::start(dir.path(), &["-o", "layout=beside"]);
    let url = server.url("x.fzm");
    for path in ["data.raw", "info.json", "stages/01-rle/in/codes.raw"] {
        let (far, near) = (cat(Path::new(&url), path), cat(&data(SAMPLE), path));
        if cfg!(feature = "remote") && path != "info.json" {
            assert_eq!(far, near, "{path}");
        }
        assert_eq!(server.get(&format!("x.fzm.d/{path}")).body, near, "{path}");
    }
}
