//! Long Zstandard frames that are read from a checkpoint, which this mount or an earlier one has left in the index.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fzmfs::account::{Account, Pieces};
use fzmfs::checksum::{BackgroundChecks, Threads, Verify};
use fzmfs::error::Result;
use fzmfs::format::{self, BlobRef, Container, Content, Input, Options};
use fzmfs::index::Index;
use fzmfs::source::Source;
use tempfile::TempDir;

use crate::support::mounts::wait_until;
use crate::support::opened as support;

const MIB: u64 = 1 << 20;
/// Pieces of the frame: with a checkpoint after every 16 of them, two have one before them.
const PIECES: u64 = 40;

fn content() -> Vec<u8> {
    (0..PIECES * MIB / 16).flat_map(|i| [i / 7, i * i / 13]).flat_map(u64::to_le_bytes).collect()
}

/// One frame, with a window of `1 << window_log` bytes and a checksum; its size is stated only if `is_sized`.
fn frame(content: &[u8], window_log: u32, is_sized: bool) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.window_log(window_log).unwrap();
    if is_sized {
        encoder.set_pledged_src_size(Some(content.len() as u64)).unwrap();
    }
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// A file and an index.
struct Place {
    dir: TempDir,
    content: Vec<u8>,
}

struct Opened {
    account: Account,
    blob: BlobRef,
    _container: Arc<dyn Container>,
}

impl Place {
    fn new(is_sized: bool) -> Self {
        Self::with_window(17, is_sized)
    }

    fn with_window(log: u32, is_sized: bool) -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap(), content: content() };
        fs::write(place.file(), frame(&place.content, log, is_sized)).unwrap();
        place
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("x.zst")
    }

    fn index(&self) -> Index {
        Index::new(self.dir.path().join("index"), 1 << 30, self.dir.path().join("state"))
    }

    fn open(&self, index: Index) -> Opened {
        self.open_with(index, Account::new(256 * MIB, 0))
    }

    fn open_with(&self, index: Index, account: Account) -> Opened {
        self.open_on(Threads::new(2), index, account)
    }

    fn open_on(&self, threads: Threads, index: Index, account: Account) -> Opened {
        let verify = Verify::Background(BackgroundChecks::default());
        let pieces = Pieces::new(account.clone());
        let options = Options { account: account.clone(), pieces, threads, verify, index, ..Options::default() };
        let container = format::open(&Input::of(Source::open(&self.file()).unwrap()).unwrap(), None, &options).unwrap();
        let Content::Blob(blob) = support::file(&*container, "data.raw").unwrap().content else { panic!("no blob") };
        Opened { account, blob, _container: container }
    }

    /// Reads piece `piece` as it must be; returns the MiB that were decoded besides it.
    fn read(&self, opened: &Opened, piece: u64) -> u64 {
        let before = opened.account.decoded_beside();
        let bytes = opened.decode(piece).unwrap();
        assert!(bytes == self.content[(piece * MIB) as usize..][..MIB as usize], "piece {piece}");
        (opened.account.decoded_beside() - before).max(0) as u64 / MIB
    }

    fn read_in_order(&self, opened: &Opened, pieces: u64) {
        assert_eq!((0..pieces).map(|piece| self.read(opened, piece)).sum::<u64>(), 0);
    }
}

impl Opened {
    fn decode(&self, piece: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0xA5; MIB as usize];
        assert!(self.blob.layout()?.count() == PIECES);
        self.blob.decode(piece, &mut bytes).map(|()| bytes)
    }
}

#[test]
fn the_end_of_a_frame_that_was_read_before_is_read_from_the_last_checkpoint() {
    for is_sized in [true, false] {
        let place = Place::new(is_sized);
        place.read_in_order(&place.open(place.index()), PIECES);
        let again = place.open(place.index());
        assert!((4..=8).contains(&place.read(&again, PIECES - 1)), "from piece 32");
        assert_eq!(place.read(&again, 5), 5, "from the start");
        assert!(place.read(&again, 20) <= 4, "from piece 16");
        let without = place.open(Index::off());
        assert_eq!(place.read(&without, PIECES - 1), PIECES - 1);
        fs::remove_dir_all(place.dir.path().join("index")).unwrap();
        assert_eq!(place.read(&place.open(place.index()), PIECES - 1), PIECES - 1);
    }
}

#[test]
fn without_an_index_a_reader_begins_at_the_checkpoints_of_this_mount() {
    let place = Place::new(true);
    let opened = place.open(Index::off());
    place.read_in_order(&opened, PIECES);
    for piece in [39, 21, 36, 20, 38, 19, 35] {
        // A record that is compressed in the background may not be there yet.
        wait_until("a checkpoint", || place.read(&opened, piece) <= 8);
    }
}

