//! Whatever the bytes: every format returns, in time and within its memory, and never panics.
//!
//! For every good file in tests/data/<format>: prefixes, header bytes set to 0x00, 0xFF, one more and one
//! less, and seeded random mutations; half of the changed files get their checksums mended, so that the change
//! reaches the decoders. Every file in tests/data/broken/<format> and tests/data/<format>/bad is replayed. Options are
//! those that users have, with a small `cache=` and `spill=`; memory, disk and work are asserted for each case.
//!
//! `HOSTILE=10` makes ten times as many cases, `HOSTILE=0.1` a tenth; `HOSTILE_TRACE=1` names each case before it runs; `HOSTILE_FORMAT=NAME`
//! takes one format. A case that fails is left as a file below the build folder; it belongs to tests/data/broken once
//! it is mended.
//!
//! A test binary of its own: its allocator counts what a case takes.
#![expect(unsafe_code, reason = "a global allocator is unsafe by its trait")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test says what it did")]

#[path = "../support/counting.rs"]
mod counting;
#[path = "../support/everything.rs"]
mod everything;
#[path = "../support/hostile_factor.rs"]
mod hostile_factor;
#[path = "../support/reseal.rs"]
mod reseal;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use counting::Counting;
use everything::{Seen, open_list_read_everything, slow};
use fzm_writer::Random;
use fzmfs::format::{FORMATS, Format, Input};
use fzmfs::source::Source;

/// A case that has not ended by then waits for something that never comes.
const HANG: Duration = Duration::from_secs(120);
/// Files over this size are mutated nowhere: a case has to be quick.
const LARGE: usize = 128 << 10;

/// The number of the case that runs.
static CASE: AtomicU64 = AtomicU64::new(0);
/// Its name.
static NAME: Mutex<String> = Mutex::new(String::new());
/// Whether it runs now.
static RUNS: AtomicBool = AtomicBool::new(false);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Notes which case it was that asked for too much.
fn refused(by: usize) {
    // Nothing here allocates.
    let case = CASE.load(Ordering::Relaxed);
    let _ = writeln!(std::io::stderr(), "hostile: case {case} asked for {by} bytes more than the allocator gives");
}

/// Where the last panic was and what it said.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// A file that opens, and what stands beside it.
struct Good {
    name: String,
    bytes: Vec<u8>,
    /// What describes the rest: every byte of it is changed.
    header: Range<usize>,
}

/// The run over one format.
struct Harness {
    format: &'static Format,
    dicts: Vec<PathBuf>,
    /// Cases, as a multiple of the usual number.
    factor: f64,
    start: Instant,
    cases: u64,
    seen: Seen,
    faults: Vec<String>,
    /// The most memory that a case took.
    peak: usize,
    trace: bool,
}

impl Harness {
    fn new(format: &'static Format, folder: &Path) -> Self {
        let dicts =
            files(folder).into_iter().filter(|p| p.extension().is_some_and(|e| e == "dict" || e == "zxd")).collect();
        Self {
            format,
            dicts,
            factor: hostile_factor::hostile_factor(),
            start: Instant::now(),
            cases: 0,
            seen: Seen::default(),
            faults: Vec::new(),
            peak: 0,
            trace: std::env::var_os("HOSTILE_TRACE").is_some(),
        }
    }

