//! Zstandard: blocks, frame flags and frame formats after the current ones.

use super::{check_unknown, check_unreadable, compare, len, open, verified};
use crate::support::opened::{file, numbered, read};
use crate::ztensor_files::{raw_frame, seekable};

fn frames() -> Vec<(Vec<u8>, u64)> {
    let content = |i: u8| (0..5000 + u32::from(i)).map(|n| (n / 7) as u8 ^ i).collect::<Vec<u8>>();
    (0..4).map(|i| (raw_frame(&content(i)), 5000 + u64::from(i))).collect()
}

/// Where the first block of such a frame is.
const BLOCK: usize = 14;

/// Bytes of a frame that a later library may write: the byte, the bits that are set, and its name.
const CHANGES: [(usize, u8, &str); 2] = [(BLOCK, 6, "block type 3"), (4, 8, "the frame flag 0x08")];

#[test]
fn a_seek_table_locates_the_frames_after_an_unknown_one() {
    let good = seekable(&frames());
    for (skip, bits, part) in CHANGES {
        let mut changed = good.clone();
        changed[frames()[0].0.len() + skip] |= bits;
        let opened = open(&changed);
        compare(&*open(&good), &*opened, &[1], part, "frame 1: ");
        assert_eq!(len(&file(&*opened, "data.raw").unwrap()), Some(20_006));
        check_unknown(&verified(&changed).unwrap_err(), part, "frame 1: ");
    }
}

#[test]
fn frames_before_an_unknown_one_can_be_read() {
    let joined = |frames: Vec<(Vec<u8>, u64)>| frames.into_iter().flat_map(|(frame, _)| frame).collect::<Vec<_>>();
    let good = open(&joined(frames()));
    for (skip, bits, part) in [(0, 1, "the frame format 0xfd2fb529")].into_iter().chain(CHANGES) {
        for number in 1..4 {
            let mut all = frames();
            all[number].0[skip] |= bits;
            let bytes = joined(all);
            let opened = open(&bytes);
            let chunks = numbered(&*opened, "chunks");
            assert_eq!(chunks.len(), number);
            for (chunk, before) in chunks.into_iter().zip(numbered(&*good, "chunks")) {
                assert!(read(&chunk.unwrap()).unwrap() == read(&before.unwrap()).unwrap());
            }
            let place = format!("frame {number}: ");
            check_unreadable(&*opened, "data.raw", part, &place);
            let info = opened.info();
            assert!(info.decoded_size.is_none() && info.details["unknown"].as_str().unwrap().starts_with(part));
            check_unknown(&verified(&bytes).unwrap_err(), part, &place);
        }
    }
}

#[test]
fn a_file_without_a_known_frame_is_refused_by_name() {
    for (skip, bits, part) in CHANGES {
        let mut frame = frames().swap_remove(0).0;
        frame[skip] |= bits;
        check_unknown(&verified(&frame).unwrap_err(), part, "frame 0: ");
    }
}
