//! Long Zstandard frames that are decoded ahead of a sequential reader, and freed behind it.

use std::io::Write;
use std::ops::Range;
use std::sync::{Arc, Barrier, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fzmfs::account::{Account, Pieces};
use fzmfs::cache::Cache;
use fzmfs::checksum::Threads;
use fzmfs::error::Result;
use fzmfs::format::{BlobRef, Container, Content, Options, Piece};

use crate::support::mounts::wait_until;
use crate::support::opened as support;

const MIB: u64 = 1 << 20;
/// Pieces of each frame.
const PIECES: u64 = 9;
/// Frames of each file: far more than may be decoded ahead.
const FRAMES: u64 = 12;
/// What the decoded frames of sequential readers may take, the ends of two that were freed, and the decoders.
const MOST: u64 = 46 * MIB + 4 * MIB + 8 * MIB;

/// Frame `index`, decoded.
fn content(index: u64) -> &'static [u8] {
    static CONTENT: [OnceLock<Vec<u8>>; FRAMES as usize] = [const { OnceLock::new() }; FRAMES as usize];
    CONTENT[index as usize]
        .get_or_init(|| (0..PIECES * MIB / 8).flat_map(|i| (i / 3 * (index + 1)).to_le_bytes()).collect())
}

fn frame(index: u64, checksum: bool) -> Vec<u8> {
    let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
    compressor.include_checksum(checksum).unwrap();
    compressor.compress(content(index)).unwrap()
}

/// The same without its size, as from a pipe.
fn sizeless_frame(index: u64, checksum: bool) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(checksum).unwrap();
    encoder.write_all(content(index)).unwrap();
    encoder.finish().unwrap()
}

struct Opened {
    threads: Threads,
    account: Account,
    blob: BlobRef,
    cache: Arc<Cache>,
    _container: Arc<dyn Container>,
}

fn open(file: Vec<u8>, store: fn(Account) -> Arc<Pieces>) -> Opened {
    let account = Account::new(256 * MIB, 0);
    let pieces = store(account.clone());
    let threads = Threads::new(2);
    let options = Options { account: account.clone(), pieces, threads: threads.clone(), ..Options::default() };
    let container = support::open(file, &options).unwrap();
    let Content::Blob(blob) = support::file(&*container, "data.raw").unwrap().content else { panic!("no blob") };
    let cache = Cache::sharing(4 * MIB, 512 * MIB, 2, account.clone());
    Opened { threads, account, blob, cache, _container: container }
}

/// Whether the stream itself keeps the piece.
fn is_kept(blob: &BlobRef, piece: u64) -> bool {
    blob.in_order().is_some_and(|blob| blob.ready(piece).is_some())
}

impl Opened {
    /// Reads a piece as a reader does.
    fn read(&self, piece: u64) -> Result<Piece> {
        assert!(self.blob.layout().unwrap().count() > piece);
        self.cache.peek(&self.blob, piece).map_or_else(|| self.cache.get(&self.blob, piece), Ok)
    }

    /// Reads frame `index` in order.
    fn read_frame(&self, index: u64) {
        let want = content(index);
        for (piece, want) in (index * PIECES..).zip(want.chunks(MIB as usize)) {
            assert!(*self.read(piece).unwrap() == want, "piece {piece}");
        }
    }

    /// Keeps all threads busy until the sender is dropped.
    fn hold_threads(&self) -> mpsc::Sender<()> {
        let (end, ended) = mpsc::channel();
        let ended = Arc::new(Mutex::new(ended));
        for _ in 0..self.threads.most() {
            let ended = ended.clone();
            self.threads.run(Box::new(move || _ = ended.lock().unwrap().recv()));
        }
        end
    }

    /// Waits until the threads have done what is queued.
    fn wait_for_threads(&self) {
        let all = Arc::new(Barrier::new(self.threads.most() + 1));
        for _ in 0..self.threads.most() {
            let all = all.clone();
            self.threads.run(Box::new(move || _ = all.wait()));
        }
        all.wait();
    }

    fn is_ready(&self, frame: u64) -> bool {
        self.are_ready(&(frame * PIECES..(frame + 1) * PIECES))
    }

