//! The end of a mount: asked for, forced, or by accident.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::made::{DATA, SLOW, SLOW_PIECES, SMALL_PIECE, bytes};
use crate::support::mounts::{Mounted, can_mount, fzmfs, is_alive, is_mounted, run, send, sh, wait_until};

/// Open files have more time to finish than this test waits for anything.
const FOREVER: &str = "grace=3600";

#[test]
fn a_dead_mount_of_another_program_is_detached_with_another_program() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    // Its daemon is this shell.
    let options = "fd=3,rootmode=40000,user_id=0,group_id=0";
    sh(place.dir.path(), &format!("mount -i -t fuse.other -o {options} other mnt 3<>/dev/fuse"));
    for point in ["mnt", place.point.to_str().unwrap()] {
        let output = run(fzmfs().current_dir(place.dir.path()).args(["mount", "/etc", point]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let advice =
            format!("{point}: a dead fuse.other mount, whose daemon is gone, is there; detach it with: fusermount3 -u");
        assert!(said.contains(&advice), "{said}");
    }
}

#[test]
fn umount_returns_when_the_daemon_is_gone() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&[]);
    let daemon = mounted.daemon();
    let output = run(fzmfs().arg("umount").arg(&mounted.point));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!is_alive(daemon) && !mounted.is_mounted());
    let again = run(fzmfs().arg("umount").arg(&mounted.point));
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("nothing is mounted"));
}

#[test]
fn umount_while_a_file_is_open_says_what_to_do_and_works_afterwards() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&["size=20000000", "cache=1000000"]);
    // Open in a program of its own, for the reason that `read_apart` has.
    let umount = format!("'{}' umount mnt 2>&1 || echo \"status $?\"", env!("CARGO_BIN_EXE_fzmfs"));
    let said = sh(mounted.dir.path(), &format!("exec 7<mnt/data.raw; {umount}; cat <&7 >all"));
    assert!(said.contains("in use") && said.contains("fuser -vm") && said.ends_with("status 1\n"), "{said}");
    assert!(std::fs::read(mounted.dir.path().join("all")).unwrap() == bytes(DATA, 0, 20_000_000));
    let output = run(fzmfs().arg("umount").arg(&mounted.point));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn umount_of_one_of_two_mount_points_names_the_other_one() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&[]);
    sh(mounted.dir.path(), "mkdir other && mount --bind mnt other");
    let output = run(fzmfs().arg("umount").arg(&mounted.point));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("/other, so the daemon continues"), "{said}");
    assert!(!mounted.is_mounted());
    let output = run(fzmfs().arg("umount").arg(mounted.dir.path().join("other")));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn umount_waits_for_no_source_that_does_not_answer() {
    if !can_mount() {
        return;
    }
    let below = Mounted::made(&[]);
    let above = Mounted::nothing();
    let output = run(fzmfs().arg("mount").arg(&below.point).arg(&above.point));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let daemon = above.daemon();
    let source = below.signal("STOP");
    // The kernel keeps the mode of the root for half a second. With less than that, the test would pass for no reason.
    std::thread::sleep(Duration::from_millis(600));
    let output = run(fzmfs().arg("umount").arg(&above.point));
    send(source, "CONT");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!is_alive(daemon));
}

#[test]
fn umount_in_another_pid_namespace_waits_for_no_process_that_it_cannot_see_and_says_so() {
    if !can_mount() {
        return;
    }
    let place = Mounted::nothing();
    let (dir, program) = (place.dir.path(), env!("CARGO_BIN_EXE_fzmfs"));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/fzm/bp_u16_1.fzm");
    let apart = "unshare --pid --fork --mount-proc --propagation unchanged";
    // Mounts made and removed in one mount namespace are so in the other.
    sh(dir, "mount -t tmpfs none mnt && mount --make-shared mnt && mkdir mnt/in && mkfifo mnt/go");
    let said = sh(dir, &format!("'{program}' mount '{file}' mnt/in && {apart} '{program}' umount mnt/in 2>&1"));
    assert!(said.contains("mnt/in: unmounted; its daemon is in another PID namespace"), "{said}");
    assert!(!is_mounted(&place.path("in")));
    // The id of the daemon is that of another process here, or of none.
    let line = format!(
        "{apart} sh -c \"'{program}' mount '{file}' mnt/in; echo >mnt/go; read x <mnt/go\" & read x <mnt/go; \
         '{program}' umount mnt/in; echo >mnt/go; wait"
    );
    sh(dir, &line);
    assert!(!is_mounted(&place.path("in")));
}

