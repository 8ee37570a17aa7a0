//! A gate that withholds bytes until the checksum over them was verified.
//!
//! A [`ChecksumGate`] guards bytes that one checksum covers as a whole (FZM: one CRC-32 over the payload). Its check
//! runs once, when the first of these bytes is requested. [`ChecksumGate::when_open`] queues a continuation and the
//! check runs on [`Threads`], so waiting takes no thread; [`ChecksumGate::wait`] blocks the calling thread.
//!
//! Invariants: a verdict about the bytes is kept; a check that could not be done (a failed read) gives no verdict, and
//! the next reader starts it again. A blocking caller runs a check that is still queued, so no caller waits for a free
//! thread.
#![forbid(unsafe_code)]

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

use super::{Threads, Verify};

type Check = dyn Fn() -> Result<()> + Send + Sync;
type Then = Box<dyn FnOnce(Result<()>) + Send>;

/// A check that runs once and withholds bytes until it has passed.
#[derive(Clone)]
pub struct ChecksumGate(Arc<Inner>);

struct Inner {
    mode: Verify,
    threads: Threads,
    check: Box<Check>,
    state: Mutex<State>,
    ran: Condvar,
}

#[derive(Default)]
struct State {
    verdict: Option<Result<()>>,
    /// A thread is running the check; or (`queued`) a job that will run it is in the queue.
    running: bool,
    queued: bool,
    /// A background check was started and has not failed to complete since.
    begun: bool,
    /// How often the check ran, and the result of the last run.
    runs: u64,
    last: Option<Result<()>>,
    parked: Vec<Then>,
}

impl ChecksumGate {
    /// Creates a gate that opens according to `mode`. `check` runs on `threads` unless a blocking caller runs it.
    pub fn new(mode: Verify, threads: &Threads, check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        let (threads, check) = (threads.clone(), Box::new(check));
        Self(Arc::new(Inner { mode, threads, check, state: Mutex::default(), ran: Condvar::new() }))
    }

    /// Returns when bytes behind the gate may be served. May run the check on the calling thread.
    ///
    /// # Errors
    /// The error of the check.
    pub fn wait(&self) -> Result<()> {
        match &self.0.mode {
            Verify::Off => Ok(()),
            Verify::First => self.check(),
            Verify::Background(_) => self.begin(),
        }
    }

    /// Calls `then` when bytes behind the gate may be served or have been found corrupt: immediately if that is known,
    /// otherwise on the thread that ran the check.
    pub fn when_open(&self, then: impl FnOnce(Result<()>) + Send + 'static) {
        match &self.0.mode {
            Verify::Off => then(Ok(())),
            Verify::Background(_) => then(self.begin()),
            Verify::First => {
                let mut state = self.lock();
                if let Some(verdict) = state.verdict.clone() {
                    drop(state);
                    return then(verdict);
                }
                state.parked.push(Box::new(then));
                if !state.running && !std::mem::replace(&mut state.queued, true) {
                    drop(state);
                    let gate = self.clone();
                    self.0.threads.run(Box::new(move || gate.run_queued()));
                }
            }
        }
    }

    /// Returns `gate` if its check is still to be waited for.
    pub fn shut(gate: Option<&Self>) -> Option<Self> {
        gate.filter(|gate| !gate.is_decided()).cloned()
    }

    /// Whether [`ChecksumGate::wait`] would return immediately.
    pub fn is_decided(&self) -> bool {
        match &self.0.mode {
            Verify::Off => true,
            Verify::First => self.lock().verdict.is_some(),
            Verify::Background(_) => self.lock().begun,
        }
    }

    /// Whether [`ChecksumGate::wait`] would return `Ok` immediately.
    pub fn is_open(&self) -> bool {
        let state = self.lock();
        match self.0.mode {
            Verify::Off => true,
            Verify::First => matches!(state.verdict, Some(Ok(()))),
            Verify::Background(_) => state.begun && !matches!(state.verdict, Some(Err(_))),
        }
    }

    /// The verdict, if the check has given one.
    pub fn verdict(&self) -> Option<Result<()>> {
        self.lock().verdict.clone()
    }

    /// Returns the verdict and runs the check if there is none, whatever the mode; used by `verify`.
    ///
    /// # Errors
    /// The error of the check.
    pub fn check(&self) -> Result<()> {
        let mut state = self.lock();
        if let Some(verdict) = &state.verdict {
            return verdict.clone();
        }
        if !state.running {
            state.running = true;
            drop(state);
            return self.run();
        }
        let runs = state.runs;
        let state = self.0.ran.wait_while(state, |state| state.runs == runs).unwrap_or_else(PoisonError::into_inner);
        // The result of the run that was waited for, even if it is no verdict.
        state.last.clone().unwrap_or(Ok(()))
    }

    /// Starts the background check, and returns what is known so far.
    fn begin(&self) -> Result<()> {
        let Verify::Background(checks) = &self.0.mode else { return Ok(()) };
        let mut state = self.lock();
        let begun = std::mem::replace(&mut state.begun, true);
        let verdict = state.verdict.clone().unwrap_or(Ok(()));
        drop(state);
        if !begun {
            let (gate, running) = (self.clone(), checks.begin());
            self.0.threads.run(Box::new(move || running.ends(gate.check())));
        }
        verdict
    }

    /// Runs the check for the queued continuations, unless another thread has run it meanwhile.
    fn run_queued(&self) {
        let mut state = self.lock();
        state.queued = false;
        if !state.running && !state.parked.is_empty() {
            state.running = true;
            drop(state);
            // The continuations get the result.
            let _ = self.run();
        }
    }