    fn are_ready(&self, pieces: &Range<u64>) -> bool {
        pieces.clone().all(|piece| is_kept(&self.blob, piece))
    }

    fn wait_for(&self, frame: u64) {
        self.wait_for_pieces(frame * PIECES..(frame + 1) * PIECES);
    }

    fn wait_for_pieces(&self, pieces: Range<u64>) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.are_ready(&pieces) {
            // The gate of a frame without a checksum is made when it is first looked at.
            assert!(Instant::now() < deadline, "pieces {pieces:?} are not decoded ahead");
            self.blob.gate(pieces.start);
            thread::yield_now();
        }
    }
}

type Store = fn(Account) -> Arc<Pieces>;
const STORES: [Store; 2] = [Pieces::new, Pieces::read_once];

#[test]
fn frames_are_decoded_ahead_of_a_sequential_reader_and_freed_behind_it() {
    for (make, checksum) in
        [(frame as fn(_, _) -> _, true), (frame, false), (sizeless_frame, true), (sizeless_frame, false)]
    {
        let file: Vec<u8> = (0..FRAMES).flat_map(|index| make(index, checksum)).collect();
        for store in STORES {
            let opened = open(file.clone(), store);
            opened.read_frame(0);
            opened.wait_for(1);
            opened.wait_for(2);
            assert!(!opened.is_ready(3), "no more than there are threads");
            for index in 1..FRAMES {
                opened.read_frame(index);
            }
            let peak = opened.account.peaks().memory;
            assert!(peak <= MOST, "checksum {checksum}: {} MiB", peak / MIB);
            wait_until("they are freed behind", || !opened.is_ready(0) && !opened.is_ready(1));
        }
    }
}

#[test]
fn what_a_frame_decodes_on_its_own_is_counted_once() {
    for checksum in [true, false] {
        let opened = open(frame(0, checksum), Pieces::new);
        if checksum {
            // The whole frame is decoded for it, and kept.
            opened.read(PIECES - 1).unwrap();
        }
        opened.read_frame(0);
        // A thread that decodes blocks for the reader holds them until it ends.
        opened.wait_for_threads();
        let stats = opened.cache.stats();
        assert_eq!(stats.decoded_bytes, PIECES * MIB, "checksum {checksum}");
        assert!((stats.hits > 0, stats.beside > 0) == (checksum, checksum), "{stats:?}");
        assert!(stats.hits + stats.misses >= PIECES, "{stats:?}");
    }
}

#[test]
fn a_first_jump_keeps_only_what_is_near_and_a_second_one_what_it_decodes_again() {
    let opened = open(zstd::bulk::compress(&vec![7; (30 * MIB) as usize], 1).unwrap(), Pieces::new);
    let decoded = |piece| {
        assert!(opened.read(piece).unwrap().iter().all(|&byte| byte == 7));
        opened.cache.stats().decoded_bytes / MIB
    };
    // Too short for checkpoints.
    assert_eq!(decoded(29), 30);
    let kept = opened.account.memory().used();
    assert!(kept <= 7 * MIB, "{} MiB", kept / MIB);
    assert_eq!(decoded(26), 30, "it is near");
    assert_eq!(decoded(20), 51);
    assert_eq!(decoded(10), 51, "it was kept");
}

#[test]
fn a_second_reader_gets_frames_that_were_freed() {
    let file: Vec<u8> = (0..FRAMES).flat_map(|index| frame(index, true)).collect();
    let opened = open(file, Pieces::new);
    for index in (0..FRAMES).chain(0..FRAMES) {
        opened.read_frame(index);
    }
    assert!(opened.account.peaks().memory <= MOST);
    thread::scope(|scope| {
        for first in [0, 4, 9] {
            let opened = &opened;
            scope.spawn(move || (first..FRAMES).chain(0..first).for_each(|index| opened.read_frame(index)));
        }
    });
}

#[test]
fn a_reader_of_one_place_has_no_other_frame_decoded() {
    let file: Vec<u8> = (0..FRAMES).flat_map(|index| frame(index, true)).collect();
    let opened = open(file, Pieces::new);
    for piece in [5 * PIECES + 4, 2 * PIECES, 7 * PIECES + 8] {
        opened.read(piece).unwrap();
        let frame = piece / PIECES;
        assert!(opened.is_ready(frame) && !opened.is_ready(frame + 1));
    }
    let peak = opened.account.peaks().memory;
    assert!(peak <= 3 * PIECES * MIB + 4 * MIB, "{} MiB", peak / MIB);
}

