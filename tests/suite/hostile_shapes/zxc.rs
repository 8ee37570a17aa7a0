//! Shapes of ZXC files: blocks that decode to much, more blocks and frames than fit in memory, tables that are wrong.

use crate::reseal::{zxc_block_header, zxc_file_header};
use crate::{MIB, Refusal, Shape, Want, anything, are_sevens};

/// Types of blocks, as in versions 6 and later.
const RAW: u8 = 0;
const GLO: u8 = 1;
const GHI: u8 = 2;
const SEK: u8 = 254;
const EOF: u8 = 255;
/// The largest block and the smallest, and their size codes.
const LARGE: (u8, u64) = (21, 2 << 20);
const SMALL: (u8, u64) = (12, 4 << 10);
/// Flags of a file header.
const CHECKSUMS: u8 = 0x80;
const DICTIONARY: u8 = 0x40;
const SEEK_TABLE: u8 = 0x20;
/// Blocks or frames of a file that has very many.
const MANY: u64 = 1_000_000;

const fn shape(name: &'static str, make: fn() -> Vec<u8>, cache: u64, work: u64, want: Want) -> Shape {
    Shape { name, make, cache, spill: 0, work, want }
}

pub(crate) const SHAPES: &[Shape] = &[
    shape(
        "zxc: blocks of 2 MiB from 53 bytes each",
        || old(8, LARGE.0, 0, &match_block(8, LARGE.1).repeat(512), 512 * LARGE.1, &[], 0),
        4 * MIB,
        MIB,
        Want::Right(are_sevens),
    ),
    shape(
        "zxc: run-length coded literals of 2 MiB",
        || old(8, LARGE.0, 0, &run_block().repeat(64), 64 * LARGE.1, &[], 0),
        4 * MIB,
        MIB,
        Want::Right(are_sevens),
    ),
    shape(
        "zxc: a million blocks of one byte",
        || old(8, SMALL.0, 0, &block(8, RAW, &[7]).repeat(MANY as usize), MANY, &[], 0),
        32 * MIB,
        300 * MIB,
        Want::Right(are_sevens),
    ),
    shape(
        "zxc: the same with less memory than their index takes",
        || old(8, SMALL.0, 0, &block(8, RAW, &[7]).repeat(MANY as usize), MANY, &[], 0),
        4 * MIB,
        MIB,
        Want::Refused(Refusal::NoRoom),
    ),
    shape(
        "zxc: a million empty blocks between two bytes",
        || {
            let (one, empty) = (block(8, RAW, &[7]), block(8, RAW, &[]).repeat(MANY as usize));
            old(8, SMALL.0, 0, &[&one[..], &empty, &one].concat(), 2, &[], 0)
        },
        32 * MIB,
        300 * MIB,
        Want::Right(are_sevens),
    ),
    shape(
        "zxc: a million block checksums",
        || {
            let empty = [&block(8, RAW, &[])[..], &EMPTY_CHECKSUM.to_le_bytes()].concat();
            let hash = (0..MANY).fold(0_u32, |hash, _| hash.rotate_left(1) ^ EMPTY_CHECKSUM);
            old(8, SMALL.0, CHECKSUMS, &empty.repeat(MANY as usize), 0, &[], hash)
        },
        32 * MIB,
        300 * MIB,
        Want::Right(anything),
    ),
    shape(
        "zxc: 16 GiB in blocks of unknown sizes",
        || old(8, LARGE.0, 0, &match_block(8, LARGE.1).repeat(8192), 15 << 30, &[], 0),
        4 * MIB,
        1024 * MIB,
        Want::Refused(Refusal::TooLarge),
    ),
    shape(
        "zxc: a footer of 2^63 bytes after one block",
        || old(8, LARGE.0, 0, &block(8, RAW, &[7]), 1 << 63, &[], 0),
        4 * MIB,
        MIB,
        Want::Refused(Refusal::Corrupt),
    ),
    shape(
        "zxc: run-length coded literals of 4 GiB in one block",
        || {
            let payload = [&[0, 0, 0, 0, 255, 255, 255, 255, 1, 0, 0, 0, 2, 0, 0, 0, 255, 7][..], &[0; 32]].concat();
            old(8, LARGE.0, 0, &block(8, GLO, &payload), LARGE.1, &[], 0)
        },
        4 * MIB,
        MIB,
        Want::Refused(Refusal::Corrupt),
    ),
    shape(
        "zxc: sequences that give more than a block",
        || old(8, SMALL.0, 0, &match_block(8, LARGE.1), SMALL.1, &[], 0),
        4 * MIB,
        MIB,
        Want::Refused(Refusal::Corrupt),
    ),
    shape(
        "zxc: 2^61 numbers in one block",
        || {
            let payload = [&(1_u64 << 61).to_le_bytes()[..], &[0; 64]].concat();
            old(5, 18, 0, &block(5, NUM, &payload), 256 << 10, &[], 0)
        },
        4 * MIB,
        MIB,
        Want::Refused(Refusal::Corrupt),
    ),
    shape(
        "zxc: a payload of 4 GiB",
        || {
            let mut bytes = old(8, LARGE.0, 0, &block(8, RAW, &[7; 100]), 100, &[], 0);
            let head = bytes[16..].first_chunk_mut().unwrap();
            head[3..7].fill(255);
            zxc_block_header(8, head);
            bytes
        },
        4 * MIB,
        MIB,
        Want::Refused(Refusal::TooLarge),
    ),
    shape(
        "zxc: a seek table of a hundred thousand blocks",
        || old(8, SMALL.0, 0, &small_blocks(8), SMALL.1 * 100_000, &[SMALL_STORED; 100_000], 0),
        MIB,
        MIB,
        Want::Right(are_sevens),
    ),
    shape(
        "zxc: a seek table of a hundred thousand blocks, in version 9",
        || new(SMALL.0, SEEK_TABLE, 0, &small_blocks(9), SMALL.1 * 100_000, &[SMALL_STORED; 100_000]),
        MIB,
        MIB,
        Want::Right(are_sevens),
    ),
    shape(
        "zxc: a seek table larger than the cache",
        || new(SMALL.0, SEEK_TABLE, 0, &small_blocks(9), SMALL.1 * 100_000, &[SMALL_STORED; 100_000]),
        MIB / 2,
        MIB,
        Want::Refused(Refusal::NoRoom),
    ),
    shape(
        "zxc: a seek table whose last entries are wrong",
        || {
            let mut sizes = vec![SMALL_STORED; 100_000];
            sizes[99_998] += 1;
            sizes[99_999] -= 1;
            old(8, SMALL.0, 0, &small_blocks(8), SMALL.1 * 100_000, &sizes, 0)
        },
        2 * MIB,
        MIB,
        Want::Refused(Refusal::Corrupt),
    ),
    shape(
        "zxc: a seek table of 2^40 blocks",
        || {
            let mut bytes = new(SMALL.0, SEEK_TABLE, 0, &match_block(9, SMALL.1), SMALL.1, &[SMALL_STORED]);
            let tail = bytes.len() - 4;
            // The decoded size, its length, the size of the frame.
            bytes.splice(tail.., [0, 0, 0, 0, 0, 0, 16, 0]);
            let len = bytes.len() as u8 + 1;
            *bytes.last_mut().unwrap() = len;
            bytes.push(6);
            bytes
        },
        4 * MIB,
        MIB,
        Want::Refused(Refusal::Corrupt),
    ),
    shape(
        "zxc: fifty thousand frames of one byte",
        || new(SMALL.0, 0, 0, &block(9, RAW, &[7]), 1, &[]).repeat(50_000),
        128 * MIB,
        MIB,
        Want::Right(are_sevens),
    ),
    shape(
        "zxc: fifty thousand frames with less memory than their list takes",
        || new(SMALL.0, 0, 0, &block(9, RAW, &[7]), 1, &[]).repeat(50_000),
        4 * MIB,
        MIB,
        Want::Refused(Refusal::NoRoom),
    ),
    shape(
        "zxc: thirty thousand frames that each name a dictionary",
        || (1..=30_000).flat_map(|id| new(SMALL.0, DICTIONARY, id, &block(9, RAW, &[7]), 1, &[])).collect(),
        128 * MIB,
        MIB,
        Want::Right(are_sevens),
    ),
];

