//! What goes wrong: broken and changed containers, clients that stall, vanish or talk nonsense, and the end of the server.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Signal, getrlimit, setrlimit};

use super::server::{Reply, Server, cat};
use crate::support::mounts::{skip, wait_until};
use crate::support::opened::data;

const SAMPLE: &str = "fzm/lq1d_f32_noa_rle.fzm";
const FRAME: usize = 1 << 20;
const FRAMES: usize = 24;
/// The frame that [`large`] breaks: past what is read before the status is sent.
const BROKEN: usize = 16;

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(next).collect()
}

/// A file of [`FRAMES`] frames with checksums in `dir`, and its content.
fn large(dir: &Path, is_broken: bool) -> (PathBuf, Vec<u8>) {
    let content = noise(FRAME * FRAMES);
    let mut bytes = Vec::new();
    for (i, frame) in content.chunks(FRAME).enumerate() {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.set_pledged_src_size(Some(FRAME as u64)).unwrap();
        encoder.write_all(frame).unwrap();
        let mut frame = encoder.finish().unwrap();
        let middle = frame.len() / 2;
        frame[middle] ^= u8::from(is_broken && i == BROKEN);
        bytes.extend(frame);
    }
    let file = dir.join("large.zst");
    fs::write(&file, bytes).unwrap();
    (file, content)
}

#[test]
fn a_broken_chunk_is_an_error_and_never_a_missing_one() {
    let dir = tempfile::tempdir().unwrap();
    let good = fs::read(data(SAMPLE)).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    fs::write(dir.path().join("bad.fzm"), bad).unwrap();
    fs::write(dir.path().join("good.fzm"), good).unwrap();
    fs::write(dir.path().join("none.fzm"), "not one").unwrap();
    fs::write(dir.path().join("plain"), "text").unwrap();
    let server = Server::start(dir.path(), &["--no-token"]);
    for path in ["bad.fzm/data.raw", "bad.fzm/data.zarr/data/c/0"] {
        for headers in ["", "range: bytes=0-3\r\n"] {
            let reply = server.ask("GET", path, headers);
            assert_eq!((reply.status, reply.length()), (500, Some(reply.body.len())), "{path}");
            assert_eq!(reply.header("content-type"), Some("application/json"));
            assert!(reply.error().contains("checksum") && reply.header("etag").is_none(), "{reply:?}");
        }
    }
    assert_eq!(server.get("bad.fzm/stages/01-rle/info.json").status, 200);
    for path in ["good.fzm/data.zarr/data/c/9", "good.fzm/missing", "missing", "missing/data.raw", "plain/c/0"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    assert_eq!(server.get("none.fzm/error.txt").status, 200);
    assert!(server.logged().contains("bad.fzm/data.raw"), "{}", server.logged());
}

#[test]
fn an_error_in_the_middle_breaks_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let (file, content) = large(dir.path(), true);
    let server = Server::start(&file, &[]);
    let reply = server.get("data.raw");
    assert_eq!((reply.status, reply.length()), (200, Some(content.len())));
    assert!(reply.body.len() <= BROKEN * FRAME && content.starts_with(&reply.body), "{}", reply.body.len());
    wait_until("the log tells of it", || server.logged().contains("data.raw: "));
    let frame = |i: usize| server.get(&format!("chunks/{i:06}.raw"));
    assert_eq!((frame(BROKEN).status, frame(BROKEN + 1).status), (500, 200));
    // Where no byte is sent before it, it is an error of the request.
    let start = BROKEN * FRAME;
    let range = |first: usize, end: usize| {
        server.ask("GET", "data.raw", &format!("range: bytes={first}-{}\r\n", end - 1)).status
    };
    assert_eq!(range(start, start + 10), 500);
    assert_eq!(range(start - 3 * FRAME, start + 10), 500);
    assert_eq!(range(start + FRAME, start + 2 * FRAME), 206);
}

#[test]
fn a_container_that_has_changed_is_an_error_and_never_the_old_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.fzm");
    fs::copy(data(SAMPLE), &file).unwrap();
    let server = Server::start(&file, &[]);
    let tag = server.get("data.raw").header("etag").unwrap().to_owned();
    fs::copy(data("fzm/lq1d_f32_noa_rle.fzm"), &file).unwrap();
    File::options().append(true).open(&file).unwrap().write_all(b"more").unwrap();
    for (method, path, headers) in [
        ("GET", "data.raw", String::new()),
        ("GET", "data.raw", format!("if-none-match: {tag}\r\n")),
        ("HEAD", "data.raw", String::new()),
        ("GET", "info.json", String::new()),
        ("GET", "", String::new()),
    ] {
        assert_eq!(server.ask(method, path, &headers).status, 500, "{method} {path} {headers}");
    }
}

