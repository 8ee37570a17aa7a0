//! Blosc2: codecs, filters, flags and special values of chunks; versions of metalayers, trailers and frames.

use fzmfs::format::{Container, Node};

use super::{check_unknown, check_unreadable, compare, len, open, verified, window};
use crate::support::opened::{data, file, numbered, read_at};

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(data("blosc2").join(name)).unwrap()
}

/// Where stored chunk `i` is.
fn place(container: &dyn Container, i: usize) -> usize {
    let stored = numbered(container, "stored").swap_remove(i).unwrap();
    let offset = stored.attrs.iter().find(|(name, _)| *name == "offset").unwrap();
    offset.1.parse().unwrap()
}

/// Changes bytes of the header of a chunk.
type Change = &'static [(usize, u8)];

const FRAME: &str = "f06_lz4_l5_never_ts4.b2frame";
/// LZ4 without splitting, and an explicit pipeline.
const FLAGS: u8 = 0x35;

/// Header bytes of a chunk that a later library may write, and their names.
const CHANGES: &[(Change, &str)] = &[
    (&[(2, FLAGS & 0x1F | 0xC0), (0x16, 45)], "codec 45"),
    (&[(2, FLAGS & 0x1F | 0xC0), (0x16, 32), (0x17, 6)], "NDLZ with cells of side 6"),
    (&[(2, FLAGS & 0x1F | 0xA0)], "codec format 5"),
    (&[(1, 2)], "version 2 of lz4"),
    (&[(0x15, 45)], "filter 45"),
    (&[(0x10, 5)], "filter 5"),
    (&[(0x1E, 2)], "the chunk flag 0x02"),
    (&[(0x1F, 4)], "the chunk flag 0x04"),
    (&[(0x1F, 0x60)], "the special type 6"),
];

fn change(bytes: &mut [u8], at: usize, change: Change) {
    for &(skip, byte) in change {
        bytes[at + skip] = byte;
    }
}

#[test]
fn an_unknown_chunk_affects_only_itself() {
    let good = bytes(FRAME);
    let container = open(&good);
    let at = place(&*container, 1);
    assert_eq!(good[at + 2], FLAGS);
    for &(edit, part) in CHANGES {
        let mut changed = good.clone();
        change(&mut changed, at, edit);
        let opened = open(&changed);
        compare(&*container, &*opened, &[1], part, "chunk 1: ");
        let (before, after) = (file(&*container, "data.raw").unwrap(), file(&*opened, "data.raw").unwrap());
        assert_eq!(len(&before), len(&after));
        for (from, is_known) in [(0, true), (32_000 - 9, true), (32_000, false), (64_000 - 9, false), (64_000, true)] {
            match window(&after, from, 9) {
                Ok(bytes) => assert!(is_known && bytes == window(&before, from, 9).unwrap(), "{part}: {from}"),
                Err(e) => {
                    assert!(!is_known, "{part}: {from}: {e}");
                    check_unknown(&e, part, "chunk 1: ");
                }
            }
        }
        check_unknown(&verified(&changed).unwrap_err(), part, "chunk 1: ");
    }
}

#[test]
fn a_frame_of_unknown_chunks_opens() {
    let good = bytes(FRAME);
    let container = open(&good);
    for &(edit, part) in CHANGES {
        let mut changed = good.clone();
        (0..4).for_each(|i| change(&mut changed, place(&*container, i), edit));
        let opened = open(&changed);
        compare(&*container, &*opened, &[0, 1, 2, 3], part, "chunk ");
        assert_eq!(opened.info().decoded_size, Some(100_000));
        check_unknown(&verified(&changed).unwrap_err(), part, "chunk 0: ");
    }
}

#[test]
fn damage_after_an_unknown_chunk_is_found() {
    let good = bytes(FRAME);
    let container = open(&good);
    let mut changed = good.clone();
    change(&mut changed, place(&*container, 0), CHANGES[0].0);
    let at = place(&*container, 3);
    changed[at + 0x0C] ^= 0x10;
    let error = verified(&changed).unwrap_err();
    assert!(!error.is_unknown() && error.what().contains("chunk 3"), "{error}");
}

#[test]
fn damage_in_the_piece_of_an_unknown_chunk_is_found() {
    let good = bytes("own/small_chunks.b2frame");
    let container = open(&good);
    let mut changed = good.clone();
    changed[place(&*container, 20)] = 7;
    check_unknown(&verified(&changed).unwrap_err(), "chunk version 7", "chunk 20: ");
    changed[place(&*container, 21)] = 0;
    let error = verified(&changed).unwrap_err();
    assert!(!error.is_unknown() && error.what().contains("chunk 21: "), "{error}");
}

#[test]
fn a_chunk_of_a_later_version_affects_only_itself() {
    let good = bytes(FRAME);
    let container = open(&good);
    let mut changed = good.clone();
    changed[place(&*container, 2)] = 7;
    let opened = open(&changed);
    for (i, chunk) in numbered(&*opened, "chunks").into_iter().enumerate() {
        let chunk = chunk.unwrap();
        assert_eq!(len(&chunk), Some(if i == 3 { 4000 } else { 32_000 }));
        match super::read(&chunk) {
            Ok(bytes) => assert!(i != 2 && bytes == read_at_number(&*container, i), "{i}"),
            Err(e) => check_unknown(&e, "chunk version 7", "chunk 2: "),
        }
    }
    // Where its stored bytes end is not known either.
    let stored = numbered(&*opened, "stored");
    assert!(stored.iter().enumerate().all(|(i, stored)| stored.is_ok() == (i != 2)));
    check_unknown(&verified(&changed).unwrap_err(), "chunk version 7", "chunk 2: ");
}

