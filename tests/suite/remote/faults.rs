//! Servers and networks that fail: each fault ends in the right bytes or in an error that says what is wrong.

use std::time::Duration;

use fzmfs::bytes::FileOffset;
use fzmfs::source::RemoteOptions;

use super::{noise, open, open_with};
use crate::support::mounts::wait_for;
use crate::support::server::{Fault, Object, Server};

const MIB: u64 = 1 << 20;

/// Options with a short time-out.
fn impatient() -> RemoteOptions {
    RemoteOptions { timeout: Duration::from_secs(2), ..RemoteOptions::default() }
}

/// A server with an object of 4 MiB.
fn server() -> Server {
    let server = Server::start();
    server.put("x", Object::new(noise(4 << 20)));
    server
}

#[test]
fn what_passes_is_asked_for_again() {
    let status = |code| vec![Fault::Status(code), Fault::None];
    for faults in [
        status(500),
        status(502),
        status(503),
        status(504),
        status(429),
        status(408),
        vec![Fault::Close, Fault::Close, Fault::None],
        vec![Fault::Cut(0), Fault::None],
        vec![Fault::Cut(1), Fault::Cut(999), Fault::Status(503), Fault::None],
        vec![Fault::Short(300), Fault::None],
        vec![Fault::Dribble(Duration::from_millis(1), 50), Fault::None],
        vec![Fault::Answer(503, vec![("Retry-After".into(), "1".into())], "busy".into()), Fault::None],
    ] {
        let server = server();
        // Both when it is opened and later.
        for at_open in [true, false] {
            let begin = || server.fail(faults.clone());
            if at_open {
                begin();
            }
            let source = open(&server, "x").unwrap_or_else(|e| panic!("{faults:?}: {e}"));
            if !at_open {
                begin();
            }
            let read = source.get(FileOffset(MIB + 77), 100_000, "x");
            assert!(read.unwrap() == noise(4 << 20)[(1 << 20) + 77..][..100_000], "{faults:?}");
        }
    }
}

#[test]
fn a_body_that_breaks_off_is_continued_where_it_ended() {
    let server = server();
    let source = open(&server, "x").unwrap();
    server.take_log();
    server.fail([Fault::Cut(40_000), Fault::Cut(20_000), Fault::None]);
    assert!(source.get(FileOffset(MIB), 100_000, "x").unwrap() == noise(4 << 20)[1 << 20..][..100_000]);
    let ranges: Vec<String> = server.take_log().iter().map(|request| request.headers["range"].clone()).collect();
    assert_eq!(ranges, ["bytes=1048576-1148575", "bytes=1088576-1148575", "bytes=1108576-1148575"]);
}

#[test]
fn a_server_that_goes_on_failing_is_an_error_in_time_and_the_next_reader_tries_again() {
    for fault in [
        Fault::Status(500),
        Fault::Status(503),
        Fault::Close,
        Fault::Cut(0),
        Fault::Silence(Duration::from_secs(20)),
        Fault::Dribble(Duration::from_millis(300), 100),
        Fault::Answer(429, vec![("Retry-After".into(), "3600".into())], String::new()),
    ] {
        let server = server();
        // On a busy machine it is too late at times.
        let source = wait_for("opened in time", || open_with(&server, "x", &impatient()).ok());
        server.fail([fault.clone()]);
        let error = source.get(FileOffset(MIB), 1000, "x").unwrap_err();
        assert!(error.to_string().contains("no answer within 2 s: "), "{fault:?}: {error}");
        assert_eq!(error.errno(), libc::EIO);
        server.fail([]);
        let read = wait_for("read in time", || source.get(FileOffset(MIB), 1000, "x").ok());
        assert_eq!(read, noise(4 << 20)[1 << 20..][..1000], "{fault:?}");
    }
}

