//! A prefix of S3 on a server that counts: what is asked for, what is given up, and what happens to what was replaced.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::noise;
use super::prefix::{Mounted, text, with};
use crate::support::mounts::{can_mount, finish, run, wait_for, wait_until};
use crate::support::server::{Fault, Object, Server};
use crate::support::services::BUCKET;

/// A bucket with `objects`, on our server: every list is the whole one.
pub(super) fn bucket(server: &Server, objects: &[(&str, Vec<u8>, &str)]) {
    let mut list = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
    for (key, bytes, tag) in objects {
        let object = Object::new(bytes.clone()).with_etag(&format!("\"{tag}\""));
        server.put(&format!("{BUCKET}/{key}"), object);
        write!(
            list,
            "<Contents><Key>{key}</Key><LastModified>1994-11-06T08:49:37.000Z</LastModified>\
             <ETag>&quot;{tag}&quot;</ETag><Size>{}</Size></Contents>",
            bytes.len()
        )
        .unwrap();
    }
    list += "</ListBucketResult>";
    server.put(BUCKET, Object::new(list.clone().into_bytes()));
    server.put(&format!("{BUCKET}/"), Object::new(list.into_bytes()));
}

/// Where the program finds S3 on our server.
pub(super) fn endpoint(server: &Server) -> String {
    server.url("").trim_end_matches('/').to_owned()
}

/// The targets of the requests since the last call: lists, and objects.
fn counts(server: &Server) -> (usize, usize) {
    let log = server.take_log();
    let lists = log.iter().filter(|request| request.target.contains("list-type=2")).count();
    (lists, log.len() - lists)
}

#[test]
fn what_a_list_says_is_not_asked_for_again() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let names: Vec<String> = (0..300).map(|i| format!("p/{i:03}.zst")).collect();
    let mut objects: Vec<_> = names.iter().map(|name| (name.as_str(), vec![1; 10], "a")).collect();
    let frames = super::mounted::frames(&noise(3 << 20));
    objects.push(("p/x.zst", frames, "b"));
    bucket(&server, &objects);
    let tmp = tempfile::tempdir().unwrap();
    let endpoint = endpoint(&server);
    let mounted = Mounted::of(with(&endpoint), &format!("s3://{BUCKET}/p/"), &tmp.path().join("m"), &[]);
    server.take_log();
    for entry in fs::read_dir(&mounted.0).unwrap() {
        assert!(entry.unwrap().metadata().unwrap().is_dir());
    }
    assert_eq!(counts(&server), (1, 0), "one list");
    assert!(fs::read(mounted.0.join("x.zst/chunks/000001.raw")).unwrap() == noise(3 << 20)[1 << 20..2 << 20]);
    let lists: Vec<_> = server.log().into_iter().filter(|request| request.target.contains("list-type=2")).collect();
    counts(&server);
    assert!(lists.len() <= 1, "{lists:?}");
    assert!(fs::read(mounted.0.join("x.zst/chunks/000001.raw")).unwrap() == noise(3 << 20)[1 << 20..2 << 20]);
    assert_eq!(counts(&server), (0, 0), "the pages of the kernel");
}

/// A bucket with the containers `p/00.zst` and so on.
fn with_containers(count: usize) -> Server {
    let server = Server::start();
    let keys: Vec<String> = (0..count).map(|i| format!("p/{i:02}.zst")).collect();
    let frames = super::mounted::frames(&noise(1000));
    let objects: Vec<_> = keys.iter().map(|key| (key.as_str(), frames.clone(), "a")).collect();
    bucket(&server, &objects);
    server
}

#[test]
fn a_container_that_a_list_names_takes_one_request() {
    let count = 40;
    let (server, tmp) = (with_containers(count), tempfile::tempdir().unwrap());
    let (endpoint, url) = (endpoint(&server), format!("s3://{BUCKET}/p/"));
    let to = tmp.path().join("to").into_os_string().into_string().unwrap();
    for args in [&["verify", &url][..], &["ls", "-R", &url], &["extract", &url, &to], &["cat", &url, "07.zst/data.raw"]]
    {
        let output = run(with(&endpoint).args(args));
        let is_silent = args[0] == "extract";
        assert!(output.status.success() && output.stdout.is_empty() == is_silent, "{}", text(&output));
        let (lists, reads) = counts(&server);
        assert_eq!(reads, if args[0] == "cat" { 1 } else { count }, "{args:?}");
        assert!(lists < 8, "{args:?}: {lists} lists");
    }
}

