//! Shapes of FZM files.

use crate::fzm_file::{Stage, chain, file};
use crate::{MIB, Refusal, Shape, Want, are_sevens};

/// Limit of the work of a request for a piece.
pub(crate) const PAGE: u64 = 64 * MIB + 256 * MIB;
/// Limit of the work for a value that is kept.
const BUILD: u64 = 4096 * MIB;

pub(crate) const SHAPES: &[Shape] = &[
    Shape {
        name: "fzm: an integer Lorenzo array of 8 GiB from 2 runs",
        make: || lorenzo(1 << 31),
        cache: 16 * MIB,
        spill: 64 * MIB,
        work: MIB,
        want: Want::Refused(Refusal::NoRoom),
    },
    Shape {
        name: "fzm: an integer Lorenzo array of 8 GiB from 2 runs, without spill",
        make: || lorenzo(1 << 31),
        cache: 16 * MIB,
        spill: 0,
        work: MIB,
        want: Want::Refused(Refusal::NoRoom),
    },
    Shape {
        name: "fzm: an integer Lorenzo array larger than the cache",
        make: || lorenzo(LORENZO),
        cache: 4 * MIB,
        spill: 64 * MIB,
        work: 64 * MIB,
        want: Want::Right(|at, bytes| {
            let row = LORENZO / 4;
            is_u32(at, bytes, |i| (7 * (i % row + 1) * (i / row + 1)) as u32)
        }),
    },
    Shape {
        name: "fzm: partitions of 16 MiB of one symbol, under bits of 4 bytes",
        make: || partitions(64 * MIB, true),
        cache: 16 * MIB,
        spill: 0,
        work: 4 * MIB,
        want: Want::Right(|at, bytes| is_u32(at, bytes, |i| u32::from(0x55 >> (i % 8) & 1 != 0))),
    },
    Shape {
        name: "fzm: partitions of 16 MiB of two symbols, under bits of 4 bytes",
        make: || partitions(32 * MIB, false),
        cache: 16 * MIB,
        spill: 0,
        work: 64 * MIB,
        // Bytes 0x55 and 0x33 in turn.
        want: Want::Right(|at, bytes| {
            is_u32(at, bytes, |i| u32::from(if i / 8 % 2 == 0 { 0x55 } else { 0x33 } >> (i % 8) & 1 != 0))
        }),
    },
    Shape {
        name: "fzm: a tower of RLE stages that do not say their lengths",
        make: || tower(1 << 26, 6, false),
        cache: 16 * MIB,
        spill: 1024 * MIB,
        work: 260 * MIB,
        want: Want::Refused(Refusal::TooLarge),
    },
    Shape {
        name: "fzm: a small tower of RLE stages",
        make: || tower(1 << 20, 3, true),
        cache: 16 * MIB,
        spill: 64 * MIB,
        work: PAGE,
        want: Want::Right(|at, bytes| is_u32(at, bytes, |_| 1)),
    },
    Shape {
        name: "fzm: chunks of 2 GiB of one run each",
        make: chunks,
        cache: MIB,
        spill: 0,
        work: PAGE,
        want: Want::Right(|at, bytes| {
            let (words, rest) = bytes.as_chunks::<8>();
            rest.is_empty() && (at / 8..).zip(words).all(|(i, word)| u64::from_le_bytes(*word) == i / CHUNK + 1)
        }),
    },
    Shape {
        name: "fzm: a chunk of 2 GiB whose runs pass its end",
        make: || chunked(&[(1, CHUNK as u32 + 1), (2, CHUNK as u32 - 1)]),
        cache: MIB,
        spill: 0,
        work: PAGE,
        want: Want::Refused(Refusal::Corrupt),
    },
    Shape {
        name: "fzm: linear codes in blocks, over 4 GiB of one run",
        make: || blocks(1 << 30),
        cache: MIB,
        spill: 0,
        work: PAGE,
        want: Want::Right(|at, bytes| {
            let (words, rest) = bytes.as_chunks::<4>();
            let value = |i: u64| (7 * (i % 32 + 1)) as f32;
            rest.is_empty() && (at / 4..).zip(words).all(|(i, word)| word == &value(i).to_le_bytes())
        }),
    },
    Shape {
        name: "fzm: outliers that only the configuration has",
        make: || counted(u32::MAX),
        cache: MIB,
        spill: 0,
        work: MIB,
        want: Want::Refused(Refusal::Corrupt),
    },
    Shape {
        name: "fzm: sums over 16 GiB of one run",
        make: || sums((1 << 32) - 4),
        cache: 16 * MIB,
        spill: 64 * MIB,
        work: MIB,
        want: Want::Refused(Refusal::TooLarge),
    },
    Shape {
        name: "fzm: sums over 64 MiB of one run",
        make: || sums(1 << 24),
        cache: MIB,
        spill: 0,
        work: BUILD,
        want: Want::Right(|at, bytes| is_u32(at, bytes, |i| (7 * (i + 1)) as u32)),
    },
    Shape {
        name: "fzm: more outliers than the cache holds, in no order",
        make: || outliers(OUTLIERS),
        cache: MIB,
        spill: 64 * MIB,
        work: 64 * MIB,
        want: Want::Right(|at, bytes| {
            let (words, _) = bytes.as_chunks::<8>();
            (at / 8..).zip(words).all(|(i, word)| f64::from_le_bytes(*word).to_bits() == (i as f64).to_bits())
        }),
    },
    Shape {
        name: "fzm: more outliers than the cache holds, without spill",
        make: || outliers(OUTLIERS),
        cache: MIB,
        spill: 0,
        work: MIB,
        want: Want::Refused(Refusal::NoRoom),
    },
    Shape {
        name: "fzm: an interpolated array of outliers in no order, larger than the cache",
        make: || interpolated([1000, 600, 1], 600_000),
        cache: MIB,
        spill: 64 * MIB,
        work: PAGE,
        want: Want::Right(crate::anything),
    },
    Shape {
        name: "fzm: an interpolated array of 2^93 elements",
        make: || interpolated([(1 << 31) - 16; 3], 0),
        cache: MIB,
        spill: 0,
        work: MIB,
        want: Want::Refused(Refusal::Corrupt),
    },
    Shape {
        name: "fzm: ANS of 4 GiB without the tables for it",
        make: || chain(&[(20, [&[10, 0, 0, 0][..], &u64::from(u32::MAX).to_le_bytes()].concat())], &[0; 2000], 1 << 32),
        cache: MIB,
        spill: 0,
        work: MIB,
        want: Want::Refused(Refusal::Corrupt),
    },
    Shape {
        name: "fzm: ADM of 16 EiB",
        make: || chain(&[(19, [&[1, 0, 0, 0][..], &(u64::MAX / 4).to_le_bytes()].concat())], &[0; 2000], u64::MAX - 3),
        cache: MIB,
        spill: 0,
        work: MIB,
        want: Want::Refused(Refusal::Corrupt),
    },
    Shape {
        name: "fzm: a plane of 4 GiB with one code",
        make: || plane(&one_code(), 1 + 7 * 15),
        cache: MIB,
        spill: 0,
        work: PAGE,
        want: Want::Right(|at, bytes| is_u32(at, bytes, |i| u32::from(i == (1 << 30) - 1))),
    },
    Shape {
        name: "fzm: a plane of 4 GiB of codes that are one run of bits",
        make: || {
            let rle = [&[0][..], &u32::MAX.to_le_bytes()].concat();
            chain(&[(40, plane_config(u64::from(u32::MAX))), (5, rle)], &run_of_bytes(0xFF, u32::MAX), 4 << 30)
        },
        cache: MIB,
        spill: 0,
        work: BUILD + 17 * MIB,
        want: Want::Refused(Refusal::TooLarge),
    },
    Shape {
        name: "fzm: a wavelet transform of 600 MB of one run",
        make: || wavelet(12_288),
        cache: 16 * MIB,
        spill: 64 * MIB,
        work: MIB,
        want: Want::Refused(Refusal::NoRoom),
    },
    Shape {
        name: "fzm: a wavelet transform larger than the cache",
        make: || wavelet(2048),
        cache: MIB,
        spill: 64 * MIB,
        work: 64 * MIB,
        want: Want::Right(|_, bytes| bytes.iter().all(|&byte| byte == 0)),
    },
    Shape {
        name: "fzm: a block of 8 GiB",
        make: || {
            let config =
                [&[8, 0, 0, 0][..], &[0, 0, 0, 0x80], &(1_u64 << 31).to_le_bytes(), &1_f64.to_le_bytes(), &[0; 8]];
            chain(&[(36, config.concat())], &[0, 0, 7, 7, 7, 7], 8 << 30)
        },
        cache: MIB,
        spill: 0,
        work: PAGE,
        want: Want::Right(are_sevens),
    },
    Shape {
        name: "fzm: 400000 boxes of one element",
        make: || boxes(400_000),
        cache: 16 * MIB,
        spill: 0,
        work: PAGE,
        want: Want::Refused(Refusal::TooLarge),
    },
    Shape {
        name: "fzm: partitions with bits and no cells",
        make: || include_bytes!("../../data/broken/fzm/fz-mut3708.fzm").to_vec(),
        cache: MIB,
        spill: 0,
        work: PAGE,
        want: Want::Refused(Refusal::Corrupt),
    },
    Shape {
        name: "fzm: 4 GiB of zeros in chunks of GPULZ, from 3 runs",
        make: gpulz,
        cache: 4 * MIB,
        spill: 0,
        work: 64 * MIB,
        want: Want::Right(|_, bytes| bytes.iter().all(|byte| *byte == 0)),
    },
    Shape {
        name: "fzm: 4 GiB of zeros in chunks of RRE, from 4 runs",
        make: || lc_zeros(26, 2),
        cache: 4 * MIB,
        spill: 0,
        work: 64 * MIB,
        want: Want::Right(|_, bytes| bytes.iter().all(|byte| *byte == 0)),
    },
    Shape {
        name: "fzm: 4 GiB of zeros in chunks of RZE of either generation, from 4 runs",
        make: || lc_zeros(18, 4),
        cache: 4 * MIB,
        spill: 0,
        work: 64 * MIB,
        want: Want::Right(|_, bytes| bytes.iter().all(|byte| *byte == 0)),
    },
];