#[test]
fn a_broken_frame_that_is_decoded_ahead_fails_for_its_reader_only() {
    let broken = 3;
    for is_end in [true, false] {
        let mut frames: Vec<_> = (0..FRAMES).map(|index| frame(index, true)).collect();
        let bad = &mut frames[broken as usize];
        let at = if is_end { bad.len() - 1 } else { bad.len() / 2 };
        bad[at] ^= 1;
        for store in STORES {
            let opened = open(frames.concat(), store);
            for index in (0..FRAMES).filter(|&index| index != broken) {
                if index == broken + 1 {
                    for piece in broken * PIECES..index * PIECES {
                        assert_eq!(opened.read(piece).unwrap_err().errno(), libc::EIO);
                    }
                }
                opened.read_frame(index);
            }
        }
    }
}

#[test]
fn a_frame_that_states_too_little_content_fails_at_its_end_also_if_it_is_decoded_ahead() {
    let path = support::data("broken/zstd/states_less_content_than_it_has.zst");
    let file = std::fs::read(path).unwrap();
    for store in STORES {
        let opened = open(file.clone(), store);
        for piece in 0..5 {
            assert!(opened.read(piece).unwrap().iter().all(|&byte| byte == b'7'));
        }
        opened.wait_for_pieces(5..9);
        opened.wait_for_pieces(10..15);
        assert_eq!(opened.read(9).unwrap_err().errno(), libc::EIO);
        assert!(opened.read(8).is_ok() && opened.read(10).is_ok());
    }
}

#[test]
fn a_reader_does_not_wait_for_threads_that_are_busy_with_long_checks() {
    let file: Vec<u8> = (0..3).flat_map(|index| frame(index, false)).collect();
    for store in STORES {
        let opened = open(file.clone(), store);
        let end = opened.hold_threads();
        (0..3).for_each(|index| opened.read_frame(index));
        drop(end);
    }
}

#[test]
fn a_frame_that_its_reader_has_checked_is_not_decoded_again_by_a_thread_that_comes_late() {
    let file: Vec<u8> = (0..FRAMES).flat_map(|index| frame(index, true)).collect();
    for store in STORES {
        let opened = open(file.clone(), store);
        let end = opened.hold_threads();
        (0..FRAMES).for_each(|index| opened.read_frame(index));
        drop(end);
        opened.wait_for_threads();
        assert_eq!(opened.cache.stats().decoded_bytes, FRAMES * PIECES * MIB);
        assert!(!(0..FRAMES - 5).any(|index| opened.is_ready(index)), "they are freed behind");
        let peak = opened.account.peaks().memory;
        assert!(peak <= MOST, "{} MiB", peak / MIB);
    }
}

#[test]
fn what_a_request_needs_of_the_frame_before_is_kept_while_it_waits() {
    let (pieces, frames) = (16, 6);
    let content = vec![7; (pieces * MIB) as usize];
    let file = zstd::bulk::Compressor::new(1).and_then(|mut compressor| {
        compressor.include_checksum(true)?;
        compressor.compress(&content)
    });
    let opened = open(file.unwrap().repeat(frames), Pieces::new);
    for frame in 0..frames as u64 {
        let first = frame * pieces;
        // The kernel reads ahead: a request begins in the frame before, and those that follow are noted too.
        (first.saturating_sub(1)..first + 4).for_each(|piece| drop(opened.cache.peek(&opened.blob, piece)));
        opened.read(first).unwrap();
        assert!(frame == 0 || is_kept(&opened.blob, first - 1), "the end of the frame before {frame}");
        (first..first + 4).for_each(|piece| drop(opened.cache.peek(&opened.blob, piece)));
        (first..first + pieces).for_each(|piece| assert!(*opened.read(piece).unwrap() == content[..MIB as usize]));
    }
    let peak = opened.account.peaks().memory;
    // A frame that its reader reaches before there is room to decode it ahead comes on top.
    assert!(peak <= MOST + pieces * MIB, "{} MiB", peak / MIB);
}
