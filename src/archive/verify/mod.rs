//! Verification: every checksum computed and every piece decoded, on all threads, without keeping data.
#![forbid(unsafe_code)]

mod task;

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::PoisonError;

use super::{Archive, contained, defect};
use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::format::Check;
use crate::parallel;
use crate::sync::{Mutex, MutexGuard};
use crate::wanted::{self, Condition};

use task::{OpenStream, Task, TaskResult};

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
    /// Number of checksums among them; `None` if that is not known. Without any, overwritten bytes go unnoticed if they
    /// still decode.
    pub checksums: Option<u64>,
}

/// Receives the progress; returns whether to go on.
pub(super) type Watch<'a> = dyn FnMut(Progress) -> bool + Send + 'a;

/// The result of a verification.
pub(super) struct Outcome {
    pub(super) report: Report,
    /// The first error.
    pub(super) error: Option<Error>,
    /// Whether it was stopped before everything was checked.
    pub(super) is_stopped: bool,
}

/// Checks the whole archive.
///
/// # Errors
/// Fails if the archive cannot be parsed again.
pub(super) fn run(archive: &Archive, progress: &mut Watch) -> Result<Outcome> {
    let container = contained("file", || archive.fresh())?;
    let (format, checksums, checks, total) = contained("file", || {
        let (info, checks) = (container.info(), container.checks());
        let total = total_bytes(&checks, info.decoded_size.is_some());
        Ok((info.format, info.checksum_count, checks, total))
    })?;
    let queue = TasksLeft::new(&checks, Progress { checked: 0, total }, progress);
    queue.lock().advance(0);
    parallel::together(archive.0.options.thread_count().saturating_sub(1), || queue.work())?;
    let state = queue.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let error = state.error.or(state.unknown).map(|(_, error)| error).or_else(|| container.unchanged().err());
    let report = Report { format, checks: to_u64(checks.len()), bytes: state.progress.checked, checksums };
    Ok(Outcome { report, error, is_stopped: state.is_stopped })
}

/// Total bytes covered by `checks`; `None` if the container does not record its sizes, since computing them could mean
/// decoding.
fn total_bytes(checks: &[Check], sized: bool) -> Option<u64> {
    checks.iter().try_fold(0_u64, |sum, check| match check {
        Check::Run { bytes, .. } => Some(sum.saturating_add(*bytes)),
        // A stream without a layout is broken and will not be decoded.
        Check::Decode { blob, .. } => sized.then(|| sum.saturating_add(blob.layout().map_or(0, |layout| layout.len()))),
    })
}

/// The position of a task: the number of its check, and its first piece.
type TaskOrder = (usize, u64);

/// The remaining tasks.
struct TasksLeft<'a> {
    state: Mutex<VerifyState<'a>>,
    /// Signaled when a layout is known, or a task has failed.
    changed: Condition,
}

struct VerifyState<'a> {
    checks: std::iter::Enumerate<std::slice::Iter<'a, Check>>,
    /// The streams to decode, by the numbers of their checks.
    streams: BTreeMap<usize, OpenStream<'a>>,
    /// The number of layouts that threads are determining now.
    opening: usize,
    progress: Progress,
    report: &'a mut Watch<'a>,
    is_stopped: bool,
    /// The first error in the order of the tasks so far.
    error: Option<(TaskOrder, Error)>,
    /// The first error about an unknown part; it ends nothing: the rest is checked.
    unknown: Option<(TaskOrder, Error)>,
}

impl<'a> TasksLeft<'a> {
    fn new(checks: &'a [Check], progress: Progress, report: &'a mut Watch<'a>) -> Self {
        let (checks, streams) = (checks.iter().enumerate(), BTreeMap::new());
        let state = VerifyState {
            checks,
            streams,
            opening: 0,
            progress,
            report,
            is_stopped: false,
            error: None,
            unknown: None,
        };
        Self { state: Mutex::new(state), changed: Condition::new() }
    }

