//! The log of the daemon: each fault once, by container, virtual file and part.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use crate::support::mounts::{Mounted, can_mount, fzmfs, has, run, sh};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A sparse frame that lacks a chunk.
const BROKEN: &str = "blosc2/bad/sframe_missing_chunk.b2frame";

/// Its line in the log, if `file` is read first.
fn fault(container: &Path, file: &str) -> String {
    format!("{}: {file}: the file 00000001.chunk is missing (chunk 1: ", container.display())
}

#[test]
fn a_fault_is_logged_once_with_container_file_and_chunk_however_it_is_met() {
    if !can_mount() {
        return;
    }
    let container = data(BROKEN).canonicalize().unwrap();
    for whole in [false, true] {
        let place = Mounted::nothing();
        let (source, inner) = if whole {
            (container.parent().unwrap(), place.path(container.file_name().unwrap().to_str().unwrap()))
        } else {
            (&*container, place.point.clone())
        };
        // As users name it: relative to where they are.
        let mut mount = fzmfs();
        mount.current_dir(source.parent().unwrap()).arg("mount").arg(source.file_name().unwrap()).arg(&place.point);
        let output = run(mount.arg("--log").arg(place.log()));
        assert!(output.status.success(), "{output:?}");
        for name in ["chunks/000001.raw", "data.raw", "data.npy", "chunks/000001.raw"] {
            assert!(fs::read(inner.join(name)).is_err(), "{name}");
        }
        let log = place.logged();
        assert_eq!(log.matches("00000001.chunk").count(), 1, "{log}");
        assert!(log.contains(&fault(&container, "chunks/000001.raw")), "{log}");
        sh(place.dir.path(), "umount mnt");
    }
}

#[test]
fn a_fault_met_in_a_file_of_many_tensors_names_the_tensor() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    let container = place.dir.path().canonicalize().unwrap().join("x.zt");
    let mut bytes = fs::read(data("ztensor/asm-20-digests.zt")).unwrap();
    // Of the tensor s, which has a digest.
    bytes[4097] ^= 1;
    fs::write(&container, bytes).unwrap();
    let output = run(fzmfs().arg("mount").arg(&container).arg(&place.point).arg("--log").arg(place.log()));
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read(place.path("model.safetensors")).is_err());
    let is_named = |line: &str| {
        line.contains(&format!("{}: model.safetensors: ", container.display()))
            && line.contains("(\"s\" data: digest, at ")
    };
    let log = place.logged();
    assert_eq!(log.lines().filter(|line| is_named(line)).count(), 1, "{log}");
    assert!(fs::read(place.path("tensors/s.raw")).is_err());
    assert_eq!(place.logged(), log, "the same fault");
    let cat = run(fzmfs().arg("cat").arg(&container).arg("model.safetensors"));
    let told = String::from_utf8_lossy(&cat.stderr);
    assert!(is_named(&told) && !cat.status.success(), "{told}");
    sh(place.dir.path(), "umount mnt");
}

#[test]
fn a_broken_container_of_a_directory_is_logged_with_its_path() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    let source = place.dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("broken.fzm"), "this is not a container\n").unwrap();
    let output = run(fzmfs().arg("mount").arg(&source).arg(&place.point).arg("--log").arg(place.log()));
    assert!(output.status.success(), "{output:?}");
    for _ in 0..2 {
        assert!(place.path("broken.fzm/error.txt").is_file());
    }
    let (log, path) = (place.logged(), source.join("broken.fzm"));
    assert_eq!(log.matches(&format!("{}: not supported: unrecognized format", path.display())).count(), 1, "{log}");
    sh(place.dir.path(), "umount mnt");
}

#[test]
fn the_log_of_a_daemon_goes_to_the_system_log_by_default() {
    if !can_mount() || !has("unshare") {
        return;
    }
    let place = Mounted::nothing();
    let dev = place.dir.path().join("dev");
    fs::create_dir(&dev).unwrap();
    for device in ["null", "fuse", "urandom"] {
        fs::write(dev.join(device), "").unwrap();
    }
    // A log daemon of our own, in a /dev that only this mount namespace has.
    let log = UnixDatagram::bind(dev.join("log")).unwrap();
    log.set_nonblocking(true).unwrap();
    let container = data(BROKEN).canonicalize().unwrap();
    let line = format!(
        "unshare -m --propagation private bash -euc '
            for device in null fuse urandom; do mount --bind /dev/$device dev/$device; done
            mount --rbind dev /dev
            \"{program}\" mount \"{container}\" mnt
            ! cat mnt/data.raw >/dev/null 2>&1
            \"{program}\" umount mnt'",
        program = env!("CARGO_BIN_EXE_fzmfs"),
        container = container.display()
    );
    sh(place.dir.path(), &line);
    // The daemon has ended: all was sent.
    let mut messages = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(len) = log.recv(&mut buffer) {
        messages.push(String::from_utf8_lossy(&buffer[..len]).into_owned());
    }
    let [message] = &messages[..] else { panic!("{messages:?}") };
    // Facility daemon, severity error.
    let text = message.strip_prefix("<27>fzmfs[").and_then(|rest| rest.split_once("]: ")).expect(message).1;
    assert!(text.starts_with(&fault(&container, "data.raw")), "{message}");
}
