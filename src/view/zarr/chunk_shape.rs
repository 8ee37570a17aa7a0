//! The rule for the chunk shape of an array: 1 to 4 MiB that touch as few pieces as possible.
//!
//! A chunk grows from one element in the order of storage: the elements of a block, from the last dimension to the
//! first; then the blocks of a chunk of the container; then those chunks. Pieces are consecutive in that order, so that
//! completed stretches are a run of whole pieces. The stretch that would take the chunk over [`AIM`] is taken in part:
//! in parts that divide it evenly, so that no chunk crosses from one block, or chunk of the container, to the next; in
//! an array in C order, by whole pieces. If that leaves less than [`LEAST`], it is taken up to [`MOST`], and then in
//! parts of any size. An array in C order of at most [`MOST`] bytes is one chunk.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::format::{Array, Tiles};

/// Bytes of a chunk: minimum, unless the array is smaller or cannot be divided so; target; maximum.
const LEAST: u64 = 1 << 20;
const AIM: u64 = 2 << 20;
const MOST: u64 = 4 << 20;

/// A stretch of growth along one dimension: in steps of `unit` elements up to `end`.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    dim: usize,
    unit: u64,
    end: u64,
    /// The length of the dimension.
    len: u64,
    /// Whether it is the slowest dimension with more than one element.
    is_outermost: bool,
}

/// The elements of a chunk of `array` per dimension; none is 0.
pub fn chunk_shape(array: &Array, tiles: &Tiles) -> Vec<u64> {
    if matches!(tiles, Tiles::Flat(_)) && array.byte_len().is_some_and(|bytes| bytes <= MOST) {
        return array.shape.iter().map(|&len| len.max(1)).collect();
    }
    let mut growth = Growth { sizes: vec![1; array.shape.len()], bytes: array.itemsize.max(1) };
    let stretches = stretches(&array.shape, tiles);
    let piece = match tiles {
        Tiles::Flat(piece) => *piece,
        Tiles::Grid { .. } => 1,
    };
    for (most, evenly) in [(AIM, true), (MOST, true), (MOST, false)] {
        if growth.bytes < LEAST {
            stretches.iter().all(|stretch| growth.grow(*stretch, most, evenly, piece));
        }
    }
    growth.sizes
}

/// The stretches, in the order of storage.
fn stretches(shape: &[u64], tiles: &Tiles) -> Vec<Stretch> {
    let shape: Vec<u64> = shape.iter().map(|&len| len.max(1)).collect();
    let (chunk, block) = match tiles {
        Tiles::Grid { chunk, block } => (chunk, block),
        Tiles::Flat(_) => (&shape, &shape),
    };
    let ends = [&vec![1; shape.len()], block, chunk, &shape];
    let mut all = Vec::new();
    for level in ends.windows(2) {
        let [units, ends] = level else { continue };
        let dims = shape.iter().zip(units.iter().zip(ends.iter())).enumerate().rev();
        all.extend(dims.map(|(dim, (&len, (&unit, &end)))| {
            let unit = unit.clamp(1, len);
            let is_outermost = shape.iter().take(dim).all(|&len| len == 1);
            Stretch { dim, unit, end: end.clamp(unit, len), len, is_outermost }
        }));
    }
    all
}

/// A chunk that grows.
struct Growth {
    sizes: Vec<u64>,
    bytes: u64,
}

impl Growth {
    /// Grows along `stretch` to at most `most` bytes. Returns whether it is complete.
    fn grow(&mut self, stretch: Stretch, most: u64, evenly: bool, piece: u64) -> bool {
        let Stretch { dim, unit, end, len, is_outermost } = stretch;
        let Some(size) = self.sizes.get_mut(dim) else { return false };
        if *size >= end {
            return true;
        }
        let slice = self.bytes.checked_div(*size).unwrap_or(0).max(1);
        let steps = end.div_ceil(unit);
        let room = most.checked_div(slice.saturating_mul(unit)).unwrap_or(0).min(steps);
        let taken = if room == steps {
            steps
        } else if end == len {
            // No further stretch follows along this dimension: any division is even.
            let are_aligned = is_outermost || slice.saturating_mul(end).is_multiple_of(piece);
            let pieces = whole_pieces(room, slice.saturating_mul(unit), piece).filter(|_| are_aligned);
            pieces.unwrap_or_else(|| balanced(room, steps))
        } else if evenly {
            if end.is_multiple_of(unit) { divisor(room, steps) } else { 0 }
        } else {
            balanced(room, steps)
        };
        let grown = taken.saturating_mul(unit).min(end);
        if grown > *size {
            *size = grown;
            self.bytes = slice.saturating_mul(grown);
        }
        *size == end
    }
}