const LORENZO: u64 = 1 << 22;
/// Elements of a chunk of 2 GiB.
const CHUNK: u64 = 1 << 28;
const OUTLIERS: u32 = 600_000;

pub(crate) fn is_u32(at: u64, bytes: &[u8], want: impl Fn(u64) -> u32) -> bool {
    let (words, rest) = bytes.as_chunks::<4>();
    rest.is_empty() && (at / 4..).zip(words).all(|(i, word)| u32::from_le_bytes(*word) == want(i))
}

/// Runs of `values`, as the stored stream of an RLE of 32-bit elements.
pub(crate) fn runs(runs: &[(u32, u32)]) -> Vec<u8> {
    let mut out = (runs.len() as u32).to_le_bytes().to_vec();
    out.extend(runs.iter().flat_map(|(value, _)| value.to_le_bytes()));
    out.extend(runs.iter().flat_map(|(_, length)| length.to_le_bytes()));
    out
}

/// Chunks of GPULZ that are all zeros.
fn gpulz() -> Vec<u8> {
    let (chunk, count) = (4096_u32, (1_u32 << 20) - 1);
    let (total, words) = (chunk * count, 2 * count);
    let config = [&chunk.to_le_bytes()[..], &[8], &total.to_le_bytes(), &[0; 5]].concat();
    let rle = [&[2][..], &(words + 2).to_le_bytes()].concat();
    chain(&[(32, config), (5, rle)], &runs(&[(total, 1), (count, 1), (0, words)]), total.into())
}

