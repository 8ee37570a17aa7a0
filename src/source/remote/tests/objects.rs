//! The objects next to a container, or below a prefix.

use std::io::ErrorKind;

use super::super::Objects;
use super::super::testing::{Fault, MIB, Server, account, answer, counts, io_kind, keeps_one_mib, object, patient};
use crate::account::Account;
use crate::error::Kind;
use crate::source::RemoteOptions;

/// A server with objects of 16 MiB below `d`.
fn server() -> Server {
    let server = Server::start();
    for name in ["a", "b", "c"] {
        server.put(&format!("d/{name}"), object(16 * MIB));
    }
    server
}

#[test]
fn an_object_is_opened_once_and_stays_within_its_part_of_the_memory() {
    let server = server();
    // The first may have a fourth of the memory, others a sixty-fourth: 1 MiB each.
    for (memory, names) in [(4 * MIB, &["a"][..]), (64 * MIB, &["a", "b"])] {
        let below = Objects::below(&server.url("d"), &patient(), &Account::new(memory, 0)).unwrap();
        let sources: Vec<_> = names.iter().map(|name| below.source(name).unwrap()).collect();
        keeps_one_mib(&server, sources.last().unwrap());
        server.take_log();
        for name in names {
            below.source(name).unwrap();
        }
        assert_eq!(counts(&server).2, 0);
    }
    let (source, _) = Objects::beside(&server.url("d/a"), &patient(), &Account::new(4 * MIB, 0)).unwrap();
    keeps_one_mib(&server, &source);
}

#[test]
fn the_version_that_is_expected_is_that_of_the_first_object() {
    let server = server();
    server.put("d/b", object(10).with_etag("\"v2\""));
    let options = RemoteOptions { expect: Some("v1".to_owned()), ..patient() };
    let below = || Objects::below(&server.url("d"), &options, &account()).unwrap();
    let first = below();
    assert!(matches!(first.source("b").unwrap_err().kind(), Kind::Usage(_)));
    first.source("a").unwrap();
    assert_eq!(first.source("b").unwrap().len(), 10);
    // Of a container that has its own, whatever its server says of the time.
    let timeless = [("Content-Range", "bytes 0-1/2"), ("ETag", "\"v1\"")];
    for first in [Fault::None, answer(206, &timeless, "xx")] {
        server.fail([first, Fault::None]);
        let (_, beside) = Objects::beside(&server.url("d/a"), &options, &account()).unwrap();
        assert_eq!(beside.source("b").unwrap().len(), 10);
    }
}

#[test]
fn an_object_that_is_newer_than_its_container_is_changed_if_the_age_of_that_is_known() {
    let server = server();
    let dated = |time: &str| {
        let mut object = object(10);
        object.modified = Some(format!("Sun, 06 Nov 1994 {time} GMT"));
        object
    };
    // The server says that it is nine o'clock.
    server.put("d/b", dated("09:00:00"));
    server.put("d/c", dated("09:00:01"));
    let timeless = [("Content-Range", "bytes 0-1/2"), ("ETag", "\"v1\"")];
    for (first, is_known) in [(Fault::None, true), (answer(206, &timeless, "xx"), false)] {
        server.fail([first, Fault::None]);
        let (_, beside) = Objects::beside(&server.url("d/a"), &patient(), &account()).unwrap();
        beside.source("b").unwrap();
        assert_eq!(beside.source("c").map_err(|e| matches!(e.kind(), Kind::Changed)).err(), is_known.then_some(true));
    }
    let below = Objects::below(&server.url("d"), &patient(), &account()).unwrap();
    below.source("b").unwrap();
    assert!(matches!(below.source("c").unwrap_err().kind(), Kind::Changed));
}

#[test]
fn an_object_that_is_not_there_is_told_from_one_that_cannot_be_had() {
    let server = server();
    let below = Objects::below(&server.url("d"), &patient(), &account()).unwrap();
    assert!(matches!(below.source("none").unwrap_err().kind(), Kind::NotFound));
    assert!(matches!(below.source("a/b").unwrap_err().kind(), Kind::NotFound));
    server.fail([Fault::Status(403), Fault::None]);
    assert_eq!(io_kind(&below.source("a").unwrap_err()), ErrorKind::PermissionDenied);
    below.source("a").unwrap();
}
