//! A gate that withholds bytes until the checksum over them was verified.
//!
//! A [`ChecksumGate`] guards bytes that one checksum covers as a whole (FZM: one CRC-32 over the payload). Its check
//! runs once, when the first of these bytes is requested. [`ChecksumGate::when_open`] queues a continuation and the
//! check runs on [`Threads`], so waiting takes no thread; [`ChecksumGate::wait`] blocks the calling thread.
//!
//! Three requests for the payload of an FZM file of 40 MiB arrive: the first starts the check, and all three queue
//! their replies. The CRC is right: the replies are sent, and the gate is never asked again. It is wrong: all three,
//! and all that follow, fail with the error of the check. Of a file of 10 GiB, above the 64 MiB of `verify=auto`, the
//! check runs in the background, the requests are answered at once, and only the last bytes wait for it.
//!
//! Invariants: as [`SharedCheck`].
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use crate::error::Result;

use super::shared_check::SharedCheck;
use super::{Threads, Verified, Verify};

/// A check that runs once and withholds bytes until it has passed.
#[derive(Clone)]
pub struct ChecksumGate {
    inner: Arc<GateInner>,
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

struct GateInner {
    /// Resolved: neither [`Verify::Auto`] nor [`Verify::Passive`].
    mode: Verify,
    check: Arc<SharedCheck>,
    /// Whether bytes other than the last ones are served without starting the check.
    is_lazy: bool,
    /// For a check that is not worth a request to a server: whether it needs none, or almost none.
    is_near: Option<Box<IsNear>>,
}

type IsNear = dyn Fn() -> bool + Send + Sync;

impl ChecksumGate {
    /// Creates a gate that opens according to `mode`. `check` reads or decodes `cost` bytes; it runs on `threads`
    /// unless a blocking caller runs it. With [`Verify::Passive`] it does not run, except as [`ChecksumGate::near`]
    /// says.
    pub fn new(
        mode: &Verify,
        cost: u64,
        threads: &Threads,
        check: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::of(mode, cost, SharedCheck::new(threads, check), matches!(mode, Verify::Passive(_)))
    }

    /// Creates a gate with a check that runs only before the last bytes that the checksum covers, unless `mode` asks
    /// for it before the first: for a check that readers have mostly done by then (see
    /// [`StreamHash`](super::StreamHash)).
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
            inner: Arc::new(GateInner { mode: mode.resolve(cost), check: Arc::new(check), is_lazy, is_near }),
            is_end: false,
        }
    }

    /// For [`Verify::Passive`], on a gate that is not shared yet: the check runs before the last bytes that the
    /// checksum covers, if `is_near` then says that it takes no request, or almost none.
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

    /// Whether it withholds bytes until a check without a verdict so far has passed.
    pub fn is_withheld(&self) -> bool {
        self.opens() == Opens::Passed && self.verdict().is_none()
    }

    /// The verdict, if the check has given one.
    pub fn verdict(&self) -> Option<Result<()>> {
        self.inner.check.progress().0
    }

    /// State of the verification of the checksum.
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
        let checks = match &self.inner.mode {
            Verify::Background(checks) => Some(checks),
            _ => None,
        };
        if self.inner.check.report(verdict, checks)
            && let (Err(error), Some(checks)) = (verdict, checks)
        {
            checks.notify(error);
        }
    }

    /// Returns the verdict; runs the check in any mode if there is none. Used by `verify`.
    ///
    /// # Errors
    /// The error of the check.
    pub fn check(&self) -> Result<()> {
        self.inner.check.wait()
    }

    /// Returns the verdict so far, if any, and starts the background check.
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
mod tests;
