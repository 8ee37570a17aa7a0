//! `fzmfs verify`: every checksum computed and every piece decoded, on all cores, keeping nothing.
#![forbid(unsafe_code)]

use std::io::Write;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde_json::{Value, json};

use super::args;
use super::open::Opened;
use super::progress::Progress;
use super::report::{Failure, Outcome};
use crate::bytes::{narrow, wide};
use crate::error::{Error, Kind, Result};
use crate::format::{BlobRef, Check, Layout};
use crate::limits::zeroed;
use crate::text::{self, escaped};

/// Decoded bytes that one worker takes on at a time, so that small pieces come in batches.
const BATCH: u64 = 1 << 20;

pub(super) fn run(args: &args::Check, out: &mut dyn Write) -> Outcome {
    args.reading.start()?;
    let mut broken = false;
    let mut objects = Vec::new();
    for file in &args.files {
        let verdict = check(file, &args.reading);
        broken |= verdict.error.is_some();
        if args.json {
            objects.push(verdict.to_json(file));
        } else {
            writeln!(out, "{}", verdict.line(file)).and_then(|()| out.flush()).map_err(|e| Failure::output(&e))?;
        }
        // A wrong option is wrong for every file, and is no verdict on any.
        if let Some(error) = verdict.error.filter(|e| matches!(e.kind(), Kind::Usage(_))) {
            return Err(Failure::of(file, &error));
        }
    }
    if args.json {
        writeln!(out, "{}", text::json(&Value::Array(objects))).map_err(|e| Failure::output(&e))?;
    }
    if broken { Err(Failure::reported()) } else { Ok(()) }
}

/// What came of one file.
struct Verdict {
    format: Option<&'static str>,
    checks: u64,
    /// Gone over by the checks.
    bytes: u64,
    error: Option<Error>,
}

impl Verdict {
    fn line(&self, file: &Path) -> String {
        let line = match &self.error {
            None => format!("{}: OK", file.display()),
            Some(error) => format!("{}: FAILED: {error}", file.display()),
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
            "error": error,
        })
    }
}

fn check(file: &Path, reading: &args::Reading) -> Verdict {
    // For who reads, a checksum may come late or never; here it is what was asked for.
    let reading = &args::Reading { verify: args::When::First, ..reading.clone() };
    let opened = match Opened::open(file, reading) {
        Ok(opened) => opened,
        Err(error) => return Verdict { format: None, checks: 0, bytes: 0, error: Some(error) },
    };
    let info = opened.container.info();
    let checks = opened.container.checks();
    let progress = Progress::new(file, extent(&checks, info.decoded_size.is_some()));
    let queue = Mutex::new(Queue { next: tasks(&checks, &progress), bytes: 0, error: None });
    thread::scope(|scope| {
        // Threads of our own, not the pool's: a decode may wait at a gate whose check the pool runs.
        for _ in 1..reading.threads() {
            // With fewer threads than asked for it only takes longer.
            drop(thread::Builder::new().spawn_scoped(scope, || work(&queue, &progress)));
        }
        work(&queue, &progress);
    });
    let queue = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
    let error = queue.error.map(|(_, error)| error).or(opened.holds().err());
    progress.finish();
    Verdict { format: Some(info.format), checks: wide(checks.len()), bytes: queue.bytes, error }
}

/// The bytes that `checks` go over, all together; `None` where finding out could mean to decode, as it may where
/// the container does not say its sizes.
fn extent(checks: &[Check], sized: bool) -> Option<u64> {
    checks.iter().try_fold(0_u64, |sum, check| match check {
        Check::Run { bytes, .. } => Some(sum.saturating_add(*bytes)),
        // One that has no layout is broken, and is not gone over.
        Check::Decode { blob, .. } => sized.then(|| sum.saturating_add(blob.layout().map_or(0, |layout| layout.len()))),
    })
}

