//! `TiledLorenzo`: arrays of every rank and tile, and windows of them.

use fzm_writer::{Dtype, field};

use super::super::testing::{Memory, Random, assert_bricks, inverse, inverse_error, parse_error, round_trip, whole};
use super::*;

fn config(ty: u8, rank: u8, tile: [u8; 3], dim: [u32; 3]) -> Vec<u8> {
    let mut config = vec![ty, rank, tile[0], tile[1], tile[2], 0, 0, 0];
    config.extend(dim.iter().flat_map(|d| d.to_le_bytes()));
    config
}

fn i16s(values: &[i16]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[test]
fn corners_rows_and_columns_add_up() {
    // One tile of 2 x 2 x 2: x on y on z.
    let stored = i16s(&[1, 10, 2, 20, 4, 40, 8, 80]);
    let got = inverse(25, &config(5, 3, [2; 3], [2; 3]), &[&stored]).unwrap();
    assert_eq!(got, i16s(&[1, 11, 3, 23, 5, 45, 13, 93]));
    // Sums wrap, and a longer stream has a surplus.
    let stored = i16s(&[i16::MAX, 1, 9, 9, 9]);
    assert_eq!(inverse(25, &config(5, 1, [2, 0, 0], [2, 0, 0]), &[&stored]).unwrap(), i16s(&[i16::MAX, i16::MIN]));
}

#[test]
fn a_missing_tile_follows_from_the_rank() {
    for (rank, dim, tile) in
        [(1, [70, 9, 9], [64, 1, 1]), (2, [70, 9, 9], [8, 8, 1]), (3, [7, 9, 9], [4, 4, 4]), (3, [7, 9, 1], [8, 8, 1])]
    {
        let stored = Random(2).bytes(2 * 1200);
        let want = inverse(25, &config(5, rank, tile, dim), &[&stored]).unwrap();
        assert_eq!(inverse(25, &config(5, rank, [0, 7, 7], dim), &[&stored]).unwrap(), want);
    }
    // Without dimensions, all tiles are the array.
    let want = i16s(&(1..=64).chain(1..=64).collect::<Vec<_>>());
    assert_eq!(inverse(25, &config(5, 0, [0; 3], [0; 3]), &[&i16s(&[1; 128])]).unwrap(), want);
    assert!(inverse(25, &config(5, 2, [8, 8, 1], [8, 8, 1]), &[&[]]).unwrap().is_empty());
}

#[test]
fn every_rank_and_tile_decodes_as_written() {
    for (text, dtype, shape) in [
        ("tiled_lorenzo", Dtype::I32, &[10_007][..]),
        ("tiled_lorenzo:tile=7", Dtype::I16, &[5003]),
        ("tiled_lorenzo,adaptive_bitpack:block=64", Dtype::I32, &[130, 171]),
        ("tiled_lorenzo:tile=1x64", Dtype::I16, &[33, 170]),
        ("tiled_lorenzo:tile=4x4x4", Dtype::I32, &[33, 170]),
        ("tiled_lorenzo:tile=255x1", Dtype::I32, &[700, 3]),
        ("tiled_lorenzo,adaptive_bitpack:select=1", Dtype::I32, &[21, 30, 43]),
        ("tiled_lorenzo:tile=3x5x7", Dtype::I16, &[20, 31, 43]),
        ("tiled_lorenzo:tile=1x1x16", Dtype::I32, &[5, 6, 100]),
        ("tiled_lorenzo", Dtype::I32, &[1, 1, 1]),
        ("tiled_lorenzo:tile=2x1x1", Dtype::I32, &[1, 9, 5]),
        ("tiled_lorenzo:shape=none", Dtype::I32, &[128]),
    ] {
        round_trip(text, dtype, shape, &field::smooth(dtype, shape, 9.0, 6));
        let elements = shape.iter().product::<u32>() as usize;
        round_trip(text, dtype, shape, &Random(5).bytes(elements * if dtype == Dtype::I16 { 2 } else { 4 }));
    }
}

#[test]
fn wide_arrays_have_bricks_of_whole_tiles() {
    for (rank, tile, dim) in [
        (2, [1, 255, 1], [5001, 300, 1]),
        (2, [8, 8, 1], [140_001, 11, 1]),
        (3, [4, 4, 4], [600, 500, 7]),
        (3, [8, 1, 16], [4099, 30, 18]),
        (3, [4, 4, 4], [70_003, 5, 5]),
    ] {
        let shape = [dim[2], dim[1], dim[0]].map(u64::from);
        let tiles = Shape { dims: shape, tile: [tile[2], tile[1], tile[0]].map(u64::from) };
        let stored =
            Random(1).bytes(tiles.grid().iter().zip(tiles.tile).map(|(n, t)| n * t).product::<u64>() as usize * 4);
        let parsed = super::super::testing::made(25, &config(6, rank, tile, dim), 1).unwrap();
        let context = super::super::testing::context();
        let stream = parsed.invert(vec![Arc::new(Memory(stored))], &context).unwrap().remove(0);
        let bricks = stream.bricks().expect("no bricks");
        assert!(bricks.brick.iter().product::<u64>() <= 4 << 18, "{bricks:?}");
        assert_bricks(&*stream, &whole(&*stream).unwrap());
    }
}

#[test]
fn dimensions_and_tiles_that_do_not_fit_are_refused() {
    let error = |rank, tile, dim, stored: usize| inverse_error(25, &config(5, rank, tile, dim), &[&vec![0; stored]]);
    let e = error(2, [8, 8, 1], [9, 1, 0], 255);
    assert_eq!(e, "9 x 1 x 1 elements in tiles are 128, but the stream has 127 (dim_x)");
    assert!(error(3, [1, 1, 1], [u32::MAX; 3], 255).contains("18446744073709551615"));
    assert_eq!(error(1, [0; 3], [0; 3], 130), "65 elements are not whole tiles of 64 (dim_x)");
    let parse = |rank, tile, dim| parse_error(25, &config(5, rank, tile, dim));
    assert!(parse(2, [8, 8, 1], [9, 0, 0]).contains("no elements along a dimension"));
    assert!(parse(3, [8, 8, 1], [9, 1, 0]).contains("no elements along a dimension"));
    assert!(parse(1, [8, 8, 1], [0; 3]).contains("tiles of several rows need dimensions"));
    assert!(parse(2, [33, 32, 1], [9, 1, 0]).contains("tiles of 1056 elements"));
    assert!(parse(4, [8, 8, 1], [9, 1, 0]).contains("4 dimensions"));
    assert!(parse_error(25, &config(0, 1, [8, 1, 1], [9, 1, 1])).contains("element type uint8"));
}