#[test]
fn umount_by_others_ends_the_daemon() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&[]);
    let daemon = mounted.daemon();
    sh(mounted.dir.path(), "umount mnt && mount -t tmpfs none mnt");
    wait_until("the daemon ends", || !is_alive(daemon));
    // And does not touch what is mounted there since.
    assert!(mounted.is_mounted());
}

/// Eight readers go over the whole file again and again until told to stop; gives the reads that failed.
fn busy_readers(mounted: &Mounted, then: impl FnOnce()) -> Vec<std::io::Error> {
    const SIZE: u64 = 16 << 20;
    // Reads of each reader, before and after something happens: enough to be in the middle of one.
    const READS: u64 = 50;
    let stop = AtomicBool::new(false);
    let reads = [const { AtomicU64::new(0) }; 8];
    let read_more = || {
        let before = reads.each_ref().map(|n| n.load(Ordering::Relaxed));
        let all = || reads.iter().zip(before).all(|(n, before)| n.load(Ordering::Relaxed) >= before + READS);
        wait_until("readers go on", all);
    };
    let files: Vec<File> = (0..8).map(|_| File::open(mounted.path("data.raw")).unwrap()).collect();
    std::thread::scope(|scope| {
        let readers: Vec<_> = files
            .into_iter()
            .enumerate()
            .map(|(i, file)| {
                let (stop, reads) = (&stop, &reads[i]);
                scope.spawn(move || {
                    let mut failures = Vec::new();
                    let mut at = i as u64 * 1_234_567 % SIZE;
                    let mut got = vec![0; 65536];
                    while !stop.load(Ordering::Relaxed) {
                        at = (at + 65_536 * 7) % (SIZE - 65_536);
                        match file.read_exact_at(&mut got, at) {
                            Ok(()) => assert!(got == bytes(DATA, at, 65_536)),
                            Err(e) => failures.push(e),
                        }
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                    failures
                })
            })
            .collect();
        read_more();
        then();
        // Still within the time that they are given, and busy.
        read_more();
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().flat_map(|r| r.join().unwrap()).collect()
    })
}

#[test]
fn no_read_fails_when_a_signal_ends_the_mount_under_busy_readers() {
    if !can_mount() {
        return;
    }
    for signal in ["TERM", "INT", "HUP"] {
        let mounted = Mounted::made(&["size=16777216", "cache=3000000", FOREVER]);
        let mut daemon = 0;
        let failures = busy_readers(&mounted, || {
            daemon = mounted.signal(signal);
            wait_until("out of the tree", || !mounted.is_mounted());
            sh(mounted.dir.path(), "[ -z \"$(ls mnt)\" ]");
        });
        assert!(failures.is_empty(), "{signal}: {} reads failed, the first with {}", failures.len(), failures[0]);
        wait_until("ends when the last file is closed", || !is_alive(daemon));
    }
}

#[test]
fn a_second_signal_does_not_wait_for_open_files() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&[FOREVER]);
    let file = File::open(mounted.path("data.raw")).unwrap();
    let daemon = mounted.signal("TERM");
    wait_until("detached", || !mounted.is_mounted());
    assert!(is_alive(daemon));
    sh(mounted.dir.path(), &format!("kill -TERM {daemon}"));
    wait_until("the daemon ends", || !is_alive(daemon));
    let error = file.read_exact_at(&mut [0; 10], 5_000_000).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
}

#[test]
fn a_second_signal_waits_neither_for_a_decode_nor_for_the_time_that_open_files_have() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&["slow=3600000", FOREVER]);
    let file = File::open(mounted.path("slow.raw")).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| file.read_exact_at(&mut [0; 10], 0));
        mounted.wait_for_decode();
        let daemon = mounted.signal("TERM");
        wait_until("detached", || !mounted.is_mounted());
        assert!(is_alive(daemon));
        sh(mounted.dir.path(), &format!("kill -HUP {daemon}"));
        wait_until("the daemon ends", || !is_alive(daemon));
        assert!(reader.join().unwrap().is_err());
    });
    assert!(mounted.logged().contains("ended by a second signal, SIGHUP"), "{}", mounted.logged());
}

