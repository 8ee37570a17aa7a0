//! Runs one decoder over made data, with kernels or without: `fzmfs-instructions WHAT kernels|portable ROUNDS`; without
//! arguments, lists what there is. scripts/aarch64 counts the instructions of a round.
//!
//! The sources of the decoders are compiled twice, with the kernels of aarch64 and with none.
#![allow(dead_code, unreachable_pub, clippy::pedantic, reason = "parts of the library, without what uses them")]

use std::hint::black_box;

mod kernels;
mod portable;

/// Bytes that a round gives.
const LEN: usize = 1 << 14;

/// Bytes with a long period.
fn noise(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// An LZ4 block of [`LEN`] bytes: matches of 12 bytes from `distance` back, after 4 literals each.
fn lz4_block(distance: u16) -> Vec<u8> {
    let literals = noise(LEN);
    // 60 literals and a match of 4 bytes.
    let mut block = vec![0xF0, 60 - 15];
    block.extend(&literals[..60]);
    block.extend(distance.to_le_bytes());
    for own in literals.chunks_exact(4).take((LEN - 64 - 16) / 16) {
        block.push(4 << 4 | (12 - 4));
        block.extend(own);
        block.extend(distance.to_le_bytes());
    }
    block.extend([0xF0, 16 - 15]);
    block.extend(&literals[..16]);
    block
}

/// What decoders read.
struct Data {
    noise: Vec<u8>,
    /// A bit for each byte of a round.
    bits: Vec<u8>,
    numbers: Vec<i32>,
    /// LZ4 blocks.
    near: Vec<u8>,
    far: Vec<u8>,
}

type Decoder = (&'static str, fn(&mut Data, &mut [u8]));

/// Defines the decoders of a module by name: each fills `out` from `src`.
macro_rules! decoders {
    ($codec:ident) => {{
        use $codec::simd_dispatch::{SimdLoop, SimdOps, run_widest};
        use $codec::{bit_planes::Elements, bitmap_merge, bitshuffle, bytedelta, lz4, shuffle, word_merge};

        /// Running sums as a loop.
        struct Sums<'a>(&'a mut [i32], usize);

        impl SimdLoop for Sums<'_> {
            type Output = ();

            #[inline(always)]
            fn run(self, vectors: impl SimdOps) {
                vectors.running_sums(self.0, self.1);
            }
        }

        fn planes<const WIDTH: usize>(src: &[u8], out: &mut [u8]) {
            assert!(run_widest(Elements::<WIDTH> { planes: &src[..out.len()], from: 0, out }));
        }

        fn merge(bits: &[u8], src: &[u8], out: &mut [u8]) {
            bitmap_merge::merge(bits, bitmap_merge::Side::Bytes(src), bitmap_merge::Side::Bytes(&src[7..]), out);
        }

        const DECODERS: &[Decoder] = &[
            ("shuffle, items of 2 bytes", |data, out| shuffle::undo(2, &data.noise[..LEN], out)),
            ("shuffle, items of 3 bytes", |data, out| shuffle::undo(3, &data.noise[..LEN], out)),
            ("shuffle, items of 4 bytes", |data, out| shuffle::undo(4, &data.noise[..LEN], out)),
            ("shuffle, items of 8 bytes", |data, out| shuffle::undo(8, &data.noise[..LEN], out)),
            ("shuffle, items of 12 bytes", |data, out| shuffle::undo(12, &data.noise[..LEN], out)),
            ("shuffle, items of 16 bytes", |data, out| shuffle::undo(16, &data.noise[..LEN], out)),
            ("bit shuffle, items of 1 byte", |data, out| bitshuffle::undo(1, &data.noise[..LEN], out)),
            ("bit shuffle, items of 4 bytes", |data, out| bitshuffle::undo(4, &data.noise[..LEN], out)),
            ("bit shuffle, items of 8 bytes", |data, out| bitshuffle::undo(8, &data.noise[..LEN], out)),
            ("bit planes, elements of 8 bits", |data, out| planes::<8>(&data.noise, out)),
            ("bit planes, elements of 16 bits", |data, out| planes::<16>(&data.noise, out)),
            ("bit planes, elements of 32 bits", |data, out| planes::<32>(&data.noise, out)),
            ("bit planes, elements of 64 bits", |data, out| planes::<64>(&data.noise, out)),
            ("running sums of bytes", |_, out| bytedelta::undo(out)),
            ("running sums of numbers, spans of 8", |data, _| run_widest(Sums(&mut data.numbers, 8))),
            ("running sums of numbers, spans of 1024", |data, _| run_widest(Sums(&mut data.numbers, 1024))),
            ("merge by bitmap, bytes", |data, out| merge(&data.bits, &data.noise, out)),
            ("merge by bitmap, words of 2 bytes", |data, out| {
                word_merge::merge::<2>(&data.bits, Some(&data.noise), &data.noise[7..], out);
            }),
            ("merge by bitmap, words of 4 bytes", |data, out| {
                word_merge::merge::<4>(&data.bits, Some(&data.noise), &data.noise[7..], out);
            }),
            ("repeat by bitmap, bytes", |data, out| bitmap_merge::repeat_last(&data.bits, &data.noise, out)),
            ("repeat by bitmap, words of 2 bytes", |data, out| {
                word_merge::repeat_last::<2>(&data.bits, &data.noise, out);
            }),
            ("repeat by bitmap, words of 4 bytes", |data, out| {
                word_merge::repeat_last::<4>(&data.bits, &data.noise, out);
            }),
            ("groups of 3 bits through a table", |data, out| {
                bitmap_merge::unpack(&data.noise, 3, &data.noise[..8], out)
            }),
            ("groups of 6 bits through a table", |data, out| {
                bitmap_merge::unpack(&data.noise, 6, &data.noise[..64], out)
            }),
            ("groups of 7 bits through a table", |data, out| {
                bitmap_merge::unpack(&data.noise, 7, &data.noise[..128], out)
            }),
            ("LZ4, matches of 12 bytes, 3 bytes back", |data, out| lz4::decode(&data.near, &[], out).unwrap()),
            ("LZ4, matches of 12 bytes, 40 bytes back", |data, out| lz4::decode(&data.far, &[], out).unwrap()),
        ];
        DECODERS
    }};
}

fn with_kernels() -> &'static [Decoder] {
    decoders!(kernels)
}

fn without() -> &'static [Decoder] {
    decoders!(portable)
}

fn main() {
    let noise = noise(2 * LEN);
    let mut data = Data {
        bits: noise[..LEN / 8].to_vec(),
        numbers: noise[..LEN].as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect(),
        near: lz4_block(3),
        far: lz4_block(40),
        noise,
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, path, rounds] = &arguments[..] else {
        with_kernels().iter().for_each(|(name, _)| println!("{name}"));
        return;
    };
    let decoders = if path == "kernels" { with_kernels() } else { without() };
    let (_, decode) = decoders.iter().find(|(name, _)| name == what).expect("no decoder has this name");
    let mut out = vec![0; LEN];
    for _ in 0..rounds.parse().expect("a number of rounds") {
        decode(black_box(&mut data), black_box(&mut out));
    }
}
