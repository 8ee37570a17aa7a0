//! Synthetic arrays: smooth fields with a little noise, the same for the same seed on every machine.

use rayon::prelude::*;

use crate::Random;
use crate::dtype::Dtype;
use crate::elements::{Real, store};

/// Elements that one task makes.
const TASK: usize = 1 << 14;

/// One plane wave: its amplitude, and its phase per step along x, y and z.
struct Wave {
    amplitude: f64,
    steps: [f64; 3],
    phase: f64,
}

/// A field of `shape` (slowest first) with values from about -100 to 100, plus noise up to `noise`.
/// Integers get the same field over a fitting part of their range.
pub fn smooth(dtype: Dtype, shape: &[u32], noise: f64, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut extents = [1_usize; 3];
    for (extent, &n) in extents.iter_mut().zip(shape.iter().rev()) {
        *extent = n as usize;
    }
    let waves: Vec<Wave> = [40.0, 30.0, 20.0, 10.0]
        .into_iter()
        .enumerate()
        .map(|(k, amplitude)| Wave {
            amplitude,
            // A long array has many waves, of at least some hundred elements.
            steps: extents.map(|n| {
                let cycles = (1.0 + random.unit() * 2.0) * (k + 1) as f64;
                std::f64::consts::TAU * cycles / (n as f64).clamp(64.0, 4096.0)
            }),
            phase: random.unit() * std::f64::consts::TAU,
        })
        .collect();
    let size = dtype.size();
    let total = shape.iter().map(|&n| n as usize).product::<usize>();
    let mut out = vec![0; total * size];
    out.par_chunks_mut(TASK * size).enumerate().for_each(|(task, out)| {
        let mut random = Random::new(seed ^ (task as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93));
        let mut at = task * TASK;
        let mut rest = out;
        while !rest.is_empty() {
            let x = at % extents[0];
            let run = (extents[0] - x).min(rest.len() / size);
            let (row, tail) = rest.split_at_mut(run * size);
            fill(
                row,
                dtype,
                &waves,
                [x, at / extents[0] % extents[1], at / extents[0] / extents[1]],
                noise,
                &mut random,
            );
            (at, rest) = (at + run, tail);
        }
    });
    out
}

/// A part of a row, from the element at `xyz` on.
fn fill(row: &mut [u8], dtype: Dtype, waves: &[Wave], xyz: [usize; 3], noise: f64, random: &mut Random) {
    // Sine and cosine at the start, then one rotation per element.
    let mut turning: Vec<[f64; 4]> = waves
        .iter()
        .map(|w| {
            let angle = w.phase + w.steps.iter().zip(xyz).map(|(step, k)| step * k as f64).sum::<f64>();
            [w.amplitude * angle.sin(), w.amplitude * angle.cos(), w.steps[0].sin(), w.steps[0].cos()]
        })
        .collect();
    let size = dtype.size();
    for slot in row.chunks_exact_mut(size) {
        let mut value = 0.0;
        for [sin, cos, step_sin, step_cos] in &mut turning {
            value += *sin;
            (*sin, *cos) = (*sin * *step_cos + *cos * *step_sin, *cos * *step_cos - *sin * *step_sin);
        }
        if noise > 0.0 {
            value += noise * (2.0 * random.unit() - 1.0);
        }
        match dtype {
            Dtype::F32 | Dtype::F64 => Real::of(dtype).store(slot, value),
            // Small integers use their range; an unsigned one has no room below 0.
            Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => store(slot, size, value as i64 as u64),
            _ => store(slot, size, (value + 120.0).clamp(0.0, 255.0) as u64),
        }
    }
}