#[test]
fn open_files_have_a_limited_time_to_finish() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&["grace=1"]);
    let file = File::open(mounted.path("data.raw")).unwrap();
    let daemon = mounted.signal("TERM");
    wait_until("the daemon ends", || !is_alive(daemon));
    assert!(mounted.logged().contains("files were still open after 1 s"), "{}", mounted.logged());
    drop(file);
}

#[test]
fn a_killed_daemon_leaves_a_dead_mount_that_umount_clears_and_a_mount_names() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&[]);
    let file = File::open(mounted.path("data.raw")).unwrap();
    let daemon = mounted.signal("KILL");
    wait_until("the daemon ends", || !is_alive(daemon));
    wait_until("dead", || {
        std::fs::metadata(mounted.path("x")).is_err_and(|e| e.raw_os_error() == Some(libc::ENOTCONN))
    });
    assert!(file.read_exact_at(&mut [0; 10], 5_000_000).is_err());
    let again = mounted.mount_made(&[]);
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(!again.status.success() && said.contains("dead mount") && said.contains("fzmfs umount"), "{said}");
    let output = run(fzmfs().arg("umount").arg(&mounted.point));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(mounted.mount_made(&[]).status.success());
    assert!(std::fs::read(mounted.path("data.raw")).unwrap() == bytes(DATA, 0, 8 << 20));
}

#[test]
fn auto_unmount_clears_the_mount_of_a_killed_daemon() {
    if !can_mount() {
        return;
    }
    // Again and again: the helper looks once, and must not be earlier than the end of the connection.
    for round in 0..10 {
        let mounted = Mounted::made(&["auto_unmount"]);
        let file = File::open(mounted.path("data.raw")).unwrap();
        assert!(std::fs::read(mounted.path("info.json")).is_ok());
        if round % 2 == 0 {
            // A kernel that opens directories without the daemon opens those of a dead mount as well.
            sh(mounted.dir.path(), "ls mnt");
        }
        mounted.signal("KILL");
        wait_until("the mount goes", || !mounted.is_mounted());
        drop(file);
    }
}

#[test]
fn auto_unmount_ends_with_a_signal_and_with_umount_as_any_mount() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&["auto_unmount"]);
    let daemon = mounted.signal("TERM");
    wait_until("the mount ends", || !is_alive(daemon) && !mounted.is_mounted());
    assert!(mounted.mount_made(&["auto_unmount"]).status.success());
    let daemon = mounted.daemon();
    let output = run(fzmfs().arg("umount").arg(&mounted.point));
    assert!(output.status.success() && !is_alive(daemon), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_mount_that_was_moved_is_detached_where_it_is() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&[]);
    let there = mounted.dir.path().join("there");
    std::fs::create_dir(&there).unwrap();
    // A mount below a shared one cannot be moved, but bound.
    sh(mounted.dir.path(), "mount --bind mnt there");
    let daemon = mounted.signal("TERM");
    wait_until("the daemon ends", || !is_alive(daemon));
    sh(mounted.dir.path(), "! mountpoint -q there || umount -l there");
}

#[test]
fn an_aborted_connection_ends_the_daemon() {
    if !can_mount() {
        return;
    }
    let (mounted, hold) = Mounted::held(&[]);
    let daemon = mounted.daemon();
    let file = File::open(mounted.path("held.raw")).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| file.read_exact_at(&mut [0; 100], 3 * SMALL_PIECE));
        hold.wait_for("piece");
        // Aborts the connection as the control file system would.
        sh(mounted.dir.path(), "umount -f mnt || true");
        assert!(reader.join().unwrap().is_err());
    });
    drop(hold);
    wait_until("the daemon ends", || !is_alive(daemon));
}

#[test]
fn slow_pieces_that_are_being_decoded_are_delivered_after_a_signal() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&["slow=400", FOREVER]);
    let file = File::open(mounted.path("slow.raw")).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut got = vec![0; (SLOW_PIECES * SMALL_PIECE) as usize];
            file.read_exact_at(&mut got, 0).map(|()| got)
        });
        mounted.wait_for_decode();
        mounted.signal("TERM");
        assert!(reader.join().unwrap().unwrap() == bytes(SLOW, 0, SLOW_PIECES * SMALL_PIECE));
    });
}