/// Chunks of stage type `ty`, in words of `word` bytes, that are all zeros.
fn lc_zeros(ty: u16, word: u8) -> Vec<u8> {
    let (chunk, count) = (16384_u32, (1_u32 << 18) - 2);
    let total = chunk * count;
    let config = [&chunk.to_le_bytes()[..], &[word], &total.to_le_bytes()].concat();
    let rle = [&[2][..], &(2 + count + count / 2).to_le_bytes()].concat();
    // Two bodies, which consist of the length of the chunk.
    let bodies = (0x4000_4000, count / 2);
    chain(&[(ty, config), (5, rle)], &runs(&[(total, 1), (count, 1), (2, count), bodies]), total.into())
}

/// A run of `n` sevens.
fn sevens(n: u64) -> Vec<u8> {
    runs(&[(7, (n / 2) as u32), (7, (n - n / 2) as u32)])
}

/// A run of `n` bytes `value`, as the stored stream of an RLE of bytes.
fn run_of_bytes(value: u8, n: u32) -> Vec<u8> {
    [&1_u32.to_le_bytes()[..], &[value, 0, 0, 0], &n.to_le_bytes()].concat()
}

/// SPECK2D of 2^15 x 2^15 codes of one bit, with so many bits of the tree.
fn plane_config(bits: u64) -> Vec<u8> {
    [&[1_u32 << 15, 1 << 15, 0, 0].map(u32::to_le_bytes).concat()[..], &bits.to_le_bytes()].concat()
}

fn plane(stored: &[u8], bits: u64) -> Vec<u8> {
    chain(&[(40, plane_config(bits))], stored, 4 << 30)
}

/// The tree of a plane whose last element is 1: on each level the node with that, and the three others.
fn one_code() -> Vec<u8> {
    let mut bits = vec![1];
    (0..15).for_each(|_| bits.extend([1, 0, 1, 0, 1, 0, 1]));
    bits.push(0);
    bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |sum, bit| sum << 1 | bit)).collect()
}