#[test]
fn what_does_not_pass_is_an_error_at_once_that_says_why() {
    let s3 = "<Error><Code>AccessDenied</Code><Message>secret</Message></Error>".to_owned();
    for (fault, want) in [
        (Fault::Status(404), "no such object (HTTP 404)"),
        (Fault::Status(401), "no permission to read it (HTTP 401)"),
        (Fault::Answer(403, Vec::new(), s3), "no permission to read it (HTTP 403, AccessDenied)"),
        (Fault::Status(400), "the server refuses the request (HTTP 400)"),
        (Fault::Status(501), "the server refuses the request (HTTP 501)"),
        (Fault::Status(204), "the server refuses the request (HTTP 204)"),
        (Fault::Whole, "does not serve parts of the object (HTTP ranges), although it says so; download it"),
        (
            Fault::Raw("HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n".into()),
            "does not serve parts of the object (HTTP ranges); download it",
        ),
        (Fault::Unsaid, "the server does not say which bytes it sends"),
        (Fault::Shifted(1), "the server sent bytes 1 to 16384 for 0 to 16384"),
        (
            Fault::Answer(206, vec![("Content-Range".into(), "bytes 0-9/*".into())], "0123456789".into()),
            "the server does not say which bytes it sends",
        ),
        (
            Fault::Answer(
                206,
                vec![("Content-Range".into(), "bytes 0-9/10".into()), ("Content-Encoding".into(), "gzip".into())],
                "0123456789".into(),
            ),
            "the server compresses what it sends",
        ),
        (Fault::Answer(302, vec![("Location".into(), "/x".into())], String::new()), "too many redirections"),
        (Fault::Answer(302, vec![("Location".into(), "ftp://h/x".into())], String::new()), "is not followed: to ftp:"),
        (Fault::Answer(302, vec![("Location".into(), "s3://h/x".into())], String::new()), "is not followed: to s3:"),
    ] {
        let server = server();
        server.fail([fault.clone()]);
        let error = open(&server, "x").unwrap_err().to_string();
        assert!(error.contains(want) && !error.contains("secret"), "{fault:?}: {error}");
    }
}

#[test]
fn a_lie_about_the_range_or_the_length_is_never_served() {
    for fault in [
        Fault::Shifted(1),
        Fault::Unsaid,
        Fault::Whole,
        Fault::Answer(206, vec![("Content-Range".into(), "bytes 1048576-9999999/4194304".into())], "x".into()),
        Fault::Answer(206, vec![("Content-Range".into(), "bytes 0-999/4194304".into())], "x".repeat(1000)),
        Fault::Answer(206, vec![("Content-Range".into(), "bytes x".into())], "x".repeat(1000)),
    ] {
        let server = server();
        let source = open(&server, "x").unwrap();
        server.fail([fault.clone(), Fault::None]);
        assert!(source.get(FileOffset(MIB), 1000, "x").is_err(), "{fault:?}");
    }
}

#[test]
fn a_server_that_is_not_there_is_an_error_at_once() {
    let gone = server().url("x");
    let account = fzmfs::account::Account::new(1 << 20, 0);
    let options = fzmfs::source::RemoteOptions::default();
    for url in [&*gone, "http://name.invalid/x", "https://127.0.0.1:1/x"] {
        let error = fzmfs::source::Source::open_remote(url, &options, &account).unwrap_err().to_string();
        assert!(error.contains("cannot connect to the server"), "{url}: {error}");
    }
    for url in ["http://", "s3://bucket", "s3:///key", "http://h:x/"] {
        assert_eq!(fzmfs::source::Source::open_remote(url, &options, &account).unwrap_err().errno(), libc::EINVAL);
    }
}

#[test]
fn redirections_are_followed() {
    let server = server();
    let elsewhere = vec![("Location".to_owned(), server.url("x"))];
    server.fail([Fault::Answer(307, elsewhere, String::new()), Fault::None]);
    assert_eq!(open(&server, "y").unwrap().len(), 4 << 20);
    let targets: Vec<String> = server.take_log().into_iter().map(|request| request.target).collect();
    assert_eq!(targets, ["/y", "/x"]);
}
