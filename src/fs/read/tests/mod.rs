//! Tests of the read path without a kernel: when a read is answered, by which thread, and after how many decodes.

mod fragments;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};

use serde_json::{Map, Value};

use super::collected::HELD;
use super::*;
use crate::bytes::FileOffset;
use crate::checksum::{BackgroundChecks, ChecksumGate, Threads, Verify};
use crate::clock::{PATIENCE, wait_until};
use crate::format::testing::{Memory, noise};
use crate::format::{Check, Container, Content, Entry, File, FileExtent, Grid, Info};
use crate::source::Source;
use crate::tree::Tree;

const PIECE: u64 = 1000;

type Answer = Result<Vec<u8>, i32>;

/// Sends the reply and the name of the replying thread to a test.
struct Sent(Sender<(Answer, String)>);

impl Sent {
    fn send(self, answer: Answer) {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        self.0.send((answer, name)).unwrap();
    }
}

impl Reply for Sent {
    fn data(self, bytes: &[u8]) {
        self.send(Ok(bytes.to_vec()));
    }

    fn error(self, errno: i32) {
        self.send(Err(errno));
    }
}

/// A container with one file.
struct Lone(File);

impl Container for Lone {
    fn info(&self) -> Info {
        let (format_version, details) = (String::new(), Map::new());
        let checksums = Value::Null;
        Info {
            format: "lone",
            format_version,
            file_size: 0,
            decoded_size: None,
            checksums,
            checksum_count: None,
            details,
        }
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(vec![Entry::own("x", self.0.clone())])
    }

    fn checks(&self) -> Vec<Check> {
        Vec::new()
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        Vec::new()
    }
}

struct Rig {
    reader: Arc<Reader>,
    cache: Arc<Cache>,
}

impl Rig {
    fn new(budget: u64, workers: usize) -> Self {
        let cache = Cache::new(budget, workers);
        let watch = Watch::new(Vec::new(), None).unwrap();
        let offload = Offload::new(cache.clone(), Threads::new(1));
        Self {
            reader: Arc::new(Reader::new(cache.clone(), Arc::new(watch), offload, Faults::new(Path::new("x")))),
            cache,
        }
    }

    fn open(&self, content: Content) -> Arc<Open> {
        self.open_file(File::new(content))
    }

    fn open_file(&self, file: File) -> Arc<Open> {
        let tree = Tree::new(Arc::new(Lone(file)), OsStr::new("x")).unwrap();
        let file = tree.file(tree.resolve("x").unwrap()).unwrap();
        let view = file.view(&*self.cache).unwrap();
        Arc::new(self.reader.open(Ino(9), file, view))
    }

    fn read(&self, file: &Arc<Open>, offset: u64, size: u32) -> Receiver<(Answer, String)> {
        let (tx, rx) = mpsc::channel();
        self.reader.read(file, offset, size, Sent(tx));
        rx
    }

    /// Occupies a worker until the sender is used or dropped.
    fn occupy(&self) -> Sender<()> {
        let (go, wait) = mpsc::channel();
        self.cache.submit(Box::new(move || _ = wait.recv()));
        go
    }
}

fn answer(rx: &Receiver<(Answer, String)>) -> Answer {
    rx.recv_timeout(PATIENCE).unwrap().0
}

