//! Decoding ZXC against the official library: in memory, in one run, on one thread and on all.
//!
//! `cargo bench --bench zxc`. Each round times a pass of ours and one of the library's, into the same memory, and
//! what counts is the median of the rounds' ratios: both meet the same machine. On one thread it is the
//! processor time of the thread that is taken, on all threads the time on the clock. `ZXC_ROUNDS=N`
//! (default 15); words on the command line pick the cases that contain one of them.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    reason = "a benchmark prints, and fails by panicking"
)]

#[path = "table.rs"]
mod table;

use std::ops::Range;
use std::path::Path;
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use zxc::seekable::Seekable;

use fzmfs::format::{self, BlobRef, Content, Input, Node, Options};
use fzmfs::source::Source;

/// Most bytes of a sort of data.
const SIZE: usize = 16 << 20;

fn main() {
    let rounds: usize = std::env::var("ZXC_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(15);
    let picks: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    table::heading();
    for (data, make) in DATA {
        for (level, checksum) in [(1, false), (3, false), (5, false), (6, false), (3, true)] {
            let name = format!("{data} -{level}{}", if checksum { " checksums" } else { "" });
            if !picks.is_empty() && !picks.iter().any(|p| name.contains(p.as_str())) {
                continue;
            }
            let case = Case::new(&make(), level, checksum, threads);
            let mut out = vec![1; case.len];
            for threads in [1, threads] {
                let Figures { ours, library, ratio } = case.measure(threads, rounds, &mut out);
                let size = 100.0 * case.file.len() as f64 / case.len as f64;
                let what = format!("ZXC, {name}, {size:.0} %, {}", table::threads(threads));
                table::row_of_rounds(&what, ours / 1e9, library / 1e9, ratio, "GB/s", ">= 0.9 of libzxc");
            }
        }
    }
}

/// Bytes of a block, as the library writes them.
const BLOCK: usize = 512 << 10;

/// A file, and both views of it.
struct Case {
    file: Vec<u8>,
    blob: BlobRef,
    /// For each thread a handle of its own, as the library wants it.
    handles: Vec<Mutex<Seekable>>,
    len: usize,
}

/// Median rates in bytes a second, and the median of the rounds' ratios.
struct Figures {
    ours: f64,
    library: f64,
    ratio: f64,
}

impl Case {
    fn new(data: &[u8], level: usize, checksum: bool, threads: usize) -> Self {
        let mut options = zxc::CompressOptions::with_level(zxc::Level::all()[level - 1]).with_seekable();
        options.checksum = checksum;
        let file = zxc::compress_with_options(data, &options).unwrap();
        let input = Input::of(Source::from_bytes(file.clone())).unwrap();
        let container = format::open(&input, Some("zxc"), &Options::default()).unwrap();
        let entries = container.entries().unwrap();
        let blob = entries.iter().find_map(|entry| match &entry.node {
            Node::File(file) => match &file.content {
                Content::Blob(blob) => Some(blob.clone()),
                _ => None,
            },
            _ => None,
        });
        let handle = |_| Mutex::new(Seekable::from_bytes(file.clone()).unwrap());
        let handles = (0..threads).map(handle).collect();
        let case = Self { file, blob: blob.unwrap(), handles, len: data.len() };
        for pass in [Case::ours, Case::library] {
            let mut out = vec![1; case.len];
            pass(&case, threads, &mut out);
            assert!(out == data, "level {level} decodes to something else");
        }
        case
    }

    fn measure(&self, threads: usize, rounds: usize, out: &mut [u8]) -> Figures {
        let mut time = |pass: fn(&Self, usize, &mut [u8])| {
            let clock = || if threads == 1 { processor_time() } else { now() };
            let began = clock();
            pass(self, threads, out);
            clock() - began
        };
        let rounds: Vec<[f64; 2]> = (0..rounds).map(|_| [time(Self::ours), time(Self::library)]).collect();
        let median = |value: &dyn Fn(&[f64; 2]) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Figures {
            ours: self.len as f64 / median(&|r| r[0]),
            library: self.len as f64 / median(&|r| r[1]),
            ratio: median(&|r| r[1] / r[0]),
        }
    }

    fn ours(&self, threads: usize, out: &mut [u8]) {
        let layout = self.blob.layout().unwrap();
        let bounds = |piece| {
            let Range { start, end } = layout.range(piece);
            start as usize..end as usize
        };
        let decode = |pieces: Range<u64>, mut out: &mut [u8]| {
            for piece in pieces {
                let (head, tail) = out.split_at_mut(bounds(piece).len());
                self.blob.decode(piece, head).unwrap();
                out = tail;
            }
        };
        if threads == 1 {
            return decode(0..layout.count(), out);
        }
        let share = layout.count().div_ceil(threads as u64);
        std::thread::scope(|scope| {
            let mut rest = out;
            for first in (0..layout.count()).step_by(share as usize) {
                let pieces = first..layout.count().min(first + share);
                let len = bounds(pieces.end - 1).end - bounds(first).start;
                let (head, tail) = std::mem::take(&mut rest).split_at_mut(len);
                rest = tail;
                scope.spawn(move || decode(pieces, head));
            }
        });
    }

    fn library(&self, threads: usize, out: &mut [u8]) {
        if threads == 1 {
            let options = zxc::DecompressOptions::default();
            assert_eq!(zxc::decompress_to(&self.file, out, &options).unwrap(), self.len);
            return;
        }
        let share = self.len.div_ceil(threads).next_multiple_of(BLOCK);
        std::thread::scope(|scope| {
            for (i, (out, handle)) in out.chunks_mut(share).zip(&self.handles).enumerate() {
                scope.spawn(move || {
                    let len = out.len();
                    let decoded = handle.lock().unwrap().decompress_range(out, (i * share) as u64, len);
                    assert_eq!(decoded.unwrap(), len);
                });
            }
        });
    }
}

/// Seconds on the clock, from some moment on.
fn now() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_secs_f64()
}

