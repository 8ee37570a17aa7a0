//! Verification: every checksum computed and every piece decoded, on all threads, without keeping data.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::{Archive, contained, defect};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::{BlobRef, Check, Layout};
use crate::limits::zeroed;

/// Decoded bytes per task, so that small pieces are decoded in batches.
const BATCH: u64 = 1 << 20;

/// Progress of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes checked: decoded bytes, or stored bytes for a checksum over stored bytes.
    pub checked: u64,
    /// Total bytes to check, if known without decoding.
    pub total: Option<u64>,
}

/// Result of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The name of the format.
    pub format: &'static str,
    /// Number of checks: streams decoded, and separate checksums.
    pub checks: u64,
    /// Bytes that the checks covered.
    pub bytes: u64,
}

/// Checks the whole archive; returns the report and the first error.
///
/// # Errors
/// Fails if the archive cannot be parsed again.
pub(super) fn run(archive: &Archive, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<(Report, Option<Error>)> {
    let container = contained("file", || archive.fresh())?;
    let (format, checks, total) = contained("file", || {
        let (info, checks) = (container.info(), container.checks());
        let total = extent(&checks, info.decoded_size.is_some());
        Ok((info.format, checks, total))
    })?;
    progress(Progress { checked: 0, total });
    let queue = Queue { next: tasks(&checks), progress: Progress { checked: 0, total }, report: progress, error: None };
    let queue = Mutex::new(queue);
    thread::scope(|scope| {
        for _ in 1..archive.0.options.thread_count() {
            // Fewer threads only make it slower.
            drop(thread::Builder::new().spawn_scoped(scope, || work(&queue)));
        }
        work(&queue);
    });
    let queue = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
    let error = queue.error.map(|(_, error)| error).or_else(|| container.unchanged().err());
    Ok((Report { format, checks: to_u64(checks.len()), bytes: queue.progress.checked }, error))
}

/// Total bytes covered by `checks`; `None` if the container does not record its sizes, since computing them could mean
/// decoding.
fn extent(checks: &[Check], sized: bool) -> Option<u64> {
    checks.iter().try_fold(0_u64, |sum, check| match check {
        Check::Run { bytes, .. } => Some(sum.saturating_add(*bytes)),
        // A stream without a layout is broken and will not be decoded.
        Check::Decode { blob, .. } => sized.then(|| sum.saturating_add(blob.layout().map_or(0, |layout| layout.len()))),
    })
}

/// Work for one thread.
enum Task<'a> {
    /// Decode these pieces.
    Decode { name: &'a str, blob: &'a BlobRef, layout: Layout, pieces: Range<u64> },
    /// Run a check that the container defines.
    Run { check: &'a Check },
    /// The layout of a stream is broken.
    Broken { name: &'a str, error: Error },
}

/// The remaining tasks, and the first error in task order.
struct Queue<'a> {
    next: Box<dyn Iterator<Item = (u64, Task<'a>)> + Send + 'a>,
    progress: Progress,
    report: &'a mut (dyn FnMut(Progress) + Send),
    error: Option<(u64, Error)>,
}

/// The tasks of all checks, in order, created on demand.
fn tasks<'a>(checks: &'a [Check]) -> Box<dyn Iterator<Item = (u64, Task<'a>)> + Send + 'a> {
    let tasks =
        checks.iter().flat_map(move |check| -> Box<dyn Iterator<Item = Task<'a>> + Send> {
            match check {
                Check::Run { .. } => Box::new(std::iter::once(Task::Run { check })),
                Check::Decode { name, blob } => match blob.layout() {
                    Ok(layout) => Box::new(
                        Batches { layout, together: || blob.batch(), next: 0 }
                            .map(move |(layout, pieces)| Task::Decode { name, blob, layout, pieces }),
                    ),
                    Err(error) => Box::new(std::iter::once(Task::Broken { name, error })),
                },
            }
        });
    Box::new((0..).zip(tasks))
}

/// The pieces of a layout, in runs of about [`BATCH`] decoded bytes or one decoding batch, whichever is larger.
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

/// Runs tasks until none is left or one has failed.
fn work(queue: &Mutex<Queue<'_>>) {
    let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    let mut buffer = Vec::new();
    // The last task taken, to attribute a panic.
    let mut order = u64::MAX;
    loop {
        let step = panic::catch_unwind(AssertUnwindSafe(|| {
            let task;
            (order, task) = lock().take()?;
            Some(task.run(&mut buffer))
        }));
        let Some(done) = step.unwrap_or_else(|_| Some(Err(defect("file")))) else { return };
        let mut queue = lock();
        match done {
            Ok(bytes) => queue.advance(bytes),
            Err(error) => queue.fail(order, error),
        }
    }
}

impl<'a> Queue<'a> {
    /// Adds `bytes` to the progress.
    fn advance(&mut self, bytes: u64) {
        self.progress.checked = self.progress.checked.saturating_add(bytes);
        (self.report)(self.progress);
    }

    /// The next task; `None` after an error.
    fn take(&mut self) -> Option<(u64, Task<'a>)> {
        if self.error.is_some() { None } else { self.next.next() }
    }

    /// Keeps the error that is first in task order: all earlier tasks were taken already and will finish.
    fn fail(&mut self, order: u64, error: Error) {
        if self.error.as_ref().is_none_or(|(first, _)| order < *first) {
            self.error = Some((order, error));
        }
    }
}

impl Task<'_> {
    /// Runs the task; returns the bytes covered: decoded, or stored for a checksum over stored bytes.
    fn run(self, buffer: &mut Vec<u8>) -> Result<u64> {
        match self {
            Self::Broken { name, error } => Err(error.within(name)),
            Self::Run { check } => {
                let Check::Run { name, bytes, run } = check else { return Ok(0) };
                run().map_err(|e| e.within(name))?;
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
                    first = row.end;
                }
                Ok(bytes)
            }
        }
    }
}

/// Decodes consecutive pieces, discards them and returns their size. Fails with the error of the first broken piece.
fn decode(blob: &BlobRef, layout: &Layout, row: Range<u64>, buffer: &mut Vec<u8>) -> Result<u64> {
    let len = |piece| {
        let range = layout.range(piece);
        range.end.saturating_sub(range.start)
    };
    let all = row.clone().map(len).fold(0, u64::saturating_add);
    if buffer.len() < to_usize(all, "piece")? {
        *buffer = zeroed(all, "piece")?;
    }
    let mut rest = buffer.as_mut_slice();
    let mut pieces = Vec::new();
    for piece in row.clone() {
        let split = std::mem::take(&mut rest).split_at_mut_checked(to_usize(len(piece), "piece")?);
        let (head, tail) = split.ok_or_else(|| Error::corrupt("the pieces are longer than their sum", "layout"))?;
        pieces.push(head);
        rest = tail;
    }
    match pieces.as_mut_slice() {
        [piece] => blob.decode(row.start, piece),
        // A batch does not say which piece is broken: decode them one by one.
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
}
