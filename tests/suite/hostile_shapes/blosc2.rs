//! Shapes of Blosc2 files: bare chunks with blocks that are much larger than a piece.

use std::io::Read;

use crate::{MIB, Refusal, Shape, Want, are_sevens, zstd_sevens};

/// Bytes of a large block.
const BLOCK: usize = 48 << 20;
/// Codec formats in the flags of a chunk.
const BLOSCLZ: u8 = 0;
const LZ4: u8 = 1;
const ZLIB: u8 = 3;
const ZSTD: u8 = 4;
/// Filters.
const SHUFFLE: u8 = 1;
const BITSHUFFLE: u8 = 2;
const DELTA: u8 = 3;

pub(crate) const SHAPES: &[Shape] = &[
    Shape {
        name: "blosc2: a shuffled block of 48 MiB from 1.5 KiB of Zstandard",
        make: || chunk(ZSTD, &[SHUFFLE], BLOCK, &[sevens(BLOCK)]),
        cache: 4 * MIB,
        spill: 128 * MIB,
        work: MIB,
        want: Want::Right(are_sevens),
    },
    Shape {
        name: "blosc2: the same without spill",
        make: || chunk(ZSTD, &[SHUFFLE], BLOCK, &[sevens(BLOCK)]),
        cache: 4 * MIB,
        spill: 0,
        work: MIB,
        want: Want::Refused(Refusal::NoRoom),
    },
    Shape {
        name: "blosc2: a bit-shuffled block of 48 MiB from LZ4",
        make: || chunk(LZ4, &[BITSHUFFLE], BLOCK, &[lz4(BLOCK, 0)]),
        cache: 4 * MIB,
        spill: 128 * MIB,
        work: MIB,
        want: Want::Right(|_, bytes| bytes.iter().all(|&byte| byte == 0)),
    },
    Shape {
        name: "blosc2: a block of 48 MiB from zlib",
        make: || chunk(ZLIB, &[], BLOCK, &[zlib(BLOCK)]),
        cache: 4 * MIB,
        spill: 128 * MIB,
        work: MIB,
        want: Want::Right(are_sevens),
    },
    Shape {
        name: "blosc2: blocks of 16 MiB, of which few fit at a time",
        make: || chunk(ZSTD, &[SHUFFLE], 16 << 20, &vec![sevens(16 << 20); 6]),
        cache: 4 * MIB,
        spill: 72 * MIB,
        work: MIB,
        want: Want::Right(are_sevens),
    },
    Shape {
        name: "blosc2: blocks of 16 MiB that refer to the first",
        // The first element of the first block is 7; all others differ by 0 from it, or from the first block.
        make: || {
            let mut blocks = vec![lz4(16 << 20, 7)];
            blocks.extend(vec![lz4(16 << 20, 0); 3]);
            chunk(LZ4, &[DELTA], 16 << 20, &blocks)
        },
        cache: 4 * MIB,
        spill: 96 * MIB,
        work: MIB,
        want: Want::Right(are_sevens),
    },
    Shape {
        name: "blosc2: a block of 511 MiB that 100 bytes cannot give",
        make: || chunk(BLOSCLZ, &[SHUFFLE], 511 << 20, &[vec![7; 100]]),
        cache: 4 * MIB,
        spill: 4096 * MIB,
        work: MIB,
        want: Want::Refused(Refusal::Corrupt),
    },
    Shape {
        name: "blosc2: a table of eight million blocks, larger than the memory",
        make: || {
            let mut bytes = chunk(LZ4, &[], 1, &[vec![0; 4]]);
            bytes.resize(32 + (8 << 20) * 4, 0);
            let len = bytes.len() as u32;
            bytes[4..8].copy_from_slice(&(8_u32 << 20).to_le_bytes());
            bytes[12..16].copy_from_slice(&len.to_le_bytes());
            bytes
        },
        cache: 4 * MIB,
        spill: 0,
        work: MIB,
        want: Want::Refused(Refusal::NoRoom),
    },
];

/// A chunk of items of 4 bytes whose blocks of `blocksize` bytes are one stream each.
fn chunk(codec: u8, filters: &[u8], blocksize: usize, blocks: &[Vec<u8>]) -> Vec<u8> {
    let nbytes = blocksize * blocks.len();
    let mut slots = [0; 6];
    for (slot, &filter) in slots.iter_mut().rev().zip(filters) {
        *slot = filter;
    }
    let mut starts = Vec::new();
    let mut body = Vec::new();
    for stream in blocks {
        starts.extend((32 + 4 * blocks.len() as u32 + body.len() as u32).to_le_bytes());
        body.extend((stream.len() as u32).to_le_bytes());
        body.extend(stream);
    }
    let cbytes = 32 + starts.len() + body.len();
    // Explicit filters, one stream a block.
    let mut bytes = vec![5, 1, 0x15 | codec << 5, 4];
    for size in [nbytes, blocksize, cbytes] {
        bytes.extend((size as u32).to_le_bytes());
    }
    bytes.extend(slots);
    bytes.resize(32, 0);
    bytes.extend(starts);
    bytes.extend(body);
    bytes
}

/// A Zstandard frame of `len` bytes of 7, in runs.
fn sevens(len: usize) -> Vec<u8> {
    let header = [&[0x28, 0xB5, 0x2F, 0xFD, 0xA0], &(len as u32).to_le_bytes()[..]].concat();
    zstd_sevens(&header, len as u64)
}

/// An LZ4 block of `len` bytes: four of `value`, and then 0.
fn lz4(len: usize, value: u8) -> Vec<u8> {
    let mut block = vec![0x8F, value, value, value, value, 0, 0, 0, 0, 1, 0];
    let more = len - 8 - 5 - 19;
    block.extend(vec![255; more / 255]);
    block.push((more % 255) as u8);
    block.push(0x50);
    block.extend([0; 5]);
    block
}

fn zlib(len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let sevens = std::io::repeat(7).take(len as u64);
    flate2::read::ZlibEncoder::new(sevens, flate2::Compression::new(6)).read_to_end(&mut bytes).unwrap();
    bytes
}