/// The type of a block of numbers in version 5.
const NUM: u8 = 2;
/// The checksum of an empty payload.
const EMPTY_CHECKSUM: u32 = 0xE1F6_11E5;
/// Stored size of a match block.
const SMALL_STORED: u32 = 53;

fn small_blocks(version: u8) -> Vec<u8> {
    match_block(version, SMALL.1).repeat(100_000)
}

/// A block without checksum.
fn block(version: u8, kind: u8, payload: &[u8]) -> Vec<u8> {
    let [a, b, c, d] = (payload.len() as u32).to_le_bytes();
    let mut head = [kind, 0, 0, a, b, c, d, 0];
    zxc_block_header(version, &mut head);
    [&head[..], payload].concat()
}

/// A block of one literal, 7, and a match that repeats it up to `len` bytes in all.
fn match_block(version: u8, len: u64) -> Vec<u8> {
    // The length of a match: 5, 255 in the word, and the rest in a varint of three bytes.
    let more = (len - 1 - 5 - 255) as u32;
    let [low, high, _, _] = (more >> 5).to_le_bytes();
    let head = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    let word = [0, 0, 255, 1];
    let extras = [0xC0 | (more & 31) as u8, low, high];
    let payload = [&head[..], &[7], &word, &extras, &[0; 25]].concat();
    let block = block(version, GHI, &payload);
    assert_eq!(block.len(), SMALL_STORED as usize);
    block
}

