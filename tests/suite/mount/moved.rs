//! Paths that others make lead elsewhere while a mount is made or unmounted.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::mounts::{Mounted, can_mount, finish, fzmfs, is_mounted, opened, send, sh, wait_for, wait_until};

/// A mount waits a little longer than this for the lock of its directory.
pub(super) const WAITS: Duration = Duration::from_millis(1900);

fn sample() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/zxc/v5_one.zxc"))
}

/// The end of a program: its code, and what it said.
fn ended(mut child: Child) -> (Option<i32>, String) {
    let said = child.stderr.take().map(std::io::read_to_string);
    (finish(&mut child).expect("ends").code(), said.unwrap().unwrap())
}

#[test]
fn a_mount_point_that_is_swapped_for_a_link_while_we_wait_is_not_followed() {
    if !can_mount() {
        return;
    }
    wait_for("swapped while it waits", || {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let [point, target] = ["mnt", "target"].map(|name| top.join(name));
        std::fs::create_dir(&point).unwrap();
        std::fs::create_dir(&target).unwrap();
        let lock = std::fs::File::open(&point).unwrap();
        lock.lock().unwrap();
        let begun = Instant::now();
        let mut command = fzmfs();
        command.args(["mount", "-f"]).arg(sample()).arg(&point).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It has opened the directory to wait for the lock.
        wait_until("it waits", || opened(child.id(), &point) >= 2);
        std::fs::rename(&point, top.join("gone")).unwrap();
        symlink(&target, &point).unwrap();
        if begun.elapsed() > WAITS {
            // It may have mounted before.
            child.kill().unwrap();
            child.wait().unwrap();
            sh(&top, "umount -lq gone || true");
            return None;
        }
        lock.unlock().unwrap();
        let (code, said) = ended(child);
        assert!(code == Some(1) && said.contains("was moved"), "{said}");
        for place in [&target, &top.join("gone")] {
            assert!(!is_mounted(place), "{}", place.display());
        }
        Some(())
    });
}

#[test]
fn umount_removes_the_mount_that_its_path_led_to_at_first() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    let top = place.dir.path().canonicalize().unwrap();
    sh(&top, "mkdir -p home/a/mnt sys/mnt && mount -t tmpfs none sys/mnt && touch sys/mnt/precious");
    let mounted = sh(
        &top,
        &format!("'{}' mount '{}' home/a/mnt && echo yes", fzmfs().get_program().display(), sample().display()),
    );
    assert_eq!(mounted, "yes\n");
    // In use, so that only a lazy unmount could take it away.
    let busy = std::fs::File::open(top.join("sys/mnt/precious")).unwrap();
    let pid = sh(&top, "getfattr --only-values -n user.fzmfs.daemon.pid home/a/mnt").trim().parse().unwrap();
    send(pid, "STOP");
    let mut command = fzmfs();
    command.arg("umount").arg(top.join("home/a/mnt")).stdin(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let asks = format!("{} ", libc::SYS_getxattr);
    wait_until("it asks the daemon", || {
        std::fs::read_to_string(format!("/proc/{}/syscall", child.id())).is_ok_and(|call| call.starts_with(&asks))
    });
    std::fs::rename(top.join("home/a"), top.join("home/b")).unwrap();
    symlink(top.join("sys"), top.join("home/a")).unwrap();
    send(pid, "KILL");
    let (code, said) = ended(child);
    let (other, ours) = (is_mounted(&top.join("sys/mnt")), is_mounted(&top.join("home/b/mnt")));
    drop(busy);
    sh(&top, "umount -l sys/mnt || true; umount -lq home/b/mnt || true");
    assert!(other, "the other file system was detached");
    assert!(!ours && code == Some(0), "{said}");
}