    /// Runs one case; `name` says how to make it again.
    fn case(&mut self, name: &str, bytes: &[u8]) -> Option<Seen> {
        self.cases += 1;
        *NAME.lock().unwrap_or_else(PoisonError::into_inner) = format!("{}: {name}", self.format.name);
        CASE.store(self.cases, Ordering::Relaxed);
        if self.trace {
            eprintln!("{}: {name}", self.cases);
        }
        let input = bytes.to_vec();
        let (before, resident) = (counting::begin(), counting::begin_resident());
        let began = spent();
        RUNS.store(true, Ordering::Relaxed);
        let outcome =
            panic::catch_unwind(AssertUnwindSafe(|| open_list_read_everything(self.format, input, &self.dicts)));
        RUNS.store(false, Ordering::Relaxed);
        let peak = counting::most_since(before).max(counting::most_resident_since(resident));
        self.peak = self.peak.max(peak);
        let fault = match &outcome {
            Err(_) => Some(PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone()),
            Ok(seen) if peak as u64 > seen.may_take() + bytes.len() as u64 => Some(format!("took {} MiB", peak >> 20)),
            Ok(_) if spent().saturating_sub(began) > slow() => {
                Some(format!("took {:?}", spent().saturating_sub(began)))
            }
            Ok(_) => None,
        };
        if let Some(fault) = fault {
            self.fault(name, &fault, bytes);
        }
        let seen = outcome.ok()?;
        self.seen.read += seen.read;
        self.seen.failed += seen.failed;
        Some(seen)
    }

    /// Notes a failed case and leaves its bytes where they can be looked at.
    fn fault(&mut self, name: &str, fault: &str, bytes: &[u8]) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("{}-{}.bin", self.format.name, self.cases));
        fs::write(&file, bytes).unwrap();
        self.faults.push(format!("{name}: {fault}; its bytes are in {}", file.display()));
        assert!(self.faults.len() < 20, "enough: {:#?}", self.faults);
    }

    /// How many cases are made where `usual` are usual: one at least.
    fn times(&self, usual: usize) -> usize {
        (usual as f64 * self.factor).max(1.0) as usize
    }

    fn sealed(&self, bytes: &mut [u8]) {
        reseal::reseal(self.format.name, bytes);
    }

    /// The file cut off: at every length up to 512 bytes, at some beyond.
    fn prefixes(&mut self, good: &Good) {
        let step = (good.bytes.len() / self.times(60)).max(1);
        let short = if good.bytes.len() < 2500 { good.bytes.len() } else { 512.min(good.bytes.len()) };
        let near = (0..short).step_by((4.0 / self.factor).max(1.0) as usize);
        for len in near.chain((short..good.bytes.len()).step_by(step)) {
            self.case(&format!("{}, its first {len} bytes", good.name), &good.bytes[..len]);
        }
    }

    /// Every byte of the header changed, one at a time; over all files together `cases` of them.
    fn header_bytes(&mut self, good: &[&Good], cases: usize) {
        let all: usize = good.iter().map(|g| g.header.len() * 4).sum();
        let step = (all / self.times(cases)).max(1);
        let mut random = Random::new(7);
        let mut next = random.below(step);
        let mut number = 0;
        for file in good {
            for at in file.header.clone() {
                for value in [0, 0xFF, file.bytes[at].wrapping_add(1), file.bytes[at].wrapping_sub(1)] {
                    number += 1;
                    if number <= next || value == file.bytes[at] {
                        continue;
                    }
                    next += 1 + random.below(2 * step - 1);
                    let mut bytes = file.bytes.clone();
                    bytes[at] = value;
                    // What the header's checksum finds is seen by nobody behind it: seldom left to it.
                    let mended = number % 8 != 0;
                    if mended {
                        self.sealed(&mut bytes);
                    }
                    let note = if mended { ", mended" } else { "" };
                    self.case(&format!("{}, byte {at} is {value:#04x}{note}", file.name), &bytes);
                }
            }
        }
    }

    /// Random changes, `cases` over all files.
    fn mutations(&mut self, good: &[&Good], cases: usize) {
        for seed in 0..self.times(cases) {
            let mut random = Random::new(seed as u64 + 1);
            let file = good[seed % good.len()];
            let mut bytes = file.bytes.clone();
            for _ in 0..=random.below(4) {
                mutate(&mut bytes, &file.header, &mut random);
            }
            let mended = random.below(2) == 0;
            if mended {
                self.sealed(&mut bytes);
            }
            let note = if mended { ", mended" } else { "" };
            self.case(&format!("{}, mutation {seed}{note}", file.name), &bytes);
        }
    }
}

