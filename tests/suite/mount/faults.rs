//! Pieces that are broken, slow or make the decoder panic: only their readers are affected.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use crate::support::made::{BROKEN, BROKEN_PIECES, DATA, FRAGILE, SLOW, SMALL_PIECE, bytes};
use crate::support::mounts::{Mounted, can_mount, finish, is_alive, opened, sh, wait_until};

#[test]
fn a_broken_piece_gives_eio_and_the_rest_stays_readable() {
    if !can_mount() {
        return;
    }
    for name in ["broken.raw", "panics.raw"] {
        let mounted = Mounted::made(&[]);
        let file = File::open(mounted.path(name)).unwrap();
        for piece in 0..BROKEN_PIECES {
            let mut got = vec![0; SMALL_PIECE as usize];
            let result = file.read_exact_at(&mut got, piece * SMALL_PIECE);
            if piece == BROKEN {
                assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EIO), "{name}");
            } else {
                result.unwrap();
                assert!(got == bytes(FRAGILE, piece * SMALL_PIECE, SMALL_PIECE), "{name} piece {piece}");
            }
        }
        // A reader in order gets everything before the break.
        let got = sh(mounted.dir.path(), &format!("cat mnt/{name} 2>/dev/null | wc -c"));
        assert_eq!(got.trim(), (BROKEN * SMALL_PIECE).to_string());
        assert!(std::fs::read(mounted.path("data.raw")).unwrap() == bytes(DATA, 0, 8 << 20));
        assert_eq!(mounted.path(name).metadata().unwrap().len(), BROKEN_PIECES * SMALL_PIECE);
    }
}

#[test]
fn a_broken_piece_is_logged_once() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&[]);
    for _ in 0..5 {
        sh(mounted.dir.path(), "cat mnt/broken.raw >/dev/null 2>&1 || true");
    }
    let log = mounted.logged();
    assert_eq!(log.matches("made to fail").count(), 1, "{log}");
    assert!(log.contains("at byte 0x2"), "{log}");
}

#[test]
fn other_files_answer_while_pieces_decode() {
    if !can_mount() {
        return;
    }
    // More readers of pieces than there are workers and event loops: if those decoded, nobody would be answered.
    let (mounted, hold) = Mounted::held(&["threads=2", "entries=100"]);
    let held = File::open(mounted.path("held.raw")).unwrap();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..8)
            .map(|piece| {
                let held = &held;
                scope.spawn(move || {
                    let mut got = [0; 4096];
                    held.read_exact_at(&mut got, piece * SMALL_PIECE).unwrap();
                    assert_eq!(got[..], bytes(SLOW, piece * SMALL_PIECE, 4096));
                })
            })
            .collect();
        hold.wait_for("piece");
        for i in 0..100 {
            std::fs::metadata(mounted.path(&format!("many/{i:06}.raw"))).unwrap();
            std::fs::read(mounted.path(&format!("many/{i:06}.raw"))).unwrap();
        }
        assert!(readers.iter().all(|reader| !reader.is_finished()), "they were waiting all the time");
        drop(hold);
    });
}

#[test]
fn a_reader_of_a_slow_piece_can_be_killed() {
    if !can_mount() {
        return;
    }
    for signal in ["INT", "KILL"] {
        let mounted = Mounted::made(&["slow=1500"]);
        let mut reader = Command::new("cat")
            .arg(mounted.path("slow.raw"))
            .stdout(Stdio::null())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        mounted.wait_for_decode();
        sh(mounted.dir.path(), &format!("kill -{signal} {}", reader.id()));
        assert!(finish(&mut reader).is_some(), "{signal}: it hangs");
        // Answers without a reader do the daemon no harm.
        assert!(is_alive(mounted.daemon()));
        assert!(std::fs::read(mounted.path("data.raw")).unwrap() == bytes(DATA, 0, 8 << 20));
    }
}

#[test]
fn one_slow_piece_is_decoded_once_for_all_its_readers() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&["slow=500"]);
    let slow = File::open(mounted.path("slow.raw")).unwrap();
    std::thread::scope(|scope| {
        for i in 0..32 {
            let slow = &slow;
            scope.spawn(move || slow.read_exact_at(&mut [0; 100], 5 * SMALL_PIECE + i * 8192).unwrap());
        }
    });
    assert_eq!(mounted.decodes(Some(5)), 1, "{}", mounted.logged());
}

#[test]
fn files_closed_while_they_are_read_do_no_harm() {
    if !can_mount() {
        return;
    }
    let (mounted, hold) = Mounted::held(&[]);
    let (daemon, path) = (mounted.daemon(), mounted.path("held.raw"));
    for _ in 0..10 {
        let mut reader = Command::new("cat").arg(&path).stdout(Stdio::null()).stdin(Stdio::null()).spawn().unwrap();
        wait_until("it is open", || opened(reader.id(), &path) > 0);
        reader.kill().unwrap();
        assert!(finish(&mut reader).is_some(), "it hangs");
    }
    assert!(is_alive(daemon));
    sh(mounted.dir.path(), "umount -l mnt");
    drop(hold);
    wait_until("the daemon ends", || !is_alive(daemon));
}
