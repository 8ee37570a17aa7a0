//! Replies, the first one and later ones: bytes, a reason to ask again, or an error that says what is wrong.

use std::fmt::Write as _;
use std::sync::Arc;

use super::super::testing::{Fault, KIB, MIB, Server, account, answer, noise, object, patient};
use crate::bytes::FileOffset;
use crate::error::{Error, Kind, Result};
use crate::source::Source;

fn server() -> Server {
    let server = Server::start();
    server.put("x", object(4 * MIB));
    server
}

fn open(server: &Server) -> Result<Arc<Source>> {
    Source::open_remote(&server.url("x"), &patient(), &account())
}

/// A reply of which the body comes in `parts`.
fn chunked(head: &str, parts: &[&str]) -> Fault {
    let mut text = format!("HTTP/1.1 {head}\r\nTransfer-Encoding: chunked\r\n\r\n");
    for part in parts.iter().chain([&""]) {
        write!(text, "{:x}\r\n{part}\r\n", part.len()).unwrap();
    }
    Fault::Raw(text)
}

/// What comes of a read of the beginning, while the object is opened with the answers `faults`, and of a read of another
/// part, of which the request has them; and the number of requests.
fn reads(faults: &[Fault]) -> [(Result<()>, usize); 2] {
    [true, false].map(|is_first| {
        let server = server();
        let mut opened = None;
        if !is_first {
            opened = Some(open(&server).unwrap());
            server.take_log();
        }
        server.fail(faults);
        let read = || {
            let source = opened.map_or_else(|| open(&server), Ok)?;
            let at = if is_first { 0 } else { MIB };
            assert!(source.get(FileOffset(at), 10_000, "x")? == noise(2 * MIB)[at as usize..][..10_000], "{faults:?}");
            Ok(())
        };
        (read(), server.take_log().len())
    })
}

#[test]
fn what_passes_is_asked_for_again() {
    for (first, requests) in [
        (Fault::Status(408), 2),
        (Fault::Status(429), 2),
        (Fault::Status(500), 2),
        (Fault::Status(503), 2),
        (Fault::Close, 2),
        (Fault::Cut(0), 2),
        (Fault::Cut(5000), 2),
        (Fault::Short(300), 2),
        (answer(503, &[("Retry-After", "0")], "busy"), 2),
    ] {
        for (read, found) in reads(&[first.clone(), Fault::None]) {
            read.unwrap_or_else(|e| panic!("{first:?}: {e}"));
            assert_eq!(found, requests, "{first:?}");
        }
    }
}

#[test]
fn what_a_reply_leaves_out_is_asked_for_and_no_more() {
    let server = server();
    let source = open(&server).unwrap();
    server.take_log();
    server.fail([Fault::Cut(4000), Fault::Short(300), Fault::None]);
    assert!(source.get(FileOffset(MIB), 10_000, "x").unwrap() == noise(2 * MIB)[MIB as usize..][..10_000]);
    let ranges: Vec<String> = server.take_log().iter().map(|request| request.headers["range"].clone()).collect();
    assert_eq!(ranges, ["bytes=1048576-1081343", "bytes=1052576-1081343", "bytes=1052876-1081343"]);
}

#[test]
fn what_does_not_pass_is_an_error_at_once_that_says_why() {
    let code = "<Error><Code>AccessDenied</Code>";
    let long = format!("{}{code}", "x".repeat(5000));
    let encoded = [("Content-Range", "bytes 0-9/10"), ("Content-Encoding", "gzip")];
    for (fault, want) in [
        (Fault::Status(401), "no permission to read it (HTTP 401)"),
        (answer(403, &[], code), "no permission to read it (HTTP 403, AccessDenied)"),
        (chunked("403 x", &["<Error><Co", "de>AccessDenied</Code>"]), "(HTTP 403, AccessDenied)"),
        (chunked("403 x", &[&long]), "(HTTP 403)"),
        (Fault::Status(400), "the server refuses the request (HTTP 400)"),
        (Fault::Status(501), "the server refuses the request (HTTP 501)"),
        (answer(206, &encoded, "0123456789"), "the server compresses what it sends"),
        (
            answer(206, &[("Content-Range", "bytes 0-9/*")], "0123456789"),
            "the server does not say which bytes it sends",
        ),
        (answer(302, &[("Location", "ftp://h/x")], ""), "the server's redirection is not followed: to ftp:"),
        (Fault::Unsaid, "the server does not say which bytes it sends"),
        (Fault::Shifted(1), "the server sent bytes "),
        (Fault::Whole, "(HTTP ranges), although it says so; download it"),
        (chunked("200 x\r\nETag: \"v1\"", &["abc"]), "(HTTP ranges); download it"),
    ] {
        for (read, requests) in reads(&[fault.clone(), Fault::None]) {
            let error = read.unwrap_err().to_string();
            assert!(error.contains(want), "{fault:?}: {error}");
            assert_eq!(requests, 1, "{fault:?}");
        }
    }
}