/// One random change, half of them in the header.
fn mutate(bytes: &mut Vec<u8>, header: &Range<usize>, random: &mut Random) {
    if bytes.is_empty() {
        return bytes.push(random.bits() as u8);
    }
    // An earlier change may have cut the header off.
    let header = header.start.min(bytes.len() - 1)..header.end.min(bytes.len());
    let reach = if random.below(2) == 0 { header } else { 0..bytes.len() };
    let at = reach.start + random.below(reach.len().max(1));
    let rest = bytes.len() - at;
    match random.below(8) {
        0 | 1 => bytes[at] ^= 1 << random.below(8),
        2 | 3 => bytes[at] = random.bits() as u8,
        4 => {
            // A number that means something: an edge of its type, or the length of the file.
            let len = bytes.len() as u64;
            let numbers = [0, 1, 0x7F, 0x80, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, u64::MAX, 1 << 40, 1 << 63];
            let number = if random.below(4) == 0 { len } else { numbers[random.below(numbers.len())] };
            let width = [1, 2, 4, 8][random.below(4)].min(rest);
            bytes[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
        }
        5 => {
            let end = at + random.below(rest.min(300)) + 1;
            bytes.drain(at..end);
        }
        6 => {
            let more: Vec<u8> = (0..=random.below(40)).map(|_| random.bits() as u8).collect();
            bytes.splice(at..at, more);
        }
        _ => {
            // A stretch from elsewhere over this one.
            let from = random.below(bytes.len());
            let len = random.below(rest.min(bytes.len() - from)) + 1;
            bytes.copy_within(from..from + len, at);
        }
    }
}

/// Time that this process has had on the processors.
fn spent() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}

/// Ends the process when a case does not: there is no other way to stop a thread.
fn watch() {
    std::thread::spawn(|| {
        let now = || (Instant::now(), spent());
        let mut last = (0, now());
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let case = CASE.load(Ordering::Relaxed);
            if case != last.0 || !RUNS.load(Ordering::Relaxed) {
                last = (case, now());
            } else if last.1.0.elapsed() > HANG || spent().saturating_sub(last.1.1) > 2 * slow() {
                let name = NAME.lock().unwrap_or_else(PoisonError::into_inner).clone();
                eprintln!("hostile: case {case} does not end: {name}");
                std::process::exit(101);
            }
        }
    });
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .map(|entries| entries.map(|e| e.unwrap().path()).filter(|p| p.is_file()).collect())
        .unwrap_or_default();
    files.sort();
    files
}

/// The bytes of a file of `format` that describe the rest.
fn header(format: &str, bytes: &[u8]) -> Range<usize> {
    let len = match (format, bytes.get(24..).and_then(<[u8]>::first_chunk)) {
        ("fzm", Some(header_size)) => u64::from_le_bytes(*header_size) as usize,
        // Manifest and footer.
        ("ztensor", _) => return reseal::manifest(bytes).map_or(0, |m| m.start)..bytes.len(),
        // All headers are among the content.
        ("tar", _) => bytes.len(),
        // The directory of an archive.
        ("blosc2", _) if bytes.starts_with(b"PK") => return bytes.len().saturating_sub(320)..bytes.len(),
        _ => 128,
    };
    0..len.min(bytes.len())
}

/// The good files of a format: those in its folder that it takes for its own.
fn good(format: &Format, folder: &Path) -> Vec<Good> {
    let mut out = Vec::new();
    for path in files(folder) {
        let bytes = fs::read(&path).unwrap();
        let input = Input::of(Source::from_bytes(bytes.clone())).unwrap();
        if (format.detect)(&input) {
            let header = header(format.name, &bytes);
            out.push(Good { name: path.file_name().unwrap().to_string_lossy().into_owned(), bytes, header });
        }
    }
    out
}

