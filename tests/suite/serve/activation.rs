//! A server whose socket is that of another program, as systemd passes it, and whose secret path is in a file.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use super::server::{Reply, Server, shell};
use crate::support::mounts::PATIENCE;
use crate::support::opened::data;

const SAMPLE: &str = "fzm/lq1d_f32_noa_rle.fzm";
/// Passes standard input as systemd does: the first descriptor after the usual ones, for this process.
const PASSED: &str = "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\" 3<&0 </dev/null";

fn start(listener: &TcpListener, options: &[&str]) -> Server {
    let socket = OwnedFd::from(listener.try_clone().unwrap());
    Server::start_in(PASSED, Stdio::from(socket), &data(SAMPLE), options)
}

/// A token in a file in `dir`, and the file.
fn token(dir: &Path) -> (String, String) {
    let (token, file) = ("0123456789abcdef0123456789abcdef".to_owned(), dir.join("token"));
    fs::write(&file, format!("{token}\n")).unwrap();
    (token, file.to_str().unwrap().to_owned())
}

#[test]
fn a_socket_that_is_passed_is_served_and_clients_wait_there_for_the_next_server() {
    let dir = tempfile::tempdir().unwrap();
    let (token, file) = token(dir.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let ask = || {
        let mut stream = TcpStream::connect(&at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET /{token}/info.json HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let early = ask();
    let mut server = start(&listener, &["--token", &file]);
    assert_eq!((&server.at, &server.prefix), (&at, &format!("/{token}/")));
    assert_eq!(Reply::read(early).status, 200);
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    let between = ask();
    let next = start(&listener, &["--token", &file]);
    assert_eq!((Reply::read(between).status, next.get("info.json").status), (200, 200));
}

#[test]
fn a_socket_for_another_process_is_left_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let script = PASSED.replace("LISTEN_PID=$$", "LISTEN_PID=1");
    let server = Server::start_in(&script, Stdio::from(OwnedFd::from(listener)), &data(SAMPLE), &[]);
    assert_ne!(server.at, at);
    assert_eq!(server.get("info.json").status, 200);
}

#[test]
fn what_is_no_socket_of_tcp_that_listens_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    let unix = UnixListener::bind(dir.path().join("socket")).unwrap();
    let two = PASSED.replace("LISTEN_FDS=1", "LISTEN_FDS=2");
    for (script, passed, option, code, why) in [
        (&two, OwnedFd::from(listener), "--metrics", 1, "2 sockets"),
        (&PASSED.to_owned(), connected.into(), "--metrics", 1, "does not listen"),
        (&PASSED.to_owned(), unix.into(), "--metrics", 1, "none of TCP"),
        (&PASSED.to_owned(), fs::File::open("/dev/null").unwrap().into(), "--metrics", 1, "none of TCP"),
        // What --listen says does not matter.
        (&PASSED.to_owned(), everywhere.into(), "--no-token", 2, "--public"),
    ] {
        let mut command = shell(script);
        let out = command.arg("serve").arg(data(SAMPLE)).arg(option).stdin(passed).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(code) && said.contains(why), "{why}: {said}");
    }
}

#[test]
fn a_token_in_a_file_is_as_good_as_a_random_one() {
    let dir = tempfile::tempdir().unwrap();
    let (token, file) = token(dir.path());
    let server = Server::start(&data(SAMPLE), &["--token", &file]);
    assert_eq!(server.prefix, format!("/{token}/"));
    assert_eq!(server.get("info.json").status, 200);
    for (text, why) in [("short", "22 to 256"), ("../../../../../../../../..", "22 to 256"), ("", "22 to 256")] {
        fs::write(&file, text).unwrap();
        let out = shell("exec \"$0\" \"$@\"").arg("serve").arg(data(SAMPLE)).args(["--token", &file]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(1) && said.contains(why) && said.contains("token"), "{text}: {said}");
        assert!(text.is_empty() || !said.contains(text), "{said}");
    }
}
