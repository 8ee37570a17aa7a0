//! Difference: every pair of types, chunks and windows.

use fzm_writer::{Dtype, field};

use super::super::testing::{Random, inverse, round_trip, unknown_error, windows_agree};

fn config(input: u8, output: u8, chunk: u32) -> Vec<u8> {
    [&[input, output][..], &chunk.to_le_bytes()].concat()
}

#[test]
fn differences_add_up_within_their_chunk() {
    assert_eq!(inverse(2, &config(0, 0, 0), &[&[1, 2, 255, 3]]).unwrap(), [1, 3, 2, 5]);
    assert_eq!(inverse(2, &config(0, 0, 2), &[&[1, 2, 255, 3]]).unwrap(), [1, 3, 255, 2]);
    // A chunk of 5 bytes holds two 2-byte elements.
    let got = inverse(2, &config(1, 1, 5), &[&[1, 0, 1, 0, 1, 0, 7]]).unwrap();
    assert_eq!(got, [1, 0, 2, 0, 1, 0, 0]);
    // Negabinary 1, 2, 3 is 1, -2, -1.
    assert_eq!(inverse(2, &config(4, 0, 0), &[&[1, 2, 3]]).unwrap(), [1, 255, 254]);
    // With the sign in the lowest bit: -1, 1, -2.
    assert_eq!(inverse(2, &[&config(4, 0, 0)[..], &[1]].concat(), &[&[1, 2, 3]]).unwrap(), [255, 0, 254]);
    assert_eq!(inverse(2, &[&config(4, 0, 0)[..], &[0]].concat(), &[&[1, 2, 3]]).unwrap(), [1, 255, 254]);
    // Without a configuration: floats; with one byte: that type.
    let ones = [1.0_f32, 2.0, 4.5].map(f32::to_le_bytes).concat();
    assert_eq!(inverse(2, &[], &[&ones]).unwrap(), [1.0_f32, 3.0, 7.5].map(f32::to_le_bytes).concat());
    assert_eq!(inverse(2, &[1], &[&[1, 0, 1, 0]]).unwrap(), [1, 0, 2, 0]);
    assert!(inverse(2, &config(6, 2, 16384), &[&[]]).unwrap().is_empty());
}

#[test]
fn every_type_pair_decodes_as_specified() {
    for (text, dtype, n) in [
        ("difference", Dtype::F32, 40_000),
        ("difference:chunk=4096", Dtype::F64, 5_000),
        ("difference:chunk=131072", Dtype::F64, 50_000),
        ("difference:chunk=3000", Dtype::F32, 9_000),
        ("difference", Dtype::U8, 200_003),
        ("difference:chunk=100000", Dtype::U16, 150_000),
        ("difference", Dtype::U32, 40_000),
        ("difference", Dtype::I32, 40_000),
        ("difference:chunk=1000", Dtype::I64, 3_000),
        ("difference:out=u8", Dtype::I8, 3_000),
        ("difference:out=u16", Dtype::I16, 100_000),
        ("difference:out=u32,chunk=16384,bitshuffle:w=4,rze", Dtype::I32, 12_000),
        ("difference:out=u64,bitshuffle:w=8", Dtype::I64, 20_000),
        ("difference:out=u8,zigzag=1,chunk=64", Dtype::I8, 3_001),
        ("difference:out=u16,zigzag=1", Dtype::I16, 100_000),
        ("difference:out=u32,zigzag=1,chunk=16384,bitshuffle:w=4,rze", Dtype::I32, 12_000),
        ("difference:out=u64,config=7,chunk=1024", Dtype::I64, 20_000),
    ] {
        round_trip(text, dtype, &[n], &field::smooth(dtype, &[n], 0.5, 6));
    }
}

#[test]
fn windows_equal_ranges_of_the_whole_with_a_partial_element() {
    let bytes = Random(8).bytes(200_003);
    for config in [config(2, 2, 0), config(7, 3, 0), config(1, 1, 70_001), config(2, 2, 10)] {
        windows_agree(2, &config, &[&bytes]);
    }
}

#[test]
fn undefined_types_are_refused() {
    for (input, output, names) in [(4, 2, "int8 to uint32"), (5, 0, "int16 to uint8"), (8, 9, "float32 to float64")] {
        let want = format!("differences from {names} (input_type, at byte 0x100)");
        assert_eq!(unknown_error(2, &config(input, output, 0)), want);
    }
    assert_eq!(unknown_error(2, &config(3, 3, 0)), "element type uint64 (input_type, at byte 0x100)");
    assert_eq!(unknown_error(2, &config(42, 0, 0)), "element type 42 (input_type, at byte 0x100)");
    let own = |code, output| [&config(6, output, 0)[..], &[code]].concat();
    assert_eq!(unknown_error(2, &own(2, 2)), "the value 2 (zigzag, at byte 0x106)");
    assert_eq!(unknown_error(2, &own(0, 6)), "a coding of plain differences (zigzag, at byte 0x106)");
}