#[test]
fn any_bytes_are_answered_in_time_and_within_memory() {
    watch();
    counting::ON_REFUSAL.get_or_init(|| refused);
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !RUNS.load(Ordering::Relaxed) {
            return usual(info);
        }
        let text = info.payload_as_str().unwrap_or("a panic");
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = format!("panicked at {place}: {text}");
    }));
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut report = String::new();
    let only = std::env::var("HOSTILE_FORMAT").ok();
    for format in FORMATS.iter().filter(|f| only.as_deref().is_none_or(|name| name == f.name)) {
        let mut harness = Harness::new(format, &data.join(format.name));
        let folders = folders(&data, format.name);
        let all: Vec<Good> = folders.iter().flat_map(|folder| good(format, folder)).collect();
        assert!(!all.is_empty(), "there are no good files of {}", format.name);
        let small: Vec<&Good> = all.iter().filter(|g| g.bytes.len() <= LARGE).collect();
        let bad = folders.iter().flat_map(|folder| files(&folder.join("bad")));
        for path in files(&data.join("broken").join(format.name)).into_iter().chain(bad) {
            counting::trim();
            harness.case(&path.display().to_string(), &fs::read(&path).unwrap());
        }
        for file in &all {
            counting::trim();
            let seen = harness.case(&format!("{} as it is", file.name), &file.bytes);
            if seen.is_some_and(|s| !s.opened) {
                harness.fault(&file.name, "does not open as it is", &file.bytes);
            }
            let mut same = file.bytes.clone();
            harness.sealed(&mut same);
            if same != file.bytes {
                harness.fault(&file.name, "mending it changes it", &same);
            }
        }
        // Of many files every second or third one, which are of every kind too.
        for file in small.iter().step_by(small.len().div_ceil(150).max(1)) {
            harness.prefixes(file);
        }
        harness.header_bytes(&small, 12_000);
        harness.mutations(&small, 5000);
        eprintln!(
            "{}: {} cases of {} files in {:.1} s; {} files read, {} refused; at most {} MiB of memory",
            format.name,
            harness.cases,
            all.len(),
            harness.start.elapsed().as_secs_f64(),
            harness.seen.read,
            harness.seen.failed,
            harness.peak >> 20,
        );
        for fault in &harness.faults {
            writeln!(report, "  {}: {fault}", format.name).unwrap();
        }
    }
    assert!(report.is_empty(), "these cases failed:\n{report}");
}

/// The folders with files of a format: FZM has one more, for those of its newest library.
fn folders(data: &Path, name: &str) -> Vec<PathBuf> {
    let newest = (name == "fzm").then(|| data.join("fzm2"));
    std::iter::once(data.join(name)).chain(newest).collect()
}

#[test]
fn wrong_checksums_are_mended() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for name in ["v01-zstd-crc32c.zt", "v10-zstd-crc32c.zt", "asm-10-digests.zt", "asm-20-digests.zt"] {
        let good = fs::read(data.join("ztensor").join(name)).unwrap();
        let mut bytes = good.clone();
        for at in reseal::manifest(&good).unwrap() {
            for (digest, len) in [(&b"crc32c:0x"[..], 8), (b"xxh3:", 16), (b"sha256:", 64)] {
                if good[at..].starts_with(digest) {
                    bytes[at + digest.len()..][..len].fill(b'0');
                }
            }
        }
        assert!(bytes != good, "{name}");
        reseal::reseal("ztensor", &mut bytes);
        assert!(bytes.eq_ignore_ascii_case(&good), "{name}");
    }
    for name in ["v07-level03.zst", "z1-level19.zst", "v07-len131073.zst"] {
        let good = fs::read(data.join("zstd").join(name)).unwrap();
        let mut bytes = good.clone();
        *bytes.last_mut().unwrap() ^= 1;
        reseal::reseal("zstd", &mut bytes);
        assert!(bytes == good, "{name}");
    }
}
