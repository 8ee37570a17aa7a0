//! The rule for the chunk shape of an array: 1 to 4 MiB that touch as few pieces as possible.
//!
//! A chunk grows from one element in the order of storage: the elements of a block, from the last dimension to the first;
//! then the blocks of a chunk of the container; then those chunks. Pieces are consecutive in that order, so that
//! what grew completely is a run of whole pieces. The step that would take the chunk over [`AIM`] is taken in part: by
//! so much that the parts divide evenly what they are parts of, so that no chunk crosses from one block, or chunk of
//! the container, to the next. If that leaves less than [`LEAST`], the chunk may grow to [`MOST`], and then unevenly.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::format::{Array, Tiles};

/// Bytes of a chunk: the least, unless the array is smaller or cannot be divided so; those aimed at; the most.
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
}

/// The elements of a chunk of `array` per dimension, none of which is 0.
pub(super) fn chunk_shape(array: &Array, tiles: &Tiles) -> Vec<u64> {
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
            Stretch { dim, unit, end: end.clamp(unit, len), len }
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
    /// Grows along `stretch` to at most `most` bytes. Returns whether to go on: the stretch is complete, or more growth is
    /// needed.
    fn grow(&mut self, stretch: Stretch, most: u64, evenly: bool, piece: u64) -> bool {
        let Stretch { dim, unit, end, len } = stretch;
        let Some(size) = self.sizes.get_mut(dim) else { return false };
        if *size < unit || *size >= end {
            // An earlier stretch along this dimension is incomplete, or this one is complete.
            return *size >= end || self.bytes < LEAST;
        }
        let slice = self.bytes.checked_div(*size).unwrap_or(0).max(1);
        let steps = end.div_ceil(unit);
        let room = most.checked_div(slice.saturating_mul(unit)).unwrap_or(0).min(steps);
        let taken = if room == steps {
            steps
        } else if end == len {
            // Nothing of the kind follows along this dimension: any division is even.
            whole_pieces(room, slice.saturating_mul(unit), piece).unwrap_or_else(|| balanced(room, steps))
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
        *size == end || self.bytes < LEAST
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