#[test]
fn a_full_memory_does_not_send_readers_to_the_start() {
    for (window_log, memory) in [(17, &[4, 8, 32][..]), (21, &[16, 48])] {
        let place = Place::with_window(window_log, true);
        place.read_in_order(&place.open(place.index()), PIECES);
        for memory in memory {
            let opened = place.open_with(place.index(), Account::new(memory * MIB, 1 << 30));
            for i in 0..2 * PIECES {
                let piece = i * 23 % PIECES;
                // Checkpoints are before pieces 16 and 32.
                let beside = place.read(&opened, piece);
                assert!(beside <= 16, "2^{window_log}, {memory} MiB, read {i}, of piece {piece}: {beside}");
            }
        }
    }
}

#[test]
fn the_last_piece_is_not_served_before_the_checksum_was_verified_once() {
    let place = Place::new(true);
    place.read_in_order(&place.open(place.index()), PIECES - 1);
    let again = place.open(place.index());
    assert!(place.read(&again, PIECES - 2) <= 8);
    assert!(place.read(&again, PIECES - 1) >= PIECES - 8, "it was never verified");
    assert!(place.read(&place.open(place.index()), PIECES - 1) <= 8, "now it was");

    // The checksum is wrong: checkpoints are left, and no verdict.
    let mut broken = frame(&place.content, 17, true);
    *broken.last_mut().unwrap() ^= 1;
    fs::write(place.file(), broken).unwrap();
    for _ in 0..2 {
        let opened = place.open(place.index());
        place.read(&opened, PIECES - 2);
        assert!(opened.decode(PIECES - 1).unwrap_err().to_string().contains("checksum"));
    }
}

#[test]
fn a_frame_that_is_broken_after_a_checkpoint_fails_as_it_does_from_its_start() {
    // Where a thread is free for it, our own decoder says what is wrong, else libzstd, which has words of its own.
    let mut wanted = Vec::new();
    for threads in [1, 2] {
        let place = Place::new(true);
        let mut broken = frame(&place.content, 17, true);
        break_block(&mut broken);
        fs::write(place.file(), &broken).unwrap();
        let open = |index| place.open_on(Threads::new(threads), index, Account::new(256 * MIB, 0));
        let error = |opened: &Opened| opened.decode(PIECES - 2).unwrap_err().to_string();
        wanted.push(error(&open(Index::off())));
        place.read_in_order(&open(place.index()), 34);
        let again = open(place.index());
        place.read(&again, 33);
        for said in [error(&again), error(&again)] {
            assert!(wanted.contains(&said), "{said}, and not {wanted:?}");
        }
        place.read(&again, 33);
        assert_eq!(place.read(&open(place.index()), 33), 33, "no checkpoint is left");
    }
}

/// Breaks the first compressed block in the last tenth of the frame.
fn break_block(file: &mut [u8]) {
    // Magic number, descriptor, window, content size.
    let mut at = 6 + [0, 2, 4, 8][usize::from(file[4] >> 6)];
    loop {
        let header = u32::from_le_bytes([file[at], file[at + 1], file[at + 2], 0]);
        let (kind, size) = (header >> 1 & 3, (header >> 3) as usize);
        if at > file.len() / 10 * 9 && kind == 2 {
            return file[at + 3..][..8].fill(0xFF);
        }
        at += 3 + if kind == 1 { 1 } else { size };
    }
}

#[test]
fn another_file_in_the_place_of_one_that_has_an_index_is_read_as_it_is() {
    let mut place = Place::new(true);
    place.read_in_order(&place.open(place.index()), PIECES);
    let time = fs::metadata(place.file()).unwrap().modified().unwrap();
    place.content.reverse();
    fs::write(place.file(), frame(&place.content, 17, true)).unwrap();
    fs::File::options().write(true).open(place.file()).unwrap().set_modified(time).unwrap();
    let opened = place.open(place.index());
    assert_eq!(place.read(&opened, PIECES - 1), PIECES - 1);
}

#[test]
fn a_record_that_is_damaged_is_as_one_that_is_not_there() {
    let place = Place::new(true);
    place.read_in_order(&place.open(place.index()), PIECES);
    let records = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let subjects = records(&place.dir.path().join("index"));
    let mut checkpoints = records(&subjects[0]);
    checkpoints.retain(|path| path.to_str().unwrap().contains("checkpoint"));
    checkpoints.sort();
    assert_eq!((subjects.len(), checkpoints.len()), (1, 2));
    let last = checkpoints.last().unwrap();
    let mut bytes = fs::read(last).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(last, bytes).unwrap();
    let again = place.open(place.index());
    assert!((20..=24).contains(&place.read(&again, PIECES - 1)), "from piece 16");
}
