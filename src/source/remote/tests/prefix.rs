//! A prefix of S3 on a server that counts: which lists are asked for, and what they say.
#![forbid(unsafe_code)]
#![allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing, reason = "a test")]

use std::io::ErrorKind;

use super::super::testing::{
    Fault, KIB, MIB, MODIFIED, S3, Server, account, counts, fill, io_kind, keeps_one_mib, noise, object, page, patient,
};
use super::*;
use crate::bytes::FileOffset;
use crate::clock::wait_until;
use crate::platform::FileType;
use crate::source::top::Top;

/// Just before what a list has said is asked for again.
const NEARLY: Duration = Duration::from_nanos(999_999_999);

/// The targets of the lists that were asked for since the last call.
fn lists(server: &Server) -> Vec<String> {
    server
        .take_log()
        .into_iter()
        .map(|request| request.target)
        .filter(|target| target.contains("list-type=2"))
        .collect()
}

fn open(server: &Server) -> Arc<Prefix> {
    let prefix = Prefix::open("s3://b/p/", &patient(), &account()).unwrap();
    server.take_log();
    prefix
}

/// A server with objects below `p`, and the prefix.
fn opened() -> (Server, S3, Arc<Prefix>) {
    let server = Server::start();
    let s3 = S3::on(&server);
    fill(&server, &[("p/a", object(10)), ("p/d/x", object(20)), ("p/d/y", object(30))]);
    let prefix = open(&server);
    (server, s3, prefix)
}

#[test]
fn only_a_bucket_may_be_empty() {
    let server = Server::start();
    let _s3 = S3::on(&server);
    server.fail([page(&[], None)]);
    let error = Prefix::open("s3://b/p/", &patient(), &account()).unwrap_err();
    assert!(io_kind(&error) == ErrorKind::NotFound && error.to_string().contains("no object has a key"), "{error}");
    Prefix::open("s3://b/", &patient(), &account()).unwrap();
    // There may be more on another page.
    for entries in [page(&[("p/x", object(1))], None), page(&[], Some("next"))] {
        server.fail([entries]);
        Prefix::open("s3://b/p/", &patient(), &account()).unwrap();
    }
}

#[test]
fn a_directory_on_a_server_without_lists_is_refused() {
    let error = Prefix::open("http://127.0.0.1:1/p/", &patient(), &account()).unwrap_err();
    assert!(matches!(error.kind(), Kind::Unsupported(_)), "{error}");
    let options = RemoteOptions { expect: Some("v1".to_owned()), ..patient() };
    let error = Prefix::open("s3://b/p/", &options, &account()).unwrap_err();
    assert!(matches!(error.kind(), Kind::Usage(_)), "{error}");
}

#[test]
fn a_page_of_a_directory_is_asked_for_without_what_is_below_it() {
    let (server, _s3, prefix) = opened();
    server.fail([page(&[("p/d/x", object(7)), ("p/d/e/z", object(1))], Some("more"))]);
    let mut found = Vec::new();
    let next = prefix.page("d", Some("here"), |name, seen| {
        found.push((name.to_owned(), seen.size, seen.mtime.0));
        Ok(())
    });
    assert_eq!((next.unwrap().as_deref(), found), (Some("more"), vec![("x".to_owned(), 7, MODIFIED)]));
    let asked = lists(&server);
    assert_eq!(asked.len(), 1);
    for part in ["prefix=p%2Fd%2F&", "delimiter=%2F", "continuation-token=here", "max-keys=1000"] {
        assert!(format!("{}&", asked[0]).contains(part), "{asked:?}");
    }
}

#[test]
fn what_a_list_says_of_a_name_is_believed_for_a_second() {
    let (server, _s3, prefix) = opened();
    let asked = |path: &str| {
        assert_eq!(prefix.stat(path).map(|seen| seen.size).ok(), (path == "a").then_some(10));
        lists(&server).len()
    };
    for path in ["a", "none"] {
        assert_eq!((asked(path), asked(path)), (1, 0), "{path}");
        prefix.clock.pass(NEARLY);
        assert_eq!(asked(path), 0, "{path}");
        prefix.clock.pass(SOON.checked_sub(NEARLY).unwrap());
        assert_eq!((asked(path), asked(path)), (1, 0), "{path}");
        prefix.forget(path);
        assert_eq!(asked(path), 1, "{path}");
    }
    assert_eq!(prefix.stat("none").unwrap_err().errno(), libc::ENOENT);
}

#[test]
fn a_name_is_that_of_an_object_or_else_of_the_directory_of_others() {
    let (server, _s3, prefix) = opened();
    let dir = "<ListBucketResult><IsTruncated>false</IsTruncated><CommonPrefixes><Prefix>p/n/</Prefix></CommonPrefixes>\
               </ListBucketResult>";
    let dir = Fault::Answer(200, Vec::new(), dir.to_owned());
    let (some, other) = ([("p/n", object(5))], [("p/n-1", object(5))]);
    for (answers, kind) in [
        (vec![page(&some, None)], Some(FileType::RegularFile)),
        (vec![dir.clone()], Some(FileType::Directory)),
        (vec![page(&other, None)], None),
        // Others come first.
        (vec![page(&other, Some("more")), page(&[("p/n/x", object(5))], None)], Some(FileType::Directory)),
        (vec![page(&other, Some("more")), page(&[], Some("more"))], Some(FileType::Directory)),
        (vec![page(&other, Some("more")), page(&[("p/n/x", object(5))], Some("more"))], Some(FileType::Directory)),
        (vec![page(&other, Some("more")), page(&[], None)], None),
    ] {
        server.take_log();
        let count = answers.len();
        server.fail(answers.clone());
        prefix.forget("n");
        assert_eq!(prefix.stat("n").map(|seen| seen.kind).ok(), kind, "{answers:?}");
        assert_eq!(lists(&server).len(), count, "{answers:?}");
    }
}

