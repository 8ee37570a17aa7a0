//! Opens a container from memory and reads everything that it shows, with the options that users have unless they say
//! otherwise, but for a small `cache=` and `spill=`: what the hostile-input tests and the fuzz targets do with bytes
//! that may be anything.
//!
//! Every answer is taken, errors too. A fault is a panic, or a broken promise: a file shorter than said, a piece that
//! is too large, a request that costs too much, more on disk than `spill=`; and more memory than [`Seen::may_take`],
//! which the caller measures.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fzmfs::account::{Account, Pieces as Kept};
use fzmfs::error::Result;
use fzmfs::format::{BlobRef, Check, Fetch, Format, Input, Options, Piece};
use fzmfs::source::Source;
use fzmfs::tree::{DirEntry, Ino, Kind, ROOT, Tree};
use rustix::time::{ClockId, clock_gettime};

/// What `cache=` says here.
const CACHE: u64 = 16 << 20;
/// What `spill=` says here.
const SPILL: u64 = 64 << 20;
/// Bytes of memory that a program may take beside `cache=` and the pieces that its workers decode; there is one here.
const ALLOWANCE: u64 = 64 << 20;
/// The largest piece that any format may have: it decodes in under a second.
const PIECE: u64 = 64 << 20;
/// What one request may decode: so much, and so much for each of its bytes.
const WORK: (u64, u64) = (64 << 20, 256);
/// Decoded bytes after which the rest of a container is left alone: files may honestly be huge.
const ENOUGH: u64 = 48 << 20;
/// Entries after which the rest of a tree is left alone.
const ENTRIES: u64 = 2000;
/// Bytes of decoded pieces that are kept: the part of `cache=` that is the cache's in any case.
const KEPT: u64 = CACHE / 4;
/// Bytes read at a time.
const STRIDE: u64 = 300_000;

/// The outcome of reading everything of a container.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Seen {
    /// Whether the container opened.
    pub(crate) opened: bool,
    /// Files that were read without an error.
    pub(crate) read: u64,
    /// Files, checks and directories that gave an error.
    pub(crate) failed: u64,
    /// Bytes of the largest piece.
    pub(crate) piece: u64,
}

impl Seen {
    /// Bytes of memory that all of it may take at a time, besides the container's own.
    pub(crate) fn may_take(self) -> u64 {
        CACHE + self.piece + ALLOWANCE
    }
}

/// Decodes what is asked for, and keeps a little.
#[derive(Default)]
struct Pieces {
    kept: RefCell<HashMap<(u64, u64), Piece>>,
    kept_bytes: RefCell<u64>,
    decoded: RefCell<u64>,
    largest: RefCell<u64>,
}

impl Fetch for Pieces {
    fn piece(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        if let Some(piece) = self.kept.borrow().get(&(blob.id(), piece)) {
            return Ok(piece.clone());
        }
        let range = blob.layout()?.range(piece);
        let len = range.end - range.start;
        assert!(len <= PIECE, "a piece of {len} bytes, with a limit of {PIECE}");
        if *self.kept_bytes.borrow() + len > KEPT {
            self.kept.borrow_mut().clear();
            *self.kept_bytes.borrow_mut() = 0;
        }
        let mut bytes = vec![0xAA; len as usize];
        *self.decoded.borrow_mut() += len;
        self.largest.replace_with(|largest| len.max(*largest));
        timed("a piece", || blob.decode(piece, &mut bytes))?;
        let bytes = Arc::new(bytes);
        if len <= KEPT {
            *self.kept_bytes.borrow_mut() += len;
            self.kept.borrow_mut().insert((blob.id(), piece), bytes.clone());
        }
        Ok(bytes)
    }
}

/// A walk over a container.
#[derive(Default)]
struct Walk {
    pieces: Pieces,
    entries: u64,
    read_bytes: u64,
    seen: Seen,
}