/// A wavelet transform of `n` x `n` zeros.
fn wavelet(n: u32) -> Vec<u8> {
    let config = [&[8, 2, 0, 0][..], &[n, n, 1].map(u32::to_le_bytes).concat()].concat();
    let rle = [&[0][..], &(4 * n * n).to_le_bytes()].concat();
    chain(&[(39, config), (5, rle)], &run_of_bytes(0, 4 * n * n), 4 * u64::from(n) * u64::from(n))
}

/// A field of one element under `n` boxes of one.
fn boxes(n: u32) -> Vec<u8> {
    let mut config = [1, 1, 1, n].map(u32::to_le_bytes).concat();
    config.extend([0, 0, 1, 0, 8, 0]);
    let stage = Stage { kind: 35, inputs: vec![9], outputs: vec![0, 1, 2], config };
    file(&[stage], &[vec![0; 4 * n as usize], vec![0; 4], vec![0; 8 * n as usize]], 4)
}

fn lorenzo(n: u64) -> Vec<u8> {
    let config = [&[6, 2, 0, 0][..], &((n / 4) as u32).to_le_bytes(), &4_u32.to_le_bytes(), &[0; 4]].concat();
    chain(&[(12, config), (5, vec![6])], &sevens(n), 4 * n)
}

/// 15 chunks of one run each; the values count from 1.
fn chunks() -> Vec<u8> {
    chunked(&(1..=15).map(|value| (value, CHUNK as u32)).collect::<Vec<_>>())
}

/// Chunks of one run each, of 8-byte elements.
fn chunked(runs: &[(u64, u32)]) -> Vec<u8> {
    let count = runs.iter().map(|run| u64::from(run.1)).sum::<u64>();
    let mut out = (runs.len() as u32).to_le_bytes().to_vec();
    out.extend((0..=runs.len() as u32).flat_map(u32::to_le_bytes));
    out.resize(out.len().next_multiple_of(8), 0);
    out.extend(runs.iter().flat_map(|run| run.0.to_le_bytes()));
    out.extend(runs.iter().flat_map(|run| run.1.to_le_bytes()));
    let config = [&[3][..], &(count as u32).to_le_bytes(), &(8 * CHUNK as u32).to_le_bytes()].concat();
    chain(&[(5, config)], &out, 8 * count)
}

/// Linear codes of 32 bits, whose differences in blocks of 32 are a run of `n` sevens.
fn blocks(n: u32) -> Vec<u8> {
    let lorenzo = [&[6, 1, 0, 1][..], &[0; 12], &32_u32.to_le_bytes()].concat();
    let rle = [&[6][..], &n.to_le_bytes(), &[0; 4]].concat();
    let mut linear = quantizer([8, 2], 0);
    linear[33] = 1;
    chain(&[(14, linear), (12, lorenzo), (5, rle)], &sevens(n.into()), 4 * u64::from(n))
}

/// One code, and `n` outliers in the configuration that no port has.
fn counted(n: u32) -> Vec<u8> {
    let stage = Stage { kind: 14, inputs: vec![9], outputs: vec![0, 1, 2], config: quantizer([9, 1], n) };
    file(&[stage], &[vec![0; 2], Vec::new(), Vec::new()], 8)
}

/// A configuration of 72 bytes with a bound of 0.5.
fn quantizer(types: [u8; 2], outliers: u32) -> Vec<u8> {
    let mut config = [0.5_f32, 0.5, 0.0].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    config.extend([1_u32, 0, outliers].iter().flat_map(|n| n.to_le_bytes()));
    config.extend(types);
    config.resize(56, 0);
    config.extend(0.5_f64.to_le_bytes());
    config.resize(72, 0);
    config
}

fn sums(n: u64) -> Vec<u8> {
    let rle = [&[2][..], &(n as u32).to_le_bytes()].concat();
    chain(&[(2, vec![2, 2, 0, 0, 0, 0]), (5, rle)], &sevens(n), 4 * n)
}

