//! A running `fzmfs serve`, and a client of it that sends what it is told to, so that what no client sends is sent too.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::mounts::{PATIENCE, finish, fzmfs};

/// A running server.
pub(super) struct Server {
    child: Child,
    log: PathBuf,
    /// Where `log` is.
    _dir: tempfile::TempDir,
    /// Its address and port.
    pub(super) at: String,
    /// The path that all others start with, and that ends with a slash.
    pub(super) prefix: String,
    /// The port of NFS, if it was asked for.
    pub(super) nfs: Option<u16>,
}

impl Server {
    pub(super) fn start(source: &Path, options: &[&str]) -> Self {
        Self::start_by(fzmfs(), Stdio::null(), source, options)
    }

    /// As [`Server::start`], with `descriptors` at most.
    pub(super) fn start_with_descriptors(descriptors: u32, source: &Path, options: &[&str]) -> Self {
        Self::start_in(&format!("ulimit -n {descriptors}; exec \"$0\" \"$@\""), Stdio::null(), source, options)
    }

    /// As [`Server::start`], by a [`shell`] with `stdin`.
    pub(super) fn start_in(script: &str, stdin: Stdio, source: &Path, options: &[&str]) -> Self {
        Self::start_by(shell(script), stdin, source, options)
    }

    fn start_by(mut command: Command, stdin: Stdio, source: &Path, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        command.arg("serve").arg(source).args(options).env("FZMFS_LOG", "trace");
        if !options.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.stdin(stdin).stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let (_, url) = line.trim_end().rsplit_once("http://").unwrap_or_else(|| panic!("{}", read_text(&log)));
        let (at, path) = url.split_once('/').unwrap();
        let mut nfs = None;
        if options.contains(&"--nfs") {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            nfs = line.split("mountport=").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok());
        }
        Self { child, at: at.to_owned(), prefix: format!("/{path}"), nfs, log, _dir: dir }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{}{path}", self.at, self.prefix)
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends `request`, a whole one, and returns the reply.
    pub(super) fn send(&self, request: &[u8]) -> Reply {
        let mut stream = self.connect();
        // The server may refuse it before it is all sent.
        let _ = stream.write_all(request);
        Reply::read(stream)
    }

    /// The text of a request for `path` below the prefix, with more headers.
    pub(super) fn request(&self, method: &str, path: &str, headers: &str) -> String {
        let Self { at, prefix, .. } = self;
        format!("{method} {prefix}{path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n{headers}\r\n")
    }

    /// Asks for `path` below the prefix, with more headers.
    pub(super) fn ask(&self, method: &str, path: &str, headers: &str) -> Reply {
        self.send(self.request(method, path, headers).as_bytes())
    }

    pub(super) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "")
    }

    /// The paths of all files below the directory `dir` (with a slash, if not empty), as its listings name them; of a broken
    /// directory none.
    pub(super) fn files(&self, dir: &str) -> Vec<String> {
        let mut out = Vec::new();
        let listed = self.ask("GET", &escaped(dir), "accept: application/json\r\n");
        if listed.status == 500 {
            return out;
        }
        for entry in listed.json()["entries"].as_array().unwrap() {
            let path = format!("{dir}{}", entry["name"].as_str().unwrap());
            match entry["type"].as_str().unwrap() {
                "directory" => out.extend(self.files(&format!("{path}/"))),
                _ => out.push(path),
            }
        }
        out
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// How it has ended.
    pub(super) fn ended(&mut self) -> ExitStatus {
        finish(&mut self.child).expect("the server ends")
    }

    pub(super) fn logged(&self) -> String {
        read_text(&self.log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

/// The program, as a shell starts it that runs `script`, which ends with `exec "$0" "$@"`.
pub(super) fn shell(script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(fzmfs().get_program());
    shell
}

#[derive(Debug)]
pub(super) struct Reply {
    /// 0 if there was none.
    pub(super) status: u16,
    /// In lower case.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Reply {
    /// Reads until the connection ends.
    pub(super) fn read_rest(mut stream: TcpStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Err(e) = stream.read_to_end(&mut bytes) {
            assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}");
        }
        bytes
    }

    /// Reads a reply until the connection ends.
    pub(super) fn read(stream: TcpStream) -> Self {
        let bytes = Self::read_rest(stream);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head, body: bytes.get(end + 4..).unwrap_or_default().to_vec() }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Its length, as it states it.
    pub(super) fn length(&self) -> Option<usize> {
        self.header("content-length")?.parse().ok()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The reason that it gives.
    pub(super) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap().to_owned()
    }
}

/// A path as a URL has it.
pub(super) fn escaped(path: &str) -> String {
    let part = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    path.bytes().map(part).collect()
}

fn read_text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
}

/// What `fzmfs cat` writes.
pub(super) fn cat(source: &Path, path: &str) -> Vec<u8> {
    let args: [OsString; 3] = ["cat".into(), source.into(), path.into()];
    fzmfs().args(args).output().unwrap().stdout
}
