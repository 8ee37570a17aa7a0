//! What reading costs: FZM in memory, through the mount and at random, each against its limit; Zstandard, Blosc2 and
//! zTensor against the official programs.
//!
//! `scripts/bench [FILTER]`. Sides are measured in turn, several rounds, and medians compared: machines are
//! noisy, ratios are not. `FZMFS_BENCH_MIB` sets the size of the arrays (256), `FZMFS_BENCH_ROUNDS` the rounds (5).
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints, and stops at the first error"
)]

mod blosc2;
mod cache;
mod commands;
mod decode;
mod first;
mod frames;
mod memory_tree;
mod mount;
mod once;
mod passthrough;
mod presets;
mod random;
mod ratarmount;
mod rivals;
mod scaling;
mod tensors;
mod trivial_names;
mod walks;
mod zarr;

#[path = "../official.rs"]
mod official;
#[path = "../table.rs"]
mod table;

use std::time::{Duration, Instant};

use table::{figure, row};

fn main() {
    // What the benchmark starts in a process of its own is this program, too.
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [command @ ("passthrough" | "memory"), at, len, file, point] => {
            let from = if command == "memory" { passthrough::From::Memory } else { passthrough::From::File };
            return passthrough::serve(from, file.as_ref(), at.parse().unwrap(), len.parse().unwrap(), point.as_ref());
        }
        [memory_tree::COMMAND, directory, point] => return memory_tree::serve(directory.as_ref(), point.as_ref()),
        ["names", count, point] => return trivial_names::serve(count.parse().unwrap(), point.as_ref()),
        ["once", _, ..] => return once::measure(&args[1..]),
        ["rate", file] => return decode::answer(file.as_ref()),
        _ => {}
    }
    // Cargo passes options of its own; the first plain word is a filter.
    let filter = args.into_iter().find(|arg| !arg.starts_with('-')).unwrap_or_default();
    table::heading();
    let sections: [(&str, fn()); 14] = [
        ("decode", decode::run),
        ("presets", presets::run),
        ("random", random::run),
        ("cache", cache::run),
        ("mount", mount::run),
        ("frames", frames::run),
        ("first", first::run),
        ("ratarmount", ratarmount::run),
        ("commands", commands::run),
        ("scaling", scaling::run),
        ("arrays", blosc2::run),
        ("tensors", tensors::run),
        ("walks", walks::run),
        ("zarr", zarr::run),
    ];
    for (name, run) in sections {
        if name.contains(&filter) {
            run();
        }
    }
}

/// A number from the environment.
fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Bytes of the arrays.
fn size() -> usize {
    setting("FZMFS_BENCH_MIB", 256) << 20
}

fn rounds() -> usize {
    setting("FZMFS_BENCH_ROUNDS", 5)
}

fn time<T>(run: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    std::hint::black_box(run());
    start.elapsed()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The median and the 99th percentile.
fn median_and_late(values: &mut [f64]) -> (f64, f64) {
    let middle = median(values);
    (middle, values.get(values.len() * 99 / 100).copied().unwrap_or(f64::NAN))
}

/// Runs every side once a round; gives the median seconds of each.
fn interleaved<const N: usize>(mut sides: [&mut dyn FnMut() -> Duration; N]) -> [f64; N] {
    let mut seconds: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
    for _ in 0..rounds() {
        for (side, seconds) in sides.iter_mut().zip(&mut seconds) {
            seconds.push(side().as_secs_f64());
        }
    }
    seconds.map(|mut values| median(&mut values))
}

fn rate(bytes: usize, seconds: f64) -> f64 {
    bytes as f64 / seconds / 1e9
}
