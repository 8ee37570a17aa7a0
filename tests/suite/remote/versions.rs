//! One version of an object, or none of it.

use fzmfs::bytes::FileOffset;
use fzmfs::error::Kind;
use fzmfs::source::RemoteOptions;

use super::{noise, open, open_with};
use crate::support::server::{Fault, Object, Server};

const MIB: u64 = 1 << 20;

#[test]
fn an_object_that_is_replaced_is_changed_for_good_and_never_a_mixture() {
    let other = |bytes: Vec<u8>| Object::new(bytes).with_etag("\"v2\"");
    let later = |object: Object| Object { modified: Some("Sun, 06 Nov 1994 08:49:38 GMT".to_owned()), ..object };
    let untagged = |object: Object| Object { etag: None, ..object };
    let old = || Object::new(noise(4 << 20));
    for (was, now) in [
        (old(), Some(other(noise(4 << 20)))),
        (old(), Some(other(noise(10)))),
        (old(), Some(untagged(old()))),
        (untagged(old()), Some(later(untagged(old())))),
        (untagged(old()), Some(untagged(Object::new(noise(5 << 20))))),
        (old(), None),
    ] {
        let server = Server::start();
        server.put("x", was);
        let source = open(&server, "x").unwrap();
        source.get(FileOffset(MIB), 1000, "x").unwrap();
        match now {
            Some(now) => server.put("x", now),
            None => server.remove("x"),
        }
        // The bytes are of the old version.
        assert_eq!(source.get(FileOffset(MIB), 1000, "x").unwrap(), noise(4 << 20)[1 << 20..][..1000]);
        source.check().unwrap();
        let error = source.get(FileOffset(2 * MIB), 1000, "x").unwrap_err();
        assert!(matches!(error.kind(), Kind::Changed), "{error}");
        assert!(matches!(source.check().unwrap_err().kind(), Kind::Changed) && !source.is_same_in_memory());
        assert!(source.get(FileOffset(MIB), 1000, "x").is_err());
        server.put("x", old());
        assert!(source.get(FileOffset(MIB), 1000, "x").is_err());
    }
}

#[test]
fn the_version_is_asked_for_and_compared_even_where_the_server_does_not_care() {
    let server = Server::start();
    server.put("x", Object::new(noise(4 << 20)));
    let source = open(&server, "x").unwrap();
    source.get(FileOffset(MIB), 1, "x").unwrap();
    let log = server.take_log();
    assert_eq!(log[0].headers.get("if-match"), None);
    assert_eq!(log[1].headers["if-match"], "\"v1\"");
    assert!(log.iter().all(|request| request.headers["accept-encoding"] == "identity"));
    for fault in [Fault::Tag("\"v2\"".into()), Fault::Size(1), Fault::Size(-1)] {
        let source = open(&server, "x").unwrap();
        server.fail([fault.clone(), Fault::None]);
        let error = source.get(FileOffset(MIB), 1000, "x").unwrap_err();
        assert!(matches!(error.kind(), Kind::Changed), "{fault:?}: {error}");
    }
}

#[test]
fn a_body_that_breaks_off_is_not_continued_by_another_version() {
    let server = Server::start();
    server.put("x", Object::new(noise(4 << 20)));
    let source = open(&server, "x").unwrap();
    server.fail([Fault::Cut(500), Fault::Tag("\"v2\"".into()), Fault::None]);
    let error = source.get(FileOffset(MIB), 1000, "x").unwrap_err();
    assert!(matches!(error.kind(), Kind::Changed), "{error}");
}

#[test]
fn an_object_without_any_sign_of_its_version_is_refused_unless_allowed() {
    let server = Server::start();
    let object = Object { etag: None, modified: None, ..Object::new(noise(4 << 20)) };
    server.put("x", object);
    let error = open(&server, "x").unwrap_err();
    assert!(error.to_string().contains("neither ETag nor Last-Modified"), "{error}");
    let options = RemoteOptions { unpinned: true, ..RemoteOptions::default() };
    let source = open_with(&server, "x", &options).unwrap();
    assert_eq!(source.get(FileOffset(MIB), 10, "x").unwrap(), noise(4 << 20)[1 << 20..][..10]);
}

#[test]
fn only_the_expected_version_is_opened() {
    let server = Server::start();
    server.put("x", Object::new(noise(100)));
    for (expect, opens) in [("v1", true), ("\"v1\"", true), ("v2", false), ("", false)] {
        let options = RemoteOptions { expect: Some(expect.to_owned()), ..RemoteOptions::default() };
        let opened = open_with(&server, "x", &options);
        assert_eq!(opened.is_ok(), opens, "{expect}");
        if let Err(error) = opened {
            assert!(matches!(error.kind(), Kind::Usage(_)) && error.to_string().contains("ETag \"v1\""), "{error}");
        }
    }
}

#[test]
fn a_weak_tag_is_compared_but_not_asked_for() {
    let server = Server::start();
    server.put("x", Object::new(noise(4 << 20)).with_etag("W/\"a\""));
    let source = open(&server, "x").unwrap();
    source.get(FileOffset(MIB), 1, "x").unwrap();
    let log = server.take_log();
    assert_eq!((log[1].headers.get("if-match"), log[1].headers.contains_key("if-unmodified-since")), (None, true));
    server.put("x", Object::new(noise(4 << 20)).with_etag("W/\"b\""));
    assert!(matches!(source.get(FileOffset(2 * MIB), 1, "x").unwrap_err().kind(), Kind::Changed));
}

#[test]
fn the_time_of_the_last_change_is_that_of_the_server() {
    let server = Server::start();
    server.put("x", Object::new(noise(100)));
    assert_eq!(open(&server, "x").unwrap().mtime(), (784_111_777, 0));
}
