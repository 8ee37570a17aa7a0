//! An index whose records were changed: no piece is ever wrong.
//!
//! The input is a list of changes, each three bytes: where (two), and what is added there. They are made to the file of a
//! checkpoint, which is then not valid; and with the last bit of the first byte set, to its payload, as by a user who has
//! the secret: then bytes may be wrong, and nothing else may happen.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use fzmfs::account::{Account, Pieces};
use fzmfs::checksum::Verify;
use fzmfs::format::{self, Content, Input, Node, Options};
use fzmfs::index::Index;
use fzmfs::source::Source;
use fzmfs_fuzz::libfuzzer_sys::fuzz_target;

const MIB: usize = 1 << 20;
/// Pieces of the frame: two checkpoints.
const PIECES: usize = 33;

/// A file with one frame, its index, the file of a checkpoint, and that as it was written.
struct Place {
    file: PathBuf,
    index: PathBuf,
    state: PathBuf,
    record: PathBuf,
    bytes: Vec<u8>,
}

fn content(at: usize) -> u8 {
    ((at / MIB) ^ (at >> 7)) as u8
}

/// Reads the pieces `pieces`, by a reader of its own.
fn read(place: &Place, pieces: std::ops::Range<usize>, is_checked: bool) {
    let account = Account::new(256 << 20, 0);
    let index = Index::new(place.index.clone(), 1 << 30, place.state.clone());
    let (pieces_kept, verify) = (Pieces::new(account.clone()), Verify::Off);
    let options = Options { account, pieces: pieces_kept, verify, index, ..Options::default() };
    let input = Input::of(Source::open(&place.file).unwrap()).unwrap();
    let container = format::open(&input, None, &options).unwrap();
    let entry = container.entries().unwrap().into_iter().find(|entry| *entry.stem == *b"data").unwrap();
    let Node::File(data) = entry.node else { panic!("no file") };
    let Content::Blob(blob) = data.content else { panic!("no blob") };
    let mut bytes = vec![0xA5; MIB];
    for piece in pieces {
        let done = blob.decode(piece as u64, &mut bytes);
        if is_checked {
            done.unwrap();
            assert!((piece * MIB..).zip(&bytes).step_by(61).all(|(at, byte)| content(at) == *byte), "piece {piece}");
        }
    }
}

fn make() -> Place {
    let dir = std::env::temp_dir().join(format!("fzmfs-fuzz-index-{}", std::process::id()));
    let (file, index, state) = (dir.join("x.zst"), dir.join("index"), dir.join("state"));
    fs::create_dir_all(&dir).unwrap();
    let mut encoder = zstd::Encoder::new(fs::File::create(&file).unwrap(), 1).unwrap();
    encoder.window_log(12).unwrap();
    let all: Vec<u8> = (0..PIECES * MIB).map(content).collect();
    std::io::copy(&mut &all[..], &mut encoder).unwrap();
    encoder.finish().unwrap();
    let mut place = Place { file, index, state, record: PathBuf::new(), bytes: Vec::new() };
    read(&place, 0..PIECES, true);
    let subject = fs::read_dir(&place.index).unwrap().next().unwrap().unwrap().path();
    let records = fs::read_dir(subject).unwrap().map(|entry| entry.unwrap().path());
    let mut checkpoints: Vec<PathBuf> = records.filter(|path| path.to_string_lossy().contains("checkpoint")).collect();
    checkpoints.sort();
    place.record = checkpoints.pop().unwrap();
    place.bytes = fs::read(&place.record).unwrap();
    place
}

fn change(bytes: &mut [u8], changes: &[u8]) {
    for change in changes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len();
        bytes[at] = bytes[at].wrapping_add(change[2]);
    }
}

fuzz_target!(|data: &[u8]| {
    static PLACE: OnceLock<Arc<Place>> = OnceLock::new();
    let place = PLACE.get_or_init(|| Arc::new(make()));
    let Some((first, changes)) = data.split_first() else { return };
    fs::write(&place.record, &place.bytes).unwrap();
    if first & 1 == 0 {
        let mut bytes = place.bytes.clone();
        change(&mut bytes, changes);
        fs::write(&place.record, bytes).unwrap();
        read(place, PIECES - 1..PIECES, true);
        return;
    }
    let source = Source::open(&place.file).unwrap();
    let index = Index::new(place.index.clone(), 1 << 30, place.state.clone());
    let records = index.of(&source).unwrap();
    let name = place.record.file_name().unwrap().to_str().unwrap();
    let mut payload = records.get(name, 1 << 20).unwrap();
    change(&mut payload, changes);
    assert!(records.put(name, &payload));
    read(place, PIECES - 1..PIECES, false);
});
