//! The ways to invoke the program mount real files, and the mount shows what the commands show.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::mounts::{Mounted, can_mount, fzmfs, is_mounted, python_with_numpy, read_apart, run, sh, skip};

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fzm/lq1d_f32_noa_rle.fzm")
}

/// Runs `command`, which has to mount the sample on `mnt`; then reads it and unmounts.
#[track_caller]
fn check(place: &Mounted, command: &mut Command) {
    let output = run(command.current_dir(place.dir.path()));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(is_mounted(&place.point));
    let want = run(fzmfs().arg("cat").arg(sample()).arg("data.raw")).stdout;
    assert!(!want.is_empty() && read_apart(&place.path("data.raw")) == want);
    let output = run(fzmfs().arg("umount").arg(&place.point));
    assert!(output.status.success(), "{output:?}");
    assert!(!is_mounted(&place.point));
}

#[test]
fn every_form_of_the_command_line_mounts() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    let file = sample();
    check(&place, fzmfs().arg("mount").arg(&file).arg("mnt"));
    check(&place, fzmfs().arg(&file).arg("mnt"));
    check(
        &place,
        fzmfs()
            .arg(&file)
            .arg("mnt")
            .args(["-o", "rw,dev,suid,user,_netdev,noatime,nofail,x-systemd.automount,threads=1"]),
    );
    check(&place, fzmfs().args(["-o", "allow_other,cache=16M", "--verify", "background"]).arg(&file).arg("mnt"));
    // What mount(8) runs for the types fzmfs and fuse.fzmfs.
    for name in ["mount.fzmfs", "mount.fuse.fzmfs"] {
        let helper = place.path("..").join(name);
        symlink(env!("CARGO_BIN_EXE_fzmfs"), &helper).unwrap();
        check(
            &place,
            Command::new(&helper).arg(&file).args(["mnt", "-n", "-v", "-o", "rw,noexec,nosuid,nodev,user=anna"]),
        );
    }
    // A file that is named like a command.
    symlink(&file, place.path("../info")).unwrap();
    check(&place, fzmfs().args(["mount", "info", "mnt"]));
}

#[test]
fn options_show_in_the_mount() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    let mount = || {
        let mut command = fzmfs();
        command.arg("mount").current_dir(place.dir.path());
        command
    };
    let words = r"fsname=a\,b,uid=12,gid=34,umask=0227,allow_other";
    let output = run(mount().arg(sample()).args(["mnt", "-o", words]));
    assert!(output.status.success(), "{output:?}");
    let line = sh(place.dir.path(), "grep -F $PWD/mnt /proc/self/mountinfo");
    assert!(line.contains(" - fuse.fzmfs a,b ") && line.contains("allow_other"), "{line}");
    let file = std::fs::metadata(place.path("data.raw")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (12, 34, 0o440));
    sh(place.dir.path(), "umount mnt");

    symlink(sample(), place.path("../a.fzm")).unwrap();
    assert!(run(mount().args(["a.fzm", "mnt"])).status.success());
    let line = sh(place.dir.path(), "grep -F $PWD/mnt /proc/self/mountinfo");
    let source = place.dir.path().join("a.fzm");
    assert!(line.contains(&format!(" - fuse.fzmfs {} ", source.display())), "{line}");
}

#[test]
fn the_mount_shows_what_extract_writes_in_every_format() {
    if !can_mount() {
        return;
    }
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for name in [
        "fzm/lq1d_f32_noa_rle.fzm",
        "fzm/dag_fanout.fzm",
        "fzm/v31_gaps_reordered.fzm",
        "blosc2/b02_stored_specials.b2frame",
        "blosc2/archive.b2z",
        "zxc/v5_083_struct_l5_legacy64_nochk.zxc",
        "ztensor/asm-10-gaps.zt",
        "ztensor/v12-sparse-index-dtypes.zt",
        "ztensor/v20-zstd-seekable.zt",
        "zstd/mixed-generations.zst",
    ] {
        equal(&data.join(name));
    }
}

#[track_caller]
fn equal(file: &Path) {
    let place = Mounted::nothing();
    let output = run(fzmfs().arg("mount").arg(file).arg(&place.point));
    assert!(output.status.success(), "{output:?}");
    let output = run(fzmfs().arg("extract").arg(file).arg(place.path("../out")).arg("."));
    assert!(output.status.success(), "{output:?}");
    sh(place.dir.path(), "diff -r mnt out");
    let listed = run(fzmfs().args(["ls", "-R"]).arg(file)).stdout;
    let found = sh(place.dir.path(), "cd mnt && find . -mindepth 1 -printf '%P\\n' | LC_ALL=C sort");
    assert_eq!(found.as_bytes(), listed);
}

#[test]
fn numpy_loads_an_array_without_reading_it_whole() {
    if !can_mount() {
        return;
    }
    let Some(python) = python_with_numpy() else { return skip("numpy", "not installed") };
    let place = Mounted::nothing();
    let output = run(fzmfs().arg("mount").arg(sample()).arg(&place.point));
    assert!(output.status.success(), "{output:?}");
    let program = "
import numpy as n
a = n.load('mnt/data.npy', mmap_mode='r')
raw = n.fromfile('mnt/data.raw', dtype=a.dtype)
assert a.dtype == n.dtype('<f4') and a.ndim == 1 and a.size > 0, (a.dtype, a.shape)
assert (a.view('u4') == raw[:a.size].view('u4')).all()
assert (n.load('mnt/data.npy')[7::13] == a[7::13]).all()
";
    std::fs::write(place.path("../program.py"), program).unwrap();
    sh(place.dir.path(), &format!("{python} program.py"));
}

#[test]
fn debug_logs_every_request_and_stays_in_the_foreground() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    let mut command = fzmfs();
    command.arg("mount").arg("-d").arg("--log").arg(place.log()).arg(sample()).arg(&place.point);
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    crate::support::mounts::wait_for_mount(&place.log());
    let read = read_apart(&place.path("data.raw"));
    let output = run(fzmfs().arg("umount").arg(&place.point));
    assert!(output.status.success(), "{output:?}");
    let status = crate::support::mounts::finish(&mut child);
    assert!(!read.is_empty() && status.expect("ends").success());
    let log = place.logged();
    for request in ["lookup", "open", "read", "release"] {
        let is_logged = log.lines().any(|line| line.contains("fzmfs::request") && line.contains(request));
        assert!(is_logged, "{request}: {log}");
    }
}
