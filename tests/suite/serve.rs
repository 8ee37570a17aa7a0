//! `fzmfs serve` as clients see it: raw requests, so that what no client sends is sent too.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fzmfs");

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A running server.
struct Server {
    child: Child,
    /// Its address and port.
    at: String,
    /// The path that all others start with, and that ends with a slash.
    prefix: String,
}

impl Server {
    fn start(source: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg(source).args(["--listen", "127.0.0.1:0"]).args(options);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim_end().rsplit_once("http://").unwrap().1;
        let (at, path) = url.split_once('/').unwrap();
        Self { child, at: at.to_owned(), prefix: format!("/{path}") }
    }

    /// Sends `request`, a whole one, and returns the reply.
    fn send(&self, request: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(&self.at).unwrap();
        // The server may refuse it before it is all sent.
        let _ = stream.write_all(request);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        Reply::parse(&bytes)
    }

    /// Asks for `path` below the prefix, with more headers.
    fn ask(&self, method: &str, path: &str, headers: &str) -> Reply {
        let Self { at, prefix, .. } = self;
        let head = format!("{method} {prefix}{path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n{headers}\r\n");
        self.send(head.as_bytes())
    }

    fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head, body: bytes.get(end + 4..).unwrap_or_default().to_vec() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// What `fzmfs cat` writes.
fn cat(source: &Path, path: &str) -> Vec<u8> {
    let args: [OsString; 3] = ["cat".into(), source.into(), path.into()];
    Command::new(PROGRAM).args(args).output().unwrap().stdout
}

/// The paths of all files below the directory `dir` (with a slash, if not empty), as its listings name them.
fn files(server: &Server, dir: &str, out: &mut Vec<String>) {
    for entry in server.ask("GET", dir, "accept: application/json\r\n").json()["entries"].as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        match entry["type"].as_str().unwrap() {
            "directory" => files(server, &format!("{dir}{name}/"), out),
            _ => out.push(format!("{dir}{name}")),
        }
    }
}

#[test]
fn every_file_of_a_container_is_served_byte_for_byte() {
    let source = data("fzm/lq1d_f32_noa_rle.fzm");
    let server = Server::start(&source, &[]);
    let mut paths = Vec::new();
    files(&server, "", &mut paths);
    assert!(paths.len() > 20, "{paths:?}");
    for path in &paths {
        let (reply, want) = (server.get(path), cat(&source, path));
        assert_eq!((reply.status, reply.body == want), (200, true), "{path}");
        assert_eq!(reply.header("content-length"), Some(&*want.len().to_string()));
        assert!(reply.header("etag").is_some_and(|tag| tag.starts_with('"')), "{path}: {}", reply.head);
        assert!(reply.header("last-modified").is_some() && reply.header("date").is_some());
        assert!(reply.header("content-encoding").is_none());
        let head = server.ask("HEAD", path, "");
        assert_eq!(
            (head.status, head.body.len(), head.header("content-length")),
            (200, 0, reply.header("content-length"))
        );
    }
    assert!(server.get("").body.starts_with(b"<!DOCTYPE html>"));
    assert_eq!(server.get("stages").header("location"), Some(&*format!("{}stages/", server.prefix)));
}

#[test]
fn ranges_and_conditions_are_answered() {
    let source = data("fzm/lq1d_f32_noa_rle.fzm");
    let server = Server::start(&source, &["--allow-origin", "https://viewer.example"]);
    let whole = cat(&source, "data.raw");
    let len = whole.len();
    for (range, status, want) in [
        ("bytes=0-3".to_owned(), 206, &whole[..4]),
        (format!("bytes=-{}", 7), 206, &whole[len - 7..]),
        (format!("bytes={}-{}", len - 2, 2 * len), 206, &whole[len - 2..]),
        ("bytes=0-1,3-4".to_owned(), 200, &whole[..]),
    ] {
        let reply = server.ask("GET", "data.raw", &format!("range: {range}\r\n"));
        assert_eq!((reply.status, reply.body == want), (status, true), "{range}");
        assert_eq!(reply.header("content-range").is_some(), status == 206);
        assert_eq!(reply.header("access-control-allow-origin"), Some("https://viewer.example"));
    }
    let reply = server.ask("GET", "data.raw", &format!("range: bytes={len}-\r\n"));
    assert_eq!((reply.status, reply.header("content-range")), (416, Some(&*format!("bytes */{len}"))));
    let tag = server.get("data.raw").header("etag").unwrap().to_owned();
    assert_ne!(Some(&*tag), server.get("data.npy").header("etag"));
    let reply = server.ask("GET", "data.raw", &format!("if-none-match: {tag}\r\n"));
    assert_eq!((reply.status, reply.body.len()), (304, 0));
    assert_eq!(server.ask("GET", "data.raw", "if-match: \"x\"\r\n").status, 412);
    assert_eq!(server.ask("GET", "data.raw", "if-range: \"x\"\r\nrange: bytes=0-3\r\n").body.len(), len);
    assert_eq!(server.ask("GET", "data.raw", &format!("if-range: {tag}\r\nrange: bytes=0-3\r\n")).body.len(), 4);
}