/// Opens `bytes` as `format` and reads everything.
///
/// # Panics
/// When the container breaks a promise that the program relies on.
pub(crate) fn open_list_read_everything(format: &Format, bytes: Vec<u8>, dicts: &[PathBuf]) -> Seen {
    let mut walk = Walk::default();
    let account = Account::new(CACHE - KEPT, SPILL);
    // An error is an answer; what was seen before it counts.
    drop(walk.container(format, bytes, dicts, &account));
    let peaks = account.peaks();
    assert!(peaks.memory <= CACHE - KEPT, "{} bytes of memory were charged", peaks.memory);
    assert!(peaks.disk <= SPILL, "{} bytes of disk space were charged", peaks.disk);
    let work = WORK.0 + WORK.1 * STRIDE.max(*walk.pieces.largest.borrow());
    assert!(peaks.decoded <= work, "one request decoded {} bytes", peaks.decoded);
    assert!(is_settled(&account), "charges outlive the container: {account:?}");
    walk.seen.piece = *walk.pieces.largest.borrow();
    walk.seen
}

/// Whether everything is given back: at once, or when the thread that writes the temporary file has ended.
fn is_settled(account: &Account) -> bool {
    for _ in 0..5000 {
        if account.memory().used() + account.disk().used() == 0 {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// Time on the processor that one request, or one case, may take: far more than in a release build. `HOSTILE_TIME=10`
/// allows ten times as much, for an emulator.
pub(crate) fn slow() -> Duration {
    let factor = std::env::var("HOSTILE_TIME").ok().and_then(|factor| factor.parse().ok());
    Duration::from_secs(10).mul_f64(factor.unwrap_or(1.0))
}

/// Runs `request`, which must not keep the processor busy for longer than [`slow`].
fn timed<T>(what: &str, request: impl FnOnce() -> T) -> T {
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let began = now();
    let answer = request();
    let took = now().saturating_sub(began);
    assert!(took <= slow(), "{what} took {took:?}");
    answer
}

impl Walk {
    fn container(&mut self, format: &Format, bytes: Vec<u8>, dicts: &[PathBuf], account: &Account) -> Result<()> {
        let options = Options {
            dicts: dicts.to_vec(),
            account: account.clone(),
            pieces: Kept::new(account.clone()),
            ..Options::default()
        };
        let input = Input::of(Source::from_bytes(bytes))?;
        // Also where detection says no: `format=NAME` asks like this.
        (format.detect)(&input);
        let container = timed("to open it", || (format.open)(&input, &options))?;
        self.seen.opened = true;
        assert!(container.info().to_json().is_object());
        assert!(!container.sources().is_empty());
        drop(options);
        let tree = Tree::new(container.clone(), OsStr::new("hostile.bin"))?;
        let result = self.directory(&tree, ROOT, 0);
        self.count(&result);
        for check in container.checks() {
            if self.is_enough() {
                break;
            }
            let result = match &check {
                Check::Decode { blob, .. } => self.blob(blob),
                Check::Run { run, .. } => timed("a check", run),
            };
            self.count(&result);
        }
        Ok(())
    }

    fn is_enough(&self) -> bool {
        self.entries > ENTRIES || self.read_bytes + *self.pieces.decoded.borrow() > ENOUGH
    }

    fn count(&mut self, result: &Result<()>) {
        match result {
            Ok(()) => self.seen.read += 1,
            Err(e) => {
                assert!(!e.to_string().is_empty());
                self.seen.failed += 1;
            }
        }
    }

    fn directory(&mut self, tree: &Tree, dir: Ino, depth: u32) -> Result<()> {
        assert!(depth < 300, "directories without an end");
        tree.xattrs(dir)?;
        let mut names = HashSet::new();
        let mut entries = tree.entries(dir);
        while let Some(entry) = timed("an entry", || entries.next()) {
            self.entries += 1;
            if self.is_enough() {
                return Ok(());
            }
            let entry = entry?;
            check_name(&entry.name);
            assert!(names.insert(entry.name.clone()), "two entries are called {}", entry.name);
            let result = self.entry(tree, dir, &entry, depth);
            self.count(&result);
        }
        Ok(())
    }

    fn entry(&mut self, tree: &Tree, dir: Ino, entry: &DirEntry, depth: u32) -> Result<()> {
        assert_eq!(tree.lookup(dir, entry.name.as_bytes())?, Some(entry.ino), "{} is not found", entry.name);
        assert_eq!(tree.parent(entry.ino), dir);
        match entry.kind {
            Kind::Dir => self.directory(tree, entry.ino, depth + 1),
            Kind::Link => {
                let size = tree.attr(entry.ino, &self.pieces)?.size;
                assert_eq!(size, tree.link(entry.ino)?.len() as u64);
                tree.follow(entry.ino).map(drop)
            }
            Kind::File => {
                tree.xattrs(entry.ino)?;
                self.file(tree, entry.ino)
            }
        }
    }

    fn file(&mut self, tree: &Tree, ino: Ino) -> Result<()> {
        let size = tree.attr(ino, &self.pieces)?.size;
        let view = tree.file(ino)?.view(&self.pieces)?;
        let len = view.len();
        assert_eq!(size, len, "what stat says and what there is to read");
        let mut dst = vec![0xAA; STRIDE.min(len) as usize];
        for range in ranges(len, STRIDE) {
            if self.is_enough() {
                break;
            }
            let dst = &mut dst[..(range.end - range.start) as usize];
            self.read_bytes += dst.len() as u64;
            self.request(range.end - range.start, |pieces| view.read(range.start, dst, pieces))?;
        }
        // A window across the middle, at odd places, as a reader may ask for.
        if len > 3 {
            let at = (len / 2) | 1;
            let want = dst.len().min((len - at) as usize).min(1001);
            self.request(want as u64, |pieces| view.read(at, &mut dst[..want], pieces))?;
        }
        assert!(view.read(len, &mut [0], &self.pieces).is_err(), "a byte past the end");
        Ok(())
    }

    /// A read of `len` bytes: the pieces that it decodes are in proportion.
    fn request<T>(&self, len: u64, read: impl FnOnce(&Pieces) -> T) -> T {
        let before = *self.pieces.decoded.borrow();
        let answer = timed("a request", || read(&self.pieces));
        let decoded = *self.pieces.decoded.borrow() - before;
        assert!(decoded <= WORK.0 + WORK.1 * len, "{decoded} bytes were decoded for {len}");
        answer
    }

    fn blob(&mut self, blob: &BlobRef) -> Result<()> {
        for piece in 0..blob.layout()?.count().min(64) {
            if self.is_enough() {
                break;
            }
            self.pieces.piece(blob, piece)?;
            self.fragments(blob, piece)?;
        }
        Ok(())
    }

    /// The fragments of an intact piece are intact, and the same bytes.
    fn fragments(&self, blob: &BlobRef, piece: u64) -> Result<()> {
        let Some(fragments) = blob.fragments() else { return Ok(()) };
        let (whole, layout) = (blob.layout()?.range(piece), fragments.layout()?);
        let bytes = self.pieces.piece(blob, piece)?;
        for i in layout.locate(whole.start)..=layout.locate(whole.end - 1) {
            let range = layout.range(i);
            let part = (range.start - whole.start) as usize..(range.end - whole.start) as usize;
            assert!(self.pieces.piece(&fragments, i)?[..] == bytes[part], "fragment {i} of piece {piece}");
        }
        Ok(())
    }
}

/// Names are single segments that every system call takes.
fn check_name(name: &str) {
    assert!(!matches!(name, "" | "." | "..") && name.len() <= 255, "the name {name:?}");
    let turns = |c: char| matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    assert!(!name.contains(|c: char| c == '/' || c.is_control() || turns(c)), "the name {name:?}");
}

/// The stretches of `stride` bytes in which `len` bytes are read: all of them, or the two ends of what is long.
fn ranges(len: u64, stride: u64) -> impl Iterator<Item = Range<u64>> {
    let count = len.div_ceil(stride);
    let near = count.min(16);
    let far = count.saturating_sub(4).max(near);
    (0..near).chain(far..count).map(move |i| i * stride..(i * stride + stride).min(len))
}
