//! Frames of 0.7 against libzstd's decoder for them: there is no encoder any more, so real frames are changed at
//! random, and must decode as in libzstd.
//!
//! `ZSTD_V07=COUNT,SEED` sets the number of frames and the seed.

use ::zstd::bulk::Decompressor;
use fzm_writer::Random;
use fzmfs::format::Options;

use crate::support::opened as support;
use crate::zstd::{corpus, manifest, options};

/// A file of the corpus that is quick to decode, and the dictionary that it needs.
struct Original {
    bytes: Vec<u8>,
    options: Options,
    dictionary: Vec<u8>,
}

fn originals() -> Vec<Original> {
    let mut out = Vec::new();
    for case in manifest(&corpus()) {
        let bytes = std::fs::read(corpus().join(case["file"].as_str().unwrap())).unwrap();
        let single = case["frames"].as_array().unwrap().len() == 1;
        if single && bytes.starts_with(&[0x27, 0xB5, 0x2F, 0xFD]) && bytes.len() < 50_000 {
            let options = options(&case);
            let dictionary = options.dicts.first().map(|path| std::fs::read(path).unwrap());
            out.push(Original { bytes, options, dictionary: dictionary.unwrap_or_default() });
        }
    }
    out
}

/// Errors for files that libzstd decodes, and what libzstd does not check.
const STRICTER: &[(&str, &str)] = &[
    ("block size", "it masks the sizes of blocks and checks them against no maximum"),
    ("its blocks produce at most", "the same"),
    ("decodes to more than the maximum block size", "the same"),
    ("single segment without a content size", "then there is no window"),
    ("not consumed exactly", "the last symbol of a Huffman stream may have bits that are not there"),
    ("the bit stream ends before the last sequence", "so may the last sequence"),
];

#[test]
fn a_changed_frame_decodes_as_in_libzstd() {
    let asked = std::env::var("ZSTD_V07").unwrap_or_else(|_| "5000,1".into());
    let (count, seed) = asked.split_once(',').unwrap();
    let (count, seed): (u64, u64) = (count.parse().unwrap(), seed.parse().unwrap());
    let originals = originals();
    let (mut decoded, mut refused) = (0, 0);
    for number in 0..count {
        let mut random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let original = &originals[random.below(originals.len())];
        let mut file = original.bytes.clone();
        for _ in 0..=random.below(3) {
            let at = 5 + random.below(file.len() - 5);
            if random.below(2) == 0 { file[at] ^= 1 << random.below(8) } else { file[at] = random.bits() as u8 }
        }
        // Without a checksum, so that changed frames decode.
        file[4] &= !4;
        // libzstd rejects windows above 2^27, even if the frame does not use them.
        let window = if file[4] & 0x20 == 0 { 10 + (file[5] >> 3) } else { 0 };
        let theirs = Decompressor::with_dictionary(&original.dictionary).unwrap().decompress(&file, 16 << 20);
        let ours = support::open(file, &original.options).and_then(|c| support::read_at(&*c, "data.raw"));
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => {
                assert!(ours == theirs, "{number}: {} bytes, {} of libzstd", ours.len(), theirs.len());
                decoded += 1;
            }
            (Err(_), Err(_)) => refused += 1,
            (Err(e), Ok(_)) => {
                let e = e.to_string();
                assert!(STRICTER.iter().any(|(why, _)| e.contains(why)), "{number}: libzstd reads it: {e}");
            }
            (Ok(_), Err(e)) => assert!(window >= 27, "{number}: libzstd refuses it: {e}"),
        }
    }
    assert!(decoded > count / 5 && refused > count / 5);
    println!("{decoded} files decode, {refused} are refused");
}