/// Something that one worker does at a time.
enum Task<'a> {
    /// Decode these pieces.
    Decode { name: &'a str, blob: &'a BlobRef, layout: Layout, pieces: Range<u64> },
    /// Run a check of the container's own.
    Run { check: &'a Check },
    /// The container does not even say what there is to decode.
    Broken { name: &'a str, error: Error },
}

/// The tasks that are left, and the error that came first in their order.
struct Queue<'a> {
    next: Box<dyn Iterator<Item = (u64, Task<'a>)> + Send + 'a>,
    bytes: u64,
    error: Option<(u64, Error)>,
}

/// The tasks of all checks, in order, each made when it is taken.
fn tasks<'a>(checks: &'a [Check], progress: &'a Progress) -> Box<dyn Iterator<Item = (u64, Task<'a>)> + Send + 'a> {
    let tasks = checks.iter().flat_map(move |check| -> Box<dyn Iterator<Item = Task<'a>> + Send> {
        match check {
            Check::Run { .. } => Box::new(std::iter::once(Task::Run { check })),
            Check::Decode { name, blob } => match blob.layout() {
                Ok(layout) => {
                    progress.expect(layout.len());
                    Box::new(
                        Batches { layout, together: || blob.batch(), next: 0 }
                            .map(move |(layout, pieces)| Task::Decode { name, blob, layout, pieces }),
                    )
                }
                Err(error) => Box::new(std::iter::once(Task::Broken { name, error })),
            },
        }
    });
    Box::new((0..).zip(tasks))
}

/// The pieces of a layout in runs of about [`BATCH`] decoded bytes, or as many as decode in one go.
struct Batches<F> {
    layout: Layout,
    together: F,
    next: u64,
}

impl<F: Fn() -> u64> Iterator for Batches<F> {
    type Item = (Layout, Range<u64>);

    fn next(&mut self) -> Option<Self::Item> {
        let (first, count) = (self.next, self.layout.count());
        if first >= count {
            return None;
        }
        let start = self.layout.range(first).start;
        self.next = first.saturating_add((self.together)().max(1)).min(count);
        while self.next < count && self.layout.range(self.next).end - start <= BATCH {
            self.next += 1;
        }
        Some((self.layout.clone(), first..self.next))
    }
}

/// Takes tasks until there are none, or an error was found.
fn work(queue: &Mutex<Queue<'_>>, progress: &Progress) {
    let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    let mut buffer = Vec::new();
    // The task taken last, for the error of one that panics.
    let mut order = u64::MAX;
    loop {
        let step = panic::catch_unwind(AssertUnwindSafe(|| {
            let task;
            (order, task) = lock().take()?;
            Some(task.run(&mut buffer, progress))
        }));
        let failed =
            || Err(Error::corrupt("the decoder failed on it, which is a bug of fzmfs; please report it", "file"));
        let Some(done) = step.unwrap_or_else(|_| Some(failed())) else { return };
        let mut queue = lock();
        match done {
            Ok(bytes) => queue.bytes += bytes,
            Err(error) => queue.fail(order, error),
        }
    }
}

impl<'a> Queue<'a> {
    /// The next task; none after an error.
    fn take(&mut self) -> Option<(u64, Task<'a>)> {
        if self.error.is_some() { None } else { self.next.next() }
    }

    /// Keeps the error that comes first in the order of the tasks: all before it were taken, and will be done.
    fn fail(&mut self, order: u64, error: Error) {
        if self.error.as_ref().is_none_or(|(first, _)| order < *first) {
            self.error = Some((order, error));
        }
    }
}

