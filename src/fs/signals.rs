//! The termination signals: received as events, so that a mount can be undone.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::sys;

/// The termination signals.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Result of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A termination signal.
    Signal(i32),
    /// The session has ended.
    Ended,
    /// The timeout has expired.
    Timeout,
}

/// The termination signals, blocked in every thread started after [`Signals::block`].
#[derive(Debug)]
pub(super) struct Signals(File);

impl Signals {
    /// Blocks the termination signals; receive them with [`Signals::wait`].
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub(super) fn block() -> io::Result<Self> {
        sys::block(&ENDING)?;
        sys::signal_fd(&ENDING).map(Self)
    }

    /// Whether a signal has arrived.
    pub(super) fn is_pending(&self) -> bool {
        sys::wait_readable(&[self.0.as_fd()], Some(Duration::ZERO)).is_ok_and(|ready| ready == [true])
    }

    /// Lets signals that have arrived take the effect that they have without [`Signals::block`].
    pub(super) fn deliver() -> io::Result<()> {
        sys::unblock(&ENDING)?;
        sys::block(&ENDING)
    }

    /// Another descriptor for the same signals.
    pub(super) fn again(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Waits for a signal, for the other end of `session` to be closed, or for `timeout`.
    ///
    /// # Errors
    /// Fails if poll(2) or read(2) fails.
    pub(super) fn wait(&self, session: &File, timeout: Option<Duration>) -> io::Result<Event> {
        let until = timeout.map(|t| Instant::now() + t);
        loop {
            let left = until.map(|at| at.saturating_duration_since(Instant::now()));
            let ready = sys::wait_readable(&[session.as_fd(), self.0.as_fd()], left)?;
            match ready[..] {
                [true, _] => return Ok(Event::Ended),
                [_, true] => {
                    let mut report = [0; sys::SIGNAL_REPORT];
                    (&self.0).read_exact(&mut report)?;
                    let number = report.first_chunk().map_or(0, |n| i32::from_ne_bytes(*n));
                    return Ok(Event::Signal(number));
                }
                _ if left.is_some_and(|t| t.is_zero()) => return Ok(Event::Timeout),
                _ => {}
            }
        }
    }
}

/// The name of a termination signal.
pub(super) fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGINT => "SIGINT",
        libc::SIGTERM => "SIGTERM",
        libc::SIGHUP => "SIGHUP",
        _ => "a signal",
    }
}