fn read_at_number(container: &dyn Container, i: usize) -> Vec<u8> {
    super::read(&numbered(container, "chunks").swap_remove(i).unwrap()).unwrap()
}

/// Where the index chunk of a frame of a few chunks is, whose entries are not compressed.
fn index(frame: &[u8]) -> usize {
    let header_len = u32::from_be_bytes(frame[0x0B..0x0F].try_into().unwrap());
    let cbytes = u64::from_be_bytes(frame[0x27..0x2F].try_into().unwrap());
    header_len as usize + cbytes as usize
}

#[test]
fn an_unknown_special_value_affects_only_its_chunk() {
    let good = bytes("f02_blosclz_l5_shuffle_ts4.b2frame");
    let container = open(&good);
    let entry = index(&good) + 32 + 8;
    for value in [0x88, 0x80, 0x83] {
        let mut changed = good.clone();
        changed[entry + 7] = value;
        let opened = open(&changed);
        for (i, chunk) in numbered(&*opened, "chunks").into_iter().enumerate() {
            let chunk = chunk.unwrap();
            assert_eq!(len(&chunk), Some(if i == 2 { 20_000 } else { 50_000 }));
            match super::read(&chunk) {
                Ok(bytes) => assert!(i != 1 && bytes == read_at_number(&*container, i), "{i}"),
                Err(e) => check_unknown(&e, &format!("the special value {value:#04x}"), "chunk offset"),
            }
        }
        check_unknown(&verified(&changed).unwrap_err(), &format!("the special value {value:#04x}"), "chunk offset");
    }
}

#[test]
fn a_frame_with_an_unknown_index_has_its_sizes_and_metalayers() {
    let good = bytes("m01_meta_vlmeta.b2frame");
    let container = open(&good);
    let layers = |container: &dyn Container| names(container, "metalayers");
    let mut changed = good.clone();
    changed[index(&good) + 0x1F] |= 0x50;
    let opened = open(&changed);
    assert_eq!(layers(&*opened), layers(&*container));
    let chunk = numbered(&*opened, "chunks").swap_remove(0).unwrap();
    assert_eq!(len(&chunk), Some(4000));
    check_unknown(&super::read(&chunk).unwrap_err(), "the special type 5", "index chunk");
    check_unreadable(&*opened, "data.raw", "the special type 5", "index chunk");
    check_unknown(&verified(&changed).unwrap_err(), "the special type 5", "index chunk");
}

fn names(container: &dyn Container, dir: &str) -> Vec<Vec<u8>> {
    let entry = container.entries().unwrap().into_iter().find(|entry| *entry.stem == *dir.as_bytes()).unwrap();
    let Node::Dir(dir) = entry.node else { panic!("no directory") };
    dir.entries().unwrap().into_iter().map(|entry| entry.stem.to_vec()).collect()
}

#[test]
fn an_array_of_unknown_geometry_still_has_its_chunks() {
    let good = bytes("n01_1d_i4.b2nd");
    let container = open(&good);
    let at = good.windows(3).position(|window| window == [0x97, 0, 1]).unwrap();
    for (skip, byte, part) in [(1, 1, "b2nd version 1"), (0, 0x98, "b2nd with 8 fields")] {
        let mut changed = good.clone();
        changed[at + skip] = byte;
        let opened = open(&changed);
        compare(&*container, &*opened, &[], part, "");
        check_unreadable(&*opened, "data.raw", part, "b2nd ");
        assert!(!read_at(&*opened, "metalayers/b2nd.msgpack").unwrap().is_empty());
        let info = opened.info();
        assert!(info.decoded_size.is_none() && info.details["array"].is_null());
        assert!(info.details["unknown"]["array"].as_str().unwrap().starts_with(part));
        check_unknown(&verified(&changed).unwrap_err(), part, "array: ");
    }
}

#[test]
fn an_unknown_trailer_or_fingerprint_affects_no_chunk() {
    let good = bytes("m01_meta_vlmeta.b2frame");
    let container = open(&good);
    let end = good.len();
    let trailer_len = u32::from_be_bytes(good[end - 22..end - 18].try_into().unwrap()) as usize;
    for (at, byte, part) in [(end - trailer_len + 1, 2, "trailer version 2"), (end - 17, 4, "fingerprint type 4")] {
        let mut changed = good.clone();
        changed[at] = byte;
        let opened = open(&changed);
        compare(&*container, &*opened, &[], part, "");
        assert!(read_at(&*opened, "data.raw").unwrap() == read_at(&*container, "data.raw").unwrap());
        if part.starts_with("trailer") {
            check_unreadable(&*opened, "vlmetalayers", part, "trailer version");
        }
        assert!(opened.info().details["unknown"].as_object().unwrap().len() == 1);
        check_unknown(&verified(&changed).unwrap_err(), part, "");
    }
}

#[test]
fn a_frame_of_a_later_version_does_not_affect_those_before_it() {
    let mut changed = bytes("a01_two_frames.b2frame");
    let container = open(&changed);
    let second = changed.windows(10).rposition(|window| window == b"\x9e\xa8b2frame\0").unwrap();
    changed[second + 0x19] = changed[second + 0x19] & 0xF0 | 4;
    let opened = open(&changed);
    assert!(read_at(&*opened, "data.raw").unwrap() == read_at(&*container, "data.raw").unwrap());
    compare(&*container, &*opened, &[], "", "");
    check_unreadable(&*opened, "frames/000001", "frame version 4", "frame 1: frame version");
    check_unknown(&verified(&changed).unwrap_err(), "frame version 4", "frame 1: frame version");
    changed[0x19] = changed[0x19] & 0xF0 | 4;
    check_unknown(&verified(&changed).unwrap_err(), "frame version 4", "frame version");
}
