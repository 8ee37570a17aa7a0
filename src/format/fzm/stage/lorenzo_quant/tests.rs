//! Windows and bricks of every rank, type and generation.

use fzm_writer::{Dtype, Pipeline, Source, field};

use super::*;

use crate::format::fzm::stage::testing::{
    Memory, Random, assert_bricks, assert_windows, context, inverse, inverse_error, parse_error, round_trip, stream,
    unknown_error, whole,
};

const NONE: &[u8] = &[];

/// A configuration of `len` bytes with a bound of 0.5, so that values are whole: float32 from 16-bit codes.
fn config(len: usize, ndim: u8, dim: [u32; 3], zigzag: u8) -> Vec<u8> {
    let mut config = [0.5_f32.to_le_bytes(), 4_u32.to_le_bytes(), 0_u32.to_le_bytes(), 0_u32.to_le_bytes()].concat();
    config.extend([8, 1, ndim, 0]);
    config.extend(dim.iter().flat_map(|d| d.to_le_bytes()));
    config.extend([0; 8]);
    config.extend([zigzag, 0, 0, 0]);
    config.extend([0xA5; 4]);
    config.extend([0.5_f64, 0.0].iter().flat_map(|x| x.to_le_bytes()));
    config.truncate(len);
    config
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn every_configuration_version_decodes() {
    for (len, zigzag, codes) in [
        (64, 0, [1, 0xFFFF, 3]),
        (64, 1, [2, 1, 6]),
        (44, 0, [1, 0xFFFF, 3]),
        (44, 1, [2, 1, 6]),
        (40, 0, [1, 0xFFFF, 3]),
        (32, 0, [5, 3, 7]),
    ] {
        let codes: Vec<u8> = codes.iter().flat_map(|c: &u16| c.to_le_bytes()).collect();
        let got = inverse(1, &config(len, 1, [0; 3], zigzag), &[&codes, NONE, NONE, NONE]).unwrap();
        assert_eq!(floats(&got), [1.0, 0.0, 3.0], "{len} {zigzag}");
    }
}

#[test]
fn a_bound_of_64_bits_counts_unless_it_is_zero() {
    let codes = [1, 0, 1, 0];
    for (precise, types, want) in [
        (0.1_f64, [9, 1], [0.2_f64, 0.4].map(f64::to_le_bytes).concat()),
        (0.0, [9, 1], [1.0_f64, 2.0].map(f64::to_le_bytes).concat()),
        (0.1, [8, 1], [0.2_f32, 0.4].map(f32::to_le_bytes).concat()),
    ] {
        let mut config = config(64, 1, [0; 3], 0);
        config[16..18].copy_from_slice(&types);
        config[48..56].copy_from_slice(&precise.to_le_bytes());
        assert_eq!(inverse(1, &config, &[&codes, NONE, NONE]).unwrap(), want, "{precise} {types:?}");
    }
}

#[test]
fn without_a_count_port_the_configuration_counts_the_outliers() {
    let (errors, indices) =
        ([100.0_f32, 7.0].map(f32::to_le_bytes).concat(), [2_u32, 99].map(u32::to_le_bytes).concat());
    let codes = [1, 0, 0, 0, 0, 0, 1, 0];
    let counted = |n: u32| {
        let mut config = config(44, 1, [0; 3], 0);
        config[12..16].copy_from_slice(&n.to_le_bytes());
        config
    };
    assert_eq!(floats(&inverse(1, &counted(1), &[&codes, &errors, &indices]).unwrap()), [1.0, 1.0, 101.0, 102.0]);
    assert_eq!(floats(&inverse(1, &counted(0), &[&codes, &errors, &indices]).unwrap()), [1.0, 1.0, 1.0, 2.0]);
    let e = inverse_error(1, &counted(2), &[&codes, &errors, &indices]);
    assert_eq!(e, "position 99 is outside the array of 4 elements (outlier_indices)");
    let e = inverse_error(1, &counted(3), &[&codes, &errors, &indices]);
    assert_eq!(e, "3 outliers, but the ports have 2 (outlier_count)");
}

#[test]
fn means_are_added_to_the_first_difference_of_their_tile() {
    let mut config = config(44, 1, [0; 3], 0);
    config[41] = 1;
    let codes = [1, 0].repeat(1026);
    let means = |means: &[f32]| means.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    for (first, second) in [(10.0, -5.0), (0.5, 3e9), (f32::MAX, 0.0)] {
        let got = floats(&inverse(1, &config, &[&codes, NONE, NONE, &means(&[first, second, 9.0])]).unwrap());
        assert_eq!((got[0], got[1024], got[1025]), (first + 1.0, second + 1.0, second + 2.0));
    }
    let e = inverse_error(1, &config, &[&codes, NONE, NONE, &means(&[1.0])]);
    assert_eq!(e, "needs 8 bytes, 4 left (means)");
    config[18] = 2;
    let e = parse_error(1, &config);
    assert_eq!(e, "means of an array of 2 dimensions (centering, at byte 0x129)");
}

#[test]
fn outliers_replace_codes_of_zero() {
    let (errors, indices) = ([100.0_f32.to_le_bytes(), (-0.5_f32).to_le_bytes()].concat(), [2, 0, 0, 0, 1, 0, 0, 0]);
    let codes = [1, 0, 0, 0, 0, 0, 1, 0];
    let got = inverse(1, &config(44, 1, [0; 3], 0), &[&codes, &errors, &indices, &[2, 0, 0, 0]]).unwrap();
    assert_eq!(floats(&got), [1.0, 0.5, 100.5, 101.5]);
}

#[test]
fn every_type_rank_and_coding_decodes_as_specified() {
    for (text, dtype, shape) in [
        ("lorenzo_quant:eb=0.01", Dtype::F32, &[5000][..]),
        ("lorenzo_quant:eb=0.01,zigzag=1,bitshuffle:w=2,rze", Dtype::F32, &[70_001]),
        ("lorenzo_quant:eb=0.01,code=u8,radius=100,cap=0.6", Dtype::F32, &[3001]),
        ("lorenzo_quant:eb=1e-4,mode=noa", Dtype::F64, &[6001]),
        ("lorenzo_quant:eb=1e-7,code=u32,radius=1000000,zigzag=1", Dtype::F64, &[2049]),
        ("lorenzo_quant:eb=0.01,config=32,radius=512", Dtype::F32, &[4000]),
        ("lorenzo_quant:eb=0.01,config=40,mode=rel", Dtype::F32, &[4000]),
        ("lorenzo_quant:eb=0.01,radius=300,cap=0.5", Dtype::F32, &[77, 101]),
        ("lorenzo_quant:eb=1e-6,code=u32,zigzag=1", Dtype::F64, &[65, 33]),
        ("lorenzo_quant:eb=0.01,config=32,type=12", Dtype::F32, &[40, 50]),
        ("lorenzo_quant:eb=0.01,radius=128,cap=0.3,zigzag=1,bitpack:bits=8", Dtype::F32, &[17, 19, 23]),
        ("lorenzo_quant:eb=0.01,type=13,config=40", Dtype::F64, &[9, 10, 11]),
        ("lorenzo_quant:eb=0.01,code=u8,radius=50,cap=1", Dtype::F32, &[16, 8, 24]),
        ("lorenzo_quant:eb=0.01,zigzag=1,bitshuffle:w=2,rze", Dtype::F32, &[50, 60]),
        ("lorenzo_quant:eb=0.01,ports=3,radius=30,cap=1", Dtype::F32, &[5000]),
        ("lorenzo_quant:eb=1e-4,config=64,ports=3,mode=prel,cap=1", Dtype::F64, &[6001]),
        ("lorenzo_quant:eb=1e-7,code=u32,radius=1000000,config=64,ports=3,cap=1", Dtype::F64, &[65, 33]),
        ("lorenzo_quant:eb=0.01,config=64,cap=1,radius=128", Dtype::F32, &[17, 19, 23]),
        ("lorenzo_quant:eb=0.01,centering=1,radius=30,cap=1", Dtype::F32, &[5000]),
        ("lorenzo_quant:eb=0.01,centering=1,code=u8,radius=100,cap=1,zigzag=1", Dtype::F32, &[3001]),
        ("lorenzo_quant:eb=1e-7,code=u32,centering=1,config=64,mode=noa,cap=1", Dtype::F64, &[2049]),
        ("lorenzo_quant:eb=1e-12,centering=1,config=64,cap=1", Dtype::F32, &[3000]),
        (
            "lorenzo_quant:centering=1,cap=1,bitshuffle:w=2,rze,rle:from=0,port=means,t=u32,config=9",
            Dtype::F32,
            &[20_000],
        ),
    ] {
        round_trip(text, dtype, shape, &field::smooth(dtype, shape, 0.3, 1));
    }
}

#[test]
fn arrays_with_long_rows_are_divided_into_bricks() {
    // A band over the full width would exceed 4 MiB.
    for shape in [&[33, 40_000][..], &[9, 500, 300], &[9, 9, 20_000]] {
        let zeros = vec![0; shape.iter().product::<u32>() as usize * 4];
        let mut bytes = field::smooth(Dtype::F32, shape, 0.3, 2);
        bytes[100_000..200_000].copy_from_slice(&zeros[..100_000]);
        round_trip("lorenzo_quant:eb=0.01,radius=128,cap=0.5", Dtype::F32, shape, &bytes);
    }
}

/// Two streams of `config` over the same codes and outliers: in integers where these are exact, and, with a limit of 0,
/// always in the reference library's order.
fn two_ways(config: &[u8], codes: &[u8], outliers: &[(u32, f32)]) -> [Arc<dyn ByteStream>; 2] {
    let errors: Vec<u8> = outliers.iter().flat_map(|(_, e)| e.to_le_bytes()).collect();
    let indices: Vec<u8> = outliers.iter().flat_map(|(i, _)| i.to_le_bytes()).collect();
    let count = (outliers.len() as u32).to_le_bytes().to_vec();
    let stage = LorenzoQuant::parse(Config::of(&LAYOUT, config).unwrap()).unwrap();
    [i64::MAX, 0].map(|limit| {
        let ports = [codes.to_vec(), errors.clone(), indices.clone(), count.clone()];
        let ports = ports.map(|bytes| Arc::new(Memory(bytes)) as Arc<dyn ByteStream>).to_vec();
        match (stage.input, stage.code) {
            (F32, U16) => stage.stream_below::<f32, u16>(ports, &context(), limit).unwrap(),
            _ => stage.stream_below::<f64, u32>(ports, &context(), limit).unwrap(),
        }
    })
}

#[test]
fn integer_and_reference_order_sums_agree_bit_for_bit() {
    let mut random = Random(7);
    for (ndim, dim) in [(1, [0; 3]), (2, [150, 70, 0]), (3, [30, 21, 17])] {
        // Small codes stay exact everywhere; large ones only in some tiles.
        for mask in [0x00FF, 0xFFFF] {
            let codes: Vec<u8> = (0..10_710).flat_map(|_| (random.next() as u16 & mask).to_le_bytes()).collect();
            let outliers: Vec<(u32, f32)> = (0..300_u32)
                .map(|i| (i * 35, if i % 3 == 0 { 0.25 } else { (random.below(1 << (i % 26)) as f32) - 1000.0 }))
                .collect();
            for outliers in [&outliers[..], &outliers[..1], &[]] {
                let [fast, exact] = two_ways(&config(44, ndim, dim, 1), &codes, outliers);
                let all = whole(&*exact).unwrap();
                assert!(whole(&*fast).unwrap() == all, "rank {ndim}, mask {mask:#x}, {} outliers", outliers.len());
                assert_windows(&*fast, &all);
                assert_windows(&*exact, &all);
            }
        }
    }
}

#[test]
fn codes_in_bit_planes_decode_like_plain_codes() {
    let mut random = Random(8);
    for (mask, types, size) in [(0x00FF, [8, 1], 2), (0xFFFF_FFFF, [8, 1], 2), (0xFFFF, [9, 2], 4), (!0, [9, 2], 4)] {
        // Three blocks of planes, and codes after the last block.
        let count = 3 * (16_384 / size) + 1500;
        let codes: Vec<u8> =
            (0..count).flat_map(|_| (random.next() as u32 & mask).to_le_bytes()[..size].to_vec()).collect();
        let (dtype, text) = if size == 2 { (Dtype::U16, "bitshuffle:w=2") } else { (Dtype::U32, "bitshuffle:w=4") };
        let (blocks, after) = codes.split_at(3 * 16_384);
        let sources = vec![Source { dtype, shape: vec![(blocks.len() / size) as u32], bytes: blocks.to_vec() }];
        let pipeline = Pipeline::parse(text, &sources).unwrap();
        let run = pipeline.run(sources, true).unwrap();
        let stored = [run.segments()[0].bytes, after].concat();
        let planes = stream(17, &run.steps()[0].config, &[&stored]).unwrap();
        assert!(whole(&*planes).unwrap() == codes && stored != codes);
        let own = if size == 2 { 100.0_f32.to_le_bytes().to_vec() } else { 100.0_f64.to_le_bytes().to_vec() };
        for (ndim, dim) in [(1, [0; 3]), (2, [150, 70, 0]), (3, [30, 21, 17])] {
            let mut config = config(44, ndim, dim, 1);
            config[16..18].copy_from_slice(&types);
            let [plain, shuffled] =
                [Arc::new(Memory(codes.clone())) as Arc<dyn ByteStream>, planes.clone()].map(|codes| {
                    let rest = [own.repeat(3), [9000_u32, 3, 1024].map(u32::to_le_bytes).concat(), vec![3, 0, 0, 0]];
                    let rest = rest.map(|bytes| Arc::new(Memory(bytes)) as Arc<dyn ByteStream>);
                    let outputs = std::iter::once(codes).chain(rest).collect();
                    LorenzoQuant::parse(Config::of(&LAYOUT, &config).unwrap())
                        .unwrap()
                        .invert(outputs, &context())
                        .unwrap()
                        .remove(0)
                });
            let all = whole(&*plain).unwrap();
            assert!(whole(&*shuffled).unwrap() == all, "rank {ndim}, mask {mask:#x}, codes of {size}");
            assert_windows(&*shuffled, &all);
        }
    }
}

#[test]
fn bricks_with_inexact_tiles_decode() {
    let mut random = Random(9);
    let codes: Vec<u8> = (0..40_000 * 34).flat_map(|_| (random.next() as u16).to_le_bytes()).collect();
    let [fast, exact] = two_ways(&config(44, 2, [40_000, 34, 0], 1), &codes, &[(5, f32::NAN), (40_100, 1e30)]);
    let all = whole(&*exact).unwrap();
    assert!(whole(&*fast).unwrap() == all);
    assert!(fast.bricks().is_some());
    assert_bricks(&*fast, &all);
}

#[test]
fn bytes_after_the_array_are_zero() {
    let got = inverse(1, &config(44, 2, [2, 2, 0], 0), &[&[1; 12], NONE, NONE, NONE]).unwrap();
    assert_eq!(floats(&got), [257.0, 514.0, 514.0, 1028.0, 0.0, 0.0]);
    assert!(inverse(1, &config(44, 2, [2, 2, 0], 0), &[NONE; 4]).unwrap().is_empty());
}

#[test]
fn dims_follow_the_reference() {
    let dims = |ndim, dim, n: u32| {
        let mut config = config(44, ndim, dim, 0);
        config[8..12].copy_from_slice(&n.to_le_bytes());
        LorenzoQuant::parse(Config::of(&LAYOUT, &config).unwrap()).unwrap().dims()
    };
    assert_eq!(dims(1, [0, 0, 0], 12), None);
    assert_eq!(dims(1, [7, 9, 9], 12), Some(vec![7]));
    assert_eq!(dims(0, [7, 9, 9], 12), Some(vec![7]));
    assert_eq!(dims(2, [7, 9, 9], 12), Some(vec![9, 7]));
    assert_eq!(dims(2, [0, 3, 0], 12), Some(vec![3, 4]));
    assert_eq!(dims(3, [0, 1, 1], 12), None);
    assert_eq!(dims(3, [2, 1, 3], 12), Some(vec![3, 1, 2]));
}

#[test]
fn a_bad_configuration_or_array_is_refused() {
    let bad = |at: usize, byte: u8| {
        let mut config = config(44, 1, [0; 3], 0);
        config[at] = byte;
        unknown_error(1, &config)
    };
    assert_eq!(bad(16, 2), "element type uint32 (input_type, at byte 0x110)");
    assert_eq!(bad(17, 2), "quantization from float32 to uint32 (input_type, at byte 0x110)");
    assert_eq!(bad(17, 10), "element type 10 (code_type, at byte 0x111)");
    assert_eq!(bad(41, 2), "the value 2 (centering, at byte 0x129)");
    let mut many = config(44, 1, [0; 3], 0);
    many[18] = 4;
    let e = parse_error(1, &many);
    assert_eq!(e, "4 dimensions, but at most 3 are allowed (ndim, at byte 0x112)");
    for len in [20, 36, 60] {
        let want = format!("a configuration of {len} bytes (config_size, at byte 0x100)");
        assert_eq!(unknown_error(1, &config(len, 1, [0; 3], 0)), want);
    }
    let mut biased = config(32, 1, [0; 3], 0);
    biased[4..8].copy_from_slice(&65_536_u32.to_le_bytes());
    assert_eq!(parse_error(1, &biased), "65536 does not fit a code of uint16 (quant_radius, at byte 0x104)");
    let codes = [0; 14];
    for dim in [[4, 2, 0], [u32::MAX, u32::MAX, 0]] {
        let e = inverse_error(1, &config(44, 2, dim, 0), &[&codes, NONE, NONE, NONE]);
        assert_eq!(e, format!("{} x {} x 1 elements, but 7 codes (dim_x)", dim[0], dim[1]));
    }
    let e = inverse_error(1, &config(44, 3, [u32::MAX; 3], 0), &[&codes, NONE, NONE, NONE]);
    assert!(e.ends_with("elements, but 7 codes (dim_x)"), "{e}");
    let e = inverse_error(1, &config(44, 1, [0; 3], 0), &[&codes, &[0; 4], &[7, 0, 0, 0], &[1, 0, 0, 0]]);
    assert_eq!(e, "position 7 is outside the array of 7 elements (outlier_indices)");
    let e = inverse_error(1, &config(44, 1, [0; 3], 0), &[&codes, NONE]);
    assert!(e.starts_with("a stage with 1 inputs and 2 outputs, not 1 and 4, is unknown"), "{e}");
}
