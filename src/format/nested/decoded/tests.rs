//! Tests of the decoded bytes of a container as a source: what is decoded, how often, and who pays for it.
#![forbid(unsafe_code)]

use std::sync::Barrier;

use super::*;
use crate::checksum::{BackgroundChecks, Verify};
use crate::clock::wait_until;
use crate::format::{Blob, Input, Measured, Node};

const PIECE: u64 = 1000;
const COUNT: u64 = 40;

/// Pieces that are decoded when the one after it is being decoded too, and how often each was decoded.
#[derive(Default)]
struct InPairs {
    waits: bool,
    begun: Mutex<Vec<u64>>,
}

impl InPairs {
    fn begun(&self, piece: u64) -> usize {
        self.begun.lock().unwrap().iter().filter(|&&begun| begun == piece).count()
    }
}

impl Blob for InPairs {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: COUNT * PIECE, piece: PIECE })
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        self.begun.lock().unwrap().push(piece);
        // From the fourth on, and not the last.
        if self.waits && (3..COUNT - 1).contains(&piece) {
            wait_until(|| self.begun(piece + 1) > 0);
        }
        dst.fill(piece as u8);
        Ok(())
    }
}

fn decoded(waits: bool) -> (Decoded, Arc<InPairs>) {
    decoded_within(Account::new(1 << 30, 0), waits)
}

fn decoded_within(account: Account, waits: bool) -> (Decoded, Arc<InPairs>) {
    let blob = Arc::new(InPairs { waits, ..InPairs::default() });
    let threads = Threads::new(4);
    let options = Options { threads, account, ..Options::default() };
    (Decoded::new(Vec::new(), BlobRef::shared(blob.clone()), &options).unwrap(), blob)
}

fn read(decoded: &Decoded, piece: u64) {
    let mut header = [0; 10];
    decoded.read(FileOffset(piece * PIECE + 7), &mut header, "header").unwrap();
    assert_eq!(header, [piece as u8; 10]);
}

#[test]
fn a_walk_through_all_pieces_decodes_them_on_several_threads_and_each_once() {
    let (decoded, blob) = decoded(true);
    (0..COUNT).for_each(|piece| read(&decoded, piece));
    assert!((0..COUNT).all(|piece| blob.begun(piece) == 1));
}

#[test]
fn what_a_walk_has_passed_is_not_decoded_by_threads_that_come_late() {
    let (decoded, blob) = decoded(false);
    let (begin, end) = (Arc::new(Barrier::new(5)), Arc::new(Barrier::new(5)));
    let meet = |barrier: &Arc<Barrier>| {
        let barrier = barrier.clone();
        decoded.threads.run(Box::new(move || _ = barrier.wait()));
    };
    (0..4).for_each(|_| meet(&begin));
    (0..COUNT).for_each(|piece| read(&decoded, piece));
    begin.wait();
    (0..4).for_each(|_| meet(&end));
    end.wait();
    assert!((0..COUNT).all(|piece| blob.begun(piece) == 1));
    // A second walk decodes all of it again.
    (0..COUNT).for_each(|piece| read(&decoded, piece));
    assert!((0..COUNT - 8).all(|piece| blob.begun(piece) == 2));
}

#[test]
fn what_is_decoded_ahead_is_charged_to_the_opening_that_reads_it() {
    // 256 for each piece besides its bytes.
    let cost = COUNT * (PIECE + 256);
    for (limit, fits) in [(cost, true), (cost - 1, false)] {
        let (decoded, _) = decoded(true);
        let read = |piece: u64| decoded.read(FileOffset(piece * PIECE), &mut [0; 10], "header");
        assert_eq!(decode_budget::opening(limit, || (0..COUNT).try_for_each(read)).is_ok(), fits, "{limit}");
    }
}

#[test]
fn a_piece_that_is_read_in_parts_is_decoded_once_even_without_room_for_it() {
    let (decoded, blob) = decoded_within(Account::new(0, 0), false);
    (0..COUNT).for_each(|piece| (0..3).for_each(|_| read(&decoded, piece)));
    assert!((0..COUNT).all(|piece| blob.begun(piece) == 1));
    read(&decoded, 0);
    assert_eq!(blob.begun(0), 2);
    // Others have taken the memory: what is decoded ahead is not kept, and takes no room of what is read.
    let account = Account::new(1 << 20, 0);
    let _others = account.charge(1 << 20, "others").unwrap();
    let (decoded, blob) = decoded_within(account, false);
    (0..COUNT).for_each(|piece| (0..50).for_each(|_| read(&decoded, piece)));
    assert!((0..COUNT).all(|piece| blob.begun(piece) <= 2));
}

#[test]
fn a_walk_that_skips_pieces_decodes_none_of_these() {
    let (decoded, blob) = decoded(false);
    (0..COUNT / 3).for_each(|i| read(&decoded, 3 * i));
    drop(decoded);
    assert!((0..COUNT).all(|piece| blob.begun(piece) == usize::from(piece % 3 == 0 && piece / 3 < COUNT / 3)));
}

/// Pieces of a stream of unknown length, which is known when one behind the end was to be decoded, or somebody asks.
#[derive(Default)]
struct Unsized {
    is_known: AtomicU64,
    /// Whether it was asked for before.
    asked: AtomicU64,
}

impl Unsized {
    const LEN: u64 = COUNT * PIECE - 500;
}

