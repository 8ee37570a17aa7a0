//! Every rank, block size, order and type.

use fzm_writer::{Dtype, field};

use super::*;
use crate::account::Account;
use crate::format::fzm::stage::testing::{
    Memory, Random, inverse, inverse_error, parse_error, round_trip, unknown_error, whole,
};
use crate::limits::Limits;

fn config(ty: u8, ndim: u8, dim: [u32; 3]) -> Vec<u8> {
    let mut config = vec![ty, ndim, 0, 0];
    config.extend(dim.iter().flat_map(|d| d.to_le_bytes()));
    config
}

#[test]
fn rank_1_restarts_every_256_elements() {
    let got = inverse(12, &config(4, 1, [0; 3]), &[&[1; 300]]).unwrap();
    assert_eq!((got[0], got[254], got[255], got[256], got[299]), (1, 255, 0, 1, 44));
    assert_eq!(inverse(12, &config(5, 1, [0; 3]), &[&[1, 1, 1, 1, 9]]).unwrap(), [1, 1, 2, 2, 0]);
}

fn blocks(ty: u8, ndim: u8, block: u32, order: u8, centering: u8) -> Vec<u8> {
    let mut config = [&config(ty, ndim, [0; 3])[..], &block.to_le_bytes()].concat();
    config[2..4].copy_from_slice(&[centering, order]);
    config
}

#[test]
fn blocks_restart_after_their_own_number_of_elements() {
    for order in [0, 1] {
        assert_eq!(inverse(12, &blocks(4, 3, 3, order, 0), &[&[1; 7]]).unwrap(), [1, 2, 3, 1, 2, 3, 1]);
    }
    assert_eq!(inverse(12, &blocks(4, 1, 4, 2, 0), &[&[1; 6]]).unwrap(), [1, 3, 6, 10, 1, 3]);
    assert_eq!(inverse(12, &blocks(4, 1, 3, 1, 1), &[&[1; 5], &[10, 255]]).unwrap(), [11, 12, 13, 0, 1]);
    let means = [10_u16, 20].map(u16::to_le_bytes).concat();
    let got = inverse(12, &blocks(5, 1, 2, 2, 1), &[&[1, 0, 1, 0, 1, 0, 9], &[&means[..], &[7]].concat()]).unwrap();
    assert_eq!(got, [11, 0, 13, 0, 21, 0, 0]);
    assert_eq!(inverse(12, &blocks(4, 1, 0, 0, 0), &[&[1; 257]]).unwrap()[255..], [0, 1]);
    let e = inverse_error(12, &blocks(4, 1, 3, 1, 1), &[&[1; 7], &[10, 255]]);
    assert_eq!(e, "needs 3 bytes, 2 left (means)");
}

#[test]
fn every_block_size_and_order_decodes_as_specified() {
    for (text, dtype, n) in [
        ("lorenzo:block=1", Dtype::I32, 5000),
        ("lorenzo:block=32", Dtype::I32, 100_003),
        ("lorenzo:block=128,centering=1", Dtype::I32, 50_000),
        ("lorenzo:block=100,order=2,centering=1", Dtype::I32, 50_001),
        ("lorenzo:block=33,centering=1", Dtype::I8, 5003),
        ("lorenzo:block=1024,order=2", Dtype::I16, 20_000),
        ("lorenzo:block=64,order=2,centering=1,zigzag", Dtype::I64, 9001),
        ("lorenzo:config=20", Dtype::I64, 1000),
    ] {
        round_trip(text, dtype, &[n], &field::smooth(dtype, &[n], 3.0, 6));
    }
}

#[test]
fn rank_2_and_3_add_up_along_each_whole_dimension() {
    assert_eq!(inverse(12, &config(4, 2, [3, 2, 9]), &[&[1; 7]]).unwrap(), [1, 2, 3, 2, 4, 6, 0]);
    assert_eq!(inverse(12, &config(4, 3, [2, 2, 2]), &[&[1; 8]]).unwrap(), [1, 2, 2, 4, 2, 4, 4, 8]);
    assert_eq!(inverse(12, &config(4, 3, [2, 1, 2]), &[&[1; 4]]).unwrap(), [1, 2, 2, 4]);
    assert!(inverse(12, &config(4, 2, [0, 2, 0]), &[&[]]).unwrap().is_empty());
}