#[test]
fn the_versions_of_all_objects_below_a_directory_are_believed_for_a_second() {
    let (server, _s3, prefix) = opened();
    let mut seen = Vec::new();
    let mut asked = || {
        let versions = Seen::far_dir().with_all(prefix.versions_below("d").unwrap()).version();
        if !seen.contains(&versions) {
            seen.push(versions);
        }
        (lists(&server), seen.len())
    };
    let (first, _) = asked();
    assert!(first.len() == 1 && first[0].contains("prefix=p%2Fd%2F") && !first[0].contains("delimiter"), "{first:?}");
    assert_eq!(asked().0.len(), 0);
    fill(&server, &[("p/d/x", object(20)), ("p/d/y", object(30).with_etag("\"v2\""))]);
    prefix.clock.pass(NEARLY);
    assert_eq!(asked(), (vec![], 1));
    prefix.clock.pass(SOON.checked_sub(NEARLY).unwrap());
    let (again, versions) = asked();
    assert_eq!((again.len(), versions), (1, 2), "another version");
    prefix.forget("d");
    assert_eq!(asked().0.len(), 1);
    fill(&server, &[]);
    prefix.forget("d");
    assert_eq!(asked().1, 3);
    assert!(seen.contains(&Seen::far_dir().version()), "nothing is below it");
}

#[test]
fn an_object_is_the_one_that_was_seen_and_its_end_is_asked_for_if_it_is_long() {
    let (server, _s3, prefix) = opened();
    server.serve_tails(Fault::None);
    for (len, tails) in [(10, 0), (HEAD, 0), (HEAD + 1, 1), (100 * KIB, 1)] {
        fill(&server, &[("p/a", object(len))]);
        prefix.forget("a");
        let seen = prefix.stat("a").unwrap();
        wait_until(|| {
            server.take_log();
            // The beginning comes late, so that an end would come first.
            server.fail([Fault::Status(503), Fault::None]);
            let (source, _) = prefix.source("a", &seen).unwrap();
            assert_eq!(source.get(FileOffset(len - 1), 1, "x").unwrap(), noise(len)[len as usize - 1..]);
            let found = counts(&server).1;
            assert!(found <= tails, "{len}");
            found == tails
        });
    }
    let seen = prefix.stat("a").unwrap();
    fill(&server, &[("p/a", object(100 * KIB).with_etag("\"v2\""))]);
    assert!(matches!(prefix.source("a", &seen).unwrap_err().kind(), Kind::Changed));
    server.take_log();
    prefix.source("a", &prefix.stat("a").unwrap()).unwrap();
    assert_eq!(lists(&server).len(), 1, "asked again");
}

#[test]
fn an_object_takes_a_part_of_the_memory() {
    let server = Server::start();
    let _s3 = S3::on(&server);
    fill(&server, &[("p/a", object(16 * MIB))]);
    let prefix = Prefix::open("s3://b/p/", &patient(), &Account::new(SHARE * MIB, 0)).unwrap();
    let (source, _) = prefix.source("a", &prefix.stat("a").unwrap()).unwrap();
    keeps_one_mib(&server, &source);
}

#[test]
fn a_list_that_cannot_be_had_for_now_is_asked_for_again() {
    let (server, _s3, prefix) = opened();
    server.fail([Fault::Status(503), Fault::Close, Fault::None]);
    assert_eq!(prefix.stat("a").unwrap().size, 10);
    assert_eq!(lists(&server).len(), 3);
    server.fail([Fault::Status(403)]);
    assert_eq!(io_kind(&prefix.stat("b").unwrap_err()), ErrorKind::PermissionDenied);
    let options = RemoteOptions { timeout: Duration::from_millis(1), ..patient() };
    server.fail([Fault::Status(503)]);
    let error = Prefix::open("s3://b/p/", &options, &account()).unwrap_err();
    assert!(io_kind(&error) == ErrorKind::TimedOut && error.to_string().contains("no answer within 0 s"), "{error}");
}

#[test]
fn objects_of_a_directory_are_those_below_it() {
    let (server, _s3, prefix) = opened();
    let source = prefix.objects("d").unwrap().source("y").unwrap();
    assert_eq!((source.len(), server.take_log()[0].target.split('?').next()), (30, Some("/b/p/d/y")));
    assert_eq!(prefix.objects("").unwrap().source("a").unwrap().len(), 10);
}

#[test]
fn the_names_of_a_directory_whose_list_was_read_take_no_request_each() {
    let (server, _s3, prefix) = opened();
    let below = Top::far(prefix).below(Path::new("d")).unwrap();
    assert!(below.is_far());
    below.list_far().unwrap();
    assert_eq!(lists(&server).len(), 1);
    for (name, size) in [("x", Some(20)), ("y", Some(30)), ("none", None)] {
        assert_eq!(below.stat(name.as_ref()).ok().map(|seen| seen.size), size, "{name}");
    }
    assert_eq!(server.log().len(), 0);
}
