//! The daemon of a mount: this program, started again in a session of its own.
//!
//! Its caller waits until the mount is ready or the daemon has ended. Until it is ready, the daemon has the standard
//! output and error of its caller, for its messages; its standard input is a pipe to the caller. It is started rather
//! than forked, so that neither needs to know which threads, connections and devices the other has.
//!
//! Invariant: a caller that is killed takes a daemon that is not ready with it.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::set_name;

use super::sys;
use crate::failure::Failure;

/// Sent by the daemon when the mount is ready.
const READY: &[u8] = b"ready";

/// Starts the daemon: this program, with `args`, which make it call [`super::Process::daemon`]. Returns when the mount is
/// ready.
///
/// # Errors
/// The daemon cannot be started, or has ended, with a failure that it has reported.
pub fn start<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Result<(), Failure> {
    let failed =
        |e: io::Error| Failure::new(format_args!("the daemon cannot be started: {}", crate::error::os_explain(&e)));
    let (mut from_daemon, to_caller) = io::pipe().map_err(failed)?;
    let mut daemon = sys::this_program().args(args).stdin(to_caller).spawn().map_err(failed)?;
    let mut said = Vec::new();
    from_daemon.read_to_end(&mut said).map_err(failed)?;
    if said == READY {
        return Ok(());
    }
    Err(ended(daemon.wait().map_err(failed)?))
}

/// Describes a daemon that ended before the mount was ready.
fn ended(status: ExitStatus) -> Failure {
    match status.code().map(u8::try_from) {
        Some(Ok(code)) if code != 0 => Failure::reported_with(code),
        _ => {
            let how = status.signal().map_or("ended".to_owned(), |signal| format!("was killed by signal {signal}"));
            Failure::new(format_args!("the daemon {how} before it could mount"))
        }
    }
}

/// The process that waits for this one, a daemon.
#[derive(Debug)]
pub(super) struct Caller(File);

impl Caller {
    /// Leaves the session of the caller, which has called [`start`], and its other files.
    ///
    /// # Errors
    /// From the system calls.
    pub(super) fn leave() -> io::Result<Self> {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // Not that of /proc/self/exe.
        set_name(c"fzmfs")?;
        // Inherited locks and pipes must not stay open as long as the mount.
        sys::close_inherited();
        let caller = Self(io::stdin().as_fd().try_clone_to_owned()?.into());
        // The other streams follow once the mount is ready, as duplicates of this one: that step must not fail.
        sys::redirect(&OpenOptions::new().read(true).write(true).open("/dev/null")?, 0)?;
        sys::setsid()?;
        Ok(caller)
    }

    /// Reports that the mount is ready, and leaves the caller's terminal and its directory.
    ///
    /// # Errors
    /// The caller was killed, or the streams cannot be redirected.
    pub(super) fn ready(mut self) -> io::Result<()> {
        // Keeps no directory busy; all relative paths are resolved already.
        std::env::set_current_dir("/")?;
        sys::redirect(&io::stdin(), 1)?;
        sys::redirect(&io::stdin(), 2)?;
        set_parent_process_death_signal(None)?;
        self.0.write_all(READY)
    }
}

/// Notifies systemd that a `Type=notify` service is ready; does nothing if not started by systemd.
pub(super) fn tell_systemd() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let told = UnixDatagram::unbound().and_then(|socket| match path.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.send_to_addr(b"READY=1", &SocketAddr::from_abstract_name(name)?),
        None => socket.send_to(b"READY=1", &path),
    });
    if let Err(e) = told {
        tracing::warn!("NOTIFY_SOCKET: {e}");
    }
}
