//! A check that runs once for all who wait for its verdict.
//!
//! Invariants: a verdict about the bytes is kept, and a failure wins over a pass, whichever comes first: bytes that one
//! reader has found broken are served to none. A failure that was seen, and a check seen to have begun, is among the
//! background checks. A check that could not be done (a failed read) gives no verdict, and the next reader starts it
//! again. A blocking caller runs a check that is still queued, so no caller waits for a free thread.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, Weak};

use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};
use crate::wanted::{Callers, Condition, Parked, Then, is_given_up};

use super::{BackgroundChecks, Threads};

type CheckFn = dyn Fn() -> Result<()> + Send + Sync;

/// A check and its verdict.
pub(super) struct SharedCheck {
    threads: Threads,
    /// `None` if the verdict is reported by the readers' own decoding.
    check: Option<Box<CheckFn>>,
    state: Mutex<CheckState>,
    ran: Condition,
}

/// The finder of a failure, which reports it once.
#[derive(Default, PartialEq, Eq)]
enum Teller {
    #[default]
    Check,
    Reader,
}

#[derive(Default)]
struct CheckState {
    verdict: Option<Result<()>>,
    /// The reporter of a failure.
    teller: Teller,
    /// A thread is running the check; or (`queued`) a job that will run it is in the queue.
    running: bool,
    queued: bool,
    /// A background check was started and has not failed to complete since.
    begun: bool,
    /// How often the check ran, and the result of the last run.
    runs: u64,
    last: Option<Result<()>>,
    parked: Vec<Arc<Parked<()>>>,
    /// Those of the continuations.
    callers: Weak<Callers>,
}

impl CheckState {
    fn has_failed(&self) -> bool {
        self.verdict.as_ref().is_some_and(Result::is_err)
    }

    /// Records `verdict`, unless a failure was recorded before; returns the one that is kept.
    fn settle(&mut self, verdict: &Result<()>) -> Result<()> {
        match &self.verdict {
            Some(failed @ Err(_)) => failed.clone(),
            _ => self.verdict.insert(verdict.clone()).clone(),
        }
    }
}

impl SharedCheck {
    /// A check that runs on `threads`, unless a blocking caller runs it.
    pub(super) fn new(threads: &Threads, check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        Self { check: Some(Box::new(check)), ..Self::reported(threads) }
    }

    /// A check with a verdict that is [reported](SharedCheck::report).
    pub(super) fn reported(threads: &Threads) -> Self {
        Self { threads: threads.clone(), check: None, state: Mutex::default(), ran: Condition::new() }
    }

    /// Whether the verdict is only reported.
    pub(super) fn is_reported(&self) -> bool {
        self.check.is_none()
    }

    /// The verdict, if there is one, and whether a background check was started.
    pub(super) fn progress(&self) -> (Option<Result<()>>, bool) {
        let state = self.lock();
        (state.verdict.clone(), state.begun)
    }

    /// Records the verdict of a reader, a failure also among `checks`; returns whether it is the first failure.
    /// Transient errors are none.
    pub(super) fn report(&self, verdict: &Result<()>, checks: Option<&BackgroundChecks>) -> bool {
        if verdict.as_ref().is_err_and(|e| !e.is_lasting()) {
            return false;
        }
        let mut state = self.lock();
        let is_new = verdict.is_err() && !state.has_failed();
        // The kept verdict does not matter here.
        let _ = state.settle(verdict);
        if is_new {
            state.teller = Teller::Reader;
            if let (Err(error), Some(checks)) = (verdict, checks) {
                checks.record(error);
            }
        }
        is_new
    }

    /// Starts the check in the background, as one of `checks`, unless it was started or has given a verdict.
    pub(super) fn begin(self: &Arc<Self>, checks: &BackgroundChecks) {
        let mut state = self.lock();
        if self.is_reported() || state.verdict.is_some() || std::mem::replace(&mut state.begun, true) {
            return;
        }
        let (check, running) = (self.clone(), checks.begin());
        drop(state);
        self.threads.run(Box::new(move || {
            let verdict = check.wait();
            if check.lock().teller == Teller::Check {
                running.ends(verdict);
            }
        }));
    }

