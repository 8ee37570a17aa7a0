//! Shapes of Zstandard files: windows larger than the memory, frames of a few bytes, blocks that expand much.

use crate::{MIB, Refusal, Shape, Want, are_sevens, zstd_sevens};

pub(crate) const SHAPES: &[Shape] = &[
    Shape {
        name: "zstd: frames with windows of 64 MiB, larger than the cache",
        make: || [frame(26, 64 << 20, true), frame(26, 40 << 20, true)].concat(),
        cache: 4 * MIB,
        spill: 110 * MIB,
        work: MIB,
        want: Want::Right(are_sevens),
    },
    Shape {
        name: "zstd: a window of 32 MiB, larger than the cache and without spill: one decoder at a time",
        make: || [frame(25, 40 << 20, true), frame(25, 40 << 20, false)].concat(),
        cache: 4 * MIB,
        spill: 0,
        work: MIB,
        want: Want::Right(are_sevens),
    },
    Shape {
        name: "zstd: a window of 256 MiB, which window= does not allow",
        make: || frame(28, 200 << 20, true),
        cache: 512 * MIB,
        spill: 0,
        work: MIB,
        want: Want::Refused(Refusal::Unsupported),
    },
    Shape {
        name: "zstd: a hundred thousand frames of 12 bytes",
        make: || SMALL.repeat(100_000),
        cache: 16 * MIB,
        spill: 0,
        work: MIB,
        want: Want::Right(|_, bytes| bytes.iter().all(|&byte| byte == b'A')),
    },
    Shape {
        name: "zstd: blocks of 8 bytes that give 128 KiB each, of unknown size",
        make: || runs(1000),
        cache: 4 * MIB,
        spill: 0,
        work: MIB,
        want: Want::Right(|_, bytes| bytes.iter().all(|&byte| byte == b'A')),
    },
    Shape {
        name: "zstd: a frame of a million empty blocks",
        make: || {
            let mut bytes = vec![0x28, 0xB5, 0x2F, 0xFD, 0, 0x38];
            bytes.extend(vec![0; 3 << 20]);
            bytes.extend([1, 0, 0]);
            bytes
        },
        cache: 4 * MIB,
        spill: 0,
        work: MIB,
        want: Want::Refused(Refusal::TooLarge),
    },
    Shape {
        name: "zstd: more frames than there is memory for, with their list on disk",
        make: || SMALL.repeat(160_000),
        cache: MIB,
        spill: 32 * MIB,
        work: MIB,
        want: Want::Right(|_, bytes| bytes.iter().all(|&byte| byte == b'A')),
    },
    Shape {
        name: "zstd: more frames than there is memory for, and no spill",
        make: || SMALL.repeat(300_000),
        cache: MIB,
        spill: 0,
        work: MIB,
        want: Want::Refused(Refusal::NoRoom),
    },
];

/// A frame of one compressed block of one byte of content, which the frame does not state.
const SMALL: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD, 0, 0x38, 0x1D, 0, 0, 9, b'A', 0];

/// A frame of `len` bytes of 7 in runs, with a window of `2^log` bytes; `says`: whether it states its size.
fn frame(log: u8, len: u64, says: bool) -> Vec<u8> {
    let mut header = vec![0x28, 0xB5, 0x2F, 0xFD, if says { 0xC0 } else { 0 }, (log - 10) << 3];
    if says {
        header.extend(len.to_le_bytes());
    }
    zstd_sevens(&header, len)
}

/// A frame of `count` compressed blocks without sequences, each a run of 128 KiB of literals.
fn runs(count: usize) -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0, 7 << 3];
    for i in 1..=count {
        let literals = 1_u32 | 3 << 2 | (128 << 10) << 4;
        let block = [&literals.to_le_bytes()[..3], b"A\0"].concat();
        frame.extend(&((block.len() as u32) << 3 | 2 << 1 | u32::from(i == count)).to_le_bytes()[..3]);
        frame.extend(block);
    }
    frame
}
