//! A prefix of S3 on a server that does not answer, or never ends: who waits can end, and holds up nobody.

use std::fmt::Write as _;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::noise;
use super::prefix::{Mounted, text, with};
use super::prefix_requests::{bucket, endpoint};
use crate::support::mounts::{can_mount, finish, run, wait_until};
use crate::support::server::{Fault, Server};
use crate::support::services::BUCKET;

/// Longer than any test runs.
const NEVER: Duration = Duration::from_secs(1 << 20);
/// A reader waits as long, if it is not killed.
const PATIENT: [&str; 2] = ["-o", "timeout=86400"];

fn prefix() -> String {
    format!("s3://{BUCKET}/p/")
}

/// A page of a list, with another one behind it.
fn page(next: &str, names: &[&str]) -> Fault {
    let mut list = format!(
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken>"
    );
    for name in names {
        write!(list, "<Contents><Key>p/{name}</Key><Size>1</Size></Contents>").unwrap();
    }
    Fault::Answer(200, Vec::new(), list + "</ListBucketResult>")
}

#[test]
fn a_list_without_an_end_is_an_error() {
    let server = Server::start();
    let pages: [fn(usize) -> Fault; 4] = [
        |_| page("same", &[]),
        |i| page("same", &[["a", "b", "c"][i % 3]]),
        |i| page(&i.to_string(), &[]),
        |i| page(&i.to_string(), &["a"]),
    ];
    for page in pages {
        server.take_log();
        server.fail((0..100).map(page).collect::<Vec<_>>());
        let said = run(with(&endpoint(&server)).args(["ls", &prefix()]));
        assert!(!said.status.success() && text(&said).contains("has no end"), "{}", text(&said));
        assert!(server.log().len() < 17, "{}", server.log().len());
    }
    // Some pages may be empty.
    let mut pages: Vec<_> = (0..5).map(|i| page(&i.to_string(), &[])).collect();
    let last = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>p/last</Key><Size>1</Size></Contents>";
    pages.push(Fault::Answer(200, Vec::new(), format!("{last}</ListBucketResult>")));
    server.fail(pages);
    let said = run(with(&endpoint(&server)).args(["ls", &prefix()]));
    assert!(said.status.success() && text(&said).contains("last"), "{}", text(&said));
}

/// A mounted prefix with an object, of whose list nothing is known.
fn mounted(server: &Server) -> (tempfile::TempDir, Mounted) {
    bucket(server, &[("p/plain", noise(100), "a"), ("p/x.zst", super::mounted::frames(&noise(3 << 20)), "b")]);
    let tmp = tempfile::tempdir().unwrap();
    let mounted = Mounted::of(with(&endpoint(server)), &prefix(), &tmp.path().join("m"), &PATIENT);
    server.take_log();
    (tmp, mounted)
}

/// A program that looks at `args`.
fn reader(program: &str, args: &[&std::path::Path]) -> Child {
    Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn readers_that_wait_for_a_list_are_killed_at_once_and_hold_up_no_others() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let (_tmp, mounted) = mounted(&server);
    let many = 12;
    let mut faults = vec![Fault::Silence(NEVER); many];
    faults.push(Fault::None);
    server.fail(faults);
    let mut readers: Vec<_> = (0..many).map(|_| reader("ls", &[&mounted.0])).collect();
    wait_until("they wait", || server.log().len() >= many);
    assert_eq!(fs::read(mounted.0.join("plain")).unwrap(), noise(100));
    for reader in &mut readers {
        reader.kill().unwrap();
    }
    for reader in &mut readers {
        assert!(finish(reader).is_some(), "a reader hangs");
    }
    assert_eq!(fs::read_dir(&mounted.0).unwrap().count(), 2);
}

#[test]
fn a_reader_that_is_killed_while_it_looks_up_or_opens_ends_at_once_and_so_does_its_request() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let (_tmp, mounted) = mounted(&server);
    for (program, path) in [("stat", "another"), ("ls", "x.zst"), ("cat", "plain")] {
        server.take_log();
        server.fail([Fault::Dribble(Duration::from_millis(50), usize::MAX)]);
        let mut reader = reader(program, &[&mounted.0.join(path)]);
        wait_until("it waits", || !server.log().is_empty());
        reader.kill().unwrap();
        assert!(finish(&mut reader).is_some(), "{program} {path} hangs");
        // The server notices when it sends the next byte.
        wait_until("the request has ended", || !server.log().iter().any(|request| request.lasts));
        server.fail([]);
    }
    assert_eq!(fs::read(mounted.0.join("plain")).unwrap(), noise(100));
    assert!(fs::read(mounted.0.join("x.zst/data.raw")).unwrap() == noise(3 << 20));
}

#[test]
fn a_reader_that_is_killed_ends_no_request_of_another_one() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let (_tmp, mounted) = mounted(&server);
    let path = mounted.0.join("x.zst/chunks/000002.raw");
    assert!(path.exists());
    let want = mounted.0.join("../want");
    fs::write(&want, &noise(3 << 20)[2 << 20..]).unwrap();
    server.take_log();
    server.fail([Fault::Held]);
    let (mut one, mut other) = (reader("cat", &[&path]), reader("cmp", &[&path, &want]));
    wait_until("they wait", || !server.log().is_empty());
    one.kill().unwrap();
    assert!(finish(&mut one).is_some(), "a reader hangs");
    server.fail([]);
    server.let_go();
    assert!(finish(&mut other).is_some_and(|status| status.success()), "the other one has failed");
}
