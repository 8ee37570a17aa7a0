//! Decoding Blosc2 against the official C library: one thread, in memory, in one run.
//!
//! `cargo bench --bench blosc2`. The library is python-blosc2 of `scripts/oracle-blosc2`; it writes the files, and
//! is asked for one pass over each in turn with ours, so that both meet the same machine. The processor time
//! of the best pass counts. `BLOSC2_ROUNDS=N` (default 15); a word on the command line picks the cases that contain it.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    reason = "a benchmark prints, and fails by panicking"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::time::{ClockId, clock_gettime};

use fzmfs::format::{self, BlobRef, Content, Input, Node, Options};
use fzmfs::source::Source;

/// Bytes decoded before the same memory is written again: a chunk of the files.
const BUFFER: usize = 4 << 20;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = std::env::var_os("BLOSC2_PYTHON").map_or(root.join("target/oracles/blosc2/bin/python"), PathBuf::from);
    if !python.exists() {
        println!("SKIPPED: there is no official Blosc2 library; scripts/oracle-blosc2 installs one");
        return;
    }
    let rounds: u32 = std::env::var("BLOSC2_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(15);
    let picks: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let dir = root.join("target/bench-blosc2");
    let mut library = Command::new(python)
        .arg(root.join("tests/support/make_blosc2.py"))
        .arg("bench")
        .arg(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut ask, answers) = (library.stdin.take().unwrap(), library.stdout.take().unwrap());
    let mut answers = BufReader::new(answers).lines();
    let names: Vec<String> = answers.next().unwrap().unwrap().split(' ').map(str::to_owned).collect();
    println!("{:34} {:>6} {:>9} {:>9} {:>7}", "one thread, in memory", "ratio", "ours", "library", "ours/C");
    for name in names.iter().filter(|name| picks.is_empty() || picks.iter().any(|p| name.contains(p.as_str()))) {
        let bytes = std::fs::read(dir.join(name).with_extension("b2frame")).unwrap();
        let stored = bytes.len();
        let input = Input::of(Source::from_bytes(bytes)).unwrap();
        let container = format::open(&input, None, &Options::default()).unwrap();
        let entries = container.entries().unwrap();
        let blob = entries.iter().find_map(|entry| match &entry.node {
            Node::File(file) => match &file.content {
                Content::Blob(blob) => Some(blob.clone()),
                _ => None,
            },
            _ => None,
        });
        let blob = blob.unwrap_or_else(|| panic!("{name} has no data"));
        let len = blob.layout().unwrap().len();
        let (mut ours, mut theirs) = (f64::MAX, f64::MAX);
        for _ in 0..rounds {
            ours = ours.min(pass(&blob));
            writeln!(ask, "{name}").unwrap();
            theirs = theirs.min(answers.next().unwrap().unwrap().parse().unwrap());
        }
        let rate = |seconds: f64| len as f64 / seconds / 1e9;
        println!(
            "{name:34} {:6.2} {:6.2} GB/s {:5.2} GB/s {:6.2}",
            len as f64 / stored as f64,
            rate(ours),
            rate(theirs),
            theirs / ours
        );
    }
    drop(ask);
    library.wait().unwrap();
}

/// Seconds that this thread has computed: a busy machine takes the processor away, but not these.
fn seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Seconds for decoding everything once.
fn pass(blob: &BlobRef) -> f64 {
    let layout = blob.layout().unwrap();
    let mut buffer = vec![0; BUFFER];
    buffer.fill(1);
    let began = seconds();
    let mut used = 0;
    for piece in 0..layout.count() {
        let range = layout.range(piece);
        let len = (range.end - range.start) as usize;
        if used + len > buffer.len() {
            used = 0;
        }
        blob.decode(piece, &mut buffer[used..used + len]).unwrap();
        used += len;
    }
    seconds() - began
}
