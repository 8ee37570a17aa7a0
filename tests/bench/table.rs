//! The table that a benchmark prints: a row for each figure, with its limit or rival, their ratio, and the aim.
//!
//! With `FZMFS_BENCH_TABLE=FILE` each row is also appended to FILE, its fields separated by tabs: `scripts/bench
//! figures` makes the table of FIGURES.md from it.
#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::fs::File;
use std::io::Write;

/// Prints the heading.
pub(crate) fn heading() {
    println!("{:<62} {:>14} {:>14} {:>8}  aim", "what", "measured", "against", "ratio");
}

/// A row: what was measured, what it is compared with, and what their ratio should be.
pub(crate) fn row(what: &str, measured: f64, against: f64, unit: &str, aim: &str) {
    row_of_rounds(what, measured, against, measured / against, unit, aim);
}

/// A row with the median of the ratios of the rounds.
pub(crate) fn row_of_rounds(what: &str, measured: f64, against: f64, ratio: f64, unit: &str, aim: &str) {
    let places = if measured.max(against) < 100.0 { 2 } else { 0 };
    let text = |value: f64| format!("{value:.places$} {unit}");
    fields([
        what,
        &text(measured),
        &text(against),
        &if ratio.is_nan() { String::new() } else { format!("{ratio:.2}") },
        aim,
    ]);
}

/// A row without anything to compare with.
pub(crate) fn figure(what: &str, measured: &str, aim: &str) {
    fields([what, measured, "", "", aim]);
}

/// A number of threads in words.
pub(crate) fn threads(count: usize) -> String {
    if count == 1 { "1 thread".into() } else { format!("{count} threads") }
}

fn fields([what, measured, against, ratio, aim]: [&str; 5]) {
    println!("{what:<62} {measured:>14} {against:>14} {ratio:>8}  {aim}");
    if let Some(path) = std::env::var_os("FZMFS_BENCH_TABLE") {
        let file = File::options().create(true).append(true).open(path);
        file.and_then(|mut file| writeln!(file, "{what}\t{measured}\t{against}\t{ratio}\t{aim}")).unwrap();
    }
}