    fn lock(&self) -> MutexGuard<'_, VerifyState<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs tasks until none is left.
    ///
    /// # Errors
    /// `EINTR`: nobody waits for the result.
    fn work(&self) -> Result<()> {
        let mut buffer = Vec::new();
        while let Some((order, task)) = self.take()? {
            let opens = matches!(task, Task::Open { .. });
            let done = panic::catch_unwind(AssertUnwindSafe(|| task.run(&mut buffer)));
            let done = done.unwrap_or_else(|_| Err(defect("file")));
            let mut state = self.lock();
            state.opening -= usize::from(opens);
            match done {
                Ok(TaskResult::Checked(bytes)) => state.advance(bytes),
                Ok(TaskResult::Opened(stream)) => drop(state.streams.insert(order.0, stream)),
                Err(error) => state.fail(order, error),
            }
            drop(state);
            self.changed.notify_all();
        }
        Ok(())
    }

    /// The next task; waits while another thread determines a layout. After an error, other than of an unknown part,
    /// only the tasks before it are left: one of them may fail too.
    ///
    /// # Errors
    /// As [`TasksLeft::work`].
    fn take(&self) -> Result<Option<(TaskOrder, Task<'a>)>> {
        wanted::check()?;
        let mut next = None;
        let is_early = |state: &mut VerifyState<'a>| {
            next = state.next();
            next.is_none() && state.opening > 0
        };
        drop(self.changed.wait_while(&self.state, self.lock(), is_early)?);
        Ok(next)
    }
}

impl<'a> VerifyState<'a> {
    /// The next task that can be run now.
    fn next(&mut self) -> Option<(TaskOrder, Task<'a>)> {
        if self.is_stopped {
            return None;
        }
        while let Some(mut first) = self.streams.first_entry() {
            let number = *first.key();
            let OpenStream { name, blob, batches } = first.get_mut();
            let next = batches.next().map(|(layout, pieces)| {
                let order = (number, pieces.start);
                (order, Task::Decode { name, blob, layout, pieces })
            });
            match next {
                Some((order, task)) if self.error.as_ref().is_none_or(|(error, _)| order < *error) => {
                    return Some((order, task));
                }
                _ => drop(first.remove()),
            }
        }
        if self.error.is_some() {
            return None;
        }
        let (number, check) = self.checks.next()?;
        Some((
            (number, 0),
            match check {
                Check::Run { name, bytes, run } => Task::Run { name, bytes: *bytes, run: &**run },
                Check::Decode { name, blob } => {
                    self.opening += 1;
                    Task::Open { name, blob }
                }
            },
        ))
    }

    /// Adds `bytes` to the progress.
    fn advance(&mut self, bytes: u64) {
        self.progress.checked = self.progress.checked.saturating_add(bytes);
        self.is_stopped |= !(self.report)(self.progress);
    }

    /// Keeps the error that is first in the order of the tasks.
    fn fail(&mut self, order: TaskOrder, error: Error) {
        let first = if error.is_unknown() { &mut self.unknown } else { &mut self.error };
        if first.as_ref().is_none_or(|(first, _)| order < *first) {
            *first = Some((order, error));
        }
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../../tests/models/verify.rs"]
mod models;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Barrier};
    use std::thread;

    use super::task::BATCH;
    use super::*;
    use crate::error::Kind;
    use crate::format::{Blob, BlobRef, Layout};

    /// A stream with one broken piece; its first use waits until another check has run.
    struct Slow {
        others: Arc<Barrier>,
        broken: u64,
    }

    impl Blob for Slow {
        fn layout(&self) -> Result<Layout> {
            self.others.wait();
            Ok(Layout::Uniform { len: 3 * BATCH, piece: BATCH })
        }

        fn decode(&self, piece: u64, _: &mut [u8]) -> Result<()> {
            if piece == self.broken { Err(Error::corrupt(format!("piece {piece}"), "x")) } else { Ok(()) }
        }
    }