/// The largest number of steps of `step` bytes, at most `room`, that is a whole number of pieces.
fn whole_pieces(room: u64, step: u64, piece: u64) -> Option<u64> {
    let per_piece = piece.checked_div(step).filter(|_| piece.is_multiple_of(step) && piece > step)?;
    Some(room.saturating_sub(room.checked_rem(per_piece)?)).filter(|&steps| steps > 0)
}

/// The steps of each of the fewest parts of `steps`, none over `room`, so that the last is not much shorter.
fn balanced(room: u64, steps: u64) -> u64 {
    if room == 0 { 0 } else { steps.div_ceil(steps.div_ceil(room)) }
}

/// The largest divisor of `steps` up to `room`; 0 if `room` is 0.
fn divisor(room: u64, steps: u64) -> u64 {
    (1..=room.min(MOST)).rev().find(|&n| steps.is_multiple_of(n)).unwrap_or(0)
}

#[cfg(test)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
mod tests {
    use super::*;

    fn array(itemsize: u64, shape: &[u64]) -> Array {
        Array { descr: String::new(), itemsize, shape: shape.to_vec() }
    }

    fn flat(itemsize: u64, shape: &[u64], piece: u64) -> Vec<u64> {
        chunk_shape(&array(itemsize, shape), &Tiles::Flat(piece))
    }

    fn tiled(itemsize: u64, shape: &[u64], chunk: &[u64], block: &[u64]) -> Vec<u64> {
        let tiles = Tiles::Grid { chunk: chunk.to_vec(), block: block.to_vec() };
        chunk_shape(&array(itemsize, shape), &tiles)
    }

    #[test]
    fn an_array_in_c_order_is_cut_into_ranges_of_whole_pieces_where_its_rows_allow() {
        let rows: &[(u64, &[u64], u64, &[u64])] = &[
            (4, &[], 1 << 20, &[]),
            (4, &[0], 1 << 20, &[1]),
            (8, &[3, 0, 5], 1 << 20, &[3, 1, 5]),
            (1, &[1, 1, 1], 1 << 20, &[1, 1, 1]),
            (4, &[1 << 20], 1 << 20, &[1 << 20]),
            (4, &[(1 << 20) + 1], 1 << 20, &[1 << 19]),
            (4, &[1 << 31], 1 << 20, &[1 << 19]),
            // A piece of more than a chunk.
            (4, &[1 << 31], 16 << 20, &[1 << 19]),
            (1, &[(1 << 33) + 7], 983_040, &[2 * 983_040]),
            (4, &[16384, 16384], 1 << 20, &[32, 16384]),
            (4, &[1000, 1000, 1000], 1 << 20, &[1, 500, 1000]),
            // A row of more than a chunk, and rows of a little less than one.
            (4, &[4, 1_000_000_000], 1 << 20, &[1, 524_110]),
            (4, &[4, 1 << 30], 1 << 20, &[1, 1 << 19]),
            (8, &[100, 400_000], 1 << 20, &[1, 200_000]),
            (8, &[100, 200_000], 1 << 20, &[1, 200_000]),
            // 2099 rows are 5 parts of 420 rather than 4 of 524 and one of 3.
            (4, &[2099, 1000], 1 << 20, &[420, 1000]),
            (4, &[2099, 1000], 4000, &[420, 1000]),
            (2, &[7, 100_003, 3], 1 << 20, &[3, 100_003, 3]),
        ];
        for &(itemsize, shape, piece, want) in rows {
            assert_eq!(flat(itemsize, shape, piece), want, "{shape:?} of {itemsize}");
        }
    }

