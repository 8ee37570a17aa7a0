//! Waiting for the end: a signal, or the kernel's word that nothing is mounted any more.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::sys;

/// The signals that ask for an end.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// What was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A signal asked for an end.
    Signal(i32),
    /// The session has ended by itself.
    Ended,
    /// The time was over.
    Timeout,
}

/// The ending signals, taken out of the hands of every thread that starts after [`Signals::block`].
#[derive(Debug)]
pub(super) struct Signals(File);

impl Signals {
    /// Blocks the ending signals from now on; they are asked for with [`Signals::wait`].
    ///
    /// # Errors
    /// Where the system has no descriptor left.
    pub(super) fn block() -> io::Result<Self> {
        sys::signal_fd(&ENDING).map(Self)
    }

    /// Waits for a signal, for the other end of `session` to be closed, or for `timeout`.
    ///
    /// # Errors
    /// Where waiting is not possible.
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

/// The name of an ending signal.
pub(super) fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGINT => "SIGINT",
        libc::SIGTERM => "SIGTERM",
        libc::SIGHUP => "SIGHUP",
        _ => "a signal",
    }
}