    fn verdict(checks: &[Check]) -> (u64, Option<String>) {
        let mut report = |_| true;
        let queue = TasksLeft::new(checks, Progress { checked: 0, total: None }, &mut report);
        thread::scope(|scope| {
            scope.spawn(|| queue.work().unwrap());
            queue.work().unwrap();
        });
        let state = queue.state.into_inner().unwrap();
        (state.progress.checked, state.error.map(|(_, error)| error.to_string()))
    }

    #[test]
    fn layouts_are_determined_while_other_checks_run_and_the_first_error_in_order_is_reported() {
        for broken in [3, 1] {
            let others = Arc::new(Barrier::new(2));
            let blob = BlobRef::new(Slow { others: Arc::clone(&others), broken });
            let run = Box::new(move || {
                others.wait();
                if broken == 3 { Ok(()) } else { Err(Error::corrupt("later", "x")) }
            });
            let decode = Check::Decode { name: "stream".into(), blob };
            let checks = [decode, Check::Run { name: "run".into(), bytes: 7, run }];
            let (bytes, error) = verdict(&checks);
            match broken {
                3 => assert_eq!((bytes, error), (3 * BATCH + 7, None)),
                _ => assert_eq!(error.unwrap(), "piece 1 (stream: x)"),
            }
        }
    }
    /// Three batches, the second of which is broken or needs an unknown part, and which were decoded.
    struct Failing {
        error: fn() -> Error,
        decoded: AtomicU64,
    }

    impl Blob for Failing {
        fn layout(&self) -> Result<Layout> {
            Ok(Layout::Uniform { len: 3 * BATCH, piece: BATCH })
        }

        fn decode(&self, piece: u64, _: &mut [u8]) -> Result<()> {
            self.decoded.fetch_or(1 << piece, Ordering::Relaxed);
            if piece == 1 { Err((self.error)()) } else { Ok(()) }
        }
    }

    #[test]
    fn an_error_ends_what_comes_after_it_and_an_unknown_part_ends_nothing() {
        let broken: fn() -> Error = || Error::corrupt("no", "x");
        let unknown: fn() -> Error = || Error::new(Kind::Unknown("part".into()), "x");
        for (error, decoded, bytes) in [(broken, 0b011, BATCH), (unknown, 0b111, 2 * BATCH + 7)] {
            let failing = Arc::new(Failing { error, decoded: AtomicU64::new(0) });
            let stream = Check::Decode { name: "stream".into(), blob: BlobRef::shared(failing.clone()) };
            let checks = [stream, Check::Run { name: "run".into(), bytes: 7, run: Box::new(|| Ok(())) }];
            let mut report = |_| true;
            let queue = TasksLeft::new(&checks, Progress { checked: 0, total: None }, &mut report);
            queue.work().unwrap();
            let state = queue.state.into_inner().unwrap();
            assert_eq!((failing.decoded.load(Ordering::Relaxed), state.progress.checked), (decoded, bytes));
            let order = |kept: &Option<(TaskOrder, Error)>| kept.as_ref().map(|(order, _)| *order);
            let is_broken = decoded == 0b011;
            assert_eq!(order(&state.error), is_broken.then_some((0, 1)));
            assert_eq!(order(&state.unknown), (!is_broken).then_some((0, 1)));
        }
    }

    #[test]
    fn of_several_errors_the_first_in_order_is_kept() {
        let mut report = |_| true;
        let queue = TasksLeft::new(&[], Progress { checked: 0, total: None }, &mut report);
        for order in [(1, 0), (0, 5), (0, 9), (2, 0)] {
            queue.lock().fail(order, Error::corrupt(format!("{order:?}"), "x"));
        }
        assert_eq!(queue.lock().error.as_ref().unwrap().1.to_string(), "(0, 5) (x)");
    }
}