    /// Returns the verdict; runs the check if there is none. A check that is only reported passes until it has failed.
    ///
    /// # Errors
    /// The error of the check.
    pub(super) fn wait(self: &Arc<Self>) -> Result<()> {
        loop {
            let mut state = self.lock();
            if let Some(verdict) = &state.verdict {
                return verdict.clone();
            }
            if self.is_reported() {
                return Ok(());
            }
            if !state.running {
                state.running = true;
                drop(state);
                return self.run();
            }
            let runs = state.runs;
            let state = self.ran.wait_while(&self.state, state, |state| state.runs == runs)?;
            match &state.last {
                // Given up by the thread that ran it.
                Some(Err(e)) if is_given_up(e) => {}
                // The result of the run that was waited for, even if it is not a verdict.
                last => return last.clone().unwrap_or(Ok(())),
            }
        }
    }

    /// Calls `then` with the verdict: immediately if there is one, otherwise on the thread that ran the check.
    pub(super) fn when_done(self: &Arc<Self>, then: Then<()>) {
        let mut state = self.lock();
        if let Some(verdict) = state.verdict.clone() {
            drop(state);
            return then(verdict);
        }
        let parked = Parked::new(then, Callers::of(&mut state.callers));
        state.parked.retain(|parked| !parked.has_ended());
        state.parked.push(parked.clone());
        if state.running {
            drop(state);
        } else {
            self.queue(state);
        }
        parked.watch();
    }

    /// Queues a run for the continuations, unless one is queued.
    fn queue(self: &Arc<Self>, mut state: MutexGuard<'_, CheckState>) {
        let is_queued = std::mem::replace(&mut state.queued, true);
        drop(state);
        if !is_queued {
            let check = self.clone();
            self.threads.run(Box::new(move || check.run_queued()));
        }
    }

    /// Runs the check for the queued continuations, unless another thread has run it meanwhile.
    fn run_queued(self: &Arc<Self>) {
        let mut state = self.lock();
        state.queued = false;
        // A run may have taken the continuations, and not ended them yet.
        if state.running || state.parked.is_empty() {
            return;
        }
        let Some(callers) = state.callers.upgrade() else { return };
        state.running = true;
        drop(state);
        let work = callers.work();
        Callers::leave(callers);
        // The continuations get the result.
        let _ = work.within(|| self.run());
    }

    /// Runs the check, which this thread has claimed, and notifies all waiters.
    fn run(self: &Arc<Self>) -> Result<()> {
        let panicked = || Err(Error::corrupt("the check panicked", "checksum"));
        let mut outcome = catch_unwind(AssertUnwindSafe(|| self.check.as_ref().map_or(Ok(()), |check| check())))
            .unwrap_or_else(|_| panicked());
        let mut state = self.lock();
        match &outcome {
            Err(error) if !error.is_lasting() => state.begun = false,
            verdict => outcome = state.settle(verdict),
        }
        state.running = false;
        state.runs += 1;
        state.last = Some(outcome.clone());
        self.ran.notify_all();
        if outcome.as_ref().is_err_and(is_given_up) && state.callers.strong_count() > 0 {
            // The waiters have not given up.
            self.queue(state);
            return outcome;
        }
        let parked = std::mem::take(&mut state.parked);
        drop(state);
        for parked in parked {
            parked.end(outcome.clone());
        }
        outcome
    }

    fn lock(&self) -> MutexGuard<'_, CheckState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../tests/models/shared_check.rs"]
mod models;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::clock::{PATIENCE, wait_until};
    use crate::error::Kind;
    use crate::wanted::{self, Wanted, while_wanted};

    /// A check that waits for `go`, and how often it has begun.
    fn held(
        threads: &Threads,
        work: impl Fn(u64) -> Result<()> + Send + Sync + 'static,
    ) -> (Arc<SharedCheck>, Arc<AtomicU64>, Arc<AtomicBool>) {
        let (runs, go) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (begun, gone) = (runs.clone(), go.clone());
        let check = SharedCheck::new(threads, move || {
            let run = begun.fetch_add(1, Ordering::Relaxed);
            wait_until(|| gone.load(Ordering::Relaxed) || wanted::check().is_err());
            work(run)
        });
        (Arc::new(check), runs, go)
    }

