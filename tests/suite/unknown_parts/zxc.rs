//! ZXC: types and flags of blocks, flags of frames, encodings and versions after the current ones.

use fzmfs::format::{Container, Options};

use super::reseal::{zxc_block_header, zxc_file_header};
use super::{check_unknown, compare, len, open, verified, window};
use crate::support::opened::{self, data, file, numbered};

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(data("zxc").join(name)).unwrap()
}

/// Blocks of a piece each.
fn long() -> Vec<u8> {
    let text: Vec<u8> = (0..400_000_u32).flat_map(|i| (i / 3 * 7 % 1009).to_le_bytes()).collect();
    zxc::compress(&text, zxc::Level::Default, Some(true)).unwrap()
}

/// Where the payload of block `i` is.
fn payload(container: &dyn Container, i: usize) -> usize {
    attr(container, i, "offset").parse().unwrap()
}

fn attr(container: &dyn Container, i: usize, name: &str) -> String {
    let chunk = numbered(container, "chunks").swap_remove(i).unwrap();
    chunk.attrs.into_iter().find(|attr| attr.0 == name).unwrap().1
}

/// Changes byte `skip` of the block header before `payload`.
fn change_block(bytes: &mut [u8], payload: usize, skip: usize, byte: u8) {
    let version = bytes[4];
    let header = bytes[payload - 8..].first_chunk_mut().unwrap();
    header[skip] = byte;
    zxc_block_header(version, header);
}

/// Changes the flags of a file.
fn change_flags(bytes: &mut [u8], bits: u8) {
    bytes[6] |= bits;
    zxc_file_header(bytes.first_chunk_mut().unwrap()).unwrap();
}

#[test]
fn an_unknown_block_affects_only_itself() {
    for good in [bytes("v5_off8_l3.zxc"), bytes("v9_concat_3frames.zxc"), long()] {
        let container = open(&good);
        let is_9 = good[4] == 9;
        for (skip, byte, part) in [(0, 77, "block type 77"), (1, 0x10, "the block flag 0x0010")] {
            if skip > 0 && !is_9 {
                continue;
            }
            let mut changed = good.clone();
            change_block(&mut changed, payload(&*container, 1), skip, byte);
            let opened = open(&changed);
            compare(&*container, &*opened, &[1], part, "block 1: block ");
            assert_eq!(len(&file(&*container, "data.raw").unwrap()), len(&file(&*opened, "data.raw").unwrap()));
            check_unknown(&verified(&changed).unwrap_err(), part, "block 1: block ");
        }
    }
}

#[test]
fn pieces_of_other_blocks_are_served_and_verified() {
    let good = long();
    let container = open(&good);
    let mut changed = good.clone();
    change_block(&mut changed, payload(&*container, 1), 0, 77);
    let opened = open(&changed);
    let block = len(&numbered(&*container, "chunks").swap_remove(0).unwrap()).unwrap();
    let (before, after) = (file(&*container, "data.raw").unwrap(), file(&*opened, "data.raw").unwrap());
    for (at, is_known) in [(0, true), (block - 9, true), (block, false), (2 * block - 9, false), (2 * block, true)] {
        match window(&after, at, 9) {
            Ok(bytes) => assert!(is_known && bytes == window(&before, at, 9).unwrap(), "{at}"),
            Err(e) => assert!(!is_known && e.is_unknown(), "{at}: {e}"),
        }
    }
    let at = payload(&*container, 3);
    changed[at + 20] ^= 1;
    let error = verified(&changed).unwrap_err();
    assert!(!error.is_unknown() && error.what().contains("block 3"), "{error}");
}

#[test]
fn damage_in_the_piece_of_an_unknown_block_is_found() {
    let good = bytes("v5_off8_l3.zxc");
    let container = open(&good);
    let last = numbered(&*container, "chunks").len() - 1;
    assert!(last > 0);
    let mut changed = good.clone();
    change_block(&mut changed, payload(&*container, 0), 0, 77);
    check_unknown(&verified(&changed).unwrap_err(), "block type 77", "block 0: ");
    changed[payload(&*container, last) + 20] ^= 1;
    let error = verified(&changed).unwrap_err();
    assert!(!error.is_unknown() && error.what().contains(&format!("block {last}: ")), "{error}");
}

#[test]
fn an_unknown_last_block_has_the_rest_of_the_size() {
    let good = long();
    let container = open(&good);
    let mut changed = good.clone();
    let last = numbered(&*container, "chunks").len() - 1;
    change_block(&mut changed, payload(&*container, last), 0, 77);
    compare(&*container, &*open(&changed), &[last], "block type 77", "block type");
}

#[test]
fn an_unknown_flag_of_a_frame_affects_its_blocks() {
    let good = bytes("v9_text_l3.zxc");
    let container = open(&good);
    let all: Vec<usize> = (0..numbered(&*container, "chunks").len()).collect();
    let mut changed = good.clone();
    change_flags(&mut changed, 0x10);
    compare(&*container, &*open(&changed), &all, "the frame flag 0x10", "flags");
    check_unknown(&verified(&changed).unwrap_err(), "the frame flag 0x10", "flags");
    let mut changed = good.clone();
    changed[12] = 2;
    change_flags(&mut changed, 0);
    compare(&*container, &*open(&changed), &all, "the frame option 0x02", "reserved");
}

#[test]
fn checksums_of_an_unknown_algorithm_are_not_verified() {
    let good = bytes("v9_text_l3.zxc");
    assert!(good[6] & 0x80 != 0);
    let mut changed = good.clone();
    change_flags(&mut changed, 3);
    let opened = open(&changed);
    compare(&*open(&good), &*opened, &[], "", "");
    assert!(opened.info().checksums["unknown"].as_str().unwrap().starts_with("checksum algorithm 3 is unknown to "));
    check_unknown(&verified(&changed).unwrap_err(), "checksum algorithm 3", "flags");
}

#[test]
fn an_unknown_encoding_affects_only_its_block() {
    let good = bytes("v9_text_l3.zxc");
    let container = open(&good);
    assert_eq!(attr(&*container, 0, "codec"), "GLO");
    for (skip, part) in
        [(8, "literal encoding 7"), (9, "token encoding 7"), (10, "match encoding 7"), (11, "offset encoding 7")]
    {
        let mut changed = good.clone();
        changed[payload(&*container, 0) + skip] = 7;
        compare(&*container, &*open(&changed), &[0], part, "block 0: enc_");
    }
}

#[test]
fn a_file_of_a_later_version_is_refused_by_name() {
    let mut changed = bytes("v9_text_l3.zxc");
    changed[4] = 10;
    let opened = opened::open(changed, &Options::default());
    check_unknown(&opened.err().unwrap(), "ZXC format version 10", "format version");
}
