//! Shapes of zTensor files: sparse tensors and manifests that claim much more than they are.

use crate::ztensor_files::{cells, empty_tensors, many_parts, rows, run_length_frame, seekable, sharded};
use crate::{MIB, Refusal, Shape, Want, anything};

/// Values of a coordinate list; their cells take 8 bytes each.
const VALUES: u64 = 8 << 20;

/// All values in one cell.
fn one_cell() -> Vec<u8> {
    let part = || seekable(&[(run_length_frame(VALUES, 0), VALUES)]);
    cells(1 << 62, part(), part(), ("u8", VALUES, 1))
}

/// Each tensor a hundred directories deep, with other directories than the others.
fn deep() -> Vec<u8> {
    empty_tensors(2000, |i| (format!("{i}/{}x", "a/".repeat(100)), "dense".to_owned()))
}

/// A layout of 40 KiB for each tensor, another each.
fn layouts() -> Vec<u8> {
    empty_tensors(200, |i| (format!("{i:03}"), format!("{i:040960}")))
}

const fn shape(name: &'static str, make: fn() -> Vec<u8>, (cache, spill): (u64, u64), want: Want) -> Shape {
    // What checks read is not a request.
    Shape { name, make, cache, spill, work: 64 * MIB, want }
}

pub(crate) const SHAPES: &[Shape] = &[
    shape("ztensor: 134 million row pointers", || rows(1 << 27, 0), (MIB, 0), Want::Right(anything)),
    shape("ztensor: row pointers beyond the values", || rows(1 << 24, 1), (MIB, 0), Want::Refused(Refusal::Corrupt)),
    shape("ztensor: eight million values in a cell", one_cell, (MIB, 256 * MIB), Want::Refused(Refusal::Corrupt)),
    shape("ztensor: the same without room", one_cell, (MIB, 0), Want::Refused(Refusal::NoRoom)),
    shape("ztensor: 200,000 groups in either tree", deep, (16 * MIB, 0), Want::Right(anything)),
    shape("ztensor: long names of layouts", layouts, (16 * MIB, 0), Want::Right(anything)),
    shape("ztensor: as many parts as allowed", || many_parts(4096), (16 * MIB, 0), Want::Right(anything)),
    shape("ztensor: parts of a tensor", || many_parts(100_000), (16 * MIB, 0), Want::Refused(Refusal::TooLarge)),
    shape(
        "ztensor: a manifest larger than the cache",
        || sharded(50_000, |i| (format!("s{i:07}"), 4056)),
        (MIB, 0),
        Want::Refused(Refusal::NoRoom),
    ),
];
