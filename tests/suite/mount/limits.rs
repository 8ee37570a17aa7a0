//! Small limits of the process and of its control group: it works, or says in one line why not. No abort, no dead
//! mount, no hang.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::mounts::{Mounted, can_mount, fzmfs, read_apart, run, skip, wait_until};

/// Decoded bytes of a frame.
const FRAME: usize = 1 << 20;

/// A Zstandard file of `frames` equal frames in `dir`, and what one of them decodes to.
fn frames(dir: &Path, frames: usize) -> (PathBuf, Vec<u8>) {
    let plain = crate::support::made::bytes(5, 0, FRAME as u64 / 2).repeat(2);
    let (path, frame) = (dir.join("many.zst"), zstd::bulk::compress(&plain, 3).unwrap());
    std::fs::write(&path, frame.repeat(frames)).unwrap();
    (path, plain)
}

/// The program with a limit that the shell sets.
fn limited(limit: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")]).arg(fzmfs().get_program());
    command
}

/// Either it has worked, or it has said why not in one line, and nothing is mounted.
#[track_caller]
fn worked(limit: &str, output: &Output, place: &Mounted) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return true;
    }
    assert_eq!(output.status.signal(), None, "{limit}: {said}");
    // 127 is the loader's, which comes before us.
    assert!(matches!(output.status.code(), Some(1 | 127)), "{limit}: {output:?}");
    assert_eq!(said.trim_end().lines().count(), 1, "{limit}: {said}");
    assert!(!place.is_mounted(), "{limit}: a mount is left behind");
    false
}

#[test]
fn with_17_descriptors_it_mounts_and_with_fewer_it_mounts_or_says_why_not() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    let (file, plain) = frames(place.dir.path(), 4);
    let names_the_limit = |limit: &str, output: &Output| {
        let said = String::from_utf8_lossy(&output.stderr);
        let is_named = said.contains("Too many open files") && said.contains("; ulimit -n sets how many");
        assert!(output.status.code() == Some(127) || is_named, "{limit}: {said}");
    };
    let mut fewest = None;
    for descriptors in 3..=20 {
        let limit = format!("-n {descriptors}");
        for args in [&["info"][..], &["cat"]] {
            let path = (args[0] == "cat").then_some("data.raw");
            let output = run(limited(&limit).args(args).arg(&file).args(path));
            if !worked(&limit, &output, &place) {
                names_the_limit(&limit, &output);
                assert!(descriptors < 8, "{args:?} needs more than {limit}");
            } else if path.is_some() {
                assert!(output.stdout == plain.repeat(4), "{limit}");
            }
        }
        let output = run(limited(&limit).arg("mount").arg(&file).arg(&place.point));
        if !worked(&limit, &output, &place) {
            names_the_limit(&limit, &output);
            continue;
        }
        fewest.get_or_insert(descriptors);
        assert!(read_apart(&place.path("data.raw")) == plain.repeat(4), "{limit}");
        let output = run(limited(&limit).arg("umount").arg(&place.point));
        assert!(output.status.success() && !place.is_mounted(), "{limit}: {output:?}");
    }
    assert!(fewest.is_some_and(|fewest| fewest <= 17), "{fewest:?}");
}

#[test]
fn with_few_descriptors_umount_works_or_says_why_not() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    let (file, _) = frames(place.dir.path(), 1);
    for descriptors in 3..=10 {
        let limit = format!("-n {descriptors}");
        let output = run(fzmfs().arg("mount").arg(&file).arg(&place.point));
        assert!(output.status.success(), "{output:?}");
        let output = run(limited(&limit).arg("umount").arg(&place.point));
        if output.status.success() {
            assert!(!place.is_mounted(), "{limit}");
            continue;
        }
        assert!(place.is_mounted() && descriptors < 10, "{limit}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).trim_end().lines().count(), 1, "{limit}: {output:?}");
        assert!(run(fzmfs().arg("umount").arg(&place.point)).status.success());
    }
}

#[test]
fn with_few_descriptors_a_command_says_why_it_fails_and_not_that_there_is_no_index() {
    let place = Mounted::nothing();
    // A frame for which the index is asked.
    let plain = crate::support::made::bytes(5, 0, 8 << 20).repeat(8);
    let file = place.dir.path().join("one.zst");
    std::fs::write(&file, zstd::bulk::compress(&plain, 1).unwrap()).unwrap();
    let mut failed = 0;
    for descriptors in 3..=14 {
        let limit = format!("-n {descriptors}");
        let index = format!("index={}", place.dir.path().join("index").display());
        let mut command = limited(&limit);
        let home = place.dir.path().join("home");
        let output = run(command.args(["cat", "-o", &index]).arg(&file).arg("data.raw").env("XDG_STATE_HOME", home));
        if worked(&limit, &output, &place) {
            assert!(output.stdout == plain && output.stderr.is_empty(), "{limit}: {:?}", output.stderr);
        } else {
            failed += 1;
        }
    }
    assert!((1..12).contains(&failed), "{failed}");
}

