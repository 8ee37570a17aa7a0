//! `fzmfs verify`: computes every checksum and decodes every piece, on all threads, without keeping data.
#![forbid(unsafe_code)]

mod directory;

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::archive::{self, Archive};
use crate::cli::args;
use crate::cli::progress::Progress;
use crate::cli::report::{self, Failure, Outcome};
use crate::error::{Error, Kind};
use crate::source::location::shown;
use crate::text::{self, escaped};

pub(super) fn run(args: &args::Check, out: &mut dyn Write) -> Outcome {
    args.reading.start()?;
    let mut broken = false;
    let mut objects = Vec::new();
    for file in &args.files {
        let directory = reading(&args.reading).unmounted(file, &args.mirroring).map_err(|e| Failure::of(file, &e))?;
        if let Some(directory) = directory {
            broken |= !directory::run(&directory, file, args, out, &mut objects)?;
            continue;
        }
        let verdict = check(file, &args.reading);
        broken |= verdict.error.is_some();
        verdict.print(file, args.json, out, &mut objects)?;
        // A usage error applies to every file, so stop.
        if let Some(error) = verdict.error.filter(|e| matches!(e.kind(), Kind::Usage(_))) {
            return Err(Failure::of(file, &error));
        }
    }
    if args.json {
        writeln!(out, "{}", text::json(&Value::Array(objects))).map_err(|e| report::output(&e))?;
    }
    if broken { Err(Failure::reported()) } else { Ok(()) }
}

/// The result for one file.
pub(super) struct Verdict {
    format: Option<&'static str>,
    checks: u64,
    /// Bytes covered by the checks.
    bytes: u64,
    checksums: Option<u64>,
    pub(super) error: Option<Error>,
    /// Checksums that cannot be verified.
    unverifiable: Vec<String>,
}

impl Verdict {
    /// Prints the line for `file`, or adds its object.
    pub(super) fn print(&self, file: &Path, json: bool, out: &mut dyn Write, objects: &mut Vec<Value>) -> Outcome {
        for what in &self.unverifiable {
            report::report(&Failure::at(file, format!("not verified: {what}")));
        }
        if json {
            objects.push(self.to_json(file));
            return Ok(());
        }
        writeln!(out, "{}", self.line(file)).and_then(|()| out.flush()).map_err(|e| report::output(&e))
    }

    pub(super) fn failed(error: Error) -> Self {
        Self { format: None, checks: 0, bytes: 0, checksums: None, error: Some(error), unverifiable: Vec::new() }
    }

    fn line(&self, file: &Path) -> String {
        let line = match &self.error {
            None => {
                let checksums = match self.checksums {
                    None => String::new(),
                    Some(0) => " (no checksums in this file)".to_owned(),
                    Some(1) => " (1 checksum)".to_owned(),
                    Some(n) => format!(" ({n} checksums)"),
                };
                format!("{}: OK{checksums}", shown(file).display())
            }
            Some(error) => format!("{}: FAILED: {}", shown(file).display(), error.explain()),
        };
        escaped(&line).into_owned()
    }

    fn to_json(&self, file: &Path) -> Value {
        let error = self.error.as_ref().map(|error| {
            json!({
                "message": error.to_string(),
                "kind": error.kind().name(),
                "field": error.what(),
                "offset": error.offset().map(|at| at.0),
            })
        });
        json!({
            "file": shown(file).to_string_lossy(),
            "ok": self.error.is_none(),
            "format": self.format,
            "checks": self.checks,
            "checked_bytes": self.bytes,
            "checksums": self.checksums,
            "not_verified": self.unverifiable,
            "error": error,
        })
    }
}

/// The options for verifying: overrides `verify=`, since every checksum is verified here.
pub(super) fn reading(reading: &args::DecodeArgs) -> args::DecodeArgs {
    args::DecodeArgs { verify: args::VerifyMode::First, ..reading.clone() }
}

fn check(file: &Path, reading: &args::DecodeArgs) -> Verdict {
    let archive = match self::reading(reading).open_named(file) {
        Ok(archive) => archive,
        Err(error) => return Verdict::failed(error),
    };
    let mut bar: Option<Progress> = None;
    let mut seen = 0;
    let verdict = check_archive(&archive, &mut |progress| {
        // The first call reports the total.
        let bar = bar.get_or_insert_with(|| Progress::new(file, progress.total));
        bar.advance(progress.checked - seen);
        seen = progress.checked;
    });
    bar.iter().for_each(Progress::finish);
    verdict
}

/// Verifies one archive.
pub(super) fn check_archive(archive: &Archive, progress: &mut (dyn FnMut(archive::Progress) + Send)) -> Verdict {
    match archive.verify_all(progress) {
        Ok((report, error)) => {
            let unverifiable = archive.container().unverifiable();
            let archive::Report { format, checks, bytes, checksums, .. } = report;
            Verdict { format: Some(format), checks, bytes, checksums, error, unverifiable }
        }
        Err(error) => Verdict::failed(error),
    }
}
