//! `fzmfs verify`: computes every checksum and decodes every piece, on all threads, without keeping data.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::args;
use super::progress::Progress;
use super::report::{self, Failure, Outcome};
use crate::error::{Error, Kind};
use crate::text::{self, escaped};

pub(super) fn run(args: &args::Check, out: &mut dyn Write) -> Outcome {
    args.reading.start()?;
    let mut broken = false;
    let mut objects = Vec::new();
    for file in &args.files {
        let verdict = check(file, &args.reading);
        broken |= verdict.error.is_some();
        for what in &verdict.unverifiable {
            report::report(&Failure::at(file, format!("not verified: {what}")));
        }
        if args.json {
            objects.push(verdict.to_json(file));
        } else {
            writeln!(out, "{}", verdict.line(file)).and_then(|()| out.flush()).map_err(|e| report::output(&e))?;
        }
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
struct Verdict {
    format: Option<&'static str>,
    checks: u64,
    /// Bytes covered by the checks.
    bytes: u64,
    error: Option<Error>,
    /// Checksums that cannot be verified.
    unverifiable: Vec<String>,
}

impl Verdict {
    fn failed(error: Error) -> Self {
        Self { format: None, checks: 0, bytes: 0, error: Some(error), unverifiable: Vec::new() }
    }

    fn line(&self, file: &Path) -> String {
        let line = match &self.error {
            None => format!("{}: OK", file.display()),
            Some(error) => format!("{}: FAILED: {}", file.display(), error.explain()),
        };
        escaped(&line).into_owned()
    }

    fn to_json(&self, file: &Path) -> Value {
        let error = self.error.as_ref().map(|error| {
            json!({
                "message": error.to_string(),
                "field": error.what(),
                "offset": error.offset().map(|at| at.0),
            })
        });
        json!({
            "file": file.to_string_lossy(),
            "ok": self.error.is_none(),
            "format": self.format,
            "checks": self.checks,
            "checked_bytes": self.bytes,
            "not_verified": self.unverifiable,
            "error": error,
        })
    }
}

fn check(file: &Path, reading: &args::DecodeArgs) -> Verdict {
    // Overrides `verify=`: every checksum is verified here.
    let reading = &args::DecodeArgs { verify: args::VerifyMode::First, ..reading.clone() };
    let archive = match reading.open(file) {
        Ok(archive) => archive,
        Err(error) => return Verdict::failed(error),
    };
    let mut bar: Option<Progress> = None;
    let mut seen = 0;
    let verified = archive.verify_all(&mut |progress| {
        // The first call reports the total.
        let bar = bar.get_or_insert_with(|| Progress::new(file, progress.total));
        bar.advance(progress.checked - seen);
        seen = progress.checked;
    });
    bar.iter().for_each(Progress::finish);
    match verified {
        Ok((report, error)) => {
            let unverifiable = archive.container().unverifiable();
            Verdict { format: Some(report.format), checks: report.checks, bytes: report.bytes, error, unverifiable }
        }
        Err(error) => Verdict::failed(error),
    }
}
