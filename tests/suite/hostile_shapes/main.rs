//! Small files that claim to be large: a table for each format, with the memory, disk space and work that reading each
//! file may take. A valid file decodes within these limits; an invalid one is refused.
//!
//! Asserted are the bytes or the kind of the error, the peaks of the account, and the peak of the allocator: at most
//! the cache, a piece for each worker and a fixed allowance. Time is not asserted.
//!
//! A separate test binary, because its allocator counts. `SHAPE=WORD` selects the shapes whose name contains it;
//! `HOSTILE=0.1` visits fewer directories of those that have the most; below that, `HOSTILE=0.02` tries every fifth shape.
#![expect(unsafe_code, reason = "a global allocator is unsafe by its trait")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test says what it did")]

mod blosc2;
mod fzm;
mod fzm_blocks;
mod fzm_file;
#[path = "../../support/hostile_factor.rs"]
mod hostile_factor;
#[path = "../../support/reseal.rs"]
#[allow(dead_code, reason = "only the hashes of ZXC are needed here")]
mod reseal;
mod zstd;
mod ztensor;
#[path = "../../support/ztensor.rs"]
mod ztensor_files;
mod zxc;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use fzmfs::account::{Account, Peaks};
use fzmfs::error::{Error, Kind, Result};
use fzmfs::format::{self, BlobRef, Check, Input, Options};
use fzmfs::source::Source;
use fzmfs::tree::{ROOT, Tree};

const MIB: u64 = 1 << 20;
/// Threads that decode at a time.
const WORKERS: u64 = 2;
/// Bytes of the largest piece.
const PIECE: u64 = 4 << 20;
/// Allowance for memory besides the cache and the pieces.
const ALLOWANCE: u64 = 64 << 20;
/// Decoded bytes of a blob that are read from either end: shapes may be huge.
const ENOUGH: u64 = 96 << 20;

/// Entries of a directory that are visited.
const ENTRIES: usize = 10_000;

/// Directories that are visited: `HOSTILE`, or one, times as many as any shape has.
fn directories() -> usize {
    (1e6 * hostile_factor::hostile_factor()) as usize
}

/// A file, the resources that it may take, and the expected result.
struct Shape {
    name: &'static str,
    make: fn() -> Vec<u8>,
    /// Bytes, as `cache=` and `spill=`.
    cache: u64,
    spill: u64,
    /// Bytes that may be decoded for one request, or for what is kept.
    work: u64,
    want: Want,
}

/// The expected result of a shape.
enum Want {
    /// It decodes; the function checks bytes of the first blob, given their offset.
    Right(fn(u64, &[u8]) -> bool),
    /// Opening or decoding fails with this kind of error.
    Refused(Refusal),
}

/// A kind of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Corrupt,
    TooLarge,
    NoRoom,
    Unsupported,
}

impl Refusal {
    fn is(self, e: &Error) -> bool {
        match e.kind() {
            Kind::Corrupt(_) | Kind::Truncated { .. } => self == Self::Corrupt,
            Kind::TooLarge { .. } => self == Self::TooLarge,
            Kind::NoRoom { .. } => self == Self::NoRoom,
            Kind::Unsupported(_) => self == Self::Unsupported,
            _ => false,
        }
    }
}

/// Counts allocated bytes, and their peak.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grown(by: usize) {
    let now = NOW.fetch_add(by, Ordering::Relaxed) + by;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller upholds the contract, which is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grown(size);
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Opens the file and decodes all of its checks from both ends, on [`WORKERS`] threads.
fn decode(bytes: Vec<u8>, options: &Options, right: fn(u64, &[u8]) -> bool) -> Result<()> {
    let container = format::open(&Input::of(Source::from_bytes(bytes))?, None, options)?;
    assert!(container.info().to_json().to_string().len() < MIB as usize);
    walk(&Tree::charging(container.clone(), OsStr::new("x"), &options.account)?)?;
    let mut is_first = true;
    for check in container.checks() {
        match check {
            Check::Run { run, .. } => run()?,
            Check::Decode { blob, .. } => {
                let right = if std::mem::take(&mut is_first) { right } else { anything };
                let count = blob.layout()?.count();
                // A piece in the middle first: nothing that it needs has been decoded yet.
                piece(&blob, count / 2, right)?;
                let blob = &blob;
                std::thread::scope(|scope| {
                    let parts: Vec<_> = (0..WORKERS).map(|part| scope.spawn(move || some(blob, part, right))).collect();
                    parts.into_iter().try_for_each(|part| part.join().unwrap())
                })?;
            }
        }
    }
    Ok(())
}