/// `n` symbols of one byte in partitions of 16 MiB; their bits as elements of 4 bytes.
fn partitions(n: u64, is_single: bool) -> Vec<u8> {
    let (sublen, keys): (u64, &[u8]) = (16 << 20, if is_single { &[0x55] } else { &[0x55, 0x33, 0, 0] });
    let count = n.div_ceil(sublen) as u32;
    let book = 128;
    let nbit = (book + 256 + keys.len() as u32).next_multiple_of(4);
    let (entry, cells) = (nbit + 4 * count, nbit + 8 * count);
    let words = if is_single { 0 } else { (n / 32) as u32 };
    let mut out = [(keys.len() as u16).to_le_bytes(), [0; 2]].concat();
    out.extend([sublen as u32, count, 0].iter().flat_map(|n| n.to_le_bytes()));
    out.extend([n, u64::from(words) * 32, words.into()].iter().flat_map(|n| n.to_le_bytes()));
    out.extend([0, book, nbit, entry, cells, cells + 4 * words].iter().flat_map(|n| n.to_le_bytes()));
    out.resize(book as usize + 256, 0);
    out.extend(keys);
    out.resize(nbit as usize, 0);
    let each = if is_single { 0 } else { sublen as u32 };
    out.extend((0..count).flat_map(|_| each.to_le_bytes()));
    out.extend((0..count).flat_map(|i| (i * (each / 32)).to_le_bytes()));
    out.extend((0..words).flat_map(|_| 0x5555_5555_u32.to_le_bytes()));
    let bits = [&[2, 1][..], &(8 * n).to_le_bytes()].concat();
    let huffman = [&[0][..], &(keys.len() as u16).to_le_bytes(), &n.to_le_bytes()].concat();
    chain(&[(7, bits), (6, huffman)], &out, 32 * n)
}

/// RLE over RLE, `depth` times: each has about twice as many runs as that above it, the topmost `n` runs of length 1.
fn tower(n: u64, depth: usize, says: bool) -> Vec<u8> {
    let mut counts = vec![n];
    for _ in 1..depth {
        counts.push(2 * counts[counts.len() - 1] + 1);
    }
    let words = 2 * counts[depth - 1] + 1;
    let mut stored: Vec<(u32, u32)> = counts.iter().rev().map(|&n| (n as u32, 1)).collect();
    let mut ones = words - depth as u64;
    while ones > 0 {
        let n = ones.min(1 << 31);
        stored.push((1, n as u32));
        ones -= n;
    }
    let config = |n: u64| if says { [&[2][..], &(n as u32).to_le_bytes()].concat() } else { vec![2] };
    let mut stages: Vec<(u16, Vec<u8>)> = vec![(5, config(n))];
    stages.extend(counts.iter().map(|&runs| (5, config(2 * runs + 1))));
    chain(&stages, &runs(&stored), 4 * n)
}

/// Doubles that are all outliers, stored from the last to the first.
fn outliers(n: u32) -> Vec<u8> {
    let mut config = [0.5_f32, 0.5, 0.0].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    config.extend([1_u32, n, n].iter().flat_map(|n| n.to_le_bytes()));
    config.extend([9, 1, 0, 0]);
    config.extend([0x7F80_0000_u32, 0].iter().flat_map(|n| n.to_le_bytes()));
    let codes = vec![0; 2 * n as usize];
    let values = (0..n).rev().flat_map(|i| f64::from(i).to_le_bytes()).collect();
    let places = (0..n).rev().flat_map(u32::to_le_bytes).collect();
    let stage = Stage { kind: 14, inputs: vec![9], outputs: vec![0, 1, 2, 3], config };
    file(&[stage], &[codes, values, places, n.to_le_bytes().to_vec()], 8 * u64::from(n))
}

/// Floats of an interpolated array of so many elements along x, y and z, the first `outliers` of which are outliers,
/// stored from the last to the first.
fn interpolated(dims: [u32; 3], outliers: u32) -> Vec<u8> {
    let codes = if outliers > 0 { dims.iter().product() } else { u32::MAX };
    let anchors = dims.map(|n| n.div_ceil(16));
    let mut config = 0.5_f64.to_le_bytes().to_vec();
    config.extend([0, codes, outliers].iter().flat_map(|n: &u32| n.to_le_bytes()));
    config.extend([8, 0, if dims[2] == 1 { 2 } else { 3 }, 0]);
    config.extend(dims.iter().chain(&anchors).flat_map(|n| n.to_le_bytes()));
    config.extend([0; 8]);
    config.extend([1.75_f64, 4.0].iter().flat_map(|x| x.to_le_bytes()));
    config.resize(104, 0);
    let values = (0..outliers).rev().flat_map(|i| (i as f32).to_le_bytes()).collect();
    let places = (0..outliers).rev().flat_map(u32::to_le_bytes).collect();
    let stored = if outliers > 0 { (codes as usize, anchors.iter().product::<u32>() as usize) } else { (1000, 1000) };
    let stage = Stage { kind: 22, inputs: vec![9], outputs: vec![0, 1, 2, 3], config };
    file(&[stage], &[vec![0; stored.0], vec![0; 4 * stored.1], values, places], 4 * u64::from(codes))
}