    /// Runs the check, which this thread has claimed, and notifies all waiters.
    fn run(&self) -> Result<()> {
        let panicked = || Err(Error::corrupt("the check panicked", "checksum"));
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.0.check)())).unwrap_or_else(|_| panicked());
        let mut state = self.lock();
        match &outcome {
            Err(error) if !error.is_lasting() => state.begun = false,
            verdict => state.verdict = Some(verdict.clone()),
        }
        state.running = false;
        state.runs += 1;
        state.last = Some(outcome.clone());
        let parked = std::mem::take(&mut state.parked);
        drop(state);
        self.0.ran.notify_all();
        for then in parked {
            let outcome = outcome.clone();
            if catch_unwind(AssertUnwindSafe(|| then(outcome))).is_err() {
                tracing::error!("a continuation of a checksum panicked");
            }
        }
        outcome
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ChecksumGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChecksumGate")
            .field("mode", &self.0.mode)
            .field("verdict", &self.verdict())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::bytes::FileOffset;
    use crate::checksum::{BackgroundChecks, crc32};
    use crate::source::Source;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_gate_runs_its_check_once() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let gate = ChecksumGate::new(Verify::First, &Threads::default(), || {
            ASKED.fetch_add(1, Ordering::Relaxed);
            Err(Error::corrupt("no", "x"))
        });
        assert!(!gate.is_decided());
        assert!(gate.wait().is_err() && gate.wait().is_err() && gate.clone().wait().is_err());
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }

    /// A gate whose check fails to read the first `failures` times.
    fn flaky(mode: Verify, failures: u32) -> (ChecksumGate, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let check = move || match count.fetch_add(1, Ordering::Relaxed) {
            n if n < failures => Err(Error::io(io::Error::from_raw_os_error(libc::EIO), "payload")),
            _ => Ok(()),
        };
        (ChecksumGate::new(mode, &Threads::default(), check), asked)
    }

    #[test]
    fn a_check_that_could_not_read_is_retried_by_the_next_reader() {
        let (gate, asked) = flaky(Verify::First, 1);
        assert_eq!(gate.wait().unwrap_err().errno(), libc::EIO);
        assert!(!gate.is_decided() && gate.verdict().is_none());
        gate.wait().unwrap();
        gate.wait().unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 2);

        let (gate, _) = flaky(Verify::First, 1);
        let (tx, rx) = mpsc::channel();
        for _ in 0..2 {
            let tx = tx.clone();
            gate.when_open(move |verdict| tx.send(verdict.is_ok()).unwrap());
        }
        let first = [rx.recv_timeout(PATIENCE).unwrap(), rx.recv_timeout(PATIENCE).unwrap()];
        gate.when_open(move |verdict| tx.send(verdict.is_ok()).unwrap());
        assert_eq!((first[0], rx.recv_timeout(PATIENCE).unwrap()), (false, true));

        let checks = BackgroundChecks::default();
        let (gate, asked) = flaky(Verify::Background(checks.clone()), 1);
        gate.wait().unwrap();
        assert!(checks.join().is_err());
        assert!(!gate.is_decided(), "nothing is known yet, so the next reader begins it again");
        gate.wait().unwrap();
        let _ = checks.join();
        assert!(gate.is_open() && asked.load(Ordering::Relaxed) == 2);
    }

    #[test]
    fn parked_readers_share_one_run_and_occupy_no_thread() {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let gate = ChecksumGate::new(Verify::First, &Threads::default(), move || {
            wait.lock().unwrap().recv().unwrap();
            Ok(())
        });
        let (tx, rx) = mpsc::channel();
        for i in 0..1000 {
            let tx = tx.clone();
            gate.when_open(move |verdict| tx.send((i, verdict.is_ok())).unwrap());
        }
        assert!(rx.try_recv().is_err(), "this thread has parked them all and waits for none");
        go.send(()).unwrap();
        let got: Vec<_> = (0..1000).map(|_| rx.recv_timeout(PATIENCE).unwrap()).collect();
        assert!(got.iter().zip(0..).all(|(got, i)| *got == (i, true)));
        gate.when_open(move |verdict| tx.send((1000, verdict.is_ok())).unwrap());
        assert_eq!(rx.try_recv().unwrap(), (1000, true), "at once from now on");
    }

    #[test]
    fn all_threads_of_a_pool_may_wait_at_a_gate() {
        let source = Source::from_bytes(vec![1; 20 << 20]);
        let gate = ChecksumGate::new(Verify::First, &Threads::default(), move || {
            crc32(&source, FileOffset(0), 20 << 20, &Threads::new(4), "payload").map(drop)
        });
        thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| gate.wait().unwrap());
            }
        });
        assert!(gate.verdict().is_some());
    }

    #[test]
    fn a_check_that_panics_is_a_failure_and_blocks_no_reader() {
        let gate = ChecksumGate::new(Verify::First, &Threads::default(), || panic!("on purpose"));
        let (tx, rx) = mpsc::channel();
        gate.when_open(move |verdict| tx.send(verdict.is_err()).unwrap());
        assert!(rx.recv_timeout(PATIENCE).unwrap());
        assert!(gate.wait().is_err());
    }

    #[test]
    fn a_gate_that_is_off_runs_its_check_only_for_verify() {
        let gate = ChecksumGate::new(Verify::Off, &Threads::default(), || Err(Error::corrupt("no", "x")));
        gate.wait().unwrap();
        assert!(gate.check().is_err());
        gate.wait().unwrap();
    }
}
