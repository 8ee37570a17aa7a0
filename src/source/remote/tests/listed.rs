//! Objects that a list has pinned, each opened when it is read.
#![forbid(unsafe_code)]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::single_range_in_vec_init,
    reason = "a test"
)]

use std::io::ErrorKind;
use std::path::Path;

use super::super::testing::{
    Fault, KIB, MIB, MODIFIED, S3, Served, Server, account, fill, io_kind, noise, object, patient,
};
use super::*;
use crate::clock::wait_until;

const AT: u64 = MIB;

fn objects() -> [(&'static str, Served); 2] {
    [("p/d/x", object(4 * MIB)), ("p/y", object(100))]
}

/// A server with two objects below `p`, and what was pinned of them.
fn pinned() -> (Server, S3, Arc<ListedObjects>) {
    let server = Server::start();
    let s3 = S3::on(&server);
    fill(&server, &objects());
    let below = Objects::below("s3://b/p", &patient(), &account()).unwrap();
    let listed = ListedObjects::pin(&below, &account()).unwrap();
    server.take_log();
    (server, s3, listed)
}

fn get(source: &Source, at: u64, len: u64) -> Result<Vec<u8>> {
    source.get(FileOffset(at), len, "x")
}

#[test]
fn what_a_list_says_of_an_object_takes_no_request() {
    let (server, _s3, listed) = pinned();
    let names: Vec<_> = (0..listed.len()).map(|index| listed.name(index)).collect();
    assert_eq!(names, ["d/x", "y"]);
    let source = listed.source("d/x").unwrap();
    assert_eq!((source.len(), source.mtime(), source.path()), (4 * MIB, (MODIFIED, 0), Path::new("s3://b/p/d/x")));
    assert!(source.is_far() && source.is_same_in_memory() && !source.is_near(FileOffset(0), 10));
    source.check().unwrap();
    source.cancel();
    source.announce(&[AT..AT + 10], Need::Now);
    assert_eq!(server.log().len(), 0);
    assert!(matches!(listed.source("z").unwrap_err().kind(), Kind::NotFound));
}

#[test]
fn an_object_is_opened_once_and_then_announced_and_cancelled_as_others_are() {
    let (server, _s3, listed) = pinned();
    let source = listed.source("d/x").unwrap();
    assert_eq!(get(&source, 10, 10).unwrap(), noise(20)[10..]);
    let mut dst = [0; 10];
    source.read_parts(&mut [Part { at: FileOffset(20), dst: &mut dst }], "x").unwrap();
    assert!(dst == noise(30)[20..] && server.take_log().len() == 1);
    server.fail([Fault::Held, Fault::None]);
    let is_near = || source.is_near(FileOffset(AT), MIB);
    assert!(source.is_near(FileOffset(0), 10) && !is_near());
    source.announce(&[AT..AT + MIB], Need::Now);
    assert!(is_near());
    source.cancel();
    assert!(!is_near());
    server.let_go();
    assert!(get(&source, AT, MIB).unwrap() == noise(2 * MIB)[AT as usize..]);
    wait_until(is_near);
}

/// The two objects: one that is read, and the other one.
fn pair() -> (Server, S3, Arc<Source>, Arc<Source>) {
    let (server, s3, listed) = pinned();
    let [x, y] = ["d/x", "y"].map(|path| listed.source(path).unwrap());
    (server, s3, x, y)
}

#[track_caller]
fn is_changed(source: &Source) {
    assert!(!source.is_same_in_memory());
    assert!(matches!(source.check().unwrap_err().kind(), Kind::Changed));
    assert!(matches!(get(source, 0, 10).unwrap_err().kind(), Kind::Changed));
    let mut dst = [0; 10];
    let read = source.read_parts(&mut [Part { at: FileOffset(0), dst: &mut dst }], "x");
    assert!(matches!(read.unwrap_err().kind(), Kind::Changed));
}

#[test]
fn a_change_of_one_object_is_one_of_all() {
    let changed = object(4 * MIB).with_etag("\"v2\"");
    // Another version, or none, when it is opened; another one later; one that was seen elsewhere.
    for how in 0..4 {
        let (server, _s3, x, y) = pair();
        get(&y, 0, 10).unwrap();
        if how >= 2 {
            get(&x, 0, 10).unwrap();
        }
        match how {
            1 => server.remove("b/p/d/x"),
            3 => x.set_changed(),
            _ => server.put("b/p/d/x", changed.clone()),
        }
        if how != 3 {
            let error = get(&x, AT, 100 * KIB).unwrap_err();
            assert!(matches!(error.kind(), Kind::Changed), "{how}: {error}");
        }
        is_changed(&x);
        is_changed(&y);
    }
}

#[test]
fn a_change_that_a_request_made_ahead_has_seen_is_found_when_it_is_asked_for() {
    let (server, _s3, x, y) = pair();
    get(&x, 0, 10).unwrap();
    server.put("b/p/d/x", object(4 * MIB).with_etag("\"v2\""));
    x.announce(&[AT..AT + MIB], Need::Now);
    wait_until(|| !x.is_same_in_memory());
    assert!(y.is_same_in_memory());
    assert!(matches!(x.check().unwrap_err().kind(), Kind::Changed));
    is_changed(&y);
}

#[test]
fn an_object_that_cannot_be_had_is_not_a_changed_one() {
    let (server, _s3, x, _) = pair();
    server.fail([Fault::Status(403), Fault::None]);
    assert_eq!(io_kind(&get(&x, 0, 10).unwrap_err()), ErrorKind::PermissionDenied);
    assert!(x.is_same_in_memory());
    assert_eq!(get(&x, 0, 10).unwrap(), noise(10));
}