#[test]
fn with_little_address_space_it_works_or_says_why_not() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    let (file, plain) = frames(place.dir.path(), 24);
    // With about as much as the program itself takes, the runtime may end it before its first line.
    let starts = |mib: &u64| run(limited(&format!("-v {}", mib << 10)).arg("--version")).status.success();
    let least = (10..).step_by(2).find(starts).unwrap();
    assert!(least < 80, "{least}");
    for mib in (least + 4..=104).step_by(2).chain([150, 200, 300]) {
        let limit = format!("-v {}", mib << 10);
        for command in ["ls", "verify"] {
            let output = run(limited(&limit).arg(command).arg(&file));
            let signal = output.status.signal();
            assert!(signal.is_none() && (output.status.success() || mib < 150), "{limit} {command}: {output:?}");
        }
        let output = run(limited(&limit).args(["cat"]).arg(&file).arg("data.raw"));
        assert!(worked(&limit, &output, &place) || mib < 150, "{limit}: {output:?}");
        let output = run(limited(&limit).arg("mount").arg(&file).arg(&place.point));
        if !worked(&limit, &output, &place) {
            assert!(mib < 150, "{limit}: {output:?}");
            continue;
        }
        let read = run(Command::new("cat").arg(place.path("data.raw")));
        assert!(read.stdout == plain.repeat(24) || mib < 150 && !read.status.success(), "{limit}");
        assert!(place.path("data.raw").metadata().is_ok(), "{limit}: the daemon is gone");
        let output = run(fzmfs().arg("umount").arg(&place.point));
        assert!(output.status.success(), "{limit}: {output:?}");
    }
}

/// A control group of its own with a limit of memory.
struct Group(PathBuf);

impl Group {
    fn new(limit: u64) -> Option<Self> {
        let name = format!("fzmfs-test-{}", std::process::id());
        for (top, file) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
            ("/sys/fs/cgroup/unified", "memory.max"),
        ] {
            let group = Self(Path::new(top).join(&name));
            if std::fs::create_dir(&group.0).is_ok() && std::fs::write(group.0.join(file), limit.to_string()).is_ok() {
                return Some(group);
            }
        }
        None
    }

    /// The program inside it.
    fn fzmfs(&self) -> Command {
        let mut command = Command::new("bash");
        let join = "echo $$ >\"$0\"/cgroup.procs || exit 3; exec \"$@\"";
        command.args(["-c", join]).arg(&self.0).arg(fzmfs().get_program());
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Fails while a process is in it.
        if self.0.exists() && !std::thread::panicking() {
            wait_until("nobody is in the group", || std::fs::remove_dir(&self.0).is_ok());
        }
    }
}

#[test]
fn a_control_group_of_128_mib_is_enough() {
    if !can_mount() {
        return;
    }
    let Some(group) = Group::new(128 << 20) else {
        return skip("control groups", "no memory controller that may be written to");
    };
    let place = Mounted::nothing();
    let (file, plain) = frames(place.dir.path(), 300);
    let output = run(group.fzmfs().arg("verify").arg(&file));
    assert!(output.status.success(), "{output:?}");
    let output = run(group.fzmfs().arg("mount").arg(&file).arg(&place.point));
    assert!(output.status.success(), "{output:?}");
    let read = read_apart(&place.path("data.raw"));
    assert!(read.len() == 300 * FRAME && read.chunks(FRAME).all(|frame| frame == plain));
    let doctor = run(group.fzmfs().arg("doctor"));
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("128.0 MiB, of which 16.0 MiB"), "{doctor:?}");
    let output = run(fzmfs().arg("umount").arg(&place.point));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn under_a_limit_on_file_sizes_nothing_is_spilled_and_every_byte_is_right() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    // One long frame: pieces that are read in any order would be kept in a temporary file.
    let plain = crate::support::made::bytes(5, 0, 8 << 20).repeat(8);
    let file = place.dir.path().join("one.zst");
    std::fs::write(&file, zstd::bulk::compress(&plain, 1).unwrap()).unwrap();
    let mut mount = limited("-f 100");
    mount.args(["mount", "-o", "cache=2M,spill=1G"]).arg(&file).arg(&place.point);
    let output = run(&mut mount);
    assert!(output.status.success(), "{output:?}");
    let data = std::fs::File::open(place.path("data.raw")).unwrap();
    for at in [20 << 20, 3 << 20, 11 << 20, 0, 23 << 20] {
        let mut got = vec![0; 5000];
        std::os::unix::fs::FileExt::read_exact_at(&data, &mut got, at).unwrap();
        assert!(got == plain[at as usize..][..5000], "at {at}");
    }
}

#[test]
fn what_does_not_fit_in_the_cache_goes_to_a_nameless_file_in_tmpdir() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    let folder = place.dir.path().join("spilled");
    std::fs::create_dir(&folder).unwrap();
    // One long frame: the pieces that a random read passes over for the second time are kept.
    let plain = crate::support::made::bytes(5, 0, 8 << 20).repeat(8);
    let file = place.dir.path().join("one.zst");
    std::fs::write(&file, zstd::bulk::compress(&plain, 1).unwrap()).unwrap();
    let mut mount = fzmfs();
    mount.env("TMPDIR", &folder).args(["mount", "-o", "cache=2M,spill=1G"]).arg(&file).arg(&place.point);
    let output = run(&mut mount);
    assert!(output.status.success(), "{output:?}");
    let data = std::fs::File::open(place.path("data.raw")).unwrap();
    let read = |at: u64| {
        let mut got = vec![0; 5000];
        std::os::unix::fs::FileExt::read_exact_at(&data, &mut got, at).unwrap();
        assert!(got == plain[at as usize..][..5000], "at {at}");
    };
    read(20 << 20);
    read(10 << 20);
    let pid = place.daemon();
    let start = format!("{}/", folder.display());
    // The file is open or mapped.
    wait_until("a nameless file is in use", || {
        let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let open = links.filter_map(|link| std::fs::read_link(link.path()).ok()).map(|to| to.display().to_string());
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let mapped = maps.lines().map(str::to_owned);
        open.chain(mapped).any(|line| line.contains(&start) && line.ends_with(" (deleted)"))
    });
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "it has no name");
    read(3 << 20);
}
