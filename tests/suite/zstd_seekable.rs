//! The checksums in the seek table of a Zstandard file: verified against each frame before it is served.

use std::sync::Arc;

use fzmfs::checksum::{BackgroundChecks, Verify};
use fzmfs::error::{Error, Kind, Result};
use fzmfs::format::{Container, Options};
use fzmfs::view::View;
use xxhash_rust::xxh64::xxh64;

use crate::support::opened::{self as support, Plain, numbered};

/// Bytes of content of a frame that is decoded piece by piece, and of one that is a piece.
const LONG: usize = (5 << 20) + 321;
const SMALL: usize = 700_000;

/// Content, and how a frame of it is written.
#[derive(Debug, Clone, Copy)]
struct Frame {
    len: usize,
    has_size: bool,
    has_checksum: bool,
}

fn content(frame: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i / 9 + frame * 31) % 251) as u8).collect()
}

/// Three such frames and their table; returns the file and the offset of the second checksum, to which `wrong` is
/// added.
fn seekable(frame: Frame, wrong: u32) -> (Vec<u8>, u64) {
    let (mut file, mut rows) = (Vec::new(), Vec::new());
    for number in 0..3 {
        let content = content(number, frame.len);
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.include_checksum(frame.has_checksum).unwrap();
        encoder.include_contentsize(frame.has_size).unwrap();
        encoder.set_pledged_src_size(frame.has_size.then_some(frame.len as u64)).unwrap();
        std::io::Write::write_all(&mut encoder, &content).unwrap();
        let stored = encoder.finish().unwrap();
        let checksum = (xxh64(&content, 0) as u32).wrapping_add(if number == 1 { wrong } else { 0 });
        rows.extend([stored.len() as u32, frame.len as u32, checksum].map(u32::to_le_bytes).concat());
        file.extend(stored);
    }
    let place = file.len() + 8 + 12 + 8;
    file.extend([0x184D_2A5E, rows.len() as u32 + 9].map(u32::to_le_bytes).concat());
    file.extend([&rows[..], &3_u32.to_le_bytes(), &[0x80], &0x8F92_EAB1_u32.to_le_bytes()].concat());
    (file, place as u64)
}

fn open(file: &[u8], verify: Verify) -> Arc<dyn Container> {
    support::open(file.to_vec(), &Options { verify, ..Options::default() }).unwrap()
}

fn chunk(container: &dyn Container, number: usize) -> Result<Vec<u8>> {
    support::read(numbered(container, "chunks")[number].as_ref().unwrap())
}

/// 100 bytes of the middle of frame `number` of `data.raw`.
fn middle(container: &dyn Container, frame: Frame, number: usize) -> Result<Vec<u8>> {
    let file = support::file(container, "data.raw").unwrap();
    let mut bytes = vec![0; 100];
    View::new(&file.content, &Plain)?.read((number * frame.len + frame.len / 2) as u64, &mut bytes, &Plain)?;
    Ok(bytes)
}

/// The same by fragments, as a reader that jumps gets them.
fn by_fragments(container: &dyn Container, frame: Frame, number: usize) -> Result<Vec<u8>> {
    let file = support::file(container, "data.raw").unwrap();
    let (mut bytes, at) = (vec![0; 100], (number * frame.len + frame.len / 2) as u64);
    let view = View::new(&file.content, &Plain)?;
    view.by_fragments(&(at..at + 100), &|_, _| false).unwrap().read(at, &mut bytes, &Plain)?;
    Ok(bytes)
}

#[track_caller]
fn is_it(e: &Error, at: u64) {
    assert!(matches!(e.kind(), Kind::Checksum { .. }) && e.errno() == libc::EIO, "{e}");
    assert!(e.what().ends_with("frame 1: seek table: checksum") && e.offset().unwrap().0 == at, "{e}, not at {at}");
}

#[test]
fn a_frame_is_served_after_its_seek_table_checksum_was_verified() {
    for len in [LONG, SMALL] {
        for (has_size, has_checksum) in [(true, false), (false, false), (true, true), (false, true)] {
            let frame = Frame { len, has_size, has_checksum };
            let (sound, _) = seekable(frame, 0);
            let container = open(&sound, Verify::First);
            assert_eq!(container.info().checksums["seek_table"], "XXH64, 3 of 3 frames");
            support::verify(&*container).unwrap();
            let data = support::read_at(&*container, "data.raw").unwrap();
            let (file, at) = seekable(frame, 0x1000);

            let first = open(&file, Verify::First);
            if has_checksum {
                // Its own checksum is right, so the table is wrong.
                assert!(support::read_at(&*first, "data.raw").unwrap() == data, "{frame:?}");
                is_it(&support::verify(&*first).unwrap_err(), at);
                continue;
            }
            is_it(&chunk(&*first, 1).unwrap_err(), at);
            is_it(&middle(&*first, frame, 1).unwrap_err(), at);
            for number in [0, 2] {
                assert!(chunk(&*first, number).unwrap() == content(number, len), "{frame:?}");
                assert!(middle(&*first, frame, number).unwrap() == data[number * len + len / 2..][..100], "{frame:?}");
            }
            is_it(&support::verify(&*first).unwrap_err(), at);

            let off = open(&file, Verify::Off);
            assert!(support::read_at(&*off, "data.raw").unwrap() == data, "{frame:?}");
            is_it(&support::verify(&*off).unwrap_err(), at);

            let beside = BackgroundChecks::default();
            let background = open(&file, Verify::Background(beside.clone()));
            let read = chunk(&*background, 1);
            // A checksum over no more than a piece is verified before it is served.
            is_it(&if len == SMALL { read.map(drop) } else { beside.join() }.unwrap_err(), at);
        }
    }
}

#[test]
fn a_broken_frame_does_not_affect_others_in_its_piece() {
    for (has_size, has_checksum) in [(true, false), (false, false), (true, true), (false, true)] {
        let frame = Frame { len: 100_000, has_size, has_checksum };
        let (mut file, _) = seekable(frame, u32::from(!has_checksum));
        if has_checksum {
            // The last byte of the second frame is one of its checksum.
            let stored = zstd::zstd_safe::find_frame_compressed_size(&file).unwrap();
            let end = stored + zstd::zstd_safe::find_frame_compressed_size(&file[stored..]).unwrap();
            file[end - 1] ^= 1;
        }
        let container = open(&file, Verify::First);
        assert!(support::read_at(&*container, "data.raw").is_err());
        for number in [0, 2] {
            assert!(chunk(&*container, number).unwrap() == content(number, frame.len), "{frame:?}");
            let middle = &content(number, frame.len)[frame.len / 2..][..100];
            assert!(by_fragments(&*container, frame, number).unwrap() == middle, "{frame:?}");
        }
        assert!(chunk(&*container, 1).is_err() && by_fragments(&*container, frame, 1).is_err(), "{frame:?}");
    }
}

#[test]
fn a_frame_that_differs_from_its_seek_table_checksum_is_not_served() {
    let path = support::data("broken/zstd/seek_table_checksum.zst");
    let file = std::fs::read(path).unwrap();
    let container = open(&file, Verify::First);
    let e = support::read_at(&*container, "data.raw").unwrap_err();
    assert!(matches!(e.kind(), Kind::Checksum { .. }) && e.what() == "frame 0: seek table: checksum", "{e}");
    assert_eq!(support::read_at(&*open(&file, Verify::Off), "data.raw").unwrap(), b"abcdefgX");
}
