//! SPECK2D: planes of the writer, broken trees, and windows.

use std::sync::Arc;

use fzm_writer::Dtype;

use crate::account::Account;
use crate::format::fzm::stage::Context;
use crate::format::fzm::stage::testing::{
    Memory, Random, assert_windows, context, inverse, inverse_error, made, parse_error, round_trip, whole,
};
use crate::format::fzm::stream::ByteStream;

fn config(nx: u32, ny: u32, top: i32, bits: u64) -> Vec<u8> {
    let mut config = [nx, ny, top as u32, 0xA5A5_A5A5].map(u32::to_le_bytes).concat();
    config.extend(bits.to_le_bytes());
    config
}

#[test]
fn a_tree_and_its_values_decode() {
    // 5, 0 / 0, -1: the root has bit 2, its children (last to first) bits 0, -1, -1, 2.
    // A: 1, 001, 0001, 0001, 1; B: sign 1 for -1; sign 0, bits 1, 0 for 5.
    let bits = "1 001 0001 0001 1 1 0 10".replace(' ', "");
    let bytes: Vec<u8> =
        bits.as_bytes().chunks(8).map(|b| b.iter().rev().fold(0, |n, &bit| n << 1 | (bit - b'0'))).collect();
    let want: Vec<u8> = [5_i32, 0, 0, -1].into_iter().flat_map(i32::to_le_bytes).collect();
    assert_eq!(inverse(40, &config(2, 2, 2, 13), &[&bytes]).unwrap(), want);
    assert_eq!(inverse(40, &config(3, 1, -1, 99), &[&[]]).unwrap(), [0; 12]);
    let error = |top, bits, bytes: &[u8]| inverse_error(40, &config(2, 2, top, bits), &[bytes]);
    assert_eq!(error(2, 25, &bytes), "25 bits, but the stream has 3 bytes (tree_bits, at byte 0x110)");
    assert_eq!(error(2, 12, &bytes), "the bits end at bit 12 (node 1 x 1 at 0, 0: section A)");
    assert_eq!(error(2, 13, &bytes[..2]), "the bits end at bit 16 (section B)");
    assert_eq!(error(1, 13, &bytes), "more than 2 zero bits before bit 7 (node 1 x 1 at 0, 1: section A)");
}

#[test]
fn values_that_end_early_are_refused() {
    // One pixel of 31 bits.
    let (config, stream) = (config(1, 1, 31, 1), [0xFF; 4]);
    let e = inverse_error(40, &config, &[&stream]);
    assert_eq!(e, "the bits end at bit 32 (section B)");
    assert_eq!(inverse(40, &config, &[&[0xFF; 5]]).unwrap(), 1_i32.to_le_bytes());
}

#[test]
fn planes_of_every_shape_decode_as_specified() {
    let mut random = Random(7);
    for (shape, share, bits) in [
        (&[1, 1][..], 1, 32),
        (&[1, 37], 1, 32),
        (&[100, 1], 2, 10),
        (&[33, 65], 1, 6),
        (&[130, 257], 1, 32),
        (&[150, 140], 9, 12),
        (&[200, 300], 5000, 3),
        (&[64, 64], u64::MAX, 3),
    ] {
        let n = shape.iter().product::<u32>();
        let codes = (0..n).map(|_| {
            let code = (random.next() as i32) >> (32 - bits);
            if random.below(share) == 0 { code } else { 0 }
        });
        let bytes: Vec<u8> = codes.flat_map(i32::to_le_bytes).collect();
        round_trip("speck2d", Dtype::I32, shape, &bytes);
    }
    let smallest: Vec<u8> = [i32::MIN, 0, i32::MAX, -1].into_iter().flat_map(i32::to_le_bytes).collect();
    round_trip("speck2d", Dtype::I32, &[2, 2], &smallest);
}

/// A plane with one pixel 1, the last one.
fn one_pixel(size: u32) -> Vec<u8> {
    // The root, then on each level the node with the pixel and its three siblings without one.
    let levels = size.trailing_zeros();
    let mut bits: Vec<bool> = vec![true];
    for _ in 0..levels {
        bits.extend([true, false, true, false, true, false, true]);
    }
    bits.push(false);
    bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |sum, &bit| sum << 1 | u8::from(bit))).collect()
}

#[test]
fn a_large_plane_of_zeros_costs_what_the_stream_describes() {
    let size = 1 << 15;
    let outputs: Vec<Arc<dyn ByteStream>> = vec![Arc::new(Memory(one_pixel(size)))];
    let config = config(size, size, 0, 1 + 7 * 15);
    let cx = Context { account: Account::new(100, 0), ..context() };
    let stream = made(40, &config, 1).unwrap().invert(outputs, &cx).unwrap().remove(0);
    assert_eq!(stream.len(), 4 << 30);
    let mut last = [9; 11];
    stream.read((4 << 30) - 11, &mut last).unwrap();
    assert_eq!(last, [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    stream.read(12345, &mut last).unwrap();
    assert_eq!(last, [0; 11]);
    assert!(cx.account.peaks().memory < 100 && cx.account.peaks().decoded < 1 << 20);
}

#[test]
fn a_plane_larger_than_memory_decodes_in_a_file() {
    let codes: Vec<u8> = (0..90_000_i32).flat_map(i32::to_le_bytes).collect();
    let source = fzm_writer::Source { dtype: Dtype::I32, shape: vec![300, 300], bytes: codes.clone() };
    let pipeline = fzm_writer::Pipeline::parse("speck2d", std::slice::from_ref(&source)).unwrap();
    let run = pipeline.run(vec![source], true).unwrap();
    let outputs: Vec<Arc<dyn ByteStream>> = vec![Arc::new(Memory(run.segments()[0].bytes.to_vec()))];
    let cx = Context { account: Account::new(1000, 1 << 20), ..context() };
    let stage = made(40, &run.steps()[0].config, 1).unwrap();
    let stream = stage.invert(outputs, &cx).unwrap().remove(0);
    assert!(whole(&*stream).unwrap() == codes);
    assert_windows(&*stream, &codes);
    assert_eq!((cx.account.peaks().memory, cx.account.peaks().disk), (0, 360_000));
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    assert_eq!(parse_error(40, &config(0, 1, 0, 0)), "a plane without elements (dim_x, at byte 0x100)");
    assert_eq!(parse_error(40, &config(1, 1, 32, 0)), "32 is not a bit of 32 (top_bit, at byte 0x108)");
    let e = parse_error(40, &config(1 << 16, 1 << 15, 0, 0));
    assert_eq!(e, "a plane of 65536 x 32768 elements is unknown (dim_x, at byte 0x100)");
}
