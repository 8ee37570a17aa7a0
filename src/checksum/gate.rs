//! A gate that withholds bytes until the checksum over them was verified.
//!
//! A [`ChecksumGate`] guards bytes that one checksum covers as a whole (FZM: one CRC-32 over the payload). Its check
//! runs once, when the first of these bytes is requested. [`ChecksumGate::when_open`] queues a continuation and the
//! check runs on [`Threads`], so waiting takes no thread; [`ChecksumGate::wait`] blocks the calling thread.
//!
//! Invariants: those of [`SharedCheck`].
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use crate::error::Result;

use super::shared_check::SharedCheck;
use super::{Threads, Verified, Verify};

/// A check that runs once and withholds bytes until it has passed.
#[derive(Clone)]
pub struct ChecksumGate {
    inner: Arc<Inner>,
    /// Whether it withholds the last bytes that the checksum covers, which are served only after the verdict.
    is_end: bool,
}

/// When a gate opens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opens {
    Always,
    /// When the check has begun, until it fails.
    Begun,
    /// When the check has passed.
    Passed,
}

struct Inner {
    /// Resolved: neither [`Verify::Auto`] nor [`Verify::Passive`].
    mode: Verify,
    check: Arc<SharedCheck>,
    /// Whether bytes other than the last ones are served without starting the check.
    is_lazy: bool,
    /// For a check that is not worth a request to a server: whether it makes none, or next to none.
    is_near: Option<Box<IsNear>>,
}

type IsNear = dyn Fn() -> bool + Send + Sync;

impl ChecksumGate {
    /// Creates a gate that opens according to `mode`. `check` reads or decodes `cost` bytes; it runs on `threads` unless
    /// a blocking caller runs it. With [`Verify::Passive`] it does not run, except as [`ChecksumGate::near`] says.
    pub fn new(
        mode: &Verify,
        cost: u64,
        threads: &Threads,
        check: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::of(mode, cost, SharedCheck::new(threads, check), matches!(mode, Verify::Passive(_)))
    }

    /// Creates a gate whose check runs only before the last bytes that the checksum covers, unless `mode` asks for it
    /// before the first: for a check that readers have mostly done by then (see [`StreamHash`](super::StreamHash)).
    pub fn lazy(
        mode: &Verify,
        cost: u64,
        threads: &Threads,
        check: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::of(mode, cost, SharedCheck::new(threads, check), true)
    }

    /// Creates a gate that is open until [`ChecksumGate::report`] reports a failure: for a checksum that a reader
    /// verifies as it decodes the last bytes.
    pub fn reported(mode: &Verify, threads: &Threads) -> Self {
        let mode = match mode {
            Verify::Off => Verify::Off,
            mode => Verify::Background(mode.background()),
        };
        Self::of(&mode, 0, SharedCheck::reported(threads), true)
    }

    fn of(mode: &Verify, cost: u64, check: SharedCheck, is_lazy: bool) -> Self {
        let is_near: Option<Box<IsNear>> = matches!(mode, Verify::Passive(_)).then(|| Box::new(|| false) as _);
        Self {
            inner: Arc::new(Inner { mode: mode.resolve(cost), check: Arc::new(check), is_lazy, is_near }),
            is_end: false,
        }
    }

