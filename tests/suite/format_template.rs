//! The example of a format that developers copy (tests/examples/format) is right, says where a file is broken, and keeps
//! the promises that every format makes.

use std::ffi::OsStr;
use std::sync::Arc;

use fzmfs::checksum::Verified;
use fzmfs::error::{Error, Kind};
use fzmfs::format::{Container, Content, Input, Node, Options};
use fzmfs::source::Source;
use fzmfs::tree::{ROOT, Tree};
use proptest::prelude::*;

use crate::everything::open_list_read_everything;
use crate::format_example::{FORMAT, reseal};

const BLOCK: usize = 64 << 10;

/// A file with `content`.
fn file(content: &[u8]) -> Vec<u8> {
    let mut bytes = b"RUNS".to_vec();
    bytes.extend((BLOCK as u32).to_le_bytes());
    bytes.extend((content.len() as u64).to_le_bytes());
    bytes.extend([0; 4]);
    reseal(&mut bytes).unwrap();
    let mut stored = Vec::new();
    for block in content.chunks(BLOCK) {
        let runs: Vec<u8> = block
            .chunk_by(|a, b| a == b)
            .flat_map(|run| run.chunks(255))
            .flat_map(|run| [run.len() as u8, run[0]])
            .collect();
        bytes.extend((runs.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(block).to_le_bytes());
        stored.extend(runs);
    }
    bytes.extend(stored);
    bytes
}

/// Three blocks, the last one shorter.
fn content() -> Vec<u8> {
    (0..2 * BLOCK + 1000).map(|i| (i / 37 % 7) as u8).collect()
}

fn open(bytes: Vec<u8>) -> Result<Arc<dyn Container>, Error> {
    (FORMAT.open)(&Input::of(Source::from_bytes(bytes)).unwrap(), &Options::default())
}

/// The pieces of `data.raw`.
fn pieces(container: &dyn Container) -> Vec<Result<Vec<u8>, Error>> {
    let blob = container.stream().unwrap();
    let layout = blob.layout().unwrap();
    let piece = |number| {
        let range = layout.range(number);
        let mut bytes = vec![0xAA; (range.end - range.start) as usize];
        blob.decode(number, &mut bytes).map(|()| bytes)
    };
    (0..layout.count()).map(piece).collect()
}

#[test]
fn a_file_decodes_to_its_content_and_is_shown_as_files() {
    let (content, bytes) = (content(), file(&content()));
    assert!((FORMAT.detect)(&Input::of(Source::from_bytes(bytes.clone())).unwrap()));
    let container = open(bytes.clone()).unwrap();
    let decoded: Vec<u8> = pieces(&*container).into_iter().flat_map(Result::unwrap).collect();
    assert!(decoded == content);
    assert_eq!(container.stream().unwrap().verified(0..1), Verified::Yes);
    assert_eq!(container.info().to_json()["blocks"], 3);

    let tree = Tree::new(container.clone(), OsStr::new("x.runs")).unwrap();
    let names: Vec<String> = tree.entries(ROOT).map(|entry| entry.unwrap().name).collect();
    assert_eq!(names, ["info.json", "data.raw", "chunks", "stored", "x"]);
    let stored = container.entries().unwrap().into_iter().find(|entry| *entry.stem == *b"stored").unwrap();
    let Node::IndexedDir(stored) = stored.node else { panic!("{:?}", stored.node) };
    let stored: Vec<u8> = (0..3)
        .flat_map(|number| match stored.file(number).unwrap().content {
            Content::FileExtent(extent) => extent.source.get(extent.at, extent.len, "block").unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(bytes.ends_with(&stored) && bytes.len() == 20 + 3 * 8 + stored.len());
    let seen = open_list_read_everything(&FORMAT, bytes, &[]);
    assert_eq!((seen.opened, seen.failed, seen.piece), (true, 0, BLOCK as u64));
    assert!(seen.read > 8, "{seen:?}");
    assert!(open(file(b"")).is_ok_and(|empty| pieces(&*empty).is_empty()));
}

#[test]
fn what_is_broken_is_named_with_its_field_and_offset() {
    let good = file(&content());
    let changed = |at: usize, to: &[u8], mend: bool| {
        let mut bytes = good.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        mend.then(|| reseal(&mut bytes).unwrap());
        bytes
    };
    for (bytes, what, at) in [
        (changed(0, b"S", true), "magic", 0),
        (changed(4, &[1], false), "header checksum", 16),
        (changed(4, &[1], true), "block size", 4),
        (changed(15, &[1], true), "list of blocks", 20),
        (changed(31, &[1], false), "block 1: stored size", 28),
        (good[..19].to_vec(), "header checksum", 16),
        (good[..43].to_vec(), "list of blocks", 20),
    ] {
        let error = open(bytes).err().unwrap_or_else(|| panic!("{what}"));
        assert_eq!((error.what(), error.offset().map(|at| at.0)), (what, Some(at)), "{error}");
    }
}

#[test]
fn a_broken_block_is_an_error_and_the_others_are_read() {
    let good = file(&content());
    let first = 20 + 3 * 8;
    let decoded = |bytes: Vec<u8>| pieces(&*open(bytes).unwrap());
    let of_block_0 = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        let mut decoded = decoded(bytes);
        assert!(decoded[1..].iter().all(Result::is_ok));
        let error = decoded.swap_remove(0).unwrap_err();
        assert_eq!(error.offset().unwrap().0, at as u64 & !1, "{error}");
        error
    };
    assert!(matches!(of_block_0(first + 1, 9).kind(), Kind::Checksum { .. }));
    assert_eq!(of_block_0(first + 2, 0).what(), "block 0: run");
    let cut = decoded(good[..good.len() - 1].to_vec());
    assert!(cut[0].is_ok() && cut[1].is_ok());
    assert!(matches!(cut[2].as_ref().unwrap_err().kind(), Kind::Truncated { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// No panic, no promise broken: as the hostile-input tests and the fuzzers see every format.
    #[test]
    fn any_changes_are_an_error_or_other_bytes(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        len in any::<prop::sample::Index>(),
        mend: bool,
    ) {
        let mut bytes = file(&content()[..BLOCK + 500]);
        // Most changes to the header and the list.
        for (number, (at, to)) in changes.iter().enumerate() {
            let within = if number % 2 == 0 { 36 } else { bytes.len() };
            bytes[at.index(within)] = *to;
        }
        if len.index(4) == 0 {
            bytes.truncate(len.index(bytes.len()));
        }
        if mend {
            reseal(&mut bytes);
        }
        open_list_read_everything(&FORMAT, bytes, &[]);
    }
}