#[cfg(feature = "remote")]
#[test]
fn a_container_on_a_server_is_served_and_what_fails_there_is_an_error() {
    use crate::support::server::{Fault, Object, Server as Far};
    let dir = tempfile::tempdir().unwrap();
    let (file, content) = large(dir.path(), false);
    let bytes = fs::read(file).unwrap();
    let far = Far::start();
    far.put("large.zst", Object::new(bytes.clone()));
    let server = Server::start(Path::new(&far.url("large.zst")), &[]);
    let chunk = |i: usize| server.get(&format!("chunks/{i:06}.raw"));
    assert!(chunk(3).body == content[3 * FRAME..4 * FRAME]);
    // Not 403 here, which some clients take for a missing chunk.
    far.fail([Fault::Status(403)]);
    let failed = chunk(12);
    assert_eq!((failed.status, failed.length()), (500, Some(failed.body.len())), "{failed:?}");
    assert_eq!(chunk(3).status, 200, "what is known is served");
    far.fail([Fault::None]);
    // A failure is remembered for a second.
    wait_until("it is asked again", || chunk(12).status == 200);
    assert!(chunk(12).body == content[12 * FRAME..13 * FRAME]);
    // Another version.
    far.put("large.zst", Object::new(bytes).with_etag("\"other\""));
    assert_eq!(chunk(20).status, 500);
}

#[test]
fn a_directory_shows_the_container_that_is_there_now() {
    let dir = tempfile::tempdir().unwrap();
    let (at, next) = (dir.path().join("x.zst"), dir.path().join("next"));
    let write = |file: &Path, bytes: &[u8]| fs::write(file, zstd::encode_all(bytes, 1).unwrap()).unwrap();
    write(&at, b"first");
    let server = Server::start(dir.path(), &[]);
    let first = server.get("x.zst/data.raw");
    assert_eq!(first.body, b"first");
    write(&next, b"second");
    fs::rename(&next, &at).unwrap();
    let second = server.get("x.zst/data.raw");
    assert_eq!(second.body, b"second");
    assert_ne!(first.header("etag"), second.header("etag"));
    fs::remove_file(&at).unwrap();
    assert_eq!(server.get("x.zst/data.raw").status, 404);
    write(&dir.path().join("new.zst"), b"new");
    assert_eq!(server.get("new.zst/data.raw").body, b"new");
}