    /// For [`Verify::Passive`], and a gate that nobody has yet: the check runs before the last bytes that the checksum
    /// covers, if `is_near` says then that it takes no request, or next to none.
    #[must_use]
    pub fn near(mut self, is_near: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner)
            && let Some(default) = &mut inner.is_near
        {
            *default = Box::new(is_near);
        }
        self
    }

    /// Whether the check has to pass before these bytes are served.
    fn is_due(&self) -> bool {
        self.is_end && self.inner.is_near.as_ref().is_none_or(|is_near| is_near())
    }

    /// The same gate before bytes that include the last ones that the checksum covers (`is_end`), or do not.
    #[must_use]
    pub fn before(&self, is_end: bool) -> Self {
        Self { inner: self.inner.clone(), is_end }
    }

    fn opens(&self) -> Opens {
        match self.inner.mode {
            Verify::Off => Opens::Always,
            Verify::Background(_) if !self.is_due() || self.inner.check.is_reported() => Opens::Begun,
            _ => Opens::Passed,
        }
    }

    /// Returns when bytes behind the gate may be served. May run the check on the calling thread.
    ///
    /// # Errors
    /// The error of the check.
    pub fn wait(&self) -> Result<()> {
        match self.opens() {
            Opens::Always => Ok(()),
            Opens::Begun => self.begin(),
            Opens::Passed => {
                self.begin()?;
                self.check()
            }
        }
    }

    /// Calls `then` when bytes behind the gate may be served or have been found corrupt: immediately if that is known,
    /// otherwise on the thread that ran the check.
    pub fn when_open(&self, then: impl FnOnce(Result<()>) + Send + 'static) {
        match (self.opens(), self.begin()) {
            (Opens::Always, _) => then(Ok(())),
            (Opens::Begun, begun) | (Opens::Passed, begun @ Err(_)) => then(begun),
            (Opens::Passed, Ok(())) => self.inner.check.when_done(Box::new(then)),
        }
    }

    /// Returns `gate`, before bytes that include the last ones covered (`is_end`) or do not, unless it is open.
    pub fn shut(gate: Option<&Self>, is_end: bool) -> Option<Self> {
        gate.map(|gate| gate.before(is_end)).filter(|gate| !gate.is_open())
    }

    /// Waits for `gate` before bytes that include the last ones covered (`is_end`) or do not.
    ///
    /// # Errors
    /// As [`ChecksumGate::wait`].
    pub fn wait_before(gate: Option<&Self>, is_end: bool) -> Result<()> {
        gate.map_or(Ok(()), |gate| gate.before(is_end).wait())
    }

    /// Whether [`ChecksumGate::wait`] would return `Ok` immediately.
    pub fn is_open(&self) -> bool {
        let opens = self.opens();
        if opens == Opens::Always {
            return true;
        }
        match self.inner.check.progress() {
            (Some(verdict), _) => verdict.is_ok(),
            (None, has_begun) => opens == Opens::Begun && (has_begun || self.inner.is_lazy),
        }
    }

    /// Whether it withholds bytes until a check has passed that has given no verdict yet.
    pub fn is_withheld(&self) -> bool {
        self.opens() == Opens::Passed && self.verdict().is_none()
    }

    /// The verdict, if the check has given one.
    pub fn verdict(&self) -> Option<Result<()>> {
        self.inner.check.progress().0
    }

    /// What is known about the checksum.
    pub fn verified(&self) -> Verified {
        match (self.verdict(), &self.inner.mode) {
            (Some(Err(_)), _) => Verified::Failed,
            (_, Verify::Off) => Verified::No,
            (Some(Ok(())), _) => Verified::Yes,
            (None, _) => Verified::Pending,
        }
    }

    /// Records the verdict of a reader that has verified the checksum itself. Transient errors are none.
    pub fn report(&self, verdict: &Result<()>) {
        if self.inner.check.report(verdict)
            && let (Err(error), Verify::Background(checks)) = (verdict, &self.inner.mode)
        {
            checks.fail(error);
        }
    }

    /// Returns the verdict and runs the check if there is none, whatever the mode; used by `verify`.
    ///
    /// # Errors
    /// The error of the check.
    pub fn check(&self) -> Result<()> {
        self.inner.check.wait()
    }

    /// Returns what is known so far, and starts the background check.
    fn begin(&self) -> Result<()> {
        let Verify::Background(checks) = &self.inner.mode else { return Ok(()) };
        let verdict = self.verdict();
        if !self.inner.is_lazy || self.is_due() {
            self.inner.check.begin(checks);
        }
        verdict.unwrap_or(Ok(()))
    }
}

