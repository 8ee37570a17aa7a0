//! `SZx` and `SZp`: arrays of the writer, broken streams, and windows.

use fzm_writer::{Dtype, field};

use crate::format::fzm::stage::testing::{Random, inverse, inverse_error, parse_error, round_trip, windows_agree};

fn config(ty: u8, block: u32, count: u64, bound: f64) -> Vec<u8> {
    let mut config = vec![ty, 0, 0, 0];
    config.extend(block.to_le_bytes());
    config.extend(count.to_le_bytes());
    config.extend(bound.to_le_bytes());
    config.extend([0; 8]);
    config
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect()
}

/// Three blocks of four elements: a constant one, one of codes of 3 bits, and one of 0 bits.
fn three() -> Vec<u8> {
    let mut stream = vec![0, 0, 1, 3, 1, 0];
    stream.extend((-0.0_f32).to_le_bytes());
    stream.extend(10_f32.to_le_bytes());
    // 0, -1, 1, -2 as zigzag: 0, 1, 2, 3.
    stream.extend([0b1000_1000, 0b0110]);
    stream.extend((-0.0_f32).to_le_bytes());
    stream
}

#[test]
fn a_constant_block_keeps_its_bits_and_codes_are_added_to_the_reference() {
    let got = inverse(36, &config(8, 4, 10, 0.25), &[&three()]).unwrap();
    let want = [-0.0, -0.0, -0.0, -0.0, 10.0, 9.5, 10.5, 9.0, 0.0, 0.0_f32];
    assert_eq!(floats(&got).into_iter().map(f32::to_bits).collect::<Vec<_>>(), want.map(f32::to_bits));
    windows_agree(36, &config(8, 4, 10, 0.25), &[&three()]);
    assert!(inverse(36, &config(8, 0, 0, 0.0), &[&[]]).unwrap().is_empty());
}

#[test]
fn differences_are_summed_within_each_block() {
    // Widths 2 and 0; 1, 1, -1, 0 as zigzag: 2, 2, 1, 0.
    let got = inverse(37, &config(8, 4, 6, 0.5), &[&[2, 0, 0b0001_1010]]).unwrap();
    assert_eq!(floats(&got), [1.0, 2.0, 1.0, 1.0, 0.0, 0.0]);
}

#[test]
fn codes_of_every_width_decode() {
    for width in 0..=64_u8 {
        let mut payload = 7_f64.to_le_bytes().to_vec();
        payload.extend(Random(u64::from(width) + 1).bytes((300 * usize::from(width)).div_ceil(8)));
        let code = |i: usize| {
            let bit = |k: usize| u64::from(payload[8 + k / 8] >> (k % 8) & 1);
            let code = (0..usize::from(width)).fold(0, |code, k| code | bit(i * usize::from(width) + k) << k);
            (code >> 1) as i64 ^ -((code & 1) as i64)
        };
        let want: Vec<f64> = (0..300).map(|i| (2.0 * code(i) as f64).mul_add(1e-3, 7.0)).collect();
        let stream = [&[1, width][..], &payload].concat();
        let got = inverse(36, &config(9, 300, 300, 1e-3), &[&stream]).unwrap();
        assert!(got == want.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>(), "szx, {width} bits");
        windows_agree(36, &config(9, 300, 300, 1e-3), &[&stream]);
        let mut sum = 0_i64;
        let want = (0..300).map(|i| {
            sum = sum.wrapping_add(code(i));
            2.0 * sum as f64 * 1e-3
        });
        let want: Vec<u8> = want.flat_map(f64::to_le_bytes).collect();
        let got = inverse(37, &config(9, 300, 300, 1e-3), &[&[&[width], &payload[8..]].concat()]).unwrap();
        assert!(got == want, "szp, {width} bits");
    }
}

#[test]
fn any_array_decodes_as_specified() {
    for (text, dtype, n) in [
        ("szx", Dtype::F32, 100_003),
        ("szx:eb=1e-7,mode=noa", Dtype::F32, 5000),
        ("szx:block=7,eb=0.5", Dtype::F64, 20_011),
        ("szx:block=1", Dtype::F32, 70_000),
        ("szx:block=5000,eb=1e-12", Dtype::F64, 12_345),
        ("szx,rze", Dtype::F32, 40_000),
        ("szp", Dtype::F32, 100_003),
        ("szp:block=33,eb=1e-9", Dtype::F64, 20_011),
        ("szp:block=4096,eb=1e-12,mode=noa", Dtype::F64, 10_000),
        ("szp:block=1", Dtype::F32, 70_000),
    ] {
        round_trip(text, dtype, &[n], &field::smooth(dtype, &[n], 0.01, 5));
    }
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    let e = parse_error(36, &config(6, 0, 1, 1.0));
    assert_eq!(e, "element type int32 is unknown (type, at byte 0x100)");
    let e = parse_error(36, &config(8, 0, 1, 0.0));
    assert_eq!(e, "0 is not a positive number (error_bound, at byte 0x110)");
    let e = parse_error(37, &config(8, 0, 1, f64::INFINITY));
    assert_eq!(e, "inf is not a positive number (error_bound, at byte 0x110)");
    let e = parse_error(37, &config(8, 65_537, 1, 1.0));
    assert_eq!(e, "blocks of 65537 elements is unknown (block_size, at byte 0x104)");
}

#[test]
fn tables_that_do_not_fit_the_stream_are_refused() {
    let error = |count, stream: &[u8]| inverse_error(36, &config(8, 4, count, 0.25), &[stream]);
    assert_eq!(
        error(1 << 40, &three()),
        "1099511627776 elements need a table of 549755813888 bytes, the stream has 20 (num_elements, at byte 0x108)"
    );
    assert!(error(u64::MAX, &three()).contains("need a table"), "{}", error(u64::MAX, &three()));
    assert_eq!(error(12, &three()[..19]), "ends at byte 20, the stream at byte 19 (block 2: block table)");
    let with = |at: usize, byte| {
        let mut stream = three();
        stream[at] = byte;
        error(12, &stream)
    };
    assert_eq!(with(3, 65), "codes of 65 bits (block 1: block table)");
    assert_eq!(with(4, 2), "type 2 is not defined (block 2: block table)");
    assert_eq!(with(3, 64), "ends at byte 46, the stream at byte 20 (block 1: block table)");
}
