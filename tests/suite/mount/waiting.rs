//! While one request waits, whatever for, the others are answered: seen by what has come and what not, not by a clock.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::made::{DATA, SLOW, SLOW_PIECES, SMALL_PIECE, bytes};
use crate::support::mounts::{Mounted, can_mount, run, sh};

/// Programs that run until they are let go.
struct Held {
    done: Arc<AtomicUsize>,
    threads: Vec<thread::JoinHandle<Output>>,
}

impl Held {
    fn start(mounted: &Mounted, lines: &[&str]) -> Self {
        let done = Arc::new(AtomicUsize::new(0));
        let start = |line: &&str| {
            let (done, dir, line) = (done.clone(), mounted.dir.path().to_owned(), (*line).to_owned());
            thread::spawn(move || {
                let output = run(Command::new("bash").arg("-euc").arg(line).current_dir(dir));
                done.fetch_add(1, Ordering::SeqCst);
                output
            })
        };
        let threads = lines.iter().map(start).collect();
        Self { done, threads }
    }
}

#[test]
fn every_call_is_answered_while_a_decode_a_length_a_listing_and_the_container_are_waited_for() {
    if !can_mount() {
        return;
    }
    let (mounted, hold) = Mounted::held(&["entries=500", "threads=4", "slow=0"]);
    // One piece is there.
    sh(mounted.dir.path(), "head -c 100 mnt/data.raw >/dev/null");
    // Several for each, so that whatever a request holds would be used up.
    let mut lines = Vec::new();
    for _ in 0..6 {
        lines.extend(["cat mnt/held/inner/inside.raw", "getfattr --only-values -n user.fzmfs.format mnt"]);
        lines.extend(["stat -c %s mnt/counted.raw", "tail -c 1000 mnt/held.raw"]);
    }
    let held = Held::start(&mounted, &lines);
    let pid = mounted.daemon();
    // Read in order: those that follow are prepared, which waits, and takes one thread at most.
    sh(mounted.dir.path(), "cat mnt/held/numbered/0000{00..07}.raw | cksum");
    for what in ["length", "piece", "listing", "info", "file"] {
        hold.wait_for(what);
    }
    for line in [
        "stat mnt mnt/data.raw mnt/link mnt/info.json mnt/many mnt/names",
        "ls -l mnt/many mnt/names",
        "stat mnt/many/000007.raw mnt/names/name7.raw",
        "! stat mnt/none 2>/dev/null",
        "! stat mnt/many/999999.raw 2>/dev/null",
        "readlink mnt/link",
        "df mnt",
        "cat mnt/many/000008.raw mnt/names/name8.raw mnt/info.json | cksum",
        "getfattr -d mnt/data.raw mnt/many/000009.raw",
        "getfattr --only-values -n user.fzmfs.decoder mnt",
        "tail -c 1000 mnt/slow.raw | cksum",
    ] {
        sh(mounted.dir.path(), line);
    }
    let data = std::fs::read(mounted.path("data.raw")).unwrap();
    assert_eq!(data, bytes(DATA, 0, data.len() as u64));
    assert_eq!(held.done.load(Ordering::SeqCst), 0, "they were waiting all the time");
    assert_eq!(pid, mounted.daemon());
    drop(hold);
    let len = SLOW_PIECES * SMALL_PIECE;
    let want = [bytes(1000, 0, 100), b"made".to_vec(), format!("{len}\n").into(), bytes(SLOW, len - 1000, 1000)];
    for (output, want) in held.threads.into_iter().zip(want.iter().cycle()) {
        let output = output.join().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.stdout, *want);
    }
}