impl Blob for Unsized {
    fn layout(&self) -> Result<Layout> {
        if self.is_known.swap(1, Ordering::Relaxed) == 0 {
            self.asked.store(1, Ordering::Relaxed);
        }
        Ok(Layout::Uniform { len: Self::LEN, piece: PIECE })
    }

    fn measured(&self) -> Option<&dyn Measured> {
        Some(self)
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        if piece * PIECE + to_u64(dst.len()) > Self::LEN {
            self.is_known.store(1, Ordering::Relaxed);
            return Err(Error::new(Kind::NotFound, "piece"));
        }
        dst.fill(piece as u8);
        Ok(())
    }
}

impl Measured for Unsized {
    fn known_len(&self) -> Option<u64> {
        Some(self.layout().ok()?.len())
    }

    fn longest(&self) -> Option<Layout> {
        Some(Layout::Uniform { len: 2 * COUNT * PIECE + 1, piece: PIECE })
    }
}

#[test]
fn a_walk_to_the_end_of_a_stream_finds_its_length() {
    let blob = Arc::new(Unsized::default());
    let options = Options { threads: Threads::new(2), account: Account::new(1 << 20, 0), ..Options::default() };
    let origin = || Decoded::new(Vec::new(), BlobRef::shared(blob.clone()), &options).unwrap();
    let source = Source::of("x", origin());
    assert!(source.len() > Unsized::LEN);
    let mut at = 0;
    while let part = source.get_most(FileOffset(at), 300, "part").unwrap()
        && !part.is_empty()
    {
        assert!((at..).zip(&part).all(|(at, &byte)| byte == (at / PIECE) as u8));
        at += to_u64(part.len());
    }
    assert_eq!((at, source.len(), source.size().unwrap()), (Unsized::LEN, Unsized::LEN, Unsized::LEN));
    assert_eq!(blob.asked.load(Ordering::Relaxed), 0, "the walk has found it");
    // A caller that needs it at once asks for it.
    let blob = Arc::new(Unsized::default());
    let source = Source::of("x", Decoded::new(Vec::new(), BlobRef::shared(blob.clone()), &options).unwrap());
    assert_eq!((source.size().unwrap(), source.len()), (Unsized::LEN, Unsized::LEN));
    assert_eq!(blob.asked.load(Ordering::Relaxed), 1);
    // Beyond the end is nothing, whether it is known or not.
    let source = Source::of("x", origin());
    let behind = source.read(FileOffset(Unsized::LEN - 10), &mut [0; 20], "part").unwrap_err();
    assert!(matches!(behind.kind(), Kind::Truncated { need: 20, have: 10 }), "{behind}");
}

/// A file of which the bytes that are read are counted.
#[derive(Debug)]
struct Counting(Vec<u8>, Arc<AtomicU64>);

impl Origin for Counting {
    fn len(&self) -> u64 {
        to_u64(self.0.len())
    }

    fn read(&self, at: FileOffset, dst: &mut [u8], _: &'static str) -> Result<()> {
        self.1.fetch_add(to_u64(dst.len()), Ordering::Relaxed);
        dst.copy_from_slice(self.0.get(at.0 as usize..).and_then(|rest| rest.get(..dst.len())).unwrap());
        Ok(())
    }
}

#[test]
fn an_archive_in_a_frame_without_a_size_is_listed_with_one_pass_over_it() {
    let noise = |i: u32| (i.wrapping_mul(2_654_435_761) >> 9) as u8 & 0x3F;
    let content: Vec<u8> = (0..5_000_000).map(noise).collect();
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    let mut archive = tar::Builder::new(encoder);
    for name in ["a", "b", "c"] {
        let mut header = tar::Header::new_gnu();
        header.set_size(to_u64(content.len()));
        archive.append_data(&mut header, name, &*content).unwrap();
    }
    let file = archive.into_inner().unwrap().finish().unwrap();
    let (len, read) = (to_u64(file.len()), Arc::new(AtomicU64::new(0)));
    let input = Input::of(Source::of("x.tar.zst", Counting(file, read.clone()))).unwrap();
    let account = Account::new(16 << 20, 0);
    let verify = Verify::Background(BackgroundChecks::default());
    let options = Options { threads: Threads::new(2), account, verify, ..Options::default() };
    let outer = crate::format::open(&input, None, &options).unwrap();
    let mut nodes = outer.entries().unwrap().into_iter().map(|entry| entry.node);
    let inner = nodes.find_map(|node| if let Node::Container(inner) = node { inner.open().ok() } else { None });
    let members = inner.unwrap().directory().unwrap().entries().unwrap();
    assert_eq!(members.len(), 3);
    // The headers of the blocks besides.
    let read = read.load(Ordering::Relaxed);
    assert!((len..len + len / 4).contains(&read), "{read} of {len}");
    assert!(outer.stream().unwrap().known_len().is_some_and(|len| len > 15_000_000));
}

#[test]
fn a_thread_that_goes_on_with_pieces_of_the_same_turn_does_not_wait_for_itself() {
    let (decoded, blob) = decoded(true);
    let shared = decoded.shared.clone();
    *shared.run() = PieceRun { pieces: 3..4, is_begun: true };
    let thread = std::thread::spawn(move || shared.decode_run());
    wait_until(|| blob.begun(3) > 0);
    // The walk is elsewhere now.
    let next = 3 + to_u64(AT_ONCE);
    *decoded.shared.run() = PieceRun { pieces: next..next + 1, is_begun: true };
    blob.begun.lock().unwrap().extend([4, next + 1]);
    wait_until(|| thread.is_finished());
    assert_eq!(blob.begun(next), 1);
}
