//! Making a mount: in the background with an answer, or not at all and with a reason.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::moved::WAITS;
use crate::support::made::{DATA, bytes};
use crate::support::mounts::{
    Mounted, PATIENCE, can_mount, finish, fzmfs, is_mounted, made, opened, run, sh, wait_for, wait_until,
};

/// Mounts `file` on `point` with the real program, which has to fail; what it said.
#[track_caller]
fn refused(file: &str, point: &str, dir: &TempDir) -> String {
    let output = run(fzmfs().arg("mount").arg(file).arg(point).current_dir(dir.path()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!is_mounted(&dir.path().join(point)));
    assert!(said.starts_with("fzmfs: ") && said.trim_end().lines().count() <= 2, "{said}");
    said
}

#[test]
fn mount_errors_are_printed_on_the_terminal() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("mnt")).unwrap();
    std::fs::write(dir.path().join("empty"), b"").unwrap();
    std::fs::write(dir.path().join("random"), bytes(1, 0, 5000)).unwrap();
    let missing = refused("missing.fzm", "mnt", &dir);
    assert!(missing.contains("missing.fzm") && missing.contains("No such file"), "{missing}");
    let empty = refused("empty", "mnt", &dir);
    assert!(empty.contains("empty file"), "{empty}");
    let random = refused("random", "mnt", &dir);
    assert!(random.contains("unrecognized format"), "{random}");
    let folder = refused("random", "nowhere", &dir);
    assert!(folder.contains("nowhere") && folder.contains("no such directory"), "{folder}");
    let file = refused("random", "empty", &dir);
    assert!(file.contains("not a directory"), "{file}");
}

#[test]
fn mount_returns_when_the_mount_answers_and_closes_its_streams() {
    if !can_mount() {
        return;
    }
    // `run` reads both streams to their end: it would not come back if the daemon held them.
    let mounted = Mounted::made(&[]);
    assert!(mounted.path("data.raw").is_file());
    let daemon = mounted.daemon();
    let proc = |name: &str| std::fs::read_link(format!("/proc/{daemon}/{name}")).unwrap();
    assert_eq!(proc("cwd").to_str(), Some("/"));
    for stream in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(proc(stream).to_str(), Some("/dev/null"));
    }
    let comm = std::fs::read_to_string(format!("/proc/{daemon}/comm")).unwrap();
    assert_eq!(comm, "fzmfs\n", "as pgrep(1) finds it");
    let stat = std::fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap();
    let session: u32 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap().parse().unwrap();
    assert_eq!(session, daemon, "a session of its own");
}

#[test]
fn a_lock_of_the_caller_does_not_live_as_long_as_the_mount() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/fzm/lq1d_f32_noa_rle.fzm");
    let program = env!("CARGO_BIN_EXE_fzmfs");
    let said = sh(
        dir.path(),
        &format!(
            "mkdir mnt; exec 9>lock; flock 9; '{program}' mount '{file}' mnt; exec 9>&-
             flock -n lock echo free || echo held; cmp mnt/info.json <('{program}' info --json '{file}'); '{program}' umount mnt"
        ),
    );
    assert_eq!(said, "free\n");
}

#[test]
fn the_mount_shows_its_type_its_source_and_that_it_is_read_only() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&["fsname=some thing,ro"]);
    let line = sh(mounted.dir.path(), "grep fuse.fzmfs /proc/self/mountinfo | grep -F $PWD/mnt");
    let point = mounted.point.to_str().unwrap();
    assert!(line.contains(&format!("{point} ro,nosuid,nodev,noatime")), "{line}");
    assert!(line.contains(r"- fuse.fzmfs some\040thing,ro ro,"), "{line}");
    assert!(line.contains("default_permissions") && !line.contains("allow_other"), "{line}");
    // Not 256 pages, whatever their size.
    assert!(line.contains("max_read=1048576"), "{line}");
}

#[test]
fn a_second_mount_on_the_same_point_is_refused_and_the_first_goes_on() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&[]);
    let second = mounted.mount_made(&[]);
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(!second.status.success() && said.contains("already mounted"), "{said}");
    assert!(mounted.path("data.raw").is_file());
    sh(mounted.dir.path(), "umount mnt && ! mountpoint -q mnt");
}