    #[test]
    fn an_array_in_blocks_is_cut_along_them() {
        // Item size, shape, chunk and block of the container, and the chunk.
        type Row<'a> = (u64, &'a [u64], &'a [u64], &'a [u64], &'a [u64]);
        let rows: &[Row<'_>] = &[
            // A row of blocks of a chunk, several rows, a whole chunk, several chunks.
            (4, &[8192, 8192], &[2048, 2048], &[256, 256], &[256, 2048]),
            (4, &[8192, 8192], &[1024, 1024], &[16, 16], &[512, 1024]),
            (4, &[8192, 8192], &[500, 700], &[50, 70], &[500, 700]),
            (4, &[8192, 8192], &[64, 64], &[16, 16], &[64, 8192]),
            // Half of the blocks of a row: their number divides evenly.
            (8, &[4096, 4096], &[1024, 4096], &[256, 512], &[256, 1024]),
            // Rows of blocks that do not fill the chunk evenly.
            (4, &[7000, 7000], &[700, 3584], &[64, 512], &[256, 3584]),
            // A block of 128 MiB, in even parts.
            (8, &[8192, 8192], &[4096, 4096], &[4096, 4096], &[64, 4096]),
            // A block with rows of a prime number of elements, longer than the longest chunk.
            (8, &[4, 4_000_012], &[1, 1_000_003], &[1, 1_000_003], &[1, 500_002]),
            // Blocks that do not divide the chunk, which is smaller than the least.
            (4, &[700, 530], &[300, 200], &[64, 50], &[700, 530]),
            (4, &[5, 4], &[3, 3], &[2, 2], &[5, 4]),
            // Bricks of 1 MiB: two of them.
            (4, &[512, 512, 512], &[64, 64, 64], &[64, 64, 64], &[64, 64, 128]),
            // One of three blocks of 1 MiB.
            (1, &[9 << 20], &[3 << 20], &[1 << 20], &[1 << 20]),
        ];
        for &(itemsize, shape, chunk, block, want) in rows {
            assert_eq!(tiled(itemsize, shape, chunk, block), want, "{shape:?} of {itemsize} in {chunk:?}, {block:?}");
        }
    }

    #[test]
    fn chunks_of_any_shape_have_1_to_4_mib_or_the_whole_array() {
        let mut state = 7_u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        for _ in 0..5000 {
            let rank = random(5) as usize + 1;
            let itemsize = 1 << random(5);
            let shape: Vec<u64> = (0..rank)
                .map(|_| {
                    let bits = random(22);
                    1 + random(1 << bits)
                })
                .collect();
            let chunk: Vec<u64> = shape.iter().map(|&len| 1 + random(len)).collect();
            let block: Vec<u64> = chunk.iter().map(|&len| 1 + random(len)).collect();
            let tiles = [Tiles::Flat(1 << 20), Tiles::Grid { chunk: chunk.clone(), block: block.clone() }];
            let array = array(itemsize, &shape);
            let Some(whole) = array.byte_len() else { continue };
            for tiles in tiles {
                let sizes = chunk_shape(&array, &tiles);
                let bytes = sizes.iter().product::<u64>() * itemsize;
                let said = format!("{shape:?} of {itemsize} in {tiles:?}: {sizes:?}");
                assert!(sizes.iter().zip(&shape).all(|(size, len)| (1..=*len).contains(size)), "{said}");
                assert!(bytes <= MOST && bytes >= LEAST.min(whole) / 2, "{said} are {bytes} bytes");
                if let Tiles::Flat(_) = tiles {
                    // One range: a single dimension is in part.
                    let partial = sizes.iter().zip(&shape).position(|(size, _)| *size > 1).unwrap_or(0);
                    assert!(sizes[partial..].iter().zip(&shape[partial..]).skip(1).all(|(a, b)| a == b), "{said}");
                }
            }
        }
    }
}