#[test]
fn every_type_and_rank_decodes_as_specified() {
    for (text, dtype, shape) in [
        ("lorenzo", Dtype::I8, &[1000][..]),
        ("lorenzo,zigzag,bitpack:bits=16", Dtype::I32, &[5003]),
        ("lorenzo", Dtype::I64, &[1000]),
        ("lorenzo,negabinary,bitshuffle:w=2,rze", Dtype::I16, &[64, 128]),
        ("lorenzo,zigzag,bitshuffle:w=4,rze", Dtype::I32, &[3, 1500]),
        ("lorenzo", Dtype::I8, &[15, 14, 20]),
        ("lorenzo", Dtype::I64, &[20, 30, 40]),
        ("lorenzo", Dtype::I16, &[5000, 2, 3]),
    ] {
        round_trip(text, dtype, shape, &field::smooth(dtype, shape, 3.0, 6));
    }
}

#[test]
fn arrays_over_the_budget_use_a_temporary_file() {
    // Rows and planes shorter and longer than a batch, and a lag between one and two batches.
    for dim in [[7, 5, 11], [40_000, 3, 2], [300, 400, 3], [20_000, 9, 0], [130, 2, 700]] {
        let n = dim.iter().map(|&d| d.max(1) as usize).product::<usize>();
        let bytes = Random(2).bytes(n * 4 + 1);
        let config = config(6, 3, dim);
        let of = |budget: u64| {
            let cx = Context { account: Account::new(budget, 1 << 30), limits: Limits::default(), stored: 0 };
            let input = Arc::new(Memory(bytes.clone()));
            let stage = Lorenzo::parse(Config::of(&LAYOUT, &config).unwrap()).unwrap();
            whole(&*stage.invert(vec![input], &cx).unwrap()[0]).unwrap()
        };
        let [in_memory, in_a_file] = [of(1 << 30), of(0)];
        assert!(in_memory == in_a_file);
        let mut want: Vec<u32> = bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
        let [nx, ny] = [dim[0] as usize, dim[1] as usize];
        for (lag, period) in [(1, nx), (nx, nx * ny), (nx * ny, n)] {
            for i in 0..n {
                if i % period >= lag {
                    want[i] = want[i].wrapping_add(want[i - lag]);
                }
            }
        }
        assert!(in_memory[..n * 4] == want.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>(), "{dim:?}");
    }
}

#[test]
fn bad_types_and_dims_are_refused() {
    assert_eq!(unknown_error(12, &config(0, 1, [0; 3])), "element type uint8 (data_type, at byte 0x100)");
    assert_eq!(parse_error(12, &config(4, 9, [0; 3])), "9 dimensions, but at most 3 are allowed (ndim, at byte 0x101)");
    let e = unknown_error(12, &config(4, 1, [0; 3])[..15]);
    assert_eq!(e, "a configuration of 15 bytes (config_size, at byte 0x100)");
    let error = |block, order, centering| parse_error(12, &blocks(4, 1, block, order, centering));
    let at = |why: &str, at: &str| format!("{why} ({at})");
    let e = at("blocks of 1025 elements, but at most 1024", "block_size, at byte 0x110");
    assert_eq!(error(1025, 1, 0), e);
    let e = at("means and differences of order 2 need blocks", "block_size, at byte 0x110");
    assert_eq!((error(0, 2, 0), error(0, 1, 1)), (e.clone(), e));
    let e = unknown_error(12, &blocks(4, 1, 32, 3, 0));
    assert_eq!(e, "differences of order 3 (order, at byte 0x103)");
    let e = parse_error(13, &config(4, 1, [0; 3]));
    assert!(e.starts_with("stage 0 (type 13) is unknown"), "{e}");
    let mut old = config(4, 1, [0; 3]);
    old[3] = 2;
    assert_eq!(unknown_error(12, &old), "the value 2 of byte 3 (reserved, at byte 0x102)");
    let e = inverse_error(12, &config(4, 2, [3, 2, 0]), &[&[0; 5]]);
    assert_eq!(e, "3 x 2 x 1 elements, but the stream has 5 (dim_x)");
    let e = inverse_error(12, &config(7, 3, [u32::MAX; 3]), &[&[0; 8]]);
    assert!(e.ends_with("elements, but the stream has 1 (dim_x)"), "{e}");
}
