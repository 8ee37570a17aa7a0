//! Decoding Blosc2 against the official C library: in memory, in one run, on one thread and on all.
//!
//! `cargo bench --bench blosc2`. The library is python-blosc2 of `scripts/oracle blosc2`; it writes the files, and
//! is asked for one pass over each in turn with ours: both meet the same machine, and what counts is the median of
//! the rounds' ratios. On one thread it is the processor time of the thread that is taken, on all threads the
//! time on the clock. `BLOSC2_ROUNDS=N` (default 15); words on the command line pick the cases that contain one of them.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    reason = "a benchmark prints, and fails by panicking"
)]

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Lines, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use fzmfs::format::{self, BlobRef, Content, Input, Node, Options};
use fzmfs::source::Source;

/// Bytes decoded before the same memory is written again: a chunk of the files.
const BUFFER: usize = 4 << 20;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = std::env::var_os("BLOSC2_PYTHON").map_or(root.join("target/oracles/blosc2/bin/python"), PathBuf::from);
    if !python.exists() {
        println!("SKIPPED: there is no official Blosc2 library; scripts/oracle blosc2 installs one");
        return;
    }
    let rounds: usize = std::env::var("BLOSC2_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(15);
    let picks: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let dir = root.join("target/bench-blosc2");
    let mut library = Library::start(&python, root, &dir, threads);
    println!("{:26} {:>5} | {:^25} | {threads} threads", "", "", "one thread");
    println!(
        "{0:26} {1:>5} | {2:>7} {3:>8} {4:>8} | {2:>7} {3:>8} {4:>8}",
        "GB/s", "size", "ours/C", "ours", "library"
    );
    for name in library.names.clone() {
        if !picks.is_empty() && !picks.iter().any(|p| name.contains(p.as_str())) {
            continue;
        }
        let bytes = std::fs::read(dir.join(&name).with_extension("b2frame")).unwrap();
        let stored = bytes.len() as f64;
        let blob = open(bytes);
        let len = blob.layout().unwrap().len() as f64;
        let [one, all] = [("one", 1), ("all", threads)].map(|(how, threads)| {
            let mut round = || [pass(&blob, threads), library.pass(&name, how)];
            let rounds: Vec<[f64; 2]> = (0..rounds).map(|_| round()).collect();
            let median = |value: &dyn Fn(&[f64; 2]) -> f64| {
                let mut values: Vec<f64> = rounds.iter().map(value).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            let rate = |i: usize| len / median(&|r| r[i]) / 1e9;
            format!("{:7.2} {:8.2} {:8.2}", median(&|r| r[1] / r[0]), rate(0), rate(1))
        });
        println!("{name:26} {:4.0}% | {one} | {all}", 100.0 * stored / len);
    }
    library.end();
}

/// The official library, in a process of its own.
struct Library {
    process: Child,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// The files that it has written.
    names: Vec<String>,
}

impl Library {
    fn start(python: &Path, root: &Path, dir: &Path, threads: usize) -> Self {
        let mut command = Command::new(python);
        command.arg(root.join("tests/support/make_blosc2.py")).arg("bench").arg(dir).arg(threads.to_string());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (ask, answers) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut answers = BufReader::new(answers).lines();
        let names = answers.next().unwrap().unwrap().split(' ').map(str::to_owned).collect();
        Self { process, ask, answers, names }
    }

    /// Seconds for decoding a file once.
    fn pass(&mut self, name: &str, how: &str) -> f64 {
        writeln!(self.ask, "{name} {how}").unwrap();
        self.answers.next().unwrap().unwrap().parse().unwrap()
    }

    fn end(mut self) {
        drop(self.ask);
        self.process.wait().unwrap();
    }
}

/// The decoded bytes of a frame.
fn open(bytes: Vec<u8>) -> BlobRef {
    let input = Input::of(Source::from_bytes(bytes)).unwrap();
    let container = format::open(&input, None, &Options::default()).unwrap();
    let blobs = container.entries().unwrap().into_iter().filter_map(|entry| match entry.node {
        Node::File(file) => match file.content {
            Content::Blob(blob) => Some(blob),
            _ => None,
        },
        _ => None,
    });
    blobs.into_iter().next().unwrap_or_else(|| panic!("the frame has no data"))
}

/// Seconds that this thread has computed: a busy machine takes the processor away, but not these.
fn seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Seconds for decoding everything once.
fn pass(blob: &BlobRef, threads: usize) -> f64 {
    let count = blob.layout().unwrap().count();
    if threads == 1 {
        let began = seconds();
        decode(blob, 0..count);
        return seconds() - began;
    }
    let began = Instant::now();
    let next = AtomicU64::new(0);
    rayon::broadcast(|_| {
        while let Some(piece) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&piece| piece < count) {
            decode(blob, piece..piece + 1);
        }
    });
    began.elapsed().as_secs_f64()
}

fn decode(blob: &BlobRef, pieces: Range<u64>) {
    thread_local! {
        static INTO: RefCell<(usize, Vec<u8>)> = RefCell::new((0, vec![1; BUFFER]));
    }
    let layout = blob.layout().unwrap();
    INTO.with_borrow_mut(|(used, buffer)| {
        for piece in pieces {
            let range = layout.range(piece);
            let len = (range.end - range.start) as usize;
            if *used + len > buffer.len() {
                *used = 0;
            }
            blob.decode(piece, &mut buffer[*used..*used + len]).unwrap();
            *used += len;
        }
    });
}