impl Task<'_> {
    /// Does it; the bytes that it went over, decoded or, for a checksum over them, stored.
    fn run(self, buffer: &mut Vec<u8>, progress: &Progress) -> Result<u64> {
        match self {
            Self::Broken { name, error } => Err(error.within(name)),
            Self::Run { check } => {
                let Check::Run { name, bytes, run } = check else { return Ok(0) };
                run().map_err(|e| e.within(name))?;
                progress.advance(*bytes);
                Ok(*bytes)
            }
            Self::Decode { name, blob, layout, pieces } => {
                let end = pieces.end;
                let mut bytes = 0;
                let mut first = pieces.start;
                while first < end {
                    let row = first..end.min(first.saturating_add(blob.batch().max(1)));
                    let len = decode(blob, &layout, row.clone(), buffer).map_err(|e| e.within(name))?;
                    bytes += len;
                    progress.advance(len);
                    first = row.end;
                }
                Ok(bytes)
            }
        }
    }
}

/// Decodes pieces in a row and lets go of them; their bytes. The error is that of the first one that is broken.
fn decode(blob: &BlobRef, layout: &Layout, row: Range<u64>, buffer: &mut Vec<u8>) -> Result<u64> {
    let len = |piece| {
        let range = layout.range(piece);
        range.end.saturating_sub(range.start)
    };
    let all = row.clone().map(len).fold(0, u64::saturating_add);
    if buffer.len() < narrow(all, "piece")? {
        *buffer = zeroed(all, "piece")?;
    }
    let mut rest = buffer.as_mut_slice();
    let mut pieces = Vec::new();
    for piece in row.clone() {
        let split = std::mem::take(&mut rest).split_at_mut_checked(narrow(len(piece), "piece")?);
        let (head, tail) = split.unwrap_or_default();
        pieces.push(head);
        rest = tail;
    }
    match pieces.as_mut_slice() {
        [piece] => blob.decode(row.start, piece),
        // What is wrong, and in which of them, is for a single one to say.
        pieces => blob
            .decode_many(row.start, pieces)
            .or_else(|_| row.zip(pieces).try_for_each(|(piece, dst)| blob.decode(piece, dst))),
    }?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_take_every_piece_once_and_small_ones_together() {
        for (len, piece, want) in [(0, 4, 0), (10, BATCH, 1), (3 * BATCH, BATCH, 3)] {
            let batches = Batches { layout: Layout::Uniform { len, piece }, together: || 1, next: 0 };
            let got: Vec<_> = batches.map(|(_, pieces)| (pieces.start, pieces.end)).collect();
            assert_eq!(got, (0..want).map(|n| (n, n + 1)).collect::<Vec<_>>());
        }
        let many: Vec<_> =
            Batches { layout: Layout::Uniform { len: 2 * BATCH + 1, piece: 16 }, together: || 1, next: 0 }.collect();
        let (each, ends): (u64, Vec<u64>) = (BATCH / 16, many.iter().map(|(_, r)| r.end).collect());
        assert_eq!(ends, [each, 2 * each, 2 * each + 1]);
    }

    #[test]
    fn one_piece_larger_than_a_batch_is_a_batch() {
        let layout = Layout::Ends([BATCH * 5, BATCH * 5 + 1].into());
        let got: Vec<_> = Batches { layout, together: || 0, next: 0 }.map(|(_, r)| r).collect();
        assert_eq!(got, vec![0..1, 1..2]);
    }

    #[test]
    fn the_bar_ends_where_the_checks_end() {
        for name in [
            "fzm/lq1d_f32_noa_rle.fzm",
            "fzm/dag_fanout.fzm",
            "blosc2/n05_5d_f4.b2nd",
            "zstd/v07-multi.zst",
            "zxc/v5_bigml_l4.zxc",
            "ztensor/asm-20-digests.zt",
        ] {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
            let line = ["fzmfs".into(), "verify".into(), file.clone().into_os_string()];
            let args::Command::Verify(args) = args::parse(line.into()).unwrap().command else { panic!("not verify") };
            let verdict = check(&file, &args.reading);
            assert!(verdict.error.is_none(), "{name}: {:?}", verdict.error);
            let opened = Opened::open(&file, &args.reading).unwrap();
            assert_eq!(extent(&opened.container.checks(), true), Some(verdict.bytes), "{name}");
            assert!(verdict.bytes > 0, "{name}");
        }
    }
}