#[test]
fn a_container_that_a_list_of_a_mount_names_takes_one_request() {
    if !can_mount() {
        return;
    }
    let count = 40;
    let (server, tmp) = (with_containers(count), tempfile::tempdir().unwrap());
    let (endpoint, url) = (endpoint(&server), format!("s3://{BUCKET}/p/"));
    let options = ["-o", "layout=flat"];
    let mounted = Mounted::of(with(&endpoint), &url, &tmp.path().join("m"), &options);
    server.take_log();
    let entries = || fs::read_dir(&mounted.0).unwrap().map(Result::unwrap);
    assert_eq!(entries().count(), 2 * count);
    let sizes: BTreeMap<_, _> = entries().map(|e| (e.file_name(), e.metadata().unwrap().len())).collect();
    let (lists, reads) = counts(&server);
    assert!(reads == count && lists < 8, "{reads} reads, {lists} lists");
    assert_eq!((sizes.len(), sizes[OsStr::new("07.raw")]), (2 * count, 1000));
    assert_eq!(fs::read(mounted.0.join("07.json")).unwrap().len() as u64, sizes[OsStr::new("07.json")]);
    assert_eq!(fs::read(mounted.0.join("07.raw")).unwrap(), noise(1000));
}

#[test]
fn a_reader_of_a_prefix_that_is_killed_ends_at_once_and_so_does_its_request() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let frames = super::mounted::frames(&noise(3 << 20));
    bucket(&server, &[("p/x.zst", frames, "a"), ("p/plain", noise(3 << 20), "b")]);
    let tmp = tempfile::tempdir().unwrap();
    let (endpoint, url) = (endpoint(&server), format!("s3://{BUCKET}/p/"));
    for (path, range) in [("x.zst/chunks/000002.raw", 2 << 20..3 << 20), ("plain", 0..3 << 20)] {
        let mounted = Mounted::of(with(&endpoint), &url, &tmp.path().join("m"), &["-o", "timeout=600"]);
        let file = fs::File::open(mounted.0.join(path)).unwrap();
        server.take_log();
        server.fail([Fault::Dribble(Duration::from_millis(50), usize::MAX)]);
        let mut reader = Command::new("cat").stdin(Stdio::from(file)).stdout(Stdio::null()).spawn().unwrap();
        wait_until("it is being fetched", || !server.log().is_empty());
        reader.kill().unwrap();
        assert!(finish(&mut reader).is_some(), "the reader of {path} hangs");
        wait_until("the request has ended", || !server.log().iter().any(|request| request.lasts));
        server.fail([]);
        assert!(fs::read(mounted.0.join(path)).unwrap() == noise(3 << 20)[range]);
    }
}

#[test]
fn a_listing_by_content_names_all_or_fails_when_the_server_goes() {
    if !can_mount() {
        return;
    }
    let count = 5;
    let (server, tmp) = (with_containers(count), tempfile::tempdir().unwrap());
    let endpoint = endpoint(&server);
    // One answer more each time, until they are enough.
    let mut answers = 0;
    wait_until("all are listed", || {
        answers += 1;
        server.fail([]);
        // It gives up soon, and on a busy machine also where nothing is wrong.
        let mounted = wait_for("mounted", || {
            let options = ["-o", "layout=flat,timeout=1"];
            Mounted::made(with(&endpoint), &format!("s3://{BUCKET}/p/"), &tmp.path().join("m"), &options).ok()
        });
        let mut faults = vec![Fault::None; answers];
        faults.push(Fault::Close);
        server.fail(faults);
        let found = fs::read_dir(&mounted.0).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        found.is_ok_and(|found| {
            assert_eq!(found.len(), 2 * count, "after {answers} answers");
            true
        })
    });
    assert!(answers > 2, "the server was not needed");
}

#[test]
fn an_object_of_a_prefix_that_was_replaced_is_never_mixed() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let (old, new) = (noise(3 << 20), noise(4 << 20).into_iter().rev().collect::<Vec<u8>>());
    let (old_frames, new_frames) = (super::mounted::frames(&old), super::mounted::frames(&new));
    bucket(&server, &[("p/x.zst", old_frames, "a"), ("p/plain", old.clone(), "b")]);
    let tmp = tempfile::tempdir().unwrap();
    let endpoint = endpoint(&server);
    let mounted = Mounted::of(with(&endpoint), &format!("s3://{BUCKET}/p/"), &tmp.path().join("m"), &[]);
    let (plain, inside) = (mounted.0.join("plain"), mounted.0.join("x.zst/data.raw"));
    assert_eq!(fs::metadata(&plain).unwrap().len(), 3 << 20);
    assert!(fs::read(mounted.0.join("x.zst/chunks/000000.raw")).unwrap() == old[..1 << 20]);
    let open = fs::File::open(&plain).unwrap();
    bucket(&server, &[("p/x.zst", new_frames, "c"), ("p/plain", new.clone(), "d")]);
    // An open file is of the old version or an error.
    let mut bytes = vec![0; 1 << 20];
    if std::os::unix::fs::FileExt::read_exact_at(&open, &mut bytes, 2 << 20).is_ok() {
        assert!(bytes == old[2 << 20..]);
    }
    drop(open);
    wait_until("the new version", || match fs::read(&plain) {
        Ok(read) => {
            assert!(read == new || read == old);
            read == new
        }
        Err(e) => {
            assert!([libc::EIO, libc::ESTALE].contains(&e.raw_os_error().unwrap()), "{e}");
            false
        }
    });
    if let Ok(read) = fs::read(&inside) {
        assert!(read == old || read == new);
    }
}
