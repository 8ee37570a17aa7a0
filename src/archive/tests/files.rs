//! Files of archives: their bytes at any offset, from broken pieces too, in order, and what is asked of far ones.

use std::io;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use super::*;
use crate::bytes::FileOffset;
use crate::format::{self, Blob, BlobRef, Far, FileExtent, Fragmented, Layout, Need, npy};

const PIECE: u64 = 1000;

/// Five pieces and a half, some of which are broken.
fn pieces(broken: &[u64]) -> (Content, Vec<u8>) {
    let bytes = noise(5500);
    let memory = Memory { broken: broken.to_vec(), ..Memory::new(bytes.clone(), PIECE) };
    (Content::Blob(memory.blob().0), bytes)
}

#[test]
fn a_file_is_read_at_any_offset_up_to_its_end() {
    let (content, bytes) = pieces(&[]);
    let file = lone(content, &Options::new());
    assert_eq!((file.path(), file.len(), file.is_empty()), ("x", 5500, false));
    assert!(lone(Content::Zeros(0), &Options::new()).is_empty());
    let mut buffer = [0; 700];
    for (at, want) in [(0, 700), (999, 700), (4800, 700), (5000, 500), (5499, 1), (5500, 0), (u64::MAX, 0)] {
        assert_eq!(file.read_at(at, &mut buffer).unwrap(), want, "{at}");
        assert_eq!(buffer[..want], bytes[at.min(5500) as usize..][..want], "{at}");
    }
    assert_eq!(file.read().unwrap(), bytes);
    file.read_exact_at(4800, &mut buffer).unwrap();
    let error = file.read_exact_at(4801, &mut buffer).unwrap_err();
    assert!(matches!(error.kind(), Kind::Truncated { need: 700, have: 699 }), "{error}");
}

#[test]
fn a_file_is_a_reader_with_a_position() {
    let (content, bytes) = pieces(&[]);
    let (mut file, mut buffer) = (lone(content, &Options::new()), [0; 10]);
    assert_eq!(file.seek(SeekFrom::Start(7)).unwrap(), 7);
    file.read_exact(&mut buffer).unwrap();
    file.read_exact(&mut buffer).unwrap();
    assert_eq!(buffer, bytes[17..27]);
    assert_eq!(file.seek(SeekFrom::Current(-2)).unwrap(), 25);
    assert_eq!(file.seek(SeekFrom::End(-5)).unwrap(), 5495);
    let mut rest = Vec::new();
    assert_eq!((file.read_to_end(&mut rest).unwrap(), &rest[..]), (5, &bytes[5495..]));
    assert_eq!(file.seek(SeekFrom::Start(10)).unwrap(), 10);
    assert!(file.seek(SeekFrom::Current(-11)).is_err());
}

#[test]
fn a_copy_has_what_comes_before_the_broken_piece() {
    let copied = |content| {
        let mut out = Vec::new();
        let copied = lone(content, &Options::new()).copy_to(&mut out);
        (copied, out)
    };
    let (content, bytes) = pieces(&[]);
    assert!(matches!(copied(content), (Ok(5500), all) if all == bytes));
    for (broken, part, want) in
        [(3, 0..5500, 0..3000), (3, 500..5500, 500..3000), (0, 0..5500, 0..0), (5, 10..5400, 10..5000)]
    {
        let (content, bytes) = pieces(&[broken]);
        let (error, out) = copied(Content::Slice(Arc::new(content), part));
        assert!(out == bytes[want], "{broken}: {} bytes", out.len());
        let error = error.unwrap_err();
        assert!(matches!(&error, CopyError::Archive(e) if e.what() == "piece"), "{error}");
        assert!(error.to_string().contains("broken on purpose"), "{error}");
        assert!(io::Error::from(error).to_string().contains("broken on purpose"));
    }
    let (content, _) = pieces(&[]);
    let error = lone(content, &Options::new()).copy_to(&mut &mut [0; 10][..]).unwrap_err();
    assert!(
        matches!(&error, CopyError::Write(e) if e.kind() == io::ErrorKind::WriteZero) && !error.to_string().is_empty()
    );
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::WriteZero);
}