/// A block of 2 MiB of literals in runs of 131 bytes, the last one shorter.
fn run_block() -> Vec<u8> {
    let (runs, rest) = (LARGE.1 / 131, (LARGE.1 % 131) as u8);
    let mut literals = [255, 7].repeat(runs as usize);
    literals.extend([0x80 | (rest - 4), 7]);
    let mut payload = [0_u32, LARGE.1 as u32].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>();
    payload.extend([1, 0, 0, 0]);
    payload.extend((literals.len() as u32).to_le_bytes());
    payload.extend(literals);
    payload.extend([0; 32]);
    block(8, GLO, &payload)
}

fn header(version: u8, code: u8, flags: u8, dictionary: u32) -> [u8; 16] {
    let mut header = [0xF5, 0x2E, 0xB0, 0x9C, version, code, flags, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[7..11].copy_from_slice(&dictionary.to_le_bytes());
    zxc_file_header(&mut header).unwrap();
    header
}

/// A file of version 5 to 8; `sizes` are the entries of its seek table, if it has any.
fn old(version: u8, code: u8, flags: u8, blocks: &[u8], total: u64, sizes: &[u32], hash: u32) -> Vec<u8> {
    let table: Vec<u8> = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
    let sek = if table.is_empty() { Vec::new() } else { block(version, SEK, &table) };
    let head = header(version, code, flags, 0);
    [&head[..], blocks, &block(version, EOF, &[]), &sek, &total.to_le_bytes(), &hash.to_le_bytes()].concat()
}

/// A frame of version 9 without checksums; `sizes` are the entries of its seek table, if it has any.
fn new(code: u8, flags: u8, dictionary: u32, blocks: &[u8], total: u64, sizes: &[u32]) -> Vec<u8> {
    let mut frame = [&header(9, code, flags, dictionary)[..], blocks, &block(9, EOF, &[])].concat();
    let mut at = 16_u64;
    let mut table = Vec::new();
    for group in sizes.chunks(64) {
        table.extend(at.to_le_bytes());
        table.extend(group.iter().flat_map(|size| size.to_le_bytes()));
        at += group.iter().map(|&size| u64::from(size)).sum::<u64>();
    }
    if !table.is_empty() {
        frame.extend(block(9, SEK, &table));
    }
    let shortest = |n: u64| n.to_le_bytes()[..(64 - n.leading_zeros()).div_ceil(8).max(1) as usize].to_vec();
    let total = shortest(total);
    frame.extend(&total);
    let sized = |n: usize| shortest((frame.len() + n + 1) as u64);
    let size = (1..=8).map(sized).find(|size| sized(size.len()) == *size).unwrap();
    frame.extend(&size);
    frame.push((total.len() - 1) as u8 | (size.len() as u8 - 1) << 4);
    frame
}
