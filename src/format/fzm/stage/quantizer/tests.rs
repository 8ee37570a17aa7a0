//! Every generation, mode and type.

use fzm_writer::{Dtype, field};

use crate::format::fzm::stage::testing::{inverse, inverse_error, parse_error, round_trip, unknown_error};

const NONE: &[u8] = &[];

/// A configuration with a bound of 0.25: codes count halves.
fn config(len: usize, types: [u8; 2], mode: u8, zigzag: u8, in_place: u8) -> Vec<u8> {
    let mut config = [0.25_f32, 0.5, 0.0].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    config.extend([100_u32, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
    config.extend(types);
    config.extend([mode, zigzag]);
    config.extend(f32::INFINITY.to_le_bytes());
    config.extend([in_place, 0, 0, 0]);
    config.extend([0; 12]);
    config.extend(1.0_f32.to_le_bytes());
    config.extend([0; 4]);
    config.extend([0.25_f64, 0.0].iter().flat_map(|x| x.to_le_bytes()));
    config.truncate(len);
    config
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn codes_are_multiples_of_twice_the_bound() {
    let codes = [1, 0, 0xFF, 0xFF, 3, 0];
    let got = inverse(14, &config(36, [8, 1], 0, 0, 0), &[&codes, NONE, NONE, NONE]).unwrap();
    assert_eq!(floats(&got), [0.5, -0.5, 1.5]);
    let got = inverse(14, &config(28, [8, 1], 2, 1, 0), &[&codes, NONE, NONE, NONE]).unwrap();
    assert_eq!(floats(&got), [-0.5, -16384.0, -1.0]);
    let value = 7.25_f64.to_le_bytes();
    let got = inverse(14, &config(36, [9, 1], 0, 0, 0), &[&codes, &value, &[1, 0, 0, 0], &[1, 0, 0, 0]]).unwrap();
    assert_eq!(got, [0.5, 7.25, 1.5_f64].map(f64::to_le_bytes).concat());
}

#[test]
fn in_place_values_keep_their_bits() {
    let nan = 0x7FC1_2345_u32;
    let codes = [3, nan, 199, 200].map(u32::to_le_bytes).concat();
    let got = inverse(14, &config(36, [8, 2], 0, 0, 1), &[&codes]).unwrap();
    let want = [(-1.0_f32).to_bits(), nan, (-50.0_f32).to_bits(), 200].map(u32::to_le_bytes).concat();
    assert_eq!(got, want);
}

#[test]
fn relative_codes_are_powers_with_two_signs() {
    // A bound of 0.5: the step is 2 * log2(1.5).
    let codes = [0, 1, 2, 5, 7, 8].map(u16::to_le_bytes).concat();
    let got = inverse(14, &config(36, [8, 1], 1, 0, 1), &[&codes, NONE, NONE, NONE]).unwrap();
    let up = f64::from(2.0 * 1.5_f32.log2()).exp2() as f32;
    let down = f64::from(-2.0 * 1.5_f32.log2()).exp2() as f32;
    assert_eq!(floats(&got), [0.0, 1.0, -1.0, up, down, -down]);
}

/// [`config`] with `byte` at `at`.
fn with(mut config: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    config[at] = byte;
    config
}

#[test]
fn linear_codes_have_no_outliers_and_may_be_precise() {
    let codes = [1_u32, u32::MAX, 0x7FFF_FFFF].map(u32::to_le_bytes).concat();
    for len in [36, 48, 52, 56, 72] {
        let got = inverse(14, &with(config(len, [8, 2], 0, 0, 0), 33, 1), &[&codes]).unwrap();
        assert_eq!(floats(&got), [0.5, -0.5, 1_073_741_824.0], "{len}");
    }
    // 33554433 is between two floats; three times as much is near another one than three times the float below it.
    let mut own = with(config(72, [8, 2], 0, 0, 0), 33, 1);
    own[56..64].copy_from_slice(&1.5_f64.to_le_bytes());
    let codes = 33_554_433_u32.to_le_bytes();
    assert_eq!(floats(&inverse(14, &own, &[&codes]).unwrap()), [100_663_296.0]);
    assert_eq!(floats(&inverse(14, &with(own, 35, 1), &[&codes]).unwrap()), [100_663_300.0]);
}

#[test]
fn doubles_of_some_configurations_are_made_in_32_bits() {
    let mut codes = 16_777_217_u32.to_le_bytes().to_vec();
    codes.extend(3_u32.to_le_bytes());
    for (len, want) in [(28, 8_388_608.5), (36, 8_388_608.5), (48, 8_388_608.0), (56, 8_388_608.0), (72, 8_388_608.5)] {
        let got = inverse(14, &config(len, [9, 2], 0, 0, 0), &[&codes, NONE, NONE]).unwrap();
        assert_eq!(got, [want, 1.5_f64].map(f64::to_le_bytes).concat(), "{len}");
    }
}

#[test]
fn without_a_count_port_the_configuration_counts_the_outliers() {
    let codes = [1, 0, 0, 0, 3, 0];
    let (values, places) = ([9.0_f32, 8.0].map(f32::to_le_bytes).concat(), [1_u32, 77].map(u32::to_le_bytes).concat());
    let counted = |n| with(config(72, [8, 1], 0, 0, 0), 20, n);
    let of = |n| inverse(14, &counted(n), &[&codes, &values, &places]);
    assert_eq!(floats(&of(1).unwrap()), [0.5, 9.0, 1.5]);
    assert_eq!(floats(&of(0).unwrap()), [0.5, 0.0, 1.5]);
    let e = inverse_error(14, &counted(3), &[&codes, &values, &places]);
    assert_eq!(e, "3 outliers, but the ports have 2 (outlier_count)");
    assert_eq!(floats(&inverse(14, &counted(0), &[&codes, &values, &places, &[1, 0, 0, 0]]).unwrap()), [0.5, 9.0, 1.5]);
}

#[test]
fn modes_that_exclude_each_other_are_refused() {
    for (at, mode, zigzag, in_place, field, why) in [
        (33, 1, 0, 0, "linear_mode, at byte 0x121", "linear codes are absolute, and have no outliers"),
        (33, 0, 1, 0, "linear_mode, at byte 0x121", "linear codes are absolute, and have no outliers"),
        (33, 0, 0, 1, "linear_mode, at byte 0x121", "linear codes are absolute, and have no outliers"),
        (34, 0, 1, 1, "dither, at byte 0x122", "values of linear or in-place codes have no dither"),
        (35, 0, 0, 0, "linear_high_precision, at byte 0x123", "only linear codes have it"),
        (36, 1, 0, 0, "power_of_two_bound, at byte 0x124", "a relative bound is not a power of two"),
        (37, 0, 0, 0, "verify_reconstruction, at byte 0x125", "only in-place codes have it"),
    ] {
        let e = parse_error(14, &with(config(72, [8, 2], mode, zigzag, in_place), at, 1));
        assert_eq!(e, format!("{why} ({field})"));
    }
    let e = unknown_error(14, &with(config(48, [8, 2], 0, 0, 0), 35, 1));
    assert_eq!(e, "the value 1 of byte 35 (reserved, at byte 0x123)");
    let e = unknown_error(14, &with(config(36, [8, 2], 0, 1, 1), 15, 0x40));
    assert_eq!(e, "in-place quantization with a radius of 1073741924 (quant_radius, at byte 0x10c)");
    assert!(inverse(14, &with(config(36, [8, 2], 0, 0, 0), 34, 1), &[NONE, NONE, NONE]).unwrap().is_empty());
}

#[test]
fn every_generation_decodes_as_specified() {
    for (text, dtype) in [
        ("quantizer:eb=0.01,cap=1,radius=2000,config=28,ports=3", Dtype::F32),
        ("quantizer:eb=0.01,cap=1,radius=2000,ports=3", Dtype::F64),
        ("quantizer:eb=0.01,cap=1,radius=2000,config=48", Dtype::F64),
        ("quantizer:eb=0.01,cap=1,radius=2000,config=52,zigzag=1", Dtype::F64),
        ("quantizer:eb=0.01,cap=1,config=56,dither=1,seed=42,strength=0.7", Dtype::F64),
        ("quantizer:eb=0.01,cap=1,config=48,dither=1,seed=42,zigzag=1", Dtype::F32),
        ("quantizer:eb=0.01,cap=1,config=72,dither=1,seed=18446744073709551615,strength=0.9", Dtype::F32),
        ("quantizer:eb=1e-4,cap=1,config=72,code=u32,dither=1,seed=7,mode=prel", Dtype::F64),
        ("quantizer:eb=1e-7,code=u32,mode=noa,cap=1,zigzag=1,config=72", Dtype::F64),
        ("quantizer:eb=1e-3,code=u32,mode=rel,cap=1,config=72", Dtype::F32),
        ("quantizer:eb=1e-3,code=u32,mode=rel,cap=1,dither=1,seed=3,strength=0.5,config=72", Dtype::F64),
        ("quantizer:eb=0.01,code=u32,inplace=1,zigzag=1,verify=1,pow2=1,config=72", Dtype::F32),
        ("quantizer:eb=0.01,linear=1", Dtype::F32),
        ("quantizer:eb=1e-6,code=u32,linear=1,config=72,lorenzo:block=32,zigzag", Dtype::F32),
        ("quantizer:eb=1e-7,code=u32,linear=1,precise=1,config=72", Dtype::F32),
        ("quantizer:eb=1e-7,code=u32,linear=1,precise=1,config=72", Dtype::F64),
        ("quantizer:eb=1e-4,code=u32,linear=1,config=56", Dtype::F64),
    ] {
        round_trip(text, dtype, &[9_001], &field::smooth(dtype, &[9_001], 0.5, 4));
    }
}

#[test]
fn every_type_pair_and_mode_decodes_as_specified() {
    for (text, dtype) in [
        ("quantizer:eb=0.01,cap=0.3,radius=2000", Dtype::F32),
        ("quantizer:eb=1e-6,code=u32,mode=noa,zigzag=1,bitshuffle:w=4,rze", Dtype::F32),
        ("quantizer:eb=1e-3,code=u32,mode=rel", Dtype::F32),
        ("quantizer:eb=1e-3,mode=rel", Dtype::F64),
        ("quantizer:eb=0.01,code=u32,inplace=1,zigzag=1", Dtype::F32),
        ("quantizer:eb=0.01,config=28", Dtype::F64),
        ("quantizer:eb=1e-5,code=u32,difference:in=i32,out=u32,chunk=16384,bitshuffle:w=4,rze", Dtype::F64),
    ] {
        round_trip(text, dtype, &[9_001], &field::smooth(dtype, &[9_001], 0.5, 4));
    }
}

#[test]
fn undefined_quantizers_are_refused() {
    for (types, in_place, want) in [
        ([8, 0], 0, "element type uint8 (code_type, at byte 0x119)"),
        ([2, 1], 0, "element type uint32 (input_type, at byte 0x118)"),
        ([9, 2], 1, "in-place quantization from float64 to uint32 (input_type, at byte 0x118)"),
    ] {
        assert_eq!(unknown_error(14, &config(36, types, 0, 1, in_place)), want);
    }
    assert_eq!(unknown_error(14, &config(36, [8, 1], 4, 0, 0)), "error-bound mode 4 (eb_mode, at byte 0x11a)");
    for len in [27, 32, 60, 71] {
        let want = format!("a configuration of {len} bytes (config_size, at byte 0x100)");
        assert_eq!(unknown_error(14, &config(len, [8, 1], 0, 0, 0)), want);
    }
    let config = config(36, [8, 1], 0, 0, 0);
    let e = inverse_error(14, &config, &[&[0; 6], &[0; 4], &[3, 0, 0, 0], &[1, 0, 0, 0]]);
    assert_eq!(e, "position 3 is outside the array of 3 elements (outlier_idxs)");
    let e = inverse_error(14, &config, &[&[0; 6]]);
    assert!(e.starts_with("a stage with 1 inputs and 1 outputs, not 1 and 4, is unknown"), "{e}");
}
