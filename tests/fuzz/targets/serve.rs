//! Requests over HTTP, WebDAV and NFS: whatever a client sends, another one gets the right bytes.
//!
//! The input: the kind of request, what it asks for, where the rest goes, and the rest: raw bytes of a connection; or an
//! end of the path, a query, a header, or the body; for NFS a call, whose arguments begin with a handle that is valid.
#![no_main]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use fzmfs::serve::{Admission, Page, ServeOptions, ServedTree, listener, serve};
use fzmfs::{Archive, Device, Options};
use fzmfs_fuzz::libfuzzer_sys::fuzz_target;

const METHODS: [&str; 8] = ["GET", "HEAD", "PROPFIND", "OPTIONS", "POST", "PUT", "LOCK", "COPY"];
const PATHS: [&str; 8] = [
    "/",
    "/data.raw",
    "/data.png?slice=",
    "/data.json?slice=",
    "/data.json?about",
    "/chunks/",
    "/data.zarr/",
    "/-/page.js",
];
const HEADERS: [&str; 8] = [
    "Range: bytes=",
    "Range: ",
    "Depth: ",
    "If-None-Match: ",
    "If-Range: ",
    "If-Modified-Since: ",
    "Accept-Encoding: ",
    "Host: ",
];
/// Programs, versions and procedures of NFS and of what belongs to it.
const PROGRAMS: [u32; 4] = [100_003, 100_005, 100_000, 7];
/// How long a reply to the fuzzer may take, and one to the other client.
const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(20);
/// Longest reply that is read.
const MOST: u64 = 4 << 20;

/// The server: its addresses, the handle of its root, and the bytes of `data.raw`.
struct Server {
    http: SocketAddr,
    nfs: SocketAddr,
    root: Vec<u8>,
    bytes: Vec<u8>,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/blosc2/n05_5d_f4.b2nd");
        let archive = Archive::open(&file, &Options::new().device(Device::Cpu).cache(16 << 20).threads(2)).unwrap();
        let bytes = archive.file("data.raw").unwrap().read().unwrap();
        let listener = listener((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let http = listener.local_addr().unwrap();
        let (ready, wait) = mpsc::channel();
        thread::spawn(move || {
            let page = Page { frames: Vec::new(), name: "fuzz".to_owned(), viewer: None };
            let admission = Admission::new(None, vec!["data.example.org".to_owned()]);
            let options =
                ServeOptions { listener, admission, allow_origin: None, threads: 4, page, nfs: Some(0), metrics: true, until_eof: false };
            serve(ServedTree::one(archive), options, |at| ready.send(at.nfs.as_ref().unwrap().0).unwrap()).unwrap();
        });
        let nfs = (Ipv4Addr::LOCALHOST, wait.recv().unwrap()).into();
        // MNT "/": status, length of the handle, the handle.
        let reply = call(nfs, 100_005, 3, 1, &[0, 0, 0, 1, b'/', 0, 0, 0]);
        let root = reply.get(32..).expect("the root can be mounted").to_vec();
        assert_eq!(reply[24..28], [0; 4]);
        let len = u32::from_be_bytes(reply[28..32].try_into().unwrap()) as usize;
        Server { http, nfs, root: [&reply[28..32], &root[..len.next_multiple_of(4)]].concat(), bytes }
    })
}

/// Sends `request`, and returns what comes within `patience` of the reply, or of its next part.
fn exchange(to: SocketAddr, request: &[u8], patience: Duration) -> Vec<u8> {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut reply = Vec::new();
    // It may close the connection before it has read all, or wait for more.
    if stream.write_all(request).is_ok() {
        let _ = stream.take(MOST).read_to_end(&mut reply);
    }
    reply
}

/// A call of NFS, which is whole, and its reply; empty if the connection is closed instead.
fn call(to: SocketAddr, program: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let head = [7, 0, 2, program, version, procedure, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    let mark = 1 << 31 | (head.len() + arguments.len()) as u32;
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let (mut mark_of_reply, mut reply) = ([0; 4], Vec::new());
    let sent = stream.write_all(&[&mark.to_be_bytes(), &*head, arguments].concat());
    if sent.and_then(|()| stream.read_exact(&mut mark_of_reply)).is_ok() {
        reply.resize((u32::from_be_bytes(mark_of_reply) & 0x7fff_ffff) as usize, 0);
        stream.read_exact(&mut reply).expect("a reply is whole");
        assert_eq!(reply[..4], 7_u32.to_be_bytes(), "the reply to another call");
    }
    reply
}

fn http(what: u8, place: u8, rest: &[u8]) -> Vec<u8> {
    let (method, path) = (METHODS[usize::from(what & 7)], PATHS[usize::from(what >> 3 & 7)]);
    let (mut path, mut header, mut body) = (path.as_bytes().to_vec(), Vec::new(), &b""[..]);
    match place & 3 {
        0 => path.extend(rest),
        1 => header = [HEADERS[usize::from(place >> 2 & 7)].as_bytes(), rest, b"\r\n"].concat(),
        2 => header = rest.to_vec(),
        _ => body = rest,
    }
    let head =
        [method.as_bytes(), b" ", &path, b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n", &header].concat();
    [&*head, format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

fuzz_target!(|data: &[u8]| {
    let [kind, what, place, rest @ ..] = data else { return };
    let server = server();
    match kind % 4 {
        0 => _ = exchange(server.http, rest, SHORT),
        1 => _ = exchange(server.http, &http(*what, *place, rest), SHORT),
        2 => _ = exchange(server.nfs, rest, SHORT),
        _ => {
            let program = PROGRAMS[usize::from(place & 3)];
            let version = if place & 0x80 == 0 { 3 } else { u32::from(place >> 2) };
            let handle = if place & 0x40 == 0 { &*server.root } else { &[] };
            call(server.nfs, program, version, u32::from(*what % 24), &[handle, rest].concat());
        }
    }
    let reply = exchange(server.http, b"GET /data.raw HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", LONG);
    assert!(
        reply.starts_with(b"HTTP/1.1 200 ") && reply.ends_with(&server.bytes),
        "{}",
        String::from_utf8_lossy(&reply)
    );
});
