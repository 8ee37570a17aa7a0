//! Tests of the LC coders: bytes that the reference explains, round trips over the writer, refusals.

use fzm_writer::Dtype;

use crate::format::fzm::stage::testing::{
    Random, inverse, inverse_error, parse_error, round_trip, stream, whole, windows_agree,
};

/// Six kinds of data, `len` bytes of each: zeros, a smooth walk, small numbers of 4 bytes, runs, noise, few values.
pub(in super::super) fn sections(len: usize) -> Vec<u8> {
    let mut random = Random(77);
    let mut out = vec![0; len];
    let mut level = 1000_i32;
    while out.len() < 2 * len {
        level += random.below(9) as i32 - 4;
        out.extend(level.to_le_bytes());
    }
    while out.len() < 3 * len {
        out.extend((random.below(200) as u32).to_le_bytes());
    }
    while out.len() < 4 * len {
        let value = (random.next() as u16).to_le_bytes();
        (0..random.below(80)).for_each(|_| out.extend(value));
    }
    out.truncate(4 * len);
    out.extend(random.bytes(len));
    out.extend((0..len).map(|_| if random.below(40) == 0 { random.below(256) as u8 } else { 0 }));
    out
}

/// A stream of one chunk.
fn one(len: u32, body: &[u8]) -> Vec<u8> {
    let mut out = [len, 1, body.len() as u32].map(u32::to_le_bytes).concat();
    out.extend(body);
    out
}

fn config(chunk: u32, word: u8, original: u32) -> Vec<u8> {
    [&chunk.to_le_bytes()[..], &[word], &original.to_le_bytes()].concat()
}

/// Decodes `body` as a chunk of `len` bytes.
fn decoded(ty: u16, chunk: u32, word: u8, len: u32, body: &[u8]) -> Result<Vec<u8>, String> {
    inverse(ty, &config(chunk, word, len), &[&one(len, body)]).map_err(|e| e.to_string())
}

/// The levels of a bitmap that has only the byte `first`, for chunks of 16384 bytes of words of 1 byte.
fn levels(first: u8) -> Vec<u8> {
    vec![first, 0, 3, 0, 3, 0, 3, 0, 0, 0]
}

#[test]
fn chunks_decode_as_the_reference_says() {
    let body = [&[5, 9][..], &levels(0b101), &[4, 0]].concat();
    assert_eq!(decoded(26, 16384, 1, 4, &body).unwrap(), [5, 5, 9, 9], "rre");
    assert_eq!(decoded(18, 16384, 1, 4, &body).unwrap(), [5, 0, 9, 0], "rze");
    assert_eq!(decoded(26, 16384, 8, 4, &[1, 2, 3, 4, 4, 0]).unwrap(), [1, 2, 3, 4], "less than a word");
    // Lower bits 001 and 011.
    let raze = [&[200, 0b01_1001][..], &levels(0b010), &[3, 3, 0]].concat();
    assert_eq!(decoded(28, 16384, 1, 3, &raze).unwrap(), [1, 200, 3]);
    let rare = [&[200, 0x79][..], &levels(0b001), &[4, 3, 0]].concat();
    assert_eq!(decoded(27, 16384, 1, 3, &rare).unwrap(), [200, 201, 199]);
    for ty in [27, 28] {
        assert_eq!(decoded(ty, 4096, 2, 5, &[7, 17, 5, 0]).unwrap(), [0, 0, 0, 0, 7], "zeros");
        assert_eq!(decoded(ty, 4096, 2, 5, &[1, 2, 3, 4, 7, 16, 5, 0]).unwrap(), [1, 2, 3, 4, 7], "stored");
    }
    let clog = [&[32, 0][..], &[0x22; 16], &[0xFF; 8]].concat();
    assert_eq!(decoded(29, 16384, 1, 32, &clog).unwrap(), [3; 32]);
    let hclog = [&[1, 0, 0, 0][..], &clog].concat();
    assert_eq!(decoded(30, 16384, 1, 32, &hclog).unwrap(), [&[0xFE][..], &[3; 31]].concat());
    // Two words: groups 15 and 31 have one each, the others none.
    let mut widths = [0; 16];
    (widths[7], widths[15]) = (0x40, 0x30);
    let few = [&[2, 0][..], &widths, &[0b101_1001]].concat();
    assert_eq!(decoded(29, 16384, 1, 2, &few).unwrap(), [9, 5]);
}

