//! NFS, with libnfs as the client, which needs no rights.

use std::fs;
use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Command, Output};

use super::server::{Reply, Server, cat};
use crate::support::mounts::{fzmfs, has, skip};
use crate::support::opened::data;

const SAMPLE: &str = "fzm/lq1d_f32_noa_rle.fzm";

/// A program of libnfs for `path`, which starts with a slash; with two, of a file at the root.
fn client(server: &Server, program: &str, path: &str) -> Output {
    let port = server.nfs.unwrap();
    let url = format!("nfs://127.0.0.1{path}?nfsport={port}&mountport={port}&version=3");
    Command::new(program).arg(url).output().unwrap()
}

fn can_ask() -> bool {
    let can = has("nfs-cat") && has("nfs-ls");
    if !can {
        skip("NFS", "libnfs-utils is not installed");
    }
    can
}

#[test]
fn every_file_is_read_over_nfs() {
    if !can_ask() {
        return;
    }
    for (source, least) in [(SAMPLE, 20), ("blosc2/n05_5d_f4.b2nd", 5)] {
        let source = data(source);
        let server = Server::start(&source, &["--nfs", "0"]);
        let files = server.files("");
        assert!(files.len() >= least);
        for path in &files {
            let read = client(&server, "nfs-cat", &format!("{}{path}", server.prefix));
            assert!(read.status.success() && read.stdout == cat(&source, path), "{path}: {read:?}");
        }
        let listed = client(&server, "nfs-ls", server.prefix.trim_end_matches('/'));
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.lines().any(|line| line.starts_with("-r--r--r--") && line.ends_with(" info.json")), "{listed}");
    }
}

#[test]
fn nfs_needs_the_secret_path_too() {
    if !can_ask() {
        return;
    }
    let server = Server::start(&data(SAMPLE), &["--nfs", "0"]);
    for path in ["//data.raw", "/0123456789abcdef0123456789abcdef/data.raw", "/data.raw/x", "/stages/01-rle/info.json"]
    {
        assert!(client(&server, "nfs-cat", path).stdout.is_empty(), "{path}");
    }
    // The export of all is listed, not the entries.
    assert!(client(&server, "nfs-ls", "/").stdout.is_empty());
    assert!(!client(&server, "nfs-ls", server.prefix.trim_end_matches('/')).stdout.is_empty());
    assert!(!server.logged().contains(server.prefix.trim_matches('/')), "{}", server.logged());
    let mut command = fzmfs();
    command.arg("serve").arg(data(SAMPLE)).args(["--listen", "0.0.0.0:0", "--nfs", "0"]);
    assert_eq!(command.output().unwrap().status.code(), Some(2), "others than loopback need --public");
}

#[test]
fn what_is_no_call_or_too_large_ends_its_connection_and_nothing_else() {
    let server = Server::start(&data(SAMPLE), &["--nfs", "0"]);
    let send = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(("127.0.0.1", server.nfs.unwrap())).unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        Reply::read_rest(stream)
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let last = |len: u32| 1 << 31 | len;
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        words(&[last(0x7fff_ffff)]),
        words(&[0x7fff_ffff, 1, 2, 3]),
        words(&[0, 0, 0]),
        words(&[last(4), 7]),
        // A reply, and a credential that is longer than the call.
        words(&[last(40), 7, 1, 2, 100_003, 3, 0, 0, 0, 0, 0]),
        words(&[last(40), 7, 0, 2, 100_003, 3, 0, 0, u32::MAX, 0, 0]),
    ] {
        assert!(send(&bytes).is_empty(), "{bytes:?}");
    }
    // Refusals that have a reply: another version of RPC, program, version, procedure, and no handle.
    for (call, status) in [
        ([7, 0, 3, 100_003, 3, 0, 0, 0, 0, 0], [7, 1, 1, 0, 2, 2].as_slice()),
        ([7, 0, 2, 100_099, 3, 0, 0, 0, 0, 0], &[7, 1, 0, 0, 0, 1]),
        ([7, 0, 2, 100_003, 4, 0, 0, 0, 0, 0], &[7, 1, 0, 0, 0, 2, 3, 3]),
        ([7, 0, 2, 100_003, 3, 99, 0, 0, 0, 0], &[7, 1, 0, 0, 0, 3]),
        ([7, 0, 2, 100_003, 3, 1, 0, 0, 0, 0], &[7, 1, 0, 0, 0, 4]),
        ([7, 0, 2, 100_003, 3, 0, 0, 0, 0, 0], &[7, 1, 0, 0, 0, 0]),
    ] {
        let sent = [words(&[last(40)]), words(&call)].concat();
        let want = [words(&[last(4 * status.len() as u32)]), words(status)].concat();
        assert_eq!(send(&sent), want, "{call:?}");
    }
    // A handle that nobody gave, and one that is none; in two fragments.
    for (handle, status) in [(vec![7_u8; 48], 10_001), (vec![0; 8], 10_001)] {
        let mut call = words(&[7, 0, 2, 100_003, 3, 1, 0, 0, 0, 0, handle.len() as u32]);
        call.extend(handle);
        let (head, tail) = call.split_at(10);
        let sent = [&words(&[10])[..], head, &words(&[last(tail.len() as u32)]), tail].concat();
        assert_eq!(send(&sent), words(&[last(28), 7, 1, 0, 0, 0, 0, status]));
    }
    assert_eq!(server.get("info.json").status, 200);
}

#[test]
fn a_broken_or_changed_file_is_an_error_over_nfs() {
    if !can_ask() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let good = fs::read(data(SAMPLE)).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    fs::write(dir.path().join("bad.fzm"), &bad).unwrap();
    fs::write(dir.path().join("good.fzm"), &good).unwrap();
    fs::write(dir.path().join("plain.txt"), "text").unwrap();
    let server = Server::start(dir.path(), &["--nfs", "0", "--no-token"]);
    let read = |path: &str| client(&server, "nfs-cat", path);
    assert_eq!(read("//plain.txt").stdout, b"text");
    let broken = read("/bad.fzm/data.raw");
    assert!(broken.stdout.is_empty(), "{broken:?}");
    assert_eq!(read("/good.fzm/data.raw").stdout, cat(&dir.path().join("good.fzm"), "data.raw"));
    // The one that is there now; the old one is gone.
    fs::rename(dir.path().join("bad.fzm"), dir.path().join("good.fzm")).unwrap();
    assert!(read("/good.fzm/data.raw").stdout.is_empty());
    // One container, which may not change.
    let file = Path::new(&dir.path().join("one.fzm")).to_path_buf();
    fs::write(&file, &good).unwrap();
    let server = Server::start(&file, &["--nfs", "0", "--no-token"]);
    assert!(!client(&server, "nfs-cat", "//data.raw").stdout.is_empty());
    fs::write(&file, &bad).unwrap();
    assert!(client(&server, "nfs-cat", "//data.raw").stdout.is_empty());
    assert!(client(&server, "nfs-cat", "//info.json").stdout.is_empty());
}
