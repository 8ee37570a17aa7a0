//! Shapes of FZM files whose last stages code blocks, tiles or chunks.

use crate::fzm::{PAGE, is_u32, runs};
use crate::fzm_file::{Stage, chain, file};
use crate::{MIB, Refusal, Shape, Want};

pub(crate) const SHAPES: &[Shape] = &[
    Shape {
        name: "fzm: 4 GiB in blocks of 1024 elements without bits",
        make: || chain(&[(24, adaptive_bitpack(1024, 1 << 30))], &vec![0; 1 << 20], 1 << 32),
        cache: MIB,
        spill: 0,
        work: PAGE,
        want: Want::Right(|_, bytes| bytes.iter().all(|&byte| byte == 0)),
    },
    Shape {
        name: "fzm: 16 MiB of rates from 2 runs",
        make: || rates(1 << 22, 32),
        cache: 4 * MIB,
        spill: 0,
        work: PAGE,
        want: Want::Right(|_, bytes| bytes.iter().all(|&byte| byte == 0)),
    },
    Shape {
        name: "fzm: 4 GiB of rates from 2 runs",
        make: || rates(1 << 30, 1),
        cache: 16 * MIB,
        spill: 64 * MIB,
        work: MIB,
        want: Want::Refused(Refusal::NoRoom),
    },
    Shape {
        name: "fzm: tiles of 255 rows and one column, under a stage that reads rows",
        make: tiles,
        cache: MIB,
        spill: 16 * MIB,
        work: PAGE,
        want: Want::Right(|at, bytes| is_u32(at, bytes, |i| 7 * (i / COLUMNS + 1) as u32)),
    },
    Shape {
        name: "fzm: the same without spill",
        make: tiles,
        cache: MIB,
        spill: 0,
        work: MIB,
        want: Want::Refused(Refusal::NoRoom),
    },
    Shape {
        name: "fzm: 256 MiB in chunks of the same words",
        make: || chunks(1 << 16),
        cache: MIB,
        spill: 0,
        work: PAGE,
        want: Want::Right(|_, bytes| bytes.iter().all(|&byte| byte == 0xFF)),
    },
    Shape {
        name: "fzm: 16 stages whose three outputs are all made of the input of the next one",
        make: || fan_in(16, 0xFF),
        cache: MIB,
        spill: 0,
        work: PAGE,
        want: Want::Refused(Refusal::TooLarge),
    },
    Shape {
        name: "fzm: 3 stages whose three outputs are all made of the input of the next one",
        make: || fan_in(3, 0),
        cache: MIB,
        spill: 0,
        work: PAGE,
        want: Want::Right(|_, bytes| bytes.iter().all(|&byte| byte == 0)),
    },
];

/// Rows of [`tiles`]: those of a tile.
const ROWS: u64 = 255;
/// Columns of [`tiles`].
const COLUMNS: u64 = 1 << 13;

fn adaptive_bitpack(block: u32, n: u64) -> Vec<u8> {
    [&[6, 0, 0, 0][..], &block.to_le_bytes(), &n.to_le_bytes()].concat()
}

/// The stage and the stream of an RLE of `n` times `value`.
fn rle(value: u32, n: u64) -> ((u16, Vec<u8>), Vec<u8>) {
    let config = [&[2][..], &(n as u32).to_le_bytes()].concat();
    ((5, config), runs(&[(value, (n / 2) as u32), (value, (n - n / 2) as u32)]))
}

/// Blocks of `block` elements without bits, whose rates are `n` words of zeros.
fn rates(n: u64, block: u32) -> Vec<u8> {
    let (rle, stored) = rle(0, n);
    let elements = 4 * n * u64::from(block);
    chain(&[(24, adaptive_bitpack(block, elements)), rle], &stored, 4 * elements)
}

/// An array of sevens in tiles of one column.
fn tiles() -> Vec<u8> {
    let mut config = vec![6, 2, 1, ROWS as u8, 1, 0, 0, 0];
    config.extend([COLUMNS as u32, ROWS as u32, 1].iter().flat_map(|n| n.to_le_bytes()));
    let (rle, stored) = rle(7, ROWS * COLUMNS);
    // The stage that reads the rows: as many bits as an element has.
    let bits = [&[2, 32][..], &(ROWS * COLUMNS).to_le_bytes()].concat();
    chain(&[(7, bits), (25, config), rle], &stored, 4 * ROWS * COLUMNS)
}

/// `n` chunks with all bits set, which share their words.
fn chunks(n: u32) -> Vec<u8> {
    let count = u64::from(n) * 2048;
    let mut out = count.to_le_bytes().to_vec();
    let (starts, words) = (128 + 32 * n, 128 + 36 * n);
    out.extend([0, 128, starts, words, words + 4096].iter().flat_map(|n| n.to_le_bytes()));
    out.resize(128, 0);
    out.resize(starts as usize, 0xFF);
    out.resize(words as usize, 0);
    out.resize(words as usize + 4096, 0xFF);
    chain(&[(23, count.to_le_bytes().to_vec())], &out, 2 * count)
}

/// `depth` pairs of an `AdaptiveLorenzo` and a Merge of its outputs, over bytes of `fill`: reading the input of each
/// reads that of the next one three times.
fn fan_in(depth: u16, fill: u8) -> Vec<u8> {
    const TILE: u32 = 32;
    let (mut stages, mut bytes) = (Vec::new(), 4 * 64 * TILE);
    let first = bytes;
    for level in 0..depth {
        let input = 4 * level;
        let outputs = vec![input + 1, input + 2, input + 3];
        let tiles = (bytes / 4).div_ceil(TILE);
        let sizes = [bytes, tiles.div_ceil(16) * 4, 4 * tiles];
        let mut config = vec![6, 32, 1, 1, 1, 0, 0, 0];
        config.extend((bytes / 4).to_le_bytes());
        stages.push(Stage { kind: 34, inputs: vec![input], outputs: outputs.clone(), config });
        let config = [&[3][..], &sizes.map(u32::to_le_bytes).concat()].concat();
        stages.push(Stage { kind: 11, inputs: outputs, outputs: vec![input + 4], config });
        bytes = sizes.iter().sum();
    }
    file(&stages, &[vec![fill; bytes as usize]], first.into())
}