#[test]
fn nonsense_ends_its_connection_and_nothing_else() {
    let server = Server::start(&data(SAMPLE), &[]);
    let many = "x: 1\r\n".repeat(1000);
    let large = format!("x: {}\r\n", "a".repeat(100_000));
    for request in [
        b"\0\0\0\0\r\n\r\n".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".repeat(100),
        vec![b'x'; 100_000],
        server.request("GET", &"a".repeat(100_000), "").into_bytes(),
        server.request("GET", "data.raw", &many).into_bytes(),
        server.request("GET", "data.raw", &large).into_bytes(),
        server.request("GET", "data.raw", "content-length: 1\r\ncontent-length: 2\r\n").into_bytes(),
        server.request("GET", "data.raw", "content-length: -1\r\n").into_bytes(),
        server.request("GET", "data.raw", "transfer-encoding: gzip\r\n").into_bytes(),
        server.request("GET", "data.raw", "range : bytes=0-3\r\n").into_bytes(),
        server.request("GET", "data.raw", "x: 1\0\r\n").into_bytes(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
    ] {
        let reply = server.send(&request);
        assert!(matches!(reply.status, 0 | 400 | 414 | 431 | 505), "{reply:?}");
    }
    assert_eq!(server.get("info.json").status, 200);
}

#[test]
fn a_request_in_pieces_and_requests_in_a_row_are_answered() {
    let server = Server::start(&data(SAMPLE), &[]);
    let mut stream = server.connect();
    stream.set_nodelay(true).unwrap();
    for byte in server.request("GET", "data.raw", "range: bytes=0-3\r\n").bytes() {
        stream.write_all(&[byte]).unwrap();
    }
    let whole = cat(&data(SAMPLE), "data.raw");
    assert_eq!(Reply::read(stream).body, whole[..4]);
    // Three of them before the first reply is read.
    let mut stream = server.connect();
    let kept = server.request("GET", "data.raw", "range: bytes=4-7\r\n").replace("connection: close\r\n", "");
    let last = server.request("GET", "data.raw", "range: bytes=8-11\r\n");
    stream.write_all((kept.repeat(2) + &last).as_bytes()).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let count = |part: &[u8]| all.windows(part.len()).filter(|bytes| *bytes == part).count();
    assert_eq!((count(b"HTTP/1.1 206"), all.ends_with(&whole[8..12])), (3, true));
    // A client that has said all it will.
    let stream = server.connect();
    (&stream).write_all(server.request("GET", "data.raw", "").as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(Reply::read(stream).body == whole);
}

/// A value of /proc/PID/status.
pub(super) fn status(server: &Server, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn clients_that_take_nothing_keep_no_other_from_its_reply() {
    let dir = tempfile::tempdir().unwrap();
    let (file, content) = large(dir.path(), false);
    let server = Server::start(&file, &["--threads", "1", "--cache", "16M"]);
    server.get("data.raw");
    let before = status(&server, "VmRSS");
    let request = server.request("GET", "data.raw", "");
    let ask = |_| {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        // Its reply has begun.
        stream.read_exact(&mut [0; 12]).unwrap();
        stream
    };
    let mut slow: Vec<TcpStream> = (0..300).map(ask).collect();
    for _ in 0..3 {
        assert!(server.get("chunks/000003.raw").body == content[3 * FRAME..4 * FRAME]);
    }
    // The bytes of replies, and what the allocator keeps of them.
    let more = status(&server, "VmRSS").saturating_sub(before) >> 10;
    assert!(more < 2 * 64 + 16, "{more} MiB");
    // Threads that wait for files and decoders, however many clients there are.
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    let own = names.filter(|name| name.trim() == "fzmfs-serve").count();
    assert!(own <= 2 + 8, "{own}");
    // One that wakes up gets all of its reply; others vanish.
    let woken = Reply::read_rest(slow.swap_remove(150));
    assert!(content.ends_with(&woken[woken.len() - FRAME..]) && woken.len() > content.len());
    drop(slow);
    assert!(server.get("data.raw").body == content);
}

#[test]
fn connections_that_there_is_no_room_for_wait_and_are_answered_in_turn() {
    const DESCRIPTORS: usize = 64;
    let server = Server::start_with_descriptors(DESCRIPTORS as u32, &data(SAMPLE), &[]);
    // They stay open when they are answered.
    let request = server.request("GET", "data.raw", "range: bytes=0-3\r\n").replace("connection: close\r\n", "");
    let ask = |_| {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let asked: Vec<TcpStream> = (0..2 * DESCRIPTORS).map(ask).collect();
    for (i, mut stream) in asked.into_iter().enumerate() {
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 206", "{i}");
        let sockets = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
        let open = sockets.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        let open = open.filter(|to| to.to_string_lossy().starts_with("socket:")).count();
        // And the one that listens, those of signals, and one that waits for its place.
        assert!(open <= DESCRIPTORS / 2 + 5, "{open}");
    }
    assert_eq!(server.get("info.json").status, 200);
}

#[test]
fn a_thousand_idle_connections_take_at_most_32_mib() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < 3000) {
        return skip("idle connections", "a process may not open 3,000 files");
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let server = Server::start(&data(SAMPLE), &[]);
    server.get("data.raw");
    let before = status(&server, "VmRSS");
    let request = server.request("GET", "data.raw", "range: bytes=0-3\r\n").replace("connection: close\r\n", "");
    let ask = |_| {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
        stream
    };
    let idle: Vec<TcpStream> = (0..1000).map(ask).collect();
    assert_eq!(server.get("info.json").status, 200);
    let more = status(&server, "VmRSS").saturating_sub(before);
    println!("1,000 idle connections: {more} KiB");
    assert!(more <= 32 << 10, "{more} KiB");
    drop(idle);
}

#[test]
fn a_client_that_never_ends_its_request_is_left() {
    let server = Server::start(&data(SAMPLE), &[]);
    let mut silent = server.connect();
    let mut partial = server.connect();
    partial.write_all(b"GET / HTTP/1.1\r\nhost: ").unwrap();
    let mut closed = server.connect();
    closed.write_all(b"GET / HTTP/1.1\r\nhost: ").unwrap();
    closed.shutdown(Shutdown::Write).unwrap();
    for stream in [&mut silent, &mut partial, &mut closed] {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"), "{rest:?}");
    }
    assert_eq!(server.get("info.json").status, 200);
}

#[test]
fn sigterm_lets_replies_end_and_takes_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let (file, content) = large(dir.path(), false);
    let mut server = Server::start(&file, &[]);
    let mut idle = server.connect();
    let mut busy = server.connect();
    busy.write_all(server.request("GET", "data.raw", "").as_bytes()).unwrap();
    busy.read_exact(&mut [0; 12]).unwrap();
    server.signal(Signal::TERM);
    wait_until("no more connections", || TcpStream::connect(&server.at).is_err());
    assert_eq!(idle.read(&mut [0; 1]).unwrap_or(0), 0);
    let rest = Reply::read_rest(busy);
    assert!(rest.ends_with(&content), "{}", rest.len());
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn a_second_signal_ends_a_server_with_a_reply_in_progress() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = large(dir.path(), false);
    let mut server = Server::start(&file, &[]);
    let mut busy = server.connect();
    busy.write_all(server.request("GET", "data.raw", "").as_bytes()).unwrap();
    busy.read_exact(&mut [0; 12]).unwrap();
    server.signal(Signal::INT);
    wait_until("no more connections", || TcpStream::connect(&server.at).is_err());
    server.signal(Signal::INT);
    assert_eq!(server.ended().code(), Some(0));
    assert!(Reply::read_rest(busy).len() < FRAME * FRAMES);
}