/// A gate whose check blocks until the sender supplies its result.
fn held_gate() -> (ChecksumGate, Sender<Result<()>>) {
    let (go, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    (ChecksumGate::new(&Verify::First, 0, &Threads::default(), move || wait.lock().unwrap().recv().unwrap()), go)
}

#[test]
fn a_file_that_will_be_read_whole_is_decoded_once_and_before_it_is_read() {
    let rig = Rig::new(1 << 20, 2);
    let (blob, counted) = Memory::new(noise(10_000), PIECE).blob();
    let file = rig.open(Content::Blob(blob.clone()));
    rig.reader.prefetch(&file);
    wait_until(|| (0..10).all(|piece| rig.cache.holds(&blob, piece)));
    assert_eq!(answer(&rig.read(&file, 0, 10_000)).unwrap(), noise(10_000));
    assert_eq!(counted.decodes.load(Ordering::Relaxed), 10);
}

#[test]
fn reads_behind_a_checksum_hold_no_worker_and_are_answered_by_its_end() {
    let rig = Rig::new(1 << 20, 1);
    let (gate, go) = held_gate();
    let (shut, counted) = Memory { gate: Some(gate.clone()), ..Memory::new(noise(10_000), PIECE) }.blob();
    let (open, _) = Memory::new(noise(5000), PIECE).blob();
    let source = Source::from_bytes(noise(500));
    let stored = Content::FileExtent(FileExtent { source, at: FileOffset(0), len: 500, gate: Some(gate) });
    let [shut, open, stored] = [Content::Blob(shut), Content::Blob(open), stored].map(|content| rig.open(content));
    let waiting: Vec<_> = (0..50).map(|i| rig.read(&shut, i % 5 * 100, 100)).collect();
    let at_disk = rig.read(&stored, 100, 50);
    // The only worker stays free for other reads.
    for piece in 0..5 {
        assert_eq!(answer(&rig.read(&open, piece * PIECE, 10)).unwrap(), noise(5000)[(piece * PIECE) as usize..][..10]);
    }
    assert!(waiting.iter().all(|rx| rx.try_recv().is_err()) && at_disk.try_recv().is_err());
    assert_eq!(counted.decodes.load(Ordering::Relaxed), 0, "nothing is decoded before the verdict");
    go.send(Ok(())).unwrap();
    for (rx, i) in waiting.iter().zip(0..) {
        assert_eq!(answer(rx).unwrap(), noise(10_000)[i % 5 * 100..][..100]);
    }
    assert_eq!(answer(&at_disk).unwrap(), noise(500)[100..150]);
    assert_eq!(counted.decodes.load(Ordering::Relaxed), 1);
}

#[test]
fn a_checksum_that_could_not_be_read_fails_those_who_wait_and_the_next_reader_tries_again() {
    let rig = Rig::new(1 << 20, 1);
    let (gate, go) = held_gate();
    let (blob, _) = Memory { gate: Some(gate), ..Memory::new(noise(1000), PIECE) }.blob();
    let file = rig.open(Content::Blob(blob));
    let failed = [rig.read(&file, 0, 10), rig.read(&file, 10, 10)];
    let eio = Error::io(std::io::Error::from_raw_os_error(libc::EIO), "payload");
    go.send(Err(eio)).unwrap();
    assert!(failed.iter().all(|rx| answer(rx) == Err(libc::EIO)));
    go.send(Ok(())).unwrap();
    assert_eq!(answer(&rig.read(&file, 0, 10)).unwrap(), noise(10));
}

#[test]
fn a_wrong_checksum_is_an_error_for_every_reader() {
    let rig = Rig::new(1 << 20, 1);
    let gate = ChecksumGate::new(&Verify::First, 0, &Threads::default(), || Err(Error::corrupt("no", "checksum")));
    let (blob, counted) = Memory { gate: Some(gate), ..Memory::new(noise(1000), PIECE) }.blob();
    let file = rig.open(Content::Blob(blob));
    assert_eq!([0, 1, 2].map(|_| answer(&rig.read(&file, 0, 10))), [(); 3].map(|()| Err(libc::EIO)));
    assert_eq!(counted.decodes.load(Ordering::Relaxed), 0);
}

#[test]
fn no_piece_is_decoded_twice_for_one_wave_of_readers_even_if_none_is_kept() {
    // Pieces are larger than the cache.
    let rig = Rig::new(PIECE - 1, 1);
    let (blob, counted) = Memory::new(noise(4000), PIECE).blob();
    let file = rig.open(Content::Blob(blob));
    let worker = rig.occupy();
    // Within one piece, across two, across all four.
    let reads = [(0, 100), (900, 200), (0, 4000), (3000, 1000), (2500, 1000)];
    let waiting = reads.map(|(offset, size)| rig.read(&file, offset, size));
    assert!(waiting.iter().all(|rx| rx.try_recv().is_err()));
    drop(worker);
    for ((offset, size), rx) in reads.into_iter().zip(&waiting) {
        assert_eq!(answer(rx).unwrap(), noise(4000)[offset as usize..][..size as usize]);
    }
    assert_eq!(counted.decodes.load(Ordering::Relaxed), 4);
}

#[test]
fn pieces_that_waiting_reads_hold_are_counted_and_beyond_the_limit_only_their_bytes_are_held() {
    const LARGE: u64 = HELD * 2 / 5;
    let rig = Rig::new(4 * LARGE, 1);
    let (blob, counted) = Memory::new(noise(3 * LARGE as usize), LARGE).blob();
    let file = rig.open(Content::Blob(blob));
    answer(&rig.read(&file, 0, 10)).unwrap();
    let worker = rig.occupy();
    // Each needs the first piece, which is in the cache, and the second, which is not; two hold the first, three copy.
    let waiting: Vec<_> = (0..5).map(|_| rig.read(&file, LARGE - 10, 20)).collect();
    assert_eq!(rig.reader.held.bytes(), 2 * LARGE + 3 * 20);
    drop(worker);
    assert!(waiting.iter().all(|rx| answer(rx).unwrap() == noise(LARGE as usize + 10)[LARGE as usize - 10..]));
    // Replies precede the release of their buffers.
    while rig.reader.held.bytes() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(counted.decodes.load(Ordering::Relaxed), 2);
}

/// Reads `len` bytes at each of `starts`, all before the first piece is decoded, from 40 MiB in pieces of 4 MiB with a
/// cache of 1 MiB. Each of the ten pieces must be decoded once.
fn one_wave_over_ten_large_pieces(content: impl Fn(BlobRef) -> Content, want: &[u8], starts: &[u64], len: u32) {
    const LARGE: u64 = 4 << 20;
    let rig = Rig::new(1 << 20, 1);
    let (blob, counted) = Memory::new(noise(10 * LARGE as usize), LARGE).blob();
    let file = rig.open(content(blob));
    let worker = rig.occupy();
    let waiting: Vec<_> = starts.iter().map(|&start| rig.read(&file, start, len)).collect();
    drop(worker);
    for (start, rx) in starts.iter().zip(&waiting) {
        assert!(answer(rx).unwrap() == want[*start as usize..][..len as usize], "at {start}");
    }
    assert_eq!(counted.decodes.load(Ordering::Relaxed), 10);
    while rig.reader.held.bytes() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn no_piece_is_decoded_twice_for_one_wave_whose_pieces_exceed_what_may_be_held() {
    let want = noise(40 << 20);
    // Five reads across each boundary, and one of each first part.
    let across = (1..10_u64).flat_map(|piece| (0..5).map(move |i| (piece << 22) - (i * 200_000) - 1));
    let starts: Vec<_> = across.chain((0..10).map(|piece| piece << 22)).collect();
    one_wave_over_ten_large_pieces(Content::Blob, &want, &starts, 1 << 20);
}

#[test]
fn no_piece_is_decoded_twice_for_one_wave_of_an_array_whose_rows_cross_all_pieces() {
    // Ten adjacent chunks, each a piece.
    let rows = 4096;
    let grid = |blob| {
        let (shape, chunk) = (vec![rows, 10 << 10], vec![rows, 1 << 10]);
        Content::Grid(Arc::new(Grid { blob, itemsize: 1, shape, block: chunk.clone(), chunk, window: None }))
    };
    let stored = noise(40 << 20);
    let want: Vec<u8> = (0..rows as usize)
        .flat_map(|row| {
            (0..10).flat_map(move |column| (column << 22) + (row << 10)..(column << 22) + ((row + 1) << 10))
        })
        .map(|at| stored[at])
        .collect();
    let starts: Vec<_> = (0..10).map(|i| i * 1_000_003).collect();
    one_wave_over_ten_large_pieces(grid, &want, &starts, 100_000);
}

#[test]
fn an_answer_is_given_by_the_thread_that_brings_the_last_piece() {
    let rig = Rig::new(1 << 20, 1);
    let (blob, _) = Memory::new(noise(3000), PIECE).blob();
    let file = rig.open(Content::Blob(blob));
    let worker = rig.occupy();
    let first = rig.read(&file, 500, 1000);
    // Queued behind the pieces of `first`; blocks until the end of the test.
    let behind = rig.occupy();
    let last = rig.read(&file, 2000, 10);
    worker.send(()).unwrap();
    let (bytes, thread) = first.recv_timeout(PATIENCE).unwrap();
    assert_eq!(bytes.unwrap(), noise(3000)[500..1500]);
    assert!(thread.starts_with("decode"), "{thread}");
    // From memory, on this thread.
    let (bytes, thread) = rig.read(&file, 0, 2000).try_recv().unwrap();
    assert_eq!((bytes.unwrap(), thread), (noise(2000), std::thread::current().name().unwrap().to_owned()));
    drop(behind);
    assert_eq!(answer(&last).unwrap(), noise(3000)[2000..2010]);
}

#[test]
fn a_computed_file_is_computed_once_and_not_by_the_workers() {
    let rig = Rig::new(1 << 20, 1);
    let threads = Arc::new(Mutex::new(Vec::new()));
    let seen = threads.clone();
    let make = move |_: &dyn Fetch| {
        seen.lock().unwrap().push(std::thread::current().name().unwrap_or_default().to_owned());
        Ok(noise(100))
    };
    let file = rig.open(Content::Computed { len: Some(100), make: Arc::new(make) });
    let _worker = rig.occupy();
    let waiting: Vec<_> = (0..10).map(|_| rig.read(&file, 10, 20)).collect();
    assert!(waiting.iter().all(|rx| answer(rx).unwrap() == noise(100)[10..30]));
    let threads = threads.lock().unwrap();
    assert!(threads.len() == 1 && threads[0].starts_with("check"), "{threads:?}");
}

#[test]
fn a_broken_piece_is_an_error_of_the_reads_that_need_it() {
    let rig = Rig::new(1 << 20, 1);
    let (blob, _) = Memory { broken: vec![1], panics: vec![2], ..Memory::new(noise(3000), PIECE) }.blob();
    let file = rig.open(Content::Blob(blob));
    let got = [(0, 1000), (900, 200), (2000, 10)].map(|(offset, size)| answer(&rig.read(&file, offset, size)));
    assert_eq!(got, [Ok(noise(1000)), Err(libc::EIO), Err(libc::EIO)]);
    assert_eq!(answer(&rig.read(&file, 5000, 10)).unwrap(), Vec::<u8>::new(), "behind the end");
}