#[test]
fn an_object_that_is_not_there_is_none_or_has_changed() {
    let is_changed = |error: &Error| matches!(error.kind(), Kind::Changed);
    let other = [("ETag", "\"v2\""), ("Accept-Ranges", "bytes")];
    for (fault, first) in [
        (Fault::Status(404), Some("no such object (HTTP 404)")),
        (answer(410, &[], "gone"), Some("no such object (HTTP 410)")),
        (Fault::Status(412), Some("the server refuses the request (HTTP 412)")),
        (Fault::Tag("\"v2\"".to_owned()), None),
        (answer(200, &other, "abc"), Some("(HTTP ranges), although it says so")),
        (Fault::Status(416), Some("no such object (HTTP 404)")),
    ] {
        let faults = [fault.clone(), answer(404, &[], "none")];
        let [(at_open, requests), (later, more)] = reads(&faults);
        assert_eq!(
            at_open.err().map(|e| e.to_string().contains(first.unwrap_or("-"))),
            first.map(|_| true),
            "{fault:?}"
        );
        assert_eq!((requests, more), (if fault == Fault::Status(416) { 2 } else { 1 }, 1), "{fault:?}");
        assert!(is_changed(&later.unwrap_err()), "{fault:?}");
    }
}

#[test]
fn an_object_without_bytes_is_empty_however_the_server_says_it() {
    let empty = answer(200, &[("ETag", "\"v1\"")], "");
    let range = answer(416, &[("Content-Range", "bytes */0"), ("ETag", "\"v1\"")], "");
    for (faults, requests) in [
        (vec![empty.clone()], 1),
        (vec![range], 1),
        (vec![Fault::Status(416), empty.clone()], 2),
        // The whole has bytes: it is asked for again.
        (vec![Fault::Status(416), answer(200, &[("ETag", "\"v1\"")], "x"), Fault::Status(416), empty], 4),
    ] {
        let server = server();
        server.fail(faults.clone());
        assert_eq!(open(&server).unwrap_or_else(|e| panic!("{faults:?}: {e}")).len(), 0);
        let log = server.take_log();
        assert_eq!(log.len(), requests, "{faults:?}");
        let ranges: Vec<bool> = log.iter().map(|request| request.headers.contains_key("range")).collect();
        assert_eq!(ranges, [true, false, true, false][..requests], "{faults:?}");
    }
    let error = {
        let server = server();
        server.fail([answer(416, &[("Content-Range", "bytes */7")], "")]);
        open(&server).unwrap_err()
    };
    assert!(error.to_string().contains("the server refuses the request (HTTP 416)"), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_an_error_at_once() {
    let error = Source::open_remote("http://127.0.0.1:1/x", &patient(), &account()).unwrap_err();
    assert!(error.to_string().contains("cannot connect to the server"), "{error}");
}

#[test]
fn a_longer_range_than_was_asked_for_is_refused() {
    let said = format!("bytes 1048576-{}/4194304", MIB + 64 * KIB);
    let body = "x".repeat((64 << 10) + 1);
    let long = answer(206, &[("Content-Range", &said), ("ETag", "\"v1\"")], &body);
    let [_, (later, requests)] = reads(&[long]);
    let error = later.unwrap_err().to_string();
    assert!(error.contains("the server sent bytes 1048576 to 1114113 for 1048576 to "), "{error}");
    assert_eq!(requests, 1);
}
