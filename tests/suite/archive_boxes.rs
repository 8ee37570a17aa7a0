//! Boxes and steps of arrays, through the library: what they give, and what they decode.

use std::sync::OnceLock;

use fzmfs::{Archive, Array, Device, ErrorKind, Options, Steps};
use proptest::prelude::*;

use crate::support::opened::data;

fn array(name: &str, path: &str) -> Array {
    let archive = Archive::open(data(name), &Options::new().device(Device::Cpu).threads(2)).unwrap();
    archive.file(path).unwrap().array().unwrap_or_else(|| panic!("{name} {path}"))
}

/// Arrays in blocks, in one blob, stored as they are; after a header; without elements, without dimensions.
fn arrays() -> &'static [(Array, Vec<u8>)] {
    static ARRAYS: OnceLock<Vec<(Array, Vec<u8>)>> = OnceLock::new();
    ARRAYS.get_or_init(|| {
        let names = [
            ("blosc2/n05_5d_f4.b2nd", "data.raw"),
            ("blosc2/n05_5d_f4.b2nd", "data.npy"),
            ("blosc2/o271_nd_3d_f8.b2nd", "data.raw"),
            ("blosc2/n14_wide_item_300.b2nd", "data.raw"),
            ("blosc2/n16_16dim.b2nd", "data.raw"),
            ("blosc2/n07_zero_first.b2nd", "data.raw"),
            ("blosc2/n06_0d.b2nd", "data.raw"),
            ("fzm/lor2d_wide.fzm", "data.raw"),
            ("ztensor/v12-all-dtypes.zt", "tensors/t.f32.raw"),
        ];
        let of = |(name, path)| {
            let array = array(name, path);
            let bytes = array.read(0..array.len()).unwrap();
            (array, bytes)
        };
        names.map(of).into()
    })
}

/// The chosen elements, one by one.
fn gathered(array: &Array, bytes: &[u8], steps: &[Steps]) -> Vec<u8> {
    let size = array.itemsize() as usize;
    let count: u64 = steps.iter().map(|steps| steps.count).product();
    let mut out = Vec::new();
    for number in 0..count {
        let (mut rest, mut at, mut stride) = (number, 0, 1);
        for (steps, len) in steps.iter().zip(array.shape()).rev() {
            at += (steps.start + rest % steps.count * steps.step) * stride;
            rest /= steps.count;
            stride *= len;
        }
        out.extend_from_slice(&bytes[at as usize * size..][..size]);
    }
    out
}

fn read(array: &Array, steps: &[Steps]) -> fzmfs::Result<Vec<u8>> {
    let count: u64 = steps.iter().map(|steps| steps.count).product();
    let mut buffer = vec![0xA5; (count * array.itemsize()) as usize];
    array.read_steps(steps, &mut buffer).map(|()| buffer)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn steps_choose_what_a_naive_gather_does(
        which in 0_usize..9,
        dims in prop::collection::vec((0.0..1.0_f64, 0.0..1.0_f64, 0.0..1.0_f64), 16),
    ) {
        let (array, bytes) = &arrays()[which];
        let choose = |(&len, &(start, count, step)): (&u64, &(f64, f64, f64))| {
            let of = |f: f64, n: u64| (f * n as f64) as u64;
            let start = of(start, len);
            let left = len - start;
            let step = 1 + of(step * step, left);
            Steps { start, step, count: of(count * 1.3, left.div_ceil(step) + 1).min(left.div_ceil(step)) }
        };
        let steps: Vec<Steps> = array.shape().iter().zip(&dims).map(choose).collect();
        prop_assert!(read(array, &steps).unwrap() == gathered(array, bytes, &steps), "{:?} {:?}", array.shape(), steps);
    }
}

#[test]
fn whole_arrays_are_boxes() {
    for (array, bytes) in arrays() {
        let steps: Vec<Steps> = array.shape().iter().map(|&count| Steps { start: 0, count, step: 1 }).collect();
        assert!(read(array, &steps).unwrap() == *bytes, "{array:?}");
        let chunks = array.chunks();
        assert!(chunks.len() == steps.len() && chunks.iter().all(|&n| n > 0), "{array:?}: {chunks:?}");
    }
}

#[test]
fn steps_that_leave_the_array_are_errors() {
    let (array, _) = &arrays()[0];
    let all = Steps { start: 0, count: 1, step: 1 };
    let wrong = [
        Steps { start: 5, count: 1, step: 1 },
        Steps { start: 0, count: 6, step: 1 },
        Steps { start: 1, count: 3, step: 2 },
        Steps { start: u64::MAX, count: 1, step: 1 },
        Steps { start: 0, count: 1, step: 0 },
    ];
    for first in wrong {
        let error = read(array, &[first, all, all, all, all]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Usage(_)), "{first:?}: {error}");
    }
    assert!(read(array, &[all; 4]).is_err() && read(array, &[all; 6]).is_err());
    assert!(array.read_steps(&[all; 5], &mut [0; 5]).is_err());
}
