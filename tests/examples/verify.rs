//! Verifies files and says how far it is: `cargo run --example verify FILE...`.
//!
//! Without arguments: an FZM file of the test data.
#![allow(clippy::print_stdout, reason = "an example prints what it does")]

use std::process::ExitCode;

use fzmfs::{Archive, Error, Options, Progress, Report};

fn main() -> ExitCode {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        files.push(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/fzm/dag_fanout.fzm").to_owned());
    }
    let mut code = ExitCode::SUCCESS;
    for file in files {
        match verify(&file) {
            Ok(report) => println!("{file}: OK, {} bytes in {} checks", report.bytes, report.checks),
            Err(error) => {
                // The parts of an error are there for programs; printed, it has them all.
                println!("{file}: {error}; field {}, byte {:?}", error.what(), error.offset());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn verify(file: &str) -> Result<Report, Error> {
    let archive = Archive::open(file, &Options::default())?;
    let mut tenth = 0;
    archive.verify(|Progress { checked, total, .. }| {
        let Some(total) = total.filter(|&total| total > 0) else { return };
        if checked * 10 / total > tenth {
            tenth = checked * 10 / total;
            println!("{file}: {} %", tenth * 10);
        }
    })
}
