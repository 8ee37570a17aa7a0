//! `fzmfs verify` of a directory: all containers below it, with one progress bar and a summary.
//!
//! Small containers are verified several at a time, each by one thread, with one account for all; any other alone, by
//! all threads. Output is in the order of the tree.
#![forbid(unsafe_code)]

use std::io::Write;
use std::iter;
use std::path::Path;

use serde_json::Value;

use super::{Verdict, check_archive, reading};
use crate::account::Account;
use crate::archive::{self, Directory, Node, NodeKind, Unopened};
use crate::cli::args;
use crate::cli::progress::Progress;
use crate::cli::report::{self, Failure, Outcome};
use crate::error::{Error, Kind};
use crate::mirror::FAR;
use crate::parallel;
use crate::platform::FileType;
use crate::text::escaped;

/// Stored bytes of a small container.
const SMALL: u64 = 4 << 20;
/// Decoded bytes of a small container.
const SMALL_DECODED: u64 = 16 * SMALL;

/// Verifies all containers of the directory `dir`; returns whether all are intact.
///
/// # Errors
/// Fails if standard output cannot be written to.
pub(super) fn run(
    directory: &Directory,
    dir: &Path,
    args: &args::Check,
    out: &mut dyn Write,
    objects: &mut Vec<Value>,
) -> Result<bool, Failure> {
    let containers = || directory.walk(Path::new("")).filter(|place| place.as_ref().map_or(true, Node::is_container));
    // The bar counts stored bytes, which are known without opening anything.
    let bar = Progress::new(dir, Some(containers().flatten().map(|place| size(&place)).sum()));
    let reading = reading(&args.reading);
    let threads = reading.options().thread_count();
    let at_once = if directory.is_far() { threads.max(FAR) } else { threads };
    let small = Small::new(directory, &reading);
    let (mut intact, mut broken, mut bare) = (0_u64, 0_u64, 0_u64);
    let mut print = |place: &Node, verdict: &Verdict| -> Outcome {
        *if verdict.error.is_none() { &mut intact } else { &mut broken } += 1;
        bare += u64::from(verdict.error.is_none() && verdict.checksums == Some(0));
        bar.suspended(|| verdict.print(&dir.join(&place.shown), args.json, out, objects))
    };
    let mut unread = 0_u64;
    let mut places = containers().peekable();
    while places.peek().is_some() {
        let row = iter::from_fn(|| places.next_if(|place| place.as_ref().is_ok_and(is_small))).flatten();
        let checked = |place: Node| {
            let verdict = small.check(&place);
            (place, verdict)
        };
        parallel::in_order(at_once, row, checked, |(place, verdict)| {
            let verdict = match verdict {
                Some(verdict) => {
                    bar.advance(size(&place));
                    verdict
                }
                None => alone(directory, &place, &bar),
            };
            print(&place, &verdict)
        })?;
        match places.next() {
            Some(Ok(place)) => print(&place, &alone(directory, &place, &bar))?,
            Some(Err(e)) => {
                unread += 1;
                bar.suspended(|| report::report(&Failure::of(dir, &e)));
            }
            None => {}
        }
    }
    bar.finish();
    let broken = broken + unread;
    if !args.json {
        let bare = match bare {
            0 => String::new(),
            1 => "; 1 has no checksums, so that damage may not show".to_owned(),
            bare => format!("; {bare} have no checksums, so that damage may not show"),
        };
        let line = format!("{}: {intact} OK, {broken} FAILED{bare}", dir.display());
        writeln!(out, "{}", escaped(&line)).map_err(|e| report::output(&e))?;
    }
    Ok(broken == 0)
}

/// Whether a container may be small; a directory says nothing of its size.
fn is_small(place: &Node) -> bool {
    place.seen.kind == FileType::RegularFile && place.seen.size <= SMALL
}

/// The stored size.
fn size(place: &Node) -> u64 {
    match place.kind {
        NodeKind::Container(_) => place.seen.size,
        NodeKind::Dir | NodeKind::File | NodeKind::Other => 0,
    }
}

/// Verifies one container by all threads.
fn alone(directory: &Directory, place: &Node, bar: &Progress) -> Verdict {
    let all = size(place);
    let mut shown = 0;
    let mut show = |progress: archive::Progress| {
        let part =
            progress.total.filter(|&total| total > 0).map_or(0.0, |total| progress.checked as f64 / total as f64);
        let now = ((all as f64 * part) as u64).clamp(shown, all);
        bar.advance(now - shown);
        shown = now;
    };
    let verdict = match directory.open_container(place) {
        Ok(archive) => check_archive(&archive, &mut show),
        Err(error) => Verdict::failed(error),
    };
    bar.advance(all - shown);
    verdict
}

/// Settings for verifying small containers.
struct Small<'a> {
    directory: &'a Directory,
    reading: args::DecodeArgs,
    account: Account,
}

impl<'a> Small<'a> {
    fn new(directory: &'a Directory, reading: &args::DecodeArgs) -> Self {
        let account = reading.options().account();
        // With its own disk space each would be parsed twice, to keep its decoded bytes.
        let reading = args::DecodeArgs { threads: Some(1), spill: None, ..reading.clone() };
        Self { directory, reading, account }
    }

    /// Verifies one container by this thread; `None` if it is to be verified alone: it is not small, or there is too
    /// little memory left.
    fn check(&self, place: &Node) -> Option<Verdict> {
        let wants_more = |error: &Error| matches!(error.kind(), Kind::NoRoom { .. } | Kind::TooLarge { .. });
        let found = self.directory.find_alone(place, &self.reading.options(), self.account.clone());
        let verdict = match found.and_then(Unopened::open) {
            Ok(archive) if archive.info().ok()?.decoded_size.is_some_and(|size| size > SMALL_DECODED) => return None,
            Ok(archive) => check_archive(&archive, &mut |_| {}),
            Err(error) => Verdict::failed(error),
        };
        (!verdict.error.as_ref().is_some_and(wants_more)).then_some(verdict)
    }
}