/// Seconds that this thread has computed: a busy machine takes the processor away, but not these.
fn processor_time() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

type Generator = fn() -> Vec<u8>;

/// The sorts of data, by name.
const DATA: [(&str, Generator); 5] =
    [("source", source), ("machine code", machine_code), ("log", log), ("walk i32", walk), ("wave f64", wave)];

/// Lines of this program's sources in any order, many times.
fn source() -> Vec<u8> {
    let mut files = Vec::new();
    let mut directories = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            match entry.unwrap().path() {
                path if path.is_dir() => directories.push(path),
                path => files.push(path),
            }
        }
    }
    files.sort();
    let text: String = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let (lines, mut next) = (text.split_inclusive('\n').collect::<Vec<_>>(), noise());
    let mut out = Vec::with_capacity(SIZE + 200);
    while out.len() < SIZE {
        out.extend_from_slice(lines[next(lines.len() as u64) as usize].as_bytes());
    }
    out.truncate(SIZE);
    out
}

/// The benchmark itself.
fn machine_code() -> Vec<u8> {
    let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    bytes.truncate(SIZE);
    bytes
}

/// Numbers without end, the same in every run.
fn noise() -> impl FnMut(u64) -> u64 {
    let mut state = 1_u64;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

fn log() -> Vec<u8> {
    let (mut next, mut out, mut clock) = (noise(), Vec::with_capacity(SIZE + 200), 1_700_000_000_000_u64);
    while out.len() < SIZE {
        clock += next(900);
        let path = ["/", "/index.html", "/data/run.json", "/data/field", "/favicon.ico"][next(5) as usize];
        let status = [200, 200, 200, 304, 404, 500][next(6) as usize];
        let line = format!(
            "{{\"time\":{clock},\"client\":\"10.0.{}.{}\",\"path\":\"{path}\",\"status\":{status},\"bytes\":{}}}\n",
            next(8),
            next(256),
            next(1 << 17)
        );
        out.extend_from_slice(line.as_bytes());
    }
    out.truncate(SIZE);
    out
}

fn walk() -> Vec<u8> {
    let (mut next, mut value) = (noise(), 0_i32);
    let mut step = || {
        value = value.wrapping_add(next(41) as i32 - 20);
        value.to_le_bytes()
    };
    (0..SIZE / 4).flat_map(|_| step()).collect()
}

fn wave() -> Vec<u8> {
    let mut next = noise();
    let mut sample = |i: usize| ((i as f64 / 300.0).sin() * 1e4).round() / 64.0 + next(4) as f64;
    (0..SIZE / 8).flat_map(|i| sample(i).to_le_bytes()).collect()
}
