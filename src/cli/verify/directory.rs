//! `fzmfs verify` of a directory: all containers below it, with one progress bar and a summary.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::Path;

use serde_json::Value;

use super::{Verdict, check_archive, reading};
use crate::archive;
use crate::cli::args;
use crate::cli::mirrored::{Mirrored, Place, What};
use crate::cli::progress::Progress;
use crate::cli::report::{self, Failure};
use crate::text::escaped;

/// Verifies all containers of the directory `dir`; returns whether all are intact.
///
/// # Errors
/// Fails if standard output cannot be written to.
pub(super) fn run(
    mirrored: &Mirrored,
    dir: &Path,
    args: &args::Check,
    out: &mut dyn Write,
    objects: &mut Vec<Value>,
) -> Result<bool, Failure> {
    let containers = || mirrored.walk(Path::new("")).filter(|place| place.as_ref().map_or(true, Place::is_container));
    // The bar counts stored bytes, which are known without opening anything.
    let bar = Progress::new(dir, Some(containers().flatten().map(|place| size(&place)).sum()));
    let reading = reading(&args.reading);
    let (mut intact, mut broken) = (0_u64, 0_u64);
    for place in containers() {
        let place = match place {
            Ok(place) => place,
            Err(e) => {
                broken += 1;
                bar.suspended(|| report::report(&Failure::of(dir, &e)));
                continue;
            }
        };
        let all = size(&place);
        let mut shown = 0;
        let mut show = |progress: archive::Progress| {
            let part =
                progress.total.filter(|&total| total > 0).map_or(0.0, |total| progress.checked as f64 / total as f64);
            let now = ((all as f64 * part) as u64).clamp(shown, all);
            bar.advance(now - shown);
            shown = now;
        };
        let verdict = match mirrored.open(&place.file, &reading) {
            Ok(archive) => check_archive(&archive, &mut show),
            Err(error) => Verdict::failed(error),
        };
        bar.advance(all - shown);
        if verdict.error.is_some() {
            broken += 1;
        } else {
            intact += 1;
        }
        bar.suspended(|| verdict.print(&dir.join(&place.shown), args.json, out, objects))?;
    }
    bar.finish();
    if !args.json {
        let line = format!("{}: {intact} OK, {broken} FAILED", dir.display());
        writeln!(out, "{}", escaped(&line)).map_err(|e| report::output(&e))?;
    }
    Ok(broken == 0)
}

/// The stored size.
fn size(place: &Place) -> u64 {
    match place.what {
        What::Container(_) => place.seen.size,
        What::Dir | What::File | What::Other => 0,
    }
}