impl fmt::Debug for ChecksumGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChecksumGate")
            .field("mode", &self.inner.mode)
            .field("verdict", &self.verdict())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Mutex, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::bytes::FileOffset;
    use crate::checksum::{BackgroundChecks, crc32};
    use crate::error::Error;
    use crate::source::Source;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_gate_runs_its_check_once() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let gate = ChecksumGate::new(&Verify::First, 0, &Threads::default(), || {
            ASKED.fetch_add(1, Ordering::Relaxed);
            Err(Error::corrupt("no", "x"))
        });
        assert!(gate.verdict().is_none());
        assert!(gate.wait().is_err() && gate.wait().is_err() && gate.clone().wait().is_err());
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }

    /// A gate whose check fails to read the first `failures` times.
    fn flaky(mode: &Verify, failures: u32) -> (ChecksumGate, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let check = move || match count.fetch_add(1, Ordering::Relaxed) {
            n if n < failures => Err(Error::io(io::Error::from_raw_os_error(libc::EIO), "payload")),
            _ => Ok(()),
        };
        (ChecksumGate::new(mode, 0, &Threads::default(), check), asked)
    }

    #[test]
    fn a_check_that_could_not_read_is_retried_by_the_next_reader() {
        let (gate, asked) = flaky(&Verify::First, 1);
        assert_eq!(gate.wait().unwrap_err().errno(), libc::EIO);
        assert!(gate.verdict().is_none());
        gate.wait().unwrap();
        gate.wait().unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 2);

        let (gate, _) = flaky(&Verify::First, 1);
        let (tx, rx) = mpsc::channel();
        for _ in 0..2 {
            let tx = tx.clone();
            gate.when_open(move |verdict| tx.send(verdict.is_ok()).unwrap());
        }
        let first = [rx.recv_timeout(PATIENCE).unwrap(), rx.recv_timeout(PATIENCE).unwrap()];
        gate.when_open(move |verdict| tx.send(verdict.is_ok()).unwrap());
        assert_eq!((first[0], rx.recv_timeout(PATIENCE).unwrap()), (false, true));

        let checks = BackgroundChecks::default();
        let (gate, asked) = flaky(&Verify::Background(checks.clone()), 1);
        gate.wait().unwrap();
        assert!(checks.join().is_err());
        assert!(!gate.is_open(), "nothing is known yet, so the next reader begins it again");
        gate.wait().unwrap();
        let _ = checks.join();
        assert!(gate.is_open() && asked.load(Ordering::Relaxed) == 2);
    }

    #[test]
    fn in_the_background_only_the_last_bytes_wait_for_the_verdict_and_a_failure_refuses_all() {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let (checks, told) = (BackgroundChecks::default(), Arc::new(AtomicU32::new(0)));
        let count = told.clone();
        checks.on_failure(move |_| _ = count.fetch_add(1, Ordering::Relaxed));
        let gate = ChecksumGate::new(&Verify::Auto(checks.clone()), 1 << 40, &Threads::default(), move || {
            wait.lock().unwrap().recv().unwrap();
            Err(Error::corrupt("no", "x"))
        });
        ChecksumGate::wait_before(Some(&gate), false).unwrap();
        assert!(ChecksumGate::shut(Some(&gate), false).is_none());
        let end = ChecksumGate::shut(Some(&gate), true).expect("the end is withheld");
        let (tx, rx) = mpsc::channel();
        end.when_open(move |verdict| tx.send(verdict.is_ok()).unwrap());
        assert!(rx.try_recv().is_err());
        go.send(()).unwrap();
        assert!(!rx.recv_timeout(PATIENCE).unwrap());
        assert!(checks.join().is_err());
        assert_eq!((gate.verified(), told.load(Ordering::Relaxed)), (Verified::Failed, 1));
        assert!(
            ChecksumGate::shut(Some(&gate), false).is_some() && ChecksumGate::wait_before(Some(&gate), false).is_err()
        );
    }

    #[test]
    fn by_default_a_check_of_more_than_64_mib_runs_in_the_background() {
        let gate = |cost| ChecksumGate::new(&Verify::default(), cost, &Threads::default(), || Ok(()));
        let (small, large) = (gate(super::super::AT_ONCE), gate(super::super::AT_ONCE + 1));
        assert!(ChecksumGate::shut(Some(&small), false).is_some());
        ChecksumGate::wait_before(Some(&large), false).unwrap();
        assert!(large.is_open());
    }

    #[test]
    fn a_lazy_check_runs_only_before_the_end() {
        let ran = Arc::new(AtomicU32::new(0));
        let count = ran.clone();
        let gate = ChecksumGate::lazy(&Verify::default(), u64::MAX, &Threads::default(), move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        ChecksumGate::wait_before(Some(&gate), false).unwrap();
        assert_eq!((ran.load(Ordering::Relaxed), gate.verified()), (0, Verified::Pending));
        ChecksumGate::wait_before(Some(&gate), true).unwrap();
        assert_eq!((ran.load(Ordering::Relaxed), gate.verified()), (1, Verified::Yes));
    }

    #[test]
    fn a_check_of_what_is_far_away_runs_only_before_the_end_and_if_it_is_near_by_then() {
        use std::sync::atomic::AtomicBool;
        let (near, ran) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (is_near, count) = (near.clone(), ran.clone());
        let mode = Verify::default().far();
        let check = move || {
            count.fetch_add(1, Ordering::Relaxed);
            Err(Error::corrupt("no", "x"))
        };
        let gate =
            ChecksumGate::new(&mode, 1, &Threads::default(), check).near(move || is_near.load(Ordering::Relaxed));
        for is_end in [false, true] {
            ChecksumGate::wait_before(Some(&gate), is_end).unwrap();
            assert!(ChecksumGate::shut(Some(&gate), is_end).is_none());
        }
        near.store(true, Ordering::Relaxed);
        ChecksumGate::wait_before(Some(&gate), false).unwrap();
        assert_eq!((ran.load(Ordering::Relaxed), gate.verified()), (0, Verified::Pending));
        assert!(ChecksumGate::wait_before(Some(&gate), true).is_err());
        assert!(ran.load(Ordering::Relaxed) == 1 && ChecksumGate::wait_before(Some(&gate), false).is_err());
    }

    #[test]
    fn a_reader_reports_what_its_own_decoding_found() {
        let checks = BackgroundChecks::default();
        let gate = ChecksumGate::reported(&Verify::Background(checks.clone()), &Threads::default());
        ChecksumGate::wait_before(Some(&gate), true).unwrap();
        gate.report(&Err(Error::io(io::Error::from_raw_os_error(libc::EIO), "payload")));
        assert_eq!(gate.verified(), Verified::Pending, "a failed read is no verdict");
        gate.report(&Err(Error::corrupt("no", "x")));
        gate.report(&Ok(()));
        assert_eq!(gate.verified(), Verified::Failed);
        assert!(ChecksumGate::wait_before(Some(&gate), false).is_err() && checks.join().is_err());
    }

    #[test]
    fn parked_readers_share_one_run_and_occupy_no_thread() {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let gate = ChecksumGate::new(&Verify::First, 0, &Threads::default(), move || {
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
        let gate = ChecksumGate::new(&Verify::First, 0, &Threads::default(), move || {
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
        let gate = ChecksumGate::new(&Verify::First, 0, &Threads::default(), || panic!("on purpose"));
        let (tx, rx) = mpsc::channel();
        gate.when_open(move |verdict| tx.send(verdict.is_err()).unwrap());
        assert!(rx.recv_timeout(PATIENCE).unwrap());
        assert!(gate.wait().is_err());
    }

    #[test]
    fn a_gate_that_is_off_runs_its_check_only_for_verify() {
        let gate = ChecksumGate::new(&Verify::Off, 0, &Threads::default(), || Err(Error::corrupt("no", "x")));
        gate.wait().unwrap();
        assert!(gate.check().is_err());
        gate.wait().unwrap();
    }
}