#[test]
fn every_coder_round_trips_at_every_size() {
    let bytes = sections(4_500);
    for name in ["rre", "rare", "raze", "clog", "hclog"] {
        for word in [1, 2, 4, 8] {
            for chunk in [4096, 8192, 16384] {
                round_trip(&format!("rle:t=u8,{name}:w={word},chunk={chunk}"), Dtype::U8, &[], &bytes);
            }
            round_trip(&format!("{name}:w={word}"), Dtype::U8, &[], &bytes);
        }
        round_trip(name, Dtype::U8, &[], &[]);
    }
    round_trip("rare:w=2,clog:w=4,raze", Dtype::U8, &[], &bytes);
}

#[test]
fn configurations_without_a_field_stand_for_its_default() {
    let stored = one(3, &[1, 2, 3]);
    let raw = [&stored[..8], &(3 | 1_u32 << 31).to_le_bytes(), &[1, 2, 3]].concat();
    for len in [0, 4, 5, 9] {
        assert_eq!(inverse(27, &config(16384, 1, 3)[..len], &[&raw]).unwrap(), [1, 2, 3]);
        assert!(inverse(27, &config(16384, 1, 0)[..len], &[&[]]).unwrap().is_empty());
    }
    assert_eq!(inverse_error(27, &[], &[&raw[..7]]), "needs 8 bytes, 7 left (original size)");
    assert_eq!(inverse_error(27, &[], &[&raw[..11]]), "needs 12 bytes, 11 left (original_size)");
    assert_eq!(
        inverse_error(27, &config(16384, 1, 0), &[&raw]),
        "3 in the stream, 0 in the configuration (original size)"
    );
    assert!(parse_error(27, &[0; 8]).starts_with("a configuration of 8 bytes is unknown"));
    assert!(parse_error(29, &config(1 << 15, 1, 0)).starts_with("a chunk of 32768 bytes is unknown"));
    assert!(parse_error(26, &config(4096, 3, 0)).starts_with("a word of 3 bytes is unknown"));
}

#[test]
fn contradictory_chunks_are_refused() {
    let rare = [&[200, 0x79][..], &levels(0b001), &[4, 3, 0]].concat();
    let with = |at: usize, byte: u8| {
        let mut body = rare.clone();
        body[at] = byte;
        body
    };
    let clog = [&[32, 0][..], &[0x22; 16], &[0xFF; 8]].concat();
    let wide = [&[32, 0, 0x29][..], &clog[3..], &[0; 1]].concat();
    for (ty, chunk, word, len, body, why) in [
        (27, 16384, 1, 3, with(12, 10), "more lower bits than a word has"),
        (27, 16384, 1, 3, with(12, 9), "the words do not have the length that the bitmaps require"),
        (27, 16384, 1, 3, with(12, 8), "the words do not have the length that the bitmaps require"),
        (27, 16384, 1, 3, with(12, 5), "the words do not have the length that the bitmaps require"),
        (27, 16384, 1, 3, with(13, 2), "the tag is not the length of the chunk"),
        (27, 16384, 1, 3, with(2, 9), "a bitmap marks bytes beyond the end"),
        (27, 16384, 1, 3, rare[8..].to_vec(), "fewer bytes than a bitmap requires"),
        (27, 16384, 1, 3, rare[12..].to_vec(), "too short for a bitmap and a tag"),
        (28, 16384, 1, 3, rare[13..].to_vec(), "too short for a tag"),
        (26, 16384, 1, 3, Vec::new(), "too short for a tag"),
        (26, 16384, 2, 3, vec![3, 0], "too short for the bytes after the last word"),
        (
            26,
            16384,
            1,
            4,
            [&[5][..], &levels(5), &[4, 0]].concat(),
            "the data does not have the length that the bitmaps require",
        ),
        (29, 16384, 1, 32, clog[1..].to_vec(), "the tag is not the length of the chunk"),
        (29, 16384, 1, 32, clog[..17].to_vec(), "too short for the widths"),
        (29, 16384, 1, 32, clog[..25].to_vec(), "fewer bits than the widths require"),
        (29, 16384, 1, 32, [&clog[..], &[0]].concat(), "not as many bits as the widths require"),
        (29, 16384, 1, 32, wide, "a group has more bits than a word"),
        (30, 16384, 1, 32, vec![0; 3], "too short for the flags of the groups"),
    ] {
        let e = decoded(ty, chunk, word, len, &body).unwrap_err();
        let name = ["rre", "rare", "raze", "clog", "hclog"][usize::from(ty) - 26];
        assert_eq!(e, format!("{why} (stored at byte 12 of the stream) (chunk 0: {name} chunk)"));
    }
}

