//! An index whose records were changed: no piece is ever wrong, and no list of members.
//!
//! The input is a list of changes, each three bytes: where (two), and what is added there. They are made to the file of a
//! checkpoint, which is then not valid; and with the last bit of the first byte set, to its payload, as by a user who has
//! the secret: then bytes may be wrong, and nothing else may happen. With the bit before it, the same for the members of
//! an archive.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use fzmfs::account::{Account, Pieces};
use fzmfs::checksum::Verify;
use fzmfs::codec::zstd::{packed, unpacked};
use fzmfs::format::{self, Container, Content, Directory, Input, Node, Options};
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

/// The container, as another process opens it.
fn open(place: &Place) -> Arc<dyn Container> {
    let account = Account::new(256 << 20, 0);
    let index = Index::new(place.index.clone(), 1 << 30, place.state.clone());
    let (pieces_kept, verify) = (Pieces::new(account.clone()), Verify::Off);
    let options = Options { account, pieces: pieces_kept, verify, index, ..Options::default() };
    let input = Input::of(Source::open(&place.file).unwrap()).unwrap();
    format::open(&input, None, &options).unwrap()
}

/// Reads the pieces `pieces`, by a reader of its own.
fn read(place: &Place, pieces: std::ops::Range<usize>, is_checked: bool) {
    let entry = open(place).entries().unwrap().into_iter().find(|entry| *entry.stem == *b"data").unwrap();
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

/// A file `name` in a directory of its own, not written yet.
fn place(name: &str) -> Place {
    let dir = std::env::temp_dir().join(format!("fzmfs-fuzz-index-{}-{name}", std::process::id()));
    let (file, index, state) = (dir.join(name), dir.join("index"), dir.join("state"));
    fs::create_dir_all(&dir).unwrap();
    Place { file, index, state, record: PathBuf::new(), bytes: Vec::new() }
}

impl Place {
    /// The last record with `kind` in its name.
    fn found(mut self, kind: &str) -> Self {
        let subject = fs::read_dir(&self.index).unwrap().next().unwrap().unwrap().path();
        let records = fs::read_dir(subject).unwrap().map(|entry| entry.unwrap().path());
        self.record = records.filter(|path| path.to_string_lossy().contains(kind)).max().unwrap();
        self.bytes = fs::read(&self.record).unwrap();
        self
    }

    fn name(&self) -> &str {
        self.record.file_name().unwrap().to_str().unwrap()
    }
}

/// Passes all below `dir` to `each`, which has an end.
fn list(dir: &dyn Directory, each: &mut dyn FnMut(&[u8])) {
    let mut dirs = Vec::new();
    dir.for_each(&mut |entry| {
        each(&entry.stem);
        match entry.node {
            Node::LazyDir(number) => dirs.push(number),
            Node::LazyLink(number) => drop(dir.link(number)),
            Node::LazyFile(file) => drop(dir.file(file.number)),
            _ => {}
        }
        Ok(())
    })
    .unwrap();
    for number in dirs {
        list(&*dir.dir(number).unwrap(), each);
    }
}

/// The names of all members.
fn names(place: &Place) -> Vec<u8> {
    let (mut names, mut count) = (Vec::new(), 0);
    list(&*open(place).directory().unwrap(), &mut |name| {
        names.extend_from_slice(name);
        names.push(b'/');
        count += 1;
        assert!(count <= MEMBERS, "more than there can be");
    });
    names
}

/// Most nodes of the archive.
const MEMBERS: usize = 200;

/// An archive of 16 MiB, most of it a hole of the file.
fn make_archive() -> Place {
    let place = place("x.tar");
    let mut bytes = Vec::new();
    let mut add = |name: &str, kind: u8, size: u64, link: &str| {
        let mut block = [0; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        block[156] = kind;
        block[157..157 + link.len()].copy_from_slice(link.as_bytes());
        block[257..263].copy_from_slice(b"ustar\0");
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        bytes.extend(block);
    };
    for i in 0..20 {
        add(&format!("dir{}/sub/{i}", i / 5), b'0', 0, "");
        add(&format!("dir{}/{i}", i / 7), b'2', 0, "sub/3");
        add(&format!("{i}.zst/"), b'5', 0, "");
    }
    add("large", b'0', 16 << 20, "");
    fs::write(&place.file, bytes).unwrap();
    let len = fs::metadata(&place.file).unwrap().len() + (16 << 20) + 1024;
    fs::File::options().write(true).open(&place.file).unwrap().set_len(len).unwrap();
    names(&place);
    place.found("tar-members-")
}

fn make() -> Place {
    let place = place("x.zst");
    let mut encoder = zstd::Encoder::new(fs::File::create(&place.file).unwrap(), 1).unwrap();
    encoder.window_log(12).unwrap();
    let all: Vec<u8> = (0..PIECES * MIB).map(content).collect();
    std::io::copy(&mut &all[..], &mut encoder).unwrap();
    encoder.finish().unwrap();
    read(&place, 0..PIECES, true);
    place.found("checkpoint")
}

fn change(bytes: &mut [u8], changes: &[u8]) {
    let len = bytes.len().max(1);
    for change in changes.chunks_exact(3) {
        let Some(byte) = bytes.get_mut(usize::from(u16::from_le_bytes([change[0], change[1]])) % len) else { return };
        *byte = byte.wrapping_add(change[2]);
    }
}

/// Changes the record of `place`: its file, or if `is_payload` what is in it, which is unpacked and packed with `pack`.
fn change_record(place: &Place, changes: &[u8], is_payload: bool, is_packed: bool) {
    fs::write(&place.record, &place.bytes).unwrap();
    if !is_payload {
        let mut bytes = place.bytes.clone();
        change(&mut bytes, changes);
        return fs::write(&place.record, bytes).unwrap();
    }
    let source = Source::open(&place.file).unwrap();
    let index = Index::new(place.index.clone(), 1 << 30, place.state.clone());
    let records = index.of(&source).unwrap();
    let payload = records.get(place.name(), 1 << 20).unwrap();
    let mut bytes = if is_packed { unpacked(&payload, 2 << 20).unwrap() } else { payload };
    change(&mut bytes, changes);
    assert!(records.put(place.name(), &if is_packed { packed(&bytes).unwrap() } else { bytes }));
}

fuzz_target!(|data: &[u8]| {
    static PLACE: OnceLock<Arc<Place>> = OnceLock::new();
    static ARCHIVE: OnceLock<(Place, Vec<u8>)> = OnceLock::new();
    let Some((first, changes)) = data.split_first() else { return };
    let is_payload = first & 1 > 0;
    if first & 2 > 0 {
        let (place, want) = ARCHIVE.get_or_init(|| {
            let place = make_archive();
            let want = names(&place);
            (place, want)
        });
        change_record(place, changes, is_payload, first & 4 > 0);
        let found = names(place);
        assert!(is_payload || found == *want, "another list");
        return;
    }
    let place = PLACE.get_or_init(|| Arc::new(make()));
    change_record(place, changes, is_payload, false);
    read(place, PIECES - 1..PIECES, !is_payload);
});
