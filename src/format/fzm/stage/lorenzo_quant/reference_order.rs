//! Sums of a tile in the order of the reference library (section 5.1), for tiles with inexact sums.
//!
//! Positions outside the array are zero.
#![forbid(unsafe_code)]

use super::number::Real;
use crate::format::fzm::stage::kogge_stone::inclusive_scan;

/// A tile of rank 1: 8 warps of 32 lanes of 4 elements.
pub(super) fn rank1<T: Real>(tile: &mut [T; 1024]) {
    let (lanes, _) = tile.as_chunks_mut::<4>();
    for lane in lanes.iter_mut() {
        for i in 1..4 {
            lane[i] = lane[i] + lane[i - 1];
        }
    }
    for warp in lanes.chunks_exact_mut(32) {
        let mut ends: [T; 32] = std::array::from_fn(|l| warp[l][3]);
        inclusive_scan(&mut ends, 0, 1, 32);
        for (lane, before) in warp.iter_mut().zip(std::iter::once(T::default()).chain(ends)) {
            *lane = lane.map(|x| x + before);
        }
    }
    let mut ends: [T; 8] = std::array::from_fn(|w| lanes[w * 32 + 31][3]);
    inclusive_scan(&mut ends, 0, 1, 8);
    for (warp, before) in lanes.chunks_exact_mut(32).skip(1).zip(ends) {
        for lane in warp {
            *lane = lane.map(|x| x + before);
        }
    }
}

/// A tile of rank 2: 32 rows of 32.
pub(super) fn rank2<T: Real>(tile: &mut [T; 1024]) {
    for group in tile.chunks_exact_mut(256) {
        for i in 32..256 {
            group[i] = group[i] + group[i - 32];
        }
    }
    for x in 0..32 {
        let end = |group: usize| tile[group * 256 + 7 * 32 + x];
        let one = end(0);
        let two = end(1) + one;
        let three = end(2) + two;
        for (group, before) in [one, two, three].into_iter().enumerate() {
            for row in 0..8 {
                let i = (group + 1) * 256 + row * 32 + x;
                tile[i] = tile[i] + before;
            }
        }
    }
    for row in 0..32 {
        inclusive_scan(tile, row * 32, 1, 32);
    }
}

/// A tile of rank 3: 8 planes of 8 rows of 8.
pub(super) fn rank3<T: Real>(tile: &mut [T; 512]) {
    for plane in tile.chunks_exact_mut(64) {
        for i in 8..64 {
            plane[i] = plane[i] + plane[i - 8];
        }
    }
    for row in 0..64 {
        inclusive_scan(tile, row * 8, 1, 8);
    }
    for column in 0..64 {
        inclusive_scan(tile, column, 64, 8);
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "what is compared is exact")]
mod tests {
    use super::*;

    #[test]
    fn prefix_sums_of_small_integers_are_exact() {
        let mut line: [f32; 1024] = std::array::from_fn(|i| (i % 7) as f32 - 3.0);
        let mut square = line;
        let mut cube: [f64; 512] = std::array::from_fn(|i| (i % 5) as f64);
        let (flat, grid, block) = (line, square, cube);
        rank1(&mut line);
        rank2(&mut square);
        rank3(&mut cube);
        for i in [0, 1, 3, 4, 127, 128, 500, 1023] {
            assert_eq!(line[i], flat[..=i].iter().sum::<f32>(), "{i}");
            let (y, x) = (i / 32, i % 32);
            let want: f32 = (0..=y).flat_map(|b| (0..=x).map(move |a| grid[b * 32 + a])).sum();
            assert_eq!(square[i], want, "{y} {x}");
        }
        for i in [0, 7, 8, 64, 73, 511] {
            let (z, y, x) = (i / 64, i / 8 % 8, i % 8);
            let sum = |c: usize| (0..=y).flat_map(|b| (0..=x).map(move |a| block[c * 64 + b * 8 + a])).sum::<f64>();
            assert_eq!(cube[i], (0..=z).map(sum).sum::<f64>(), "{z} {y} {x}");
        }
    }
}