#[test]
fn bitmaps_without_a_last_level_are_not_guessed() {
    for (chunk, word) in [(8192, 4), (4096, 2), (4096, 4)] {
        for ty in [18, 26, 27, 28] {
            let body = [&[1; 40][..], &[3, 64, 0]].concat();
            let e = decoded(ty, chunk, word, 64, &body).unwrap_err();
            assert!(e.starts_with("not supported: bitmaps without a last level (stored at byte 12"), "{e}");
        }
        assert_eq!(decoded(26, chunk, word, 64, &[64, 0]).unwrap(), [0; 64]);
    }
}

fn golomb(k: u32, starts: [u32; 16], codes: &[u8]) -> Vec<u8> {
    let mut body = k.to_le_bytes().to_vec();
    body.extend(starts.iter().flat_map(|start| start.to_le_bytes()));
    body.extend(codes);
    body
}

/// Starts of intervals; only the first interval has bytes.
fn first(n: u32) -> [u32; 16] {
    let mut starts = [n; 16];
    starts[0] = 0;
    starts
}

fn rice(ty: u8, len: u32, body: &[u8]) -> Result<Vec<u8>, String> {
    inverse(42, &config(16384, ty, len), &[&one(len, body)]).map_err(|e| e.to_string())
}

#[test]
fn golomb_rice_codes_decode_as_the_reference_says() {
    // 0, -1 and 5 are 0, 1 and 10: 0 in unary and 0, 0 and 1, 5 and 0.
    let words = |values: &[i16]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    assert_eq!(rice(5, 6, &golomb(1, first(2), &[0xF8, 1])).unwrap(), words(&[0, -1, 5]));
    // 24 ones, then the element itself.
    let escape = [0xFF, 0xFF, 0xFF, 0xD0, 0x07];
    assert_eq!(rice(5, 2, &golomb(0, first(5), &escape)).unwrap(), words(&[1000]));
    assert_eq!(rice(6, 4, &golomb(0, first(7), &[&escape[..], &[0, 0]].concat())).unwrap(), 1000_i32.to_le_bytes());
    // A ragged tail is stored nowhere.
    assert_eq!(rice(5, 7, &golomb(1, first(2), &[0xF8, 1])).unwrap(), [&words(&[0, -1, 5])[..], &[0]].concat());
    let raw = [&one(3, &[])[..8], &(2 | 1_u32 << 31).to_le_bytes(), &[7, 8]].concat();
    assert_eq!(inverse(42, &config(16384, 5, 3), &[&raw]).unwrap(), [7, 8, 0]);
}

#[test]
fn golomb_rice_round_trips() {
    let bytes = sections(32_768);
    for t in ["i16", "i32"] {
        for config in ["9", "5"] {
            round_trip(&format!("golomb_rice:t={t},config={config}"), Dtype::I32, &[49_152], &bytes);
        }
    }
    let short: Vec<u8> = (0..30_001_i32).flat_map(|i| ((i * i) % 977 - 400).to_le_bytes()).collect();
    round_trip("difference:in=i32,out=i32,golomb_rice", Dtype::I32, &[30_001], &short);
    let stored = golomb(0, [0; 16], &[]);
    windows_agree(42, &config(16384, 5, 0), &[&[]]);
    assert!(rice(5, 2, &stored).is_err());
}