    /// What a second caller gets that came while the first one ran the check.
    fn second(work: impl Fn(u64) -> Result<()> + Send + Sync + 'static) -> (Result<()>, u64) {
        let (check, runs, go) = held(&Threads::new(1), work);
        let waits = Arc::new(AtomicBool::new(false));
        let waiting = waits.clone();
        let asked = move || {
            waiting.store(true, Ordering::Relaxed);
            true
        };
        thread::scope(|scope| {
            let first = scope.spawn(|| check.wait());
            wait_until(|| runs.load(Ordering::Relaxed) == 1);
            // It is asked whether it still waits.
            let second = scope.spawn(|| while_wanted(asked, || check.wait()));
            wait_until(|| waits.load(Ordering::Relaxed));
            go.store(true, Ordering::Relaxed);
            first.join().unwrap().ok();
            (second.join().unwrap(), runs.load(Ordering::Relaxed))
        })
    }

    #[test]
    fn callers_that_come_meanwhile_share_the_verdict_unless_the_check_was_given_up() {
        assert!(matches!(second(|_| Ok(())), (Ok(()), 1)));
        let (broken, runs) = second(|_| Err(Error::corrupt("no", "checksum")));
        assert!(broken.is_err_and(|e| !is_given_up(&e)) && runs == 1);
        // One that could not be done is the result for those who waited for it, and no verdict.
        let no_room =
            |run| if run == 0 { Err(Error::new(Kind::NoRoom { need: 1, memory: 0, disk: 0 }, "x")) } else { Ok(()) };
        assert!(matches!(second(no_room), (Err(_), 1)));
        let given_up = |run| if run == 0 { Err(wanted::given_up()) } else { Ok(()) };
        assert!(matches!(second(given_up), (Ok(()), 2)));
    }

    #[test]
    fn a_check_that_has_a_verdict_does_not_begin_again() {
        let (check, runs, go) = held(&Threads::new(1), |_| Ok(()));
        go.store(true, Ordering::Relaxed);
        check.wait().unwrap();
        let checks = BackgroundChecks::default();
        check.begin(&checks);
        checks.join().unwrap();
        let (verdict, has_begun) = check.progress();
        assert!(verdict.is_some_and(|verdict| verdict.is_ok()) && !has_begun);
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_queued_check_that_a_caller_has_run_meanwhile_is_not_run_again() {
        let threads = Threads::new(1);
        let ((free, busy), (tx, rx)) = (mpsc::channel::<()>(), mpsc::channel());
        threads.run(Box::new(move || _ = busy.recv()));
        let (check, runs, go) = held(&threads, |_| Ok(()));
        go.store(true, Ordering::Relaxed);
        let done = tx.clone();
        check.when_done(Box::new(move |verdict| done.send(verdict).unwrap()));
        check.wait().unwrap();
        rx.try_recv().unwrap().unwrap();
        drop(free);
        // Behind the queued run.
        threads.run(Box::new(move || tx.send(Ok(())).unwrap()));
        rx.recv_timeout(PATIENCE).unwrap().unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_continuation_that_is_given_up_ends_and_the_check_with_the_last_of_them() {
        let (check, runs, _) = held(&Threads::new(1), |_| wanted::check());
        let (tx, rx) = mpsc::channel();
        let ask = |caller: &Wanted, name: &'static str| {
            let tx = tx.clone();
            caller.within(|| check.when_done(Box::new(move |verdict| tx.send((name, verdict)).unwrap())));
        };
        let (one, other) = (Wanted::default(), Wanted::default());
        ask(&one, "one");
        ask(&other, "other");
        wait_until(|| runs.load(Ordering::Relaxed) == 1);
        for (caller, name) in [(one, "one"), (other, "other")] {
            caller.give_up();
            let (who, verdict) = rx.recv_timeout(PATIENCE).unwrap();
            assert!(who == name && is_given_up(&verdict.unwrap_err()), "{who}");
        }
        wait_until(|| !check.lock().running);
        assert!(check.progress().0.is_none() && runs.load(Ordering::Relaxed) == 1);
    }
}