#[test]
fn nobody_reads_without_the_secret_path_or_under_another_name() {
    let server = Server::start(&data("fzm/lq1d_f32_noa_rle.fzm"), &["--allow-origin", "*"]);
    let at = &server.at;
    let raw = |path: &str, host: &str| {
        server.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes())
    };
    assert!(server.prefix.len() > 20);
    for path in ["/", "/data.raw", "/0/data.raw"] {
        assert_eq!(raw(path, at).status, 404, "{path}");
    }
    let inside = format!("{}data.raw", server.prefix);
    assert_eq!((raw(&inside, "rebound.example").status, raw(&inside, at).status), (421, 200));
    assert_eq!(raw("/", at).header("access-control-allow-origin"), Some("*"));
    for path in ["..%2f..%2fetc/passwd", "../../etc/passwd", "%2e%2e/x", "data.raw%00", "data.raw/", "stages//", "%zz"]
    {
        let reply = server.get(path);
        assert!(matches!(reply.status, 400 | 404), "{path}: {reply:?}");
    }
    for method in ["PUT", "POST", "DELETE", "PATCH", "MKCOL"] {
        let reply = server.ask(method, "data.raw", "content-length: 0\r\n");
        assert_eq!((reply.status, reply.header("allow")), (405, Some("get, head, options")), "{method}");
    }
    // What is no request at all ends its connection and nothing else.
    for bytes in [&b"\0\0\0\0\r\n\r\n"[..], b"GET\r\n\r\n", &[b'x'; 100_000]] {
        let reply = server.send(bytes);
        assert!(matches!(reply.status, 0 | 400 | 414 | 431), "{reply:?}");
    }
    assert_eq!(server.get("info.json").status, 200);
}

#[test]
fn a_broken_chunk_is_an_error_and_never_a_missing_one() {
    let dir = tempfile::tempdir().unwrap();
    let good = fs::read(data("fzm/lq1d_f32_noa_rle.fzm")).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    fs::write(dir.path().join("bad.fzm"), bad).unwrap();
    fs::write(dir.path().join("good.fzm"), good).unwrap();
    fs::write(dir.path().join("plain.txt"), "text").unwrap();
    std::os::unix::fs::symlink("plain.txt", dir.path().join("link.txt")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("out")).unwrap();
    let server = Server::start(dir.path(), &["--no-token"]);
    assert_eq!(server.prefix, "/");
    for path in ["bad.fzm/data.raw", "bad.fzm/data.zarr/data/c/0"] {
        let reply = server.get(path);
        assert_eq!(reply.status, 500, "{path}");
        assert!(reply.json()["error"].as_str().unwrap().contains("checksum"), "{reply:?}");
    }
    assert_eq!(server.get("good.fzm/data.zarr/data/c/9").status, 404);
    assert_eq!(server.get("good.fzm/data.raw").body, cat(&dir.path().join("good.fzm"), "data.raw"));
    assert_eq!((server.get("plain.txt").body, server.get("link.txt").body), (b"text".to_vec(), b"text".to_vec()));
    assert_eq!(server.get("out").status, 404);
    // A container that was replaced is the new one, and never a mixture.
    fs::rename(dir.path().join("bad.fzm"), dir.path().join("good.fzm")).unwrap();
    assert_eq!(server.get("good.fzm/data.raw").status, 500);
}

#[test]
fn sigterm_ends_a_server() {
    let mut server = Server::start(&data("fzm/lq1d_f32_noa_rle.fzm"), &[]);
    assert_eq!(server.get("info.json").status, 200);
    let pid = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}
