//! The program over URLs: commands, mounts, and what they print.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::mounts::{can_mount, finish, is_mounted, run, sh, wait_for, wait_until};
use crate::support::opened::data;
use crate::support::server::{Fault, Object, Server};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fzmfs");

fn fzmfs(args: &[&str]) -> Output {
    run(Command::new(PROGRAM).args(args).env("NO_PROXY", "127.0.0.1"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn serve(server: &Server, name: &str) -> Vec<u8> {
    let path = data(name);
    let served = path.file_name().unwrap().to_str().unwrap();
    server.put(served, Object::new(std::fs::read(&path).unwrap()));
    fzmfs(&["cat", path.to_str().unwrap(), "data.raw"]).stdout
}

#[test]
fn commands_take_a_url() {
    let server = Server::start();
    let want = serve(&server, "blosc2/n05_5d_f4.b2nd");
    let url = server.url("n05_5d_f4.b2nd");
    assert!(!want.is_empty() && fzmfs(&["cat", &url, "data.raw"]).stdout == want);
    assert_eq!(text(&fzmfs(&["verify", &url]).stdout), format!("{url}: OK (no checksums in this file)\n"));
    assert!(text(&fzmfs(&["info", &url]).stdout).contains("blosc2"));
    assert!(text(&fzmfs(&["ls", &url]).stdout).contains("data.npy"));
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    assert!(fzmfs(&["extract", &url, out.to_str().unwrap(), "data.raw"]).status.success());
    assert!(std::fs::read(out.join("data.raw")).unwrap() == want);
    let local = format!("file://{}", data("blosc2/n05_5d_f4.b2nd").display());
    assert!(fzmfs(&["cat", &local, "data.raw"]).stdout == want);
}

#[test]
fn errors_name_the_url_and_no_secret() {
    let server = Server::start();
    serve(&server, "blosc2/n05_5d_f4.b2nd");
    let shown = server.url("n05_5d_f4.b2nd");
    let secret = format!("{}?X-Amz-Signature=SECRET", shown.replace("://", "://me:SECRET@"));
    let said = text(&fzmfs(&["verify", &secret]).stdout);
    assert_eq!(said, format!("{shown}: OK (no checksums in this file)\n"));
    for (fault, want) in [
        (Fault::Status(404), "no such object (HTTP 404)"),
        (Fault::Status(403), "no permission to read it (HTTP 403)"),
        (Fault::Whole, "does not serve parts of the object"),
        (Fault::Status(503), "no answer within 1 s: "),
    ] {
        let timeout = if fault == Fault::Status(503) { "timeout=1" } else { "timeout=600" };
        server.fail([fault]);
        for command in ["ls", "info", "verify"] {
            let output = run(Command::new(PROGRAM)
                .args([command, &secret, "-o", timeout])
                .env("FZMFS_LOG", "trace")
                .env("NO_PROXY", "127.0.0.1"));
            let said = text(&output.stderr) + &text(&output.stdout);
            assert!(said.contains(&shown) && said.contains(want) && !said.contains("SECRET"), "{said}");
            assert_eq!(output.status.code(), Some(1));
        }
    }
    server.fail([]);
    let said = text(&fzmfs(&["ls", &secret, "-o", "expect=v2"]).stderr);
    assert!(said.contains("the object has the ETag \"v1\", not v2") && !said.contains("SECRET"), "{said}");
}

/// A mount in the background, taken down at the end.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        run(Command::new(PROGRAM).arg("umount").arg(self.0));
    }
}

#[test]
fn a_url_is_mounted_and_a_changed_object_is_no_longer_served() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let want = serve(&server, "blosc2/n05_5d_f4.b2nd");
    let shown = server.url("n05_5d_f4.b2nd");
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path();
    let secret = format!("{shown}?token=SECRET");
    let output = fzmfs(&[&secret, point.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mounted = Mounted(point);
    assert!(std::fs::read(point.join("data.raw")).unwrap() == want);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.contains(point.to_str().unwrap())).unwrap();
    assert!(line.contains(&shown) && !line.contains("SECRET"), "{line}");
    drop(mounted);

    // An object that is too large to be there from the start.
    let bytes = super::noise(3 << 20);
    let parts = frames(&bytes);
    server.put("x.zst", Object::new(parts.clone()));
    // It gives up soon, and on a busy machine also where nothing is wrong.
    wait_until("mounted", || {
        fzmfs(&[&server.url("x.zst"), point.to_str().unwrap(), "-o", "timeout=1,cache=1M"]).status.success()
    });
    let mounted = Mounted(point);
    let first = wait_for("read", || std::fs::read(point.join("chunks/000000.raw")).ok());
    assert!(first == bytes[..1 << 20]);
    server.fail([Fault::Status(500)]);
    // What the kernel has already is right.
    match std::fs::read(point.join("chunks/000002.raw")) {
        Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EIO)),
        Ok(read) => assert!(read == bytes[2 << 20..]),
    }
    server.fail([]);
    // A failure is remembered for a second.
    wait_until("read", || std::fs::read(point.join("chunks/000002.raw")).is_ok_and(|read| read == bytes[2 << 20..]));
    server.put("x.zst", Object::new(parts).with_etag("\"v2\""));
    wait_until("stale", || {
        let read = std::fs::read(point.join("chunks/000001.raw"));
        if let Ok(read) = &read {
            assert!(read == &bytes[1 << 20..2 << 20]);
        }
        std::fs::read(point.join("stored/000000.bin")).is_err_and(|e| e.raw_os_error() == Some(libc::ESTALE))
    });
    drop(mounted);
}

