//! A container that is cut, rewritten, replaced or deleted while it is mounted.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc;

use crate::support::made::{DATA, bytes};
use crate::support::mounts::{Mounted, can_mount, fzmfs, is_alive, run, sh, wait_until};

const SIZE: u64 = 6_000_000;

/// A mount whose `stored.bin` is a separate file.
fn mounted() -> (Mounted, PathBuf, tempfile::TempDir) {
    let dir = tempfile::TempDir::new().unwrap();
    let source = dir.path().join("source");
    std::fs::write(&source, bytes(9, 0, SIZE)).unwrap();
    (Mounted::made(&[&format!("source={}", source.display())]), source, dir)
}

/// After `change`, nothing is served that could be wrong, and the daemon lives.
fn check_refused(change: impl FnOnce(&File)) {
    let (mounted, source, _dir) = mounted();
    let open = File::open(mounted.path("stored.bin")).unwrap();
    let mut got = vec![0; 100_000];
    open.read_exact_at(&mut got, 0).unwrap();
    assert!(got == bytes(9, 0, 100_000));
    change(&OpenOptions::new().write(true).open(&source).unwrap());
    // The kernel drops its pages soon, even if no request reaches the daemon.
    wait_until("the pages are no longer served", || open.read_exact_at(&mut got, 0).is_err());
    let error = open.read_exact_at(&mut [0; 100], SIZE - 200).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    for name in ["stored.bin", "data.raw"] {
        let error = File::open(mounted.path(name)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{name}");
    }
    let log = mounted.logged();
    assert_eq!(log.matches("changed while it was mounted").count(), 1, "{log}");
    assert!(is_alive(mounted.daemon()));
    let listed = run(fzmfs().arg("list").arg(&mounted.point)).stdout;
    assert!(String::from_utf8_lossy(&listed).contains("its source has changed, so reads fail"));
    assert_eq!(mounted.path("stored.bin").metadata().unwrap().len(), SIZE);
}

#[test]
fn a_truncated_container_is_no_longer_served() {
    if !can_mount() {
        return;
    }
    check_refused(|source| source.set_len(SIZE / 2).unwrap());
}

#[test]
fn a_container_that_is_written_to_is_no_longer_served() {
    if !can_mount() {
        return;
    }
    check_refused(|source| source.write_all_at(b"something else", SIZE / 2).unwrap());
}

#[test]
fn old_and_new_bytes_are_never_mixed() {
    if !can_mount() {
        return;
    }
    let (mounted, source, _dir) = mounted();
    let open = File::open(mounted.path("stored.bin")).unwrap();
    // The whole file is overwritten in place while it is read: old bytes or an error, nothing else.
    let (begin, begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let source = &source;
        scope.spawn(move || {
            begun.recv().unwrap();
            OpenOptions::new().write(true).open(source).unwrap().write_all_at(&bytes(10, 0, SIZE), 0).unwrap();
        });
        for round in 0..200 {
            if round == 20 {
                begin.send(()).unwrap();
            }
            sh(mounted.dir.path(), "true");
            let at = round * 29_000;
            let mut got = vec![0; 29_000];
            if open.read_exact_at(&mut got, at).is_ok() {
                assert!(got == bytes(9, at, 29_000), "round {round}");
            }
        }
    });
    assert!(is_alive(mounted.daemon()));
}

#[test]
fn a_container_that_is_replaced_or_deleted_stays_readable() {
    if !can_mount() {
        return;
    }
    let (mounted, source, dir) = mounted();
    let open = File::open(mounted.path("stored.bin")).unwrap();
    let other = dir.path().join("other");
    std::fs::write(&other, bytes(11, 0, SIZE)).unwrap();
    std::fs::rename(&other, &source).unwrap();
    std::fs::remove_file(&source).unwrap();
    let mut got = vec![0; SIZE as usize];
    open.read_exact_at(&mut got, 0).unwrap();
    assert!(got == bytes(9, 0, SIZE));
    assert!(std::fs::read(mounted.path("stored.bin")).unwrap() == got);
    assert!(std::fs::read(mounted.path("data.raw")).unwrap() == bytes(DATA, 0, 8 << 20));
    assert_eq!(mounted.logged().matches("changed").count(), 0, "{}", mounted.logged());
}

#[test]
fn a_mapping_of_a_changed_file_ends_its_reader_and_not_the_daemon() {
    if !can_mount() || !crate::support::mounts::has("python3") {
        return;
    }
    let (mounted, source, _dir) = mounted();
    let program = format!(
        "
import mmap, os, sys
f = open('mnt/stored.bin', 'rb')
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
a = m[100]
os.truncate('{}', 1000)
while True: # until the change is noticed
    sum(m[i] for i in range(0, len(m), 4096))
",
        source.display()
    );
    std::fs::write(mounted.dir.path().join("program.py"), program).unwrap();
    // Killed by SIGBUS, as with any file that is cut under a mapping.
    let status = sh(mounted.dir.path(), "python3 program.py 2>/dev/null && echo lived || echo $?");
    assert_eq!(status.trim(), (128 + libc::SIGBUS).to_string());
    assert!(is_alive(mounted.daemon()));
    assert!(mounted.path("stored.bin").metadata().is_ok());
}