#[test]
fn contradictory_golomb_rice_chunks_are_refused() {
    let mut late = first(2);
    late[0] = 1;
    let mut back = first(2);
    back[3] = 1;
    for (ty, len, body, why) in [
        (5, 6, golomb(16, first(2), &[0xF8, 1]), "a parameter k that is too large"),
        (6, 4, golomb(25, first(2), &[0xF8, 1]), "a parameter k that is too large"),
        (5, 6, golomb(1, late, &[0xF8, 1]), "intervals that do not follow each other"),
        (5, 6, golomb(1, back, &[0xF8, 1]), "intervals that do not follow each other"),
        (5, 6, golomb(1, first(3), &[0xF8, 1]), "intervals that do not follow each other"),
        (5, 6, golomb(1, first(1), &[0xF8, 1]), "a code outside its interval"),
        (5, 40, golomb(1, first(2), &[0xF8, 1]), "a code outside its interval"),
        (5, 2, golomb(15, first(5), &[0b111, 0, 0, 0, 0]), "a code that is larger than an element"),
        (5, 6, golomb(1, first(2), &[])[..67].to_vec(), "too short for its intervals"),
    ] {
        let e = rice(ty, len, &body).unwrap_err();
        assert_eq!(e, format!("{why} (stored at byte 12 of the stream) (chunk 0: golomb_rice chunk)"));
    }
    assert!(parse_error(42, &config(8192, 5, 0)).starts_with("a chunk of 8192 bytes is unknown"));
    assert!(parse_error(42, &config(16384, 7, 0)).starts_with("element type int64 is unknown"));
}

fn tupl(block: u32, word: u8, dim: u8) -> Vec<u8> {
    [&block.to_le_bytes()[..], &[word, dim]].concat()
}

#[test]
fn tuples_are_made_of_fields() {
    let stored: Vec<u8> = (0..24).collect();
    // Blocks of 10: two tuples of four, and two bytes as they are; the last four bytes are not a block.
    let want = [0, 2, 4, 6, 1, 3, 5, 7, 8, 9, 10, 12, 14, 16, 11, 13, 15, 17, 18, 19, 20, 21, 22, 23];
    assert_eq!(inverse(31, &tupl(10, 1, 4), &[&stored]).unwrap(), want);
    assert_eq!(inverse(31, &tupl(10, 1, 2), &[&stored]).unwrap()[..10], [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]);
    assert_eq!(inverse(31, &tupl(8, 2, 2), &[&stored]).unwrap()[..8], [0, 1, 4, 5, 2, 3, 6, 7]);
    assert_eq!(inverse(31, &tupl(3, 1, 4), &[&stored]).unwrap(), stored, "blocks without a tuple");
}

#[test]
fn tuples_of_any_size_round_trip_in_blocks_of_any_size() {
    let bytes = sections(50_000);
    for (word, dim, block) in [
        (1, 2, 16384),
        (2, 255, 1000),
        (4, 3, 16384),
        (8, 6, 4096),
        (1, 5, 7),
        (4, 255, 512),
        (1, 3, 100_000),
        (2, 100, 250_000),
        (8, 255, 300_000),
    ] {
        round_trip(&format!("rle:t=u8,tupl:w={word},dim={dim},block={block}"), Dtype::U8, &[], &bytes[..60_000]);
        let stored = sections(50_000 + dim);
        windows_agree(31, &tupl(block as u32, word, dim as u8), &[&stored]);
        let mut back = Vec::<u8>::new();
        let (n, w) = (block / usize::from(word) / dim, usize::from(word));
        for block in stored.chunks(block).take(stored.len() / block) {
            for (t, f) in (0..n).flat_map(|t| (0..dim).map(move |f| (t, f))) {
                back.extend(&block[(f * n + t) * w..][..w]);
            }
            back.extend(&block[n * dim * w..]);
        }
        back.extend(&stored[back.len()..]);
        let stream = stream(31, &tupl(block as u32, word, dim as u8), &[&stored]).unwrap();
        assert!(whole(&*stream).unwrap() == back, "{word} {dim} {block}");
    }
    assert!(parse_error(31, &tupl(0, 1, 2)).starts_with("a block of 0 bytes is unknown"));
    assert!(parse_error(31, &tupl(6, 4, 2)).starts_with("a block of 6 bytes is unknown"));
    assert!(parse_error(31, &tupl(8, 1, 1)).starts_with("a tuple of 1 words is unknown"));
    assert!(parse_error(31, &tupl(8, 5, 2)).starts_with("a word of 5 bytes is unknown"));
}