#[test]
fn a_reader_that_is_killed_ends_at_once_and_so_does_its_request() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    server.put("x.zst", Object::new(frames(&super::noise(3 << 20))));
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path();
    let output = fzmfs(&[&server.url("x.zst"), point.to_str().unwrap(), "-o", "timeout=600"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mounted = Mounted(point);
    assert!(point.join("chunks/000002.raw").exists());
    server.take_log();
    server.fail([Fault::Dribble(Duration::from_millis(50), usize::MAX)]);
    let mut reader = Command::new("cat").arg(point.join("chunks/000002.raw")).stdout(Stdio::null()).spawn().unwrap();
    wait_until("it is being fetched", || !server.log().is_empty());
    reader.kill().unwrap();
    assert!(finish(&mut reader).is_some(), "the reader hangs");
    // The server notices when it sends the next byte.
    wait_until("the request has ended", || !server.log().iter().any(|request| request.lasts));
    server.fail([]);
    assert!(std::fs::read(point.join("chunks/000002.raw")).unwrap() == super::noise(3 << 20)[2 << 20..]);
    drop(mounted);
}

/// A command that mounts an object of `server`.
fn mounting(server: &Server, point: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("mount").args(options).arg(server.url("x.zst")).arg(point).args(["-o", "timeout=600"]);
    command.env("NO_PROXY", "127.0.0.1").stdin(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn a_signal_while_the_object_is_opened_ends_the_daemon_too_and_nothing_is_mounted() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    server.put("x.zst", Object::new(frames(&super::noise(3 << 20))));
    let dir = tempfile::tempdir().unwrap();
    // Not SIGINT for the caller: a shell without job control makes its background processes ignore it.
    for (options, signal) in [(&["-f"][..], "TERM"), (&["-f"], "INT"), (&[], "TERM"), (&[], "KILL")] {
        server.take_log();
        server.fail([Fault::Dribble(Duration::from_millis(20), usize::MAX)]);
        // The daemon holds this as long as it runs.
        let mut child = mounting(&server, dir.path(), options).stdout(Stdio::piped()).spawn().unwrap();
        wait_until("it is being opened", || server.log().iter().any(|request| request.lasts));
        run(Command::new("kill").args(["-s", signal, &child.id().to_string()]));
        let mut held = child.stdout.take().unwrap();
        assert!(!finish(&mut child).expect("it ends").success(), "{options:?} {signal}");
        std::io::copy(&mut held, &mut std::io::sink()).unwrap();
        wait_until("the request has ended", || !server.log().iter().any(|request| request.lasts));
        assert!(!is_mounted(dir.path()), "{options:?} {signal}");
    }
}

#[test]
fn a_mount_of_an_object_in_the_foreground_ends_with_a_signal() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    server.put("x.zst", Object::new(frames(&super::noise(3 << 20))));
    let dir = tempfile::tempdir().unwrap();
    let mut child = mounting(&server, dir.path(), &["-f"]).spawn().unwrap();
    wait_until("mounted", || is_mounted(dir.path()));
    assert!(std::fs::read(dir.path().join("chunks/000001.raw")).unwrap() == super::noise(3 << 20)[1 << 20..2 << 20]);
    run(Command::new("kill").args(["-s", "TERM", &child.id().to_string()]));
    assert!(finish(&mut child).is_some_and(|status| status.success()));
    assert!(!is_mounted(dir.path()));
}

#[test]
fn readers_are_not_taken_for_dead_where_proc_has_other_numbers_for_them() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    server.put("x.zst", Object::new(frames(&super::noise(3 << 20))));
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("mnt")).unwrap();
    std::fs::write(dir.path().join("want"), super::noise(3 << 20)).unwrap();
    // Each read waits for longer than readers go without a look at them.
    server.delay(Duration::from_millis(300));
    let url = server.url("x.zst");
    let inside = format!("'{PROGRAM}' mount '{url}' mnt; cmp mnt/data.raw want; '{PROGRAM}' umount mnt");
    sh(dir.path(), &format!("unset http_proxy; unshare --pid --fork sh -euc \"{inside}\""));
}

/// `bytes` as Zstandard frames of 1 MiB each, as large as what they hold.
pub(super) fn frames(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(1 << 20).flat_map(zstd_frame).collect()
}

fn zstd_frame(bytes: &[u8]) -> Vec<u8> {
    // Raw blocks: they need no encoder, and are as large as what they hold.
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0xA0];
    frame.extend((bytes.len() as u32).to_le_bytes());
    let count = bytes.len().div_ceil(128 << 10);
    for (i, block) in bytes.chunks(128 << 10).enumerate() {
        let header = (block.len() as u32) << 3 | u32::from(i + 1 == count);
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(block);
    }
    frame
}