#[test]
fn intact_fragments_of_a_broken_piece_are_read() {
    let bytes = noise(5000);
    let memory = Memory {
        fragment: Some(100),
        broken_fragments: vec![(2, 300)],
        panics: vec![4],
        ..Memory::new(bytes.clone(), PIECE)
    };
    let file = lone(Content::Blob(memory.blob().0), &Options::new());
    let mut buffer = [0; 150];
    for at in [1950, 2100, 2400, 2900] {
        file.read_exact_at(at, &mut buffer).unwrap();
        assert_eq!(buffer, bytes[at as usize..][..150], "{at}");
    }
    for at in [2200, 2350] {
        assert!(file.read_exact_at(at, &mut buffer).is_err(), "{at}");
    }
    let mut all = vec![0; 2000];
    assert!(file.read_exact_at(1000, &mut all).is_err());
    // A reader in order decodes whole pieces first.
    let memory = Memory { fragment: Some(100), broken_fragments: vec![(0, 900)], ..Memory::new(bytes.clone(), PIECE) };
    let file = lone(Content::Blob(memory.blob().0), &Options::new());
    file.read_exact_at(0, &mut buffer).unwrap();
    assert_eq!(buffer, bytes[..150]);
    let panics = Memory { panics: vec![0], ..Memory::new(bytes, PIECE) };
    let error = lone(Content::Blob(panics.blob().0), &Options::new()).read_at(0, &mut buffer).unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
}

/// Pieces that cannot be decoded now, of fragments that can.
struct Busy;

impl Blob for Busy {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: 1000, piece: 500 })
    }

    fn decode(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Err(Error::io(io::ErrorKind::TimedOut.into(), "piece"))
    }

    fn fragmented(&self) -> Option<&dyn Fragmented> {
        Some(self)
    }
}

impl Fragmented for Busy {
    fn fragments(&self) -> Option<Layout> {
        self.layout().ok()?.divided(50)
    }

    fn decode_fragment(&self, _: u64, _: u64, dst: &mut [u8]) -> Result<()> {
        dst.fill(0);
        Ok(())
    }
}

#[test]
fn a_piece_that_cannot_be_decoded_now_is_not_read_in_another_way() {
    let file = lone(Content::Blob(BlobRef::new(Busy)), &Options::new());
    // The first read is one in order, the other jumps.
    assert!(matches!(file.read_exact_at(0, &mut [0; 10]).unwrap_err().kind(), Kind::Io(_)));
    file.read_exact_at(700, &mut [0; 10]).unwrap();
}

/// Bytes on a server, in pieces of [`PIECE`] zeros, and which of them were announced.
struct Distant {
    len: u64,
    piece: u64,
    announced: Arc<Mutex<Vec<String>>>,
}

impl Blob for Distant {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: self.len, piece: self.piece })
    }

    fn decode(&self, _: u64, dst: &mut [u8]) -> Result<()> {
        dst.fill(0);
        Ok(())
    }

    fn far(&self) -> Option<&dyn Far> {
        Some(self)
    }
}

impl Far for Distant {
    fn announce(&self, ranges: &[Range<u64>], need: Need) {
        self.announced.lock().unwrap().push(format!("{need:?} {ranges:?}"));
    }
}

#[test]
fn the_missing_pieces_of_a_far_file_are_announced_before_they_are_decoded() {
    let announced = Arc::new(Mutex::new(Vec::new()));
    let asked = || std::mem::take(&mut *announced.lock().unwrap());
    let distant = |len, piece| {
        let blob = BlobRef::new(Distant { len, piece, announced: announced.clone() });
        lone(Content::Join([Content::Blob(blob), Content::Zeros(5)].into()), &Options::new().threads(1).cache(1 << 20))
    };
    let file = distant(100_000, PIECE);
    let mut buffer = vec![0; 2500];
    file.read_exact_at(50_100, &mut buffer).unwrap();
    assert_eq!(asked(), ["Now [50000..51000, 51000..52000, 52000..53000]"]);
    file.read_exact_at(50_100, &mut buffer[..2000]).unwrap();
    assert_eq!(asked(), [""; 0]);
    file.read_exact_at(49_100, &mut buffer[..2000]).unwrap();
    assert_eq!(asked(), ["Now [49000..50000]"]);
    assert_eq!(distant(2000, PIECE).copy_to(&mut Vec::new()).unwrap(), 2005);
    assert_eq!(asked()[0], "Now [0..1000, 1000..2000]");
    // A piece that is needed twice.
    let [a, b] = [1000, 500]
        .map(|len| Arc::new(Content::Blob(BlobRef::new(Distant { len, piece: PIECE, announced: announced.clone() }))));
    let parts = [Content::Slice(a.clone(), 0..300), Content::Slice(b, 0..500), Content::Slice(a, 300..600)];
    lone(Content::Join(parts.into()), &Options::new()).read().unwrap();
    assert_eq!(asked(), ["Ahead [0..1000]", "Ahead [0..500]"]);
}

#[test]
fn bytes_that_are_served_as_stored_are_those_of_the_file_that_was_opened() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("stored");
    std::fs::write(&path, noise(1000)).unwrap();
    let source = Source::open(&path).unwrap();
    let extent = FileExtent { source: source.clone(), at: FileOffset(100), len: 500, gate: None };
    let file = lone(Content::FileExtent(extent), &Options::new());
    assert_eq!(file.read().unwrap(), noise(1000)[100..600]);
    source.set_changed();
    assert!(matches!(file.read().unwrap_err().kind(), Kind::Changed));
}

