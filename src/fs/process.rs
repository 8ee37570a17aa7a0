//! The process that serves a mount: in the foreground, or as a daemon.
#![forbid(unsafe_code)]

use std::io;

use super::daemon::{self, Caller};
use super::signals::Signals;
use crate::wanted::while_wanted;

/// The process that serves a mount. From when it is made on, the termination signals of the process are for the mount.
#[derive(Debug)]
pub struct Process {
    pub(super) signals: Signals,
    /// Of a daemon, until the mount is ready.
    caller: Option<Caller>,
}

impl Process {
    /// This process, in the foreground. Must precede its first thread.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub fn foreground() -> io::Result<Self> {
        Ok(Self { signals: Signals::block()?, caller: None })
    }

    /// This process, which [`daemon::start`] has started. Must precede its first thread.
    ///
    /// # Errors
    /// From the system calls.
    pub fn daemon() -> io::Result<Self> {
        Ok(Self { caller: Some(Caller::leave()?), ..Self::foreground()? })
    }

    /// Runs `work`, which may wait, such as for a server. A termination signal meanwhile ends the process.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub fn until_signal<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        let signals = self.signals.again()?;
        let done = while_wanted(move || !signals.is_pending(), work);
        Signals::deliver()?;
        Ok(done)
    }

    /// Reports that the mount is ready.
    ///
    /// # Errors
    /// As [`Caller::ready`].
    pub(super) fn ready(&mut self) -> io::Result<()> {
        let Some(caller) = self.caller.take() else {
            daemon::tell_systemd();
            return Ok(());
        };
        caller.ready()
    }
}
