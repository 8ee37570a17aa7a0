//! Decoding Blosc2 against the official C library: in memory, in one run, on one thread and on all.
//!
//! `cargo bench --bench blosc2`. The library is python-blosc2 of `scripts/oracle blosc2`; it writes the files, and
//! is asked for one pass over each in turn with ours: both meet the same machine, and what counts is the median of
//! the rounds' ratios. On one thread it is the processor time of the thread that is taken, on all threads the
//! time on the clock. `BLOSC2_ROUNDS=N` (default 15); words on the command line pick the cases that contain one of
//! them.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    reason = "a benchmark prints, and fails by panicking"
)]

#[path = "official.rs"]
mod official;
#[path = "table.rs"]
mod table;

use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use fzmfs::format::{self, BlobRef, Content, Input, Node, Options};
use fzmfs::source::Source;
use official::Official;

/// Bytes decoded before the same memory is written again: a chunk of the files.
const BUFFER: usize = 4 << 20;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rounds: usize = std::env::var("BLOSC2_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(15);
    let picks: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let dir = root.join("target/bench-blosc2");
    let args = ["bench", dir.to_str().unwrap(), &threads.to_string()];
    let Some(mut library) = Official::start("blosc2", "make_blosc2.py", &args) else {
        println!("SKIPPED: there is no official Blosc2 library; scripts/oracle blosc2 installs one");
        return;
    };
    let names: Vec<String> = library.answer().split(' ').map(str::to_owned).collect();
    table::heading();
    for name in names {
        if !picks.is_empty() && !picks.iter().any(|p| name.contains(p.as_str())) {
            continue;
        }
        let bytes = std::fs::read(dir.join(&name).with_extension("b2frame")).unwrap();
        let stored = bytes.len() as f64;
        let blob = open(bytes);
        let len = blob.layout().unwrap().len() as f64;
        for (how, threads) in [("one", 1), ("all", threads)] {
            let mut round = || [pass(&blob, threads), library.ask(format_args!("{name} {how}")).as_secs_f64()];
            let rounds: Vec<[f64; 2]> = (0..rounds).map(|_| round()).collect();
            let median = |value: &dyn Fn(&[f64; 2]) -> f64| {
                let mut values: Vec<f64> = rounds.iter().map(value).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            let rate = |i: usize| len / median(&|r| r[i]) / 1e9;
            let what = format!("Blosc2, {name}, {:.0} %, {}", 100.0 * stored / len, table::threads(threads));
            table::row_of_rounds(&what, rate(0), rate(1), median(&|r| r[1] / r[0]), "GB/s", ">= 0.9 of C-Blosc2");
        }
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
