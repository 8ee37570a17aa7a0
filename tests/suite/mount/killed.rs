//! Programs that are killed while a mounted stream is decoded for its size, or for the members of the archive in it.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::mounts::{Mounted, can_mount, finish, fzmfs, run, sh, wait_until};
use crate::tar_blocks::header;

/// Members of the archive: far more than is decoded while a test runs.
const MEMBERS: usize = 16_384;
/// Blocks of a member, and their bytes.
const BLOCKS: u32 = 512;
const BLOCK: u32 = 128 << 10;

/// An archive of 1 TiB in one frame of 42 MB that does not state its size, with a member in every 64 MiB.
fn stream() -> Vec<u8> {
    let block = |kind: u32, size: u32, bytes: &[u8]| [&(kind << 1 | size << 3).to_le_bytes()[..3], bytes].concat();
    // Of no checksum, and a window of 128 KiB.
    let mut stream = vec![0x28, 0xB5, 0x2F, 0xFD, 0, 0x38];
    let content = block(1, BLOCK, b"x").repeat(BLOCKS as usize);
    for i in 0..MEMBERS {
        let header = header(&format!("{i:06}.txt"), b'0', u64::from(BLOCKS * BLOCK), "");
        stream.extend(block(0, 512, &header));
        stream.extend_from_slice(&content);
    }
    // The last one.
    stream.extend([1, 0, 0]);
    stream
}

/// Clock ticks that a process has used.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Whether a process uses little of a processor for a while.
fn rests(pid: u32) -> bool {
    let before = ticks(pid);
    std::thread::sleep(Duration::from_millis(500));
    ticks(pid) - before < 10
}

fn start(mounted: &Mounted, line: &str) -> Child {
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("exec {line}")).current_dir(&mounted.point);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn works(mounted: &Mounted) {
    wait_until("the daemon decodes", || !rests(mounted.daemon()));
}

#[test]
fn a_program_that_is_killed_while_a_stream_is_measured_or_an_archive_listed_ends_at_once_and_so_does_the_work() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::nothing();
    let source = mounted.dir.path().join("files");
    fs::create_dir(&source).unwrap();
    let mut stream = stream();
    fs::write(source.join("x.tar.zst"), &stream).unwrap();
    // With a broken block before the last, only decoding tells the size.
    stream.splice(stream.len() - 3.., [0x24, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0]);
    fs::write(source.join("y.log.zst"), &stream).unwrap();
    drop(stream);
    let cases: [(&str, &[&str], &[&str]); 3] = [
        ("files", &["-o", "layout=plain"], &["ls x.tar", "stat y.log"]),
        ("files", &[], &["ls x.tar.zst/x.tar", "stat y.log.zst/data.raw", "head -c 1 y.log.zst/y.log"]),
        ("files/y.log.zst", &["-o", "layout=plain"], &["stat y.log"]),
    ];
    for (file, words, lines) in cases {
        let mut command = fzmfs();
        command.arg("mount").arg(mounted.dir.path().join(file)).arg(&mounted.point).args(words);
        let output = run(command.args(["-o", "index=off", "--log"]).arg(mounted.log()));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for line in lines {
            let mut first = start(&mounted, line);
            works(&mounted);
            let mut second = start(&mounted, line);
            // Another one still waits: the work goes on for it.
            first.kill().unwrap();
            assert!(finish(&mut first).is_some(), "{line}: it hangs");
            works(&mounted);
            assert!(second.try_wait().unwrap().is_none(), "{line}: it still waits");
            second.kill().unwrap();
            assert!(finish(&mut second).is_some(), "{line}: it hangs");
            wait_until("the daemon rests", || rests(mounted.daemon()));
        }
        sh(mounted.dir.path(), "umount mnt");
    }
}
