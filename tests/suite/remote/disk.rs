//! The cache on disk: a second opening asks for nothing, and leftovers of a killed process harm nobody.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use fzmfs::bytes::FileOffset;
use fzmfs::source::{CacheDir, RemoteOptions, Source};

use super::{noise, open_with};
use crate::support::mounts::{Mounted, can_mount, finish, fzmfs, is_alive, run, wait_until};
use crate::support::server::{Fault, Object, Server};

const MIB: u64 = 1 << 20;

fn open(server: &Server, dir: &Path) -> Arc<Source> {
    let cache = Some(CacheDir::new(dir.join("cache"), None));
    open_with(server, "x", &RemoteOptions { cache, ..RemoteOptions::default() }).unwrap()
}

/// Bytes that the server has sent since its log was taken.
fn sent(server: &Server) -> u64 {
    server.log().iter().map(|request| request.sent).sum()
}

#[test]
fn what_was_read_before_takes_no_request_but_one_that_asks_whether_it_changed() {
    let (server, dir, bytes) = (Server::start(), tempfile::tempdir().unwrap(), noise(20 << 20));
    server.put("x", Object::new(bytes.clone()));
    let ranges = [(MIB, 1000), (5 * MIB + 7, 3 << 20), (20 * MIB - 100, 100), (0, 50)];
    let read = |source: &Source| {
        for (at, len) in ranges {
            assert!(source.get(FileOffset(at), len, "x").unwrap() == bytes[at as usize..][..len as usize]);
        }
    };
    read(&open(&server, dir.path()));
    server.take_log();
    let again = open(&server, dir.path());
    read(&again);
    let log = server.take_log();
    assert_eq!((log.len(), log[0].sent), (1, 0), "{log:?}");
    assert_eq!(log[0].headers["if-none-match"], "\"v1\"");
    // The rest is fetched, and nothing twice.
    assert!(again.get(FileOffset(0), 20 * MIB, "x").unwrap() == bytes);
    assert!(sent(&server) < 17 * MIB, "{}", sent(&server));
    server.fail([Fault::Status(403)]);
    let cache = Some(CacheDir::new(dir.path().join("cache"), None));
    let refused = open_with(&server, "x", &RemoteOptions { cache, ..RemoteOptions::default() });
    assert!(refused.is_err(), "what is kept is not for those who have no permission any more");
}

#[test]
fn another_version_takes_nothing_of_the_one_that_is_kept() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    server.put("x", Object::new(noise(4 << 20)));
    let first = open(&server, dir.path());
    first.get(FileOffset(0), 4 * MIB, "x").unwrap();
    let other: Vec<u8> = noise(4 << 20).into_iter().rev().collect();
    server.put("x", Object::new(other.clone()).with_etag("\"v2\""));
    let second = open(&server, dir.path());
    assert!(second.get(FileOffset(0), 4 * MIB, "x").unwrap() == other);
    // A process that ends waits until everything is written.
    drop(second);
    let third = open(&server, dir.path());
    server.take_log();
    assert!(third.get(FileOffset(0), 4 * MIB, "x").unwrap() == other && server.take_log().is_empty());
}

#[test]
fn the_directory_stays_within_its_size() {
    let (server, dir, bytes) = (Server::start(), tempfile::tempdir().unwrap(), noise(40 << 20));
    server.put("x", Object::new(bytes.clone()));
    let cache = Some(CacheDir::new(dir.path().join("cache"), Some(16 * MIB)));
    let options = RemoteOptions { cache, ..RemoteOptions::default() };
    for _ in 0..2 {
        let source = open_with(&server, "x", &options).unwrap();
        assert!(source.get(FileOffset(0), 40 * MIB, "x").unwrap() == bytes);
    }
    let out = run(Command::new("du").args(["-s", "-B1"]).arg(dir.path().join("cache")));
    let size: u64 = String::from_utf8_lossy(&out.stdout).split_whitespace().next().unwrap().parse().unwrap();
    assert!((MIB..=20 * MIB).contains(&size), "{size}");
}

#[test]
fn processes_that_are_killed_while_they_write_leave_nothing_that_is_wrong() {
    let (server, dir, bytes) = (Server::start(), tempfile::tempdir().unwrap(), noise(24 << 20));
    server.put("x.zst", Object::new(super::mounted::frames(&bytes)));
    let cache = format!("remote_cache={}", dir.path().join("cache").display());
    let url = server.url("x.zst");
    let cat = || {
        let mut command = fzmfs();
        command.args(["cat", &url, "data.raw", "-o", &cache]).env("NO_PROXY", "127.0.0.1");
        command
    };
    // At other places each time: so much was sent, or it has ended.
    for mib in [0, 1, 4, 9, 16, 23] {
        server.take_log();
        let mut child = cat().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("so much was sent", || sent(&server) >= mib * MIB || child.try_wait().unwrap().is_some());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(run(&mut cat()).stdout == bytes);
    server.take_log();
    assert!(run(&mut cat()).stdout == bytes);
    let log = server.take_log();
    assert_eq!((log.len(), log[0].sent), (1, 0), "{log:?}");
}

/// Mounts `url` with what is kept in `cache`.
fn mount(mounted: &Mounted, url: &str, cache: &str) {
    let mut command = fzmfs();
    command.arg("mount").arg(url).arg(&mounted.point).args(["-o", cache]).env("NO_PROXY", "127.0.0.1");
    let output = run(&mut command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_second_mount_takes_no_data_from_the_server_also_after_one_that_was_killed_while_it_wrote() {
    if !can_mount() {
        return;
    }
    let (server, dir, bytes) = (Server::start(), tempfile::tempdir().unwrap(), noise(40 << 20));
    server.put("x.zst", Object::new(super::mounted::frames(&bytes)));
    let (url, cache) = (server.url("x.zst"), format!("remote_cache={}", dir.path().join("cache").display()));
    let mounted = Mounted::nothing();
    let raw = mounted.path("data.raw");
    for mib in [0, 1, 4, 9, 16] {
        mount(&mounted, &url, &cache);
        server.take_log();
        let pid = mounted.daemon();
        let mut reader = Command::new("cat").arg(&raw).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("so much was sent", || sent(&server) >= mib * MIB || reader.try_wait().unwrap().is_some());
        run(Command::new("kill").args(["-9", &pid.to_string()]));
        assert!(finish(&mut reader).is_some(), "the reader hangs");
        wait_until("the daemon has ended", || !is_alive(pid));
        run(Command::new("umount").arg("-l").arg(&mounted.point));
    }
    for is_second in [false, true] {
        server.take_log();
        mount(&mounted, &url, &cache);
        assert!(std::fs::read(&raw).unwrap() == bytes);
        assert!(run(fzmfs().arg("umount").arg(&mounted.point)).status.success());
        let log = server.take_log();
        assert!(!is_second || (log.len(), log[0].sent) == (1, 0), "{log:?}");
    }
}
