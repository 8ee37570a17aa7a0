//! What containers decode to, as text, to compare builds for two systems: `cargo run --example digests FILE...`.
//!
//! For each file its `info.json`, its virtual files with sizes, targets and digests of their bytes, and what verifying it
//! says. A few hold, or claim to hold, gigabytes or millions of files: of a file from [`HUGE`] bytes on the first [`FIRST`] are
//! read, of a container no more than [`ENTRIES`] files and, but for the last of them, [`MOST`] bytes.
//! Without arguments: an FZM file of the test data.
#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "an example prints what it reads; a String takes all of it"
)]

use std::fmt::Write as _;

use fzmfs::{Archive, Entry, EntryKind, Error, File, Options, Progress};
use rayon::prelude::*;
use xxhash_rust::xxh3::Xxh3;

const HUGE: u64 = 32 << 20;
const FIRST: u64 = 1 << 20;
const MOST: u64 = 32 << 20;
const ENTRIES: usize = 1000;

fn main() {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        files.push(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/fzm/dag_fanout.fzm").to_owned());
    }
    let told: Vec<String> = files.par_iter().map(|file| tell(file)).collect();
    print!("{}", told.concat());
}

fn tell(file: &str) -> String {
    let mut text = format!("{file}\n");
    if let Err(error) = contents(file, &mut text) {
        said(&mut text, &error);
    }
    text
}

fn contents(file: &str, text: &mut String) -> Result<(), Error> {
    let archive = Archive::open(file, &Options::default())?;
    match archive.info() {
        Ok(info) => writeln!(text, "  {}", info.to_json()).expect("a String takes it"),
        Err(error) => said(text, &error),
    }
    let mut read = 0;
    for (n, entry) in archive.walk("")?.enumerate() {
        let entry = entry?;
        if n == ENTRIES {
            text.push_str("  not listed further\n");
            break;
        }
        write!(text, "  {}", entry.path().escape_debug()).expect("a String takes it");
        match described(&entry, &mut read) {
            Ok(what) => writeln!(text, " {what}").expect("a String takes it"),
            Err(error) => said(text, &error),
        }
    }
    let within = |progress: Progress| progress.total.unwrap_or(0) < HUGE && progress.checked < HUGE;
    match archive.verify_while(within) {
        Ok(None) => writeln!(text, "  not verified further").expect("a String takes it"),
        Ok(Some(report)) => {
            writeln!(text, "  verified {} bytes in {} checks", report.bytes, report.checks).expect("a String takes it");
        }
        Err(error) => said(text, &error),
    }
    Ok(())
}

fn described(entry: &Entry, read: &mut u64) -> Result<String, Error> {
    Ok(match entry.kind() {
        EntryKind::File if *read < MOST => bytes(&entry.open()?, read),
        EntryKind::File => format!("{:?}", entry.size()),
        EntryKind::Link => format!("-> {:?}", entry.target()),
        EntryKind::Directory => "/".to_owned(),
    })
}

/// Goes on after an error, at the next block, until it is clear that the rest is no better.
fn bytes(file: &File, read: &mut u64) -> String {
    const BLOCK: u64 = 1 << 20;
    const ERRORS: usize = 8;
    let (mut hash, mut buffer, mut errors) = (Xxh3::new(), vec![0; BLOCK as usize], String::new());
    let (mut at, mut failed) = (0, 0);
    let end = if file.len() < HUGE { file.len() } else { FIRST };
    while at < end && failed < ERRORS {
        let len = BLOCK.min(end - at) as usize;
        match file.read_exact_at(at, &mut buffer[..len]) {
            Ok(()) => hash.update(&buffer[..len]),
            Err(error) => {
                failed += 1;
                write!(errors, "\n    at {at}").expect("a String takes it");
                said(&mut errors, &error);
            }
        }
        at += BLOCK;
        *read += len as u64;
    }
    format!("{} {:032x}{}", file.len(), hash.digest128(), errors.trim_end())
}

fn said(text: &mut String, error: &Error) {
    writeln!(text, "  {:?}: {error}; field {}, byte {:?}", error.kind(), error.what(), error.offset())
        .expect("a String takes it");
}