/// Visits the tree, of each directory the first entries, and looks at their attributes.
fn walk(tree: &Tree) -> Result<()> {
    let mut left = vec![ROOT];
    for _ in 0..directories() {
        let Some(dir) = left.pop() else { break };
        for entry in tree.entries(dir).take(ENTRIES) {
            let entry = entry?;
            tree.cheap_attr(entry.ino);
            if entry.kind == fzmfs::tree::Kind::Dir {
                left.push(entry.ino);
            }
        }
    }
    Ok(())
}

fn anything(_: u64, _: &[u8]) -> bool {
    true
}

fn are_sevens(_: u64, bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 7)
}

/// A Zstandard frame with the header `header`, of `len` bytes of 7 in run-length blocks.
fn zstd_sevens(header: &[u8], len: u64) -> Vec<u8> {
    let mut frame = header.to_vec();
    let mut left = len;
    while left > 0 {
        let n = left.min(128 << 10);
        left -= n;
        frame.extend(&((n as u32) << 3 | 2 | u32::from(left == 0)).to_le_bytes()[..3]);
        frame.push(7);
    }
    frame
}

/// Decodes every [`WORKERS`]th piece of `blob`, up to [`ENOUGH`] bytes at either end.
fn some(blob: &BlobRef, part: u64, right: fn(u64, &[u8]) -> bool) -> Result<()> {
    let layout = blob.layout()?;
    let (count, size) = (layout.count(), layout.range(0).end.max(1));
    let near = (ENOUGH / size).max(1).min(count);
    let far = count.saturating_sub(near).max(near);
    (0..near).chain(far..count).filter(|i| i % WORKERS == part).try_for_each(|i| piece(blob, i, right))
}

fn piece(blob: &BlobRef, index: u64, right: fn(u64, &[u8]) -> bool) -> Result<()> {
    let range = blob.layout()?.range(index);
    assert!(range.end - range.start <= PIECE, "a piece of {} bytes", range.end - range.start);
    let mut bytes = vec![0xA5; (range.end - range.start) as usize];
    if bytes.is_empty() {
        return Ok(());
    }
    blob.decode(index, &mut bytes)?;
    assert!(right(range.start, &bytes), "wrong bytes in piece {index}, from byte {} on", range.start);
    Ok(())
}

/// The expectations of `shape` that are not met.
fn faults(shape: &Shape) -> Vec<String> {
    let bytes = (shape.make)();
    let account = Account::new(shape.cache, shape.spill);
    let options = Options { account: account.clone(), ..Options::default() };
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let right = match shape.want {
        Want::Right(right) => right,
        Want::Refused(_) => anything,
    };
    let done = decode(bytes, &options, right);
    let heap = (PEAK.load(Ordering::Relaxed).saturating_sub(before)) as u64;
    let Peaks { memory, disk, decoded: work } = account.peaks();
    eprintln!(
        "{}: {} KiB heap, {} KiB charged, {} KiB disk, {} KiB work",
        shape.name,
        heap >> 10,
        memory >> 10,
        disk >> 10,
        work >> 10
    );
    let mut faults = Vec::new();
    match (&shape.want, done) {
        (Want::Right(_), Ok(())) => {}
        (Want::Right(_), Err(e)) => faults.push(format!("refused: {e}")),
        (Want::Refused(want), Ok(())) => faults.push(format!("accepted, expected {want:?}")),
        (Want::Refused(want), Err(e)) if want.is(&e) => {}
        (Want::Refused(want), Err(e)) => faults.push(format!("refused, expected {want:?}: {e}")),
    }
    let bounds = [
        ("bytes of memory charged", memory, shape.cache),
        ("bytes of disk space", disk, shape.spill),
        ("bytes of work", work, shape.work),
        ("bytes on the heap", heap, shape.cache + WORKERS * PIECE + ALLOWANCE),
    ];
    faults.extend(
        bounds.iter().filter(|(_, is, most)| is > most).map(|(what, is, most)| format!("{is} {what}, {most} allowed")),
    );
    // Idle decoders are there for other containers, too.
    drop(options);
    if account.memory().used() > 0 || account.disk().used() > 0 {
        faults.push("a charge was not released".to_owned());
    }
    faults
}

#[test]
fn no_shape_exceeds_its_limits() {
    let only = std::env::var("SHAPE").unwrap_or_default();
    let every = (0.1 / hostile_factor::hostile_factor()).round().max(1.0) as usize;
    let mut report = String::new();
    for shapes in [fzm::SHAPES, fzm_blocks::SHAPES, blosc2::SHAPES, ztensor::SHAPES, zstd::SHAPES, zxc::SHAPES] {
        for shape in shapes.iter().filter(|shape| shape.name.contains(&only)).step_by(every) {
            for fault in faults(shape) {
                writeln!(report, "  {}: {fault}", shape.name).unwrap();
            }
        }
    }
    assert!(report.is_empty(), "these shapes failed:\n{report}");
}
