//! fio reads a file through every engine and checks each block that it wrote itself.

use std::process::Command;
use std::time::Duration;

use crate::support::mounts::{Mounted, can_mount, has, run_within, sh};

#[test]
fn fio_finds_every_block_as_it_wrote_it() {
    if !can_mount() || !has("fio") {
        return;
    }
    let dir = tempfile::TempDir::new().unwrap();
    let write = "fio --name=w --filename=source --size=24m --bs=64k --rw=write --verify=crc32c --do_verify=0 --ioengine=psync >fio.log";
    sh(dir.path(), write);
    let mounted = Mounted::made(&[&format!("source={}/source", dir.path().display())]);
    for (engine, direct) in
        [("psync", 0), ("psync", 1), ("mmap", 0), ("libaio", 0), ("libaio", 1), ("io_uring", 0), ("io_uring", 1)]
    {
        let mut fio = Command::new("fio");
        fio.args([
            "--name=r",
            "--size=24m",
            "--bs=64k",
            "--rw=randread",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--readonly",
        ]);
        fio.arg(format!("--filename={}", mounted.path("stored.bin").display()));
        fio.arg(format!("--ioengine={engine}")).arg(format!("--direct={direct}")).arg("--iodepth=8");
        let output = run_within(Duration::from_secs(60), fio.current_dir(dir.path()));
        let said = String::from_utf8_lossy(&output.stderr);
        let absent = said.contains("not loadable") || said.contains("Operation not permitted");
        if absent && engine == "io_uring" {
            crate::support::mounts::skip("io_uring", "not available here");
            continue;
        }
        assert!(output.status.success(), "{engine} {direct}: {said}");
        sh(mounted.dir.path(), "echo 1 > /proc/sys/vm/drop_caches");
    }
}
