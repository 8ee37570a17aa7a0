//! `idle=`: a mount that nobody uses ends by itself, and one that somebody uses does not.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::made::{DATA, bytes};
use crate::support::mounts::{Mounted, can_mount, finish, fzmfs, made, run, sh, wait_for, wait_for_mount, wait_until};

/// Mounts a made container with `idle=` in milliseconds, and logs when it is idle and in use all the same.
fn mount(place: &Mounted, words: &[&str]) {
    let log = format!("log={}", place.log().display());
    let output = run(made().env("FZMFS_LOG", "debug,fuser=off").arg(&place.point).args(words).arg(log));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Starts a shell in the directory of the mount point; it waits for a line where it says `read`.
fn shell(place: &Mounted, line: &str) -> Child {
    let mut shell = Command::new("bash");
    shell.arg("-euc").arg(line).current_dir(place.dir.path()).stdin(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_mount_without_use_ends_with_its_daemon() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/fzm/lq1d_f32_noa_rle.fzm");
    let mut command = fzmfs();
    command.args(["mount", file]).arg(&place.point).args(["-d", "-o", "idle=1", "--log"]).arg(place.log());
    let mut daemon = command.spawn().unwrap();
    wait_for_mount(&place.log());
    let status = finish(&mut daemon);
    assert!(status.is_some_and(|s| s.success()) && !place.is_mounted(), "{}", place.logged());
    assert!(place.logged().contains("unmounted after 1s without use"), "{}", place.logged());
}

/// A mount that is in use by a shell which has run `line`. The mount may end before that: then there is another one.
fn used(place: &Mounted, line: &str) -> Child {
    let begun = place.dir.path().join("begun");
    let mut idle = 50;
    wait_for("in use", || {
        mount(place, &[&format!("idle={idle}"), "size=3000000"]);
        idle *= 2;
        let line =
            format!("p=$PWD; {line}; [ -e $p/mnt/data.raw ]; echo x >$p/begun; read x; cat $p/mnt/data.raw >$p/all");
        let mut shell = shell(place, &line);
        let mut ended = false;
        wait_until("in use, or too late", || {
            ended = shell.try_wait().unwrap().is_some();
            ended || begun.exists()
        });
        if ended {
            wait_until("the mount ends", || !place.is_mounted());
        }
        (!ended).then_some(shell)
    })
}

#[test]
fn an_open_file_keeps_the_mount_and_so_does_a_current_directory() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    for (line, refused) in [("exec 7<mnt/data.raw", false), ("cd mnt", true), ("exec 7<mnt", true)] {
        let mut shell = used(&place, line);
        let times = || place.logged().matches("idle, but not unmounted").count();
        let before = times();
        wait_until("it is idle more than once", || !refused || times() > before + 2);
        assert!(place.is_mounted(), "{line}");
        std::io::Write::write_all(&mut shell.stdin.take().unwrap(), b"x\n").unwrap();
        assert!(finish(&mut shell).is_some_and(|s| s.success()), "{line}");
        assert!(std::fs::read(place.dir.path().join("all")).unwrap() == bytes(DATA, 0, 3_000_000), "{line}");
        wait_until("the mount ends", || !place.is_mounted());
        sh(place.dir.path(), "rm begun all");
    }
}

#[test]
fn a_file_opens_and_is_read_or_is_not_found_when_the_mount_ends_at_that_moment() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    for round in 0..30 {
        mount(&place, &["idle=8", "size=100000"]);
        // At another moment each time, until the mount is gone.
        for pause in (6_000 + 50 * round..).step_by(211) {
            match File::open(place.path("data.raw")) {
                Ok(file) => {
                    let mut got = vec![0; 1000];
                    file.read_exact_at(&mut got, 50_000).unwrap();
                    assert!(got == bytes(DATA, 50_000, 1000));
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
                    break;
                }
            }
            std::thread::sleep(Duration::from_micros(pause));
        }
        wait_until("the mount is gone", || !place.is_mounted());
    }
}

#[test]
fn what_watches_all_mounts_does_not_keep_one() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    mount(&place, &["idle=300"]);
    wait_until("the mount ends", || {
        // Each may find it gone.
        run(Command::new("stat").arg("-f").arg(&place.point));
        run(fzmfs().arg("list").arg(&place.point));
        !place.is_mounted()
    });
}