#[test]
fn a_change_is_noticed_at_each_read_whether_the_cache_is_its_own_or_shared() {
    let shared = Cache::new(1 << 20, 1);
    for cache in [None, Some(shared)] {
        let source = Source::open(&data("README.md")).unwrap();
        let entries = vec![Described::own("x", DescribedFile::new(pieces(&[]).0))];
        let is_shared = cache.is_some();
        let made = Made { sources: vec![source.clone()], ..Made::new(entries) };
        let archive = made.sharing(&uncached(), Access::Random, cache);
        let file = archive.file("x").unwrap();
        let mut buffer = [0; 10];
        file.read_at(0, &mut buffer).unwrap();
        archive.check().unwrap();
        source.set_changed();
        assert!(matches!(file.read_at(0, &mut buffer).unwrap_err().kind(), Kind::Changed), "{is_shared}");
        assert!(matches!(archive.check().unwrap_err().kind(), Kind::Changed));
        assert!(
            matches!(file.copy_to(&mut Vec::new()), Err(CopyError::Archive(e)) if matches!(e.kind(), Kind::Changed))
        );
    }
}

#[test]
fn the_elements_of_a_file_follow_its_header_if_it_has_one() {
    let described = format::Array { descr: "'<u2'".into(), itemsize: 2, shape: vec![3, 4] };
    let (header, elements) = (npy::header(&described), noise(24));
    let with_header = [&header[..], &elements].concat();
    let (longer, shorter) = ([&elements[..], &header].concat(), elements[..23].to_vec());
    let first = |stem: &str, suffix, bytes: &[u8]| {
        let file = DescribedFile::new(Content::bytes(bytes)).typed(Some(described.clone()));
        let archive = Made::new(vec![Described::named(stem, suffix, file)]).archive(&uncached(), Access::Random);
        archive.file(&format!("{stem}{suffix}")).unwrap().array().map(|array| array.read(0..12).unwrap())
    };
    for (suffix, bytes) in [(".npy", &with_header), (".npy", &elements), (".bin", &elements), (".bin", &longer)] {
        assert_eq!(first("a", suffix, bytes), Some(elements.clone()), "{suffix} of {} bytes", bytes.len());
    }
    // As long as one with a header, which its name says that it is not.
    assert_eq!(first("b", ".bin", &with_header), Some(with_header[..24].to_vec()));
    assert_eq!(first("c", ".bin", &shorter), None);
    assert!(lone(Content::bytes(elements), &uncached()).array().is_none());
}

/// Pieces of 64 KiB, each of its number, one of which cannot be decoded the first time.
struct Stamped {
    len: u64,
    fails: AtomicU64,
}

impl Blob for Stamped {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: self.len, piece: 64 << 10 })
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        if self.fails.compare_exchange(piece, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return Err(Error::io(io::ErrorKind::TimedOut.into(), "piece"));
        }
        dst.fill(piece as u8);
        Ok(())
    }
}

#[test]
fn a_large_read_is_that_of_its_pieces_and_after_an_error_one_piece_after_the_other() {
    let len = 18 << 20;
    for fails in [u64::MAX, 100] {
        let blob = BlobRef::new(Stamped { len, fails: AtomicU64::new(fails) });
        let file = lone(Content::Blob(blob), &Options::new().threads(2).cache(1 << 20));
        // 3/4 of a piece, 280 pieces, half of one.
        let (start, pieces) = (3 * (64 << 10) + (16 << 10), 280);
        let mut buffer = vec![0xEE; (48 << 10) + (pieces << 16) + (32 << 10)];
        file.read_exact_at(start, &mut buffer).unwrap();
        let mut at = 0;
        for (number, len) in [48 << 10].into_iter().chain(vec![64 << 10; pieces]).chain([32 << 10]).enumerate() {
            assert!(buffer[at..at + len] == vec![(3 + number) as u8; len], "piece {}", 3 + number);
            at += len;
        }
        assert_eq!(at, buffer.len());
    }
}

#[test]
fn a_copy_ends_in_the_step_with_a_piece_that_could_not_be_read() {
    let blob = BlobRef::new(Stamped { len: 5 << 20, fails: AtomicU64::new(20) });
    let mut out = Vec::new();
    let copied = lone(Content::Blob(blob), &Options::new().threads(1)).copy_to(&mut out);
    assert!(matches!(copied, Err(CopyError::Archive(e)) if matches!(e.kind(), Kind::Io(_))));
    assert!((1 << 20..5 << 20).contains(&out.len()), "{} bytes", out.len());
}
