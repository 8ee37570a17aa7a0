//! ANS: streams of the writer, broken ones, and windows.

use fzm_writer::{Dtype, field};

use crate::format::fzm::stage::testing::{
    Random, assert_windows, coded, inverse, inverse_error, parse_error, round_trip, stream, whole,
};

fn config(size: u64) -> Vec<u8> {
    [&[10, 0, 0, 0][..], &size.to_le_bytes()].concat()
}

/// Bytes with some frequent values, and their stream.
fn skewed(n: usize) -> (Vec<u8>, Vec<u8>) {
    let mut random = Random(9);
    let bytes: Vec<u8> = (0..n).map(|_| (random.below(16) * random.below(16)) as u8).collect();
    let (_, mut ports) = coded("ans", Dtype::U8, &bytes);
    (bytes, ports.remove(0))
}

#[test]
fn every_length_and_distribution_decodes() {
    for n in [1, 31, 32, 33, 4095, 4096, 4097, 70_001_u32] {
        round_trip("ans", Dtype::U8, &[n], &vec![7; n as usize]);
        round_trip("ans", Dtype::U8, &[n], &Random(3).bytes(n as usize));
    }
    round_trip("lorenzo_quant:eb=0.01,zigzag=1,ans", Dtype::F32, &[9001], &field::smooth(Dtype::F32, &[9001], 0.1, 1));
    assert!(inverse(20, &config(0), &[&[]]).unwrap().is_empty());
}

#[test]
fn blocks_may_have_their_words_in_any_order() {
    let (bytes, stored) = skewed(12_288);
    // Three blocks: the words of the last one, moved in front of the others.
    let (table, words) = (544 + 128 * 3, 544 + 128 * 3 + 32);
    let entry = |i: usize| u32::from_le_bytes(stored[table + 8 * i + 4..][..4].try_into().unwrap());
    let (last, end) = (2 * entry(2) as usize, stored.len() - words);
    let mut moved = stored.clone();
    moved[words..].rotate_left(last);
    let by = ((end - last) / 2) as u32;
    for (i, start) in [(0, by), (1, entry(1) + by), (2, 0)] {
        moved[table + 8 * i + 4..][..4].copy_from_slice(&start.to_le_bytes());
    }
    let stream = stream(20, &config(12_288), &[&moved]).unwrap();
    assert!(whole(&*stream).unwrap() == bytes);
    assert_windows(&*stream, &bytes);
}

#[test]
fn a_broken_block_affects_only_itself() {
    let (bytes, mut stored) = skewed(40_000);
    stored[544 + 128 * 5 + 2] ^= 0x10;
    let stream = stream(20, &config(40_000), &[&stored]).unwrap();
    let mut dst = vec![0; 4096];
    for block in (0..9).filter(|&block| block != 5) {
        stream.read(4096 * block, &mut dst).unwrap();
        assert!(dst == bytes[4096 * block as usize..][..4096]);
    }
    let e = stream.read(4096 * 5 + 7, &mut dst[..9]).unwrap_err().to_string();
    assert_eq!(e, "its states and words do not fit each other (block 5: ans block)");
}

#[test]
fn streams_that_contradict_themselves_are_refused() {
    let (_, stored) = skewed(10_000);
    let with = |at: usize, value: u32| {
        let mut stored = stored.clone();
        stored[at..at + 4].copy_from_slice(&value.to_le_bytes());
        inverse_error(20, &config(10_000), &[&stored])
    };
    let table = 544 + 128 * 3;
    assert_eq!(with(0, 0xD00E_0001), "0xd00e0001 is not the start of an ANS stream (ans magic)");
    assert_eq!(with(0, 0xD00D_0002), "not supported: version 2 (ans version)");
    assert_eq!(with(4, 4), "4 blocks, but 10000 bytes need 3 (ans block count)");
    assert_eq!(with(8, 9999), "9999 in the stream, 10000 in the configuration (ans decoded size)");
    assert_eq!(with(16, 11), "not supported: a table of 11 bits (ans probability bits)");
    assert_eq!(with(32, 1024), "the weights do not add up to 1024 (ans weights)");
    assert_eq!(with(table, 0x0FFF_0000), "4095 bytes, but the block has 4096 (block 0: ans block table)");
    assert_eq!(with(table, 0x1000_1001), "4097 words for 4096 bytes (block 0: ans block table)");
    let e = with(table + 4, u32::MAX);
    assert!(e.starts_with("ends at word 42949") && e.ends_with("(block 0: ans block table)"), "{e}");
    let e = with(12, u32::MAX);
    assert!(e.starts_with("needs 8589935") && e.ends_with("left (ans words)"), "{e}");
    let e = inverse_error(20, &config(10_000), &[&stored[..900]]);
    assert_eq!(e, "needs 960 bytes, 900 left (ans block table)");
    let e = inverse_error(20, &config(1 << 32), &[&stored]);
    assert!(e.starts_with("4294967296 bytes, but the stream has a 32-bit size (decoded_size"), "{e}");
    let mut other = config(4);
    other[0] = 11;
    assert!(parse_error(20, &other).starts_with("a table of 11 bits is unknown ("), "{}", parse_error(20, &other));
}
