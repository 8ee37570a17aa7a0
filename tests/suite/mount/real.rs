//! Real containers through the real program: the mount shows what the commands show, byte for byte.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::mounts::{can_mount, fzmfs, is_mounted, python_with_numpy, run, sh, skip};

/// A container of the tests' data.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A directory with a mount point in it, which is free again afterwards.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        Self(dir)
    }

    fn is_mounted(&self) -> bool {
        is_mounted(&self.0.path().join("mnt"))
    }

    /// Runs `command` here, which has to succeed.
    #[track_caller]
    fn run(&self, command: &mut Command) {
        let output = run(command.current_dir(self.0.path()));
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        Command::new("umount").arg("-lq").arg(self.0.path().join("mnt")).status().ok();
    }
}

/// Containers of every format.
const FILES: &[&str] = &[
    "fzm/lq1d_f32_abs.fzm",
    "fzm/dag_fanout.fzm",
    "fzm/v31_gaps_reordered.fzm",
    "zstd/mixed-generations.zst",
    "ztensor/asm-10-gaps.zt",
    "blosc2/b02_stored_specials.b2frame",
    "blosc2/archive.b2z",
];

#[test]
fn a_mount_equals_what_extract_writes() {
    if !can_mount() {
        return;
    }
    for file in FILES.iter().map(|name| data(name)) {
        let place = Place::new();
        place.run(fzmfs().arg("mount").arg(&file).arg("mnt"));
        place.run(fzmfs().arg("extract").arg(&file).arg("out"));
        // All that is extracted is there with the same bytes; the rest is what `stored` holds.
        let compare =
            "cd out && find . -type f | while read -r f; do cmp \"$f\" \"../mnt/$f\"; done; find . -type f | wc -l";
        let count: u32 = sh(place.0.path(), compare).trim().parse().unwrap();
        assert!(count > 1, "{}: {count} files", file.display());
        let listed = sh(place.0.path(), "cd mnt && find . -type f -o -type l | sed 's,^./,,' | sort");
        let output = run(fzmfs().arg("ls").arg("-R").arg(&file));
        let shown = String::from_utf8(output.stdout).unwrap();
        for path in listed.lines() {
            assert!(shown.lines().any(|line| line == path), "{}: ls lacks {path}\n{shown}", file.display());
        }
        place.run(fzmfs().arg("umount").arg("mnt"));
        assert!(!place.is_mounted());
    }
}

#[test]
fn numpy_loads_an_array_without_reading_it_whole() {
    if !can_mount() {
        return;
    }
    let Some(python) = python_with_numpy() else { return skip("numpy", "not installed") };
    let place = Place::new();
    place.run(fzmfs().arg("mount").arg(data("fzm/lq1d_f32_abs.fzm")).arg("mnt"));
    let program = "
import numpy as n
a = n.load('mnt/data.npy', mmap_mode='r')
raw = n.fromfile('mnt/data.raw', dtype=a.dtype)
assert a.dtype == n.dtype('<f4') and a.ndim == 1 and a.size > 0, (a.dtype, a.shape)
assert (a.view('u4') == raw[:a.size].view('u4')).all()
assert (n.load('mnt/data.npy')[7::13] == a[7::13]).all()
";
    std::fs::write(place.0.path().join("program.py"), program).unwrap();
    sh(place.0.path(), &format!("{python} program.py"));
}

#[test]
fn mount_as_mount_8_and_fstab_call_it() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let file = data("fzm/lq1d_f32_abs.fzm");
    place.run(fzmfs().arg(&file).arg("mnt").args(["-o", "rw,user,_netdev,nofail,uid=7,umask=022"]));
    assert_eq!(sh(place.0.path(), "stat -c '%u %a' mnt/data.raw").trim(), "7 444");
    place.run(fzmfs().arg("umount").arg("mnt"));
    for name in ["mount.fzmfs", "mount.fuse.fzmfs"] {
        let helper = place.0.path().join(name);
        symlink(fzmfs().get_program(), &helper).unwrap();
        place.run(Command::new(&helper).arg(&file).arg("mnt").args(["-v", "-o", "rw,noexec,nosuid,nodev"]));
        assert!(place.is_mounted());
        place.run(fzmfs().arg("umount").arg("mnt"));
    }
}

#[test]
fn debug_logs_every_request() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let log = place.0.path().join("log");
    let mut command = fzmfs();
    command.arg("--log").arg(&log).arg("mount").arg("-d").arg(data("fzm/lq1d_f32_abs.fzm")).arg("mnt");
    let mut child = command.current_dir(place.0.path()).stdin(std::process::Stdio::null()).spawn().unwrap();
    crate::support::mounts::wait_for_mount(&log);
    sh(place.0.path(), "cat mnt/info.json >/dev/null; umount mnt");
    crate::support::mounts::finish(&mut child, crate::support::mounts::PATIENCE).expect("ends");
    let text = std::fs::read_to_string(log).unwrap();
    for request in ["lookup", "open", "read", "release"] {
        assert!(
            text.lines().any(|line| line.contains("fzmfs::request") && line.contains(request)),
            "{request}: {text}"
        );
    }
}