#[test]
fn of_two_simultaneous_mounts_on_one_directory_one_succeeds() {
    if !can_mount() {
        return;
    }
    let Mounted { dir, point } = &Mounted::nothing();
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let files = ["zxc/v5_one.zxc", "zstd/z1-len256.zst"].map(|name| data.join(name));
    let is_up = |source: &std::path::Path| {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let ours = mounts.lines().filter(|line| line.split(' ').nth(4) == point.to_str());
        ours.filter(|line| line.contains(source.to_str().unwrap())).count() == 1
    };
    let spawn = || {
        files.each_ref().map(|file| {
            let mut command = fzmfs();
            command.args(["mount", "-f"]).arg(file).arg(point);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        })
    };
    // Both have found the directory free, and wait for their turn.
    let waiting = || {
        let directory = std::fs::File::open(point).unwrap();
        directory.lock().unwrap();
        let begun = Instant::now();
        let mut both = spawn();
        wait_until("both wait", || both.iter().all(|child| opened(child.id(), point) >= 2));
        let (is_up, in_time) = (is_mounted(point), begun.elapsed() < WAITS);
        assert!(!(is_up && in_time));
        if !in_time {
            // One may have mounted before.
            for child in &mut both {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            sh(dir.path(), "while mountpoint -q mnt; do umount -l mnt; done");
        }
        in_time.then_some(both)
    };
    for held in [true, false, false, false, false] {
        let mut both = if held { wait_for("both wait for each other", waiting) } else { spawn() };
        wait_until("one of them gives up", || both.iter_mut().any(|child| child.try_wait().unwrap().is_some()));
        let winner = usize::from(both[0].try_wait().unwrap().is_some());
        let said = both.each_mut()[1 - winner].stderr.take().map(std::io::read_to_string).unwrap().unwrap();
        assert!(said.contains("already mounted"), "{said}");
        assert_eq!(finish(&mut both[1 - winner]).and_then(|status| status.code()), Some(1));
        wait_until("the other is there", || is_up(&files[winner]) && !is_up(&files[1 - winner]));
        wait_until("it answers", || point.join("info.json").is_file());
        sh(dir.path(), &format!("kill -TERM {}", both[winner].id()));
        assert_eq!(finish(&mut both[winner]).and_then(|status| status.code()), Some(0));
        assert!(!is_mounted(point));
    }
}

#[test]
fn a_mount_over_the_directory_of_its_source_works() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let source = dir.path().join("source");
    let want = bytes(3, 0, 100_000);
    std::fs::write(&source, &want).unwrap();
    let output = run(made().arg(dir.path()).arg(format!("source={}", source.display())));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let got = std::fs::read(dir.path().join("stored.bin"));
    sh(std::path::Path::new("/"), &format!("umount -l {}", dir.path().display()));
    assert!(got.unwrap() == want);
}

#[test]
fn a_mount_in_the_foreground_answers_too_and_ends_with_a_signal() {
    if !can_mount() {
        return;
    }
    let Mounted { point, .. } = &Mounted::nothing();
    let mut child = made().arg(point).arg("foreground").stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("mounted", || is_mounted(point));
    let got = std::fs::read(point.join("data.raw"));
    Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    let status = finish(&mut child);
    assert!(status.expect("ends").success());
    assert!(!is_mounted(point));
    assert!(got.unwrap() == bytes(DATA, 0, 8 << 20));
}

#[test]
fn the_readahead_of_the_kernel_is_raised() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&[]);
    let kb = sh(mounted.dir.path(), "cat /sys/class/bdi/$(mountpoint -d mnt)/read_ahead_kb");
    assert_eq!(kb.trim(), "1024");
}

#[test]
fn systemd_is_notified_when_the_mount_answers() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let point = dir.path().join("mnt");
    std::fs::create_dir(&point).unwrap();
    let socket = std::os::unix::net::UnixDatagram::bind(dir.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut child = made()
        .arg(&point)
        .arg("foreground")
        .env("NOTIFY_SOCKET", dir.path().join("notify"))
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut text = [0; 100];
    let got = socket.recv(&mut text);
    let answers = point.join("data.raw").is_file();
    Command::new("umount").arg(&point).status().unwrap();
    finish(&mut child);
    assert_eq!(&text[..got.unwrap()], b"READY=1");
    assert!(answers);
}

#[test]
fn a_daemon_that_is_killed_as_soon_as_it_is_mounted_ends() {
    if !can_mount() {
        return;
    }
    // It once waited for an answer of its own, some time after the mount was there, and was not to be killed then.
    for later in (0..40).map(|n| n * Duration::from_micros(100)) {
        let mounted = Mounted::nothing();
        let mut mount = fzmfs();
        mount.args(["mount", "--foreground", "tests/data/fzm/preset_cusz.fzm"]).arg(&mounted.point);
        let mut daemon = mount.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let end = Instant::now() + PATIENCE;
        while !mounted.is_mounted() {
            assert!(Instant::now() < end && daemon.try_wait().unwrap().is_none(), "it is not mounted");
        }
        std::thread::sleep(later);
        daemon.kill().unwrap();
        wait_until("it ends", || daemon.try_wait().unwrap().is_some());
    }
}
