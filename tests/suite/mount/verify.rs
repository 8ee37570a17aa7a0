//! fio reads a file through every engine and checks each block that it wrote itself.

use std::process::Command;

use crate::support::mounts::{Mounted, can_mount, has, run, sh, skip};

/// Reads with each of `engines`, in the page cache and past it.
fn verify(engines: &[&str]) {
    if !can_mount() || !has("fio") {
        return;
    }
    let dir = tempfile::TempDir::new().unwrap();
    let write = "fio --name=w --filename=source --size=24m --bs=64k --rw=write --verify=crc32c --do_verify=0 --ioengine=psync >fio.log";
    sh(dir.path(), write);
    let mounted = Mounted::made(&[&format!("source={}/source", dir.path().display())]);
    for engine in engines {
        // A mapping is of the page cache.
        for direct in if *engine == "mmap" { 0..=0 } else { 0..=1 } {
            let mut fio = Command::new("fio");
            fio.args(["--name=r", "--size=24m", "--bs=64k", "--rw=randread"]);
            fio.args(["--verify=crc32c", "--verify_fatal=1", "--readonly", "--iodepth=8"]);
            fio.arg(format!("--filename={}", mounted.path("stored.bin").display()));
            fio.arg(format!("--ioengine={engine}")).arg(format!("--direct={direct}"));
            let output = run(fio.current_dir(dir.path()));
            let said = String::from_utf8_lossy(&output.stderr);
            if *engine == "io_uring" && (said.contains("not loadable") || said.contains("Operation not permitted")) {
                return skip("io_uring", "not available here");
            }
            assert!(output.status.success(), "{engine} {direct}: {said}");
            // The kernel forgets the pages of this file, and of no other.
            sh(mounted.dir.path(), "dd if=mnt/stored.bin iflag=nocache count=0 status=none");
        }
    }
}

#[test]
fn fio_finds_every_block_as_it_wrote_it() {
    verify(&["psync", "mmap", "libaio"]);
}

#[test]
fn fio_finds_every_block_through_io_uring() {
    verify(&["io_uring"]);
}
