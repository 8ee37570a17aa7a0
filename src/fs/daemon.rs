//! Daemonization: the caller waits until the mount is ready or has failed.
//!
//! The fork precedes all threads, pools and devices; the child creates what it needs.
#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use super::sys::{self, ForkResult};
use crate::failure::Failure;

/// Sent by the child when the mount is ready; any other message is the line of a failure.
const MOUNTED: &[u8] = b"\0mounted";

/// The role of the process after [`split`].
#[derive(Debug)]
pub(super) enum Role {
    /// The process the user started, after the daemon's report.
    Caller(Result<(), Failure>),
    /// The daemon, which must report through this.
    Daemon(Report),
}

/// The daemon's pipe to the process that started it.
#[derive(Debug)]
pub(super) struct Report(File);

/// Forks for a mount on `mountpoint`. Returns in the caller after the daemon has reported or died.
///
/// # Errors
/// Fails if the pipe, the fork or the wait for the child fails.
pub(super) fn split(mountpoint: &Path) -> io::Result<Role> {
    let (mut from_daemon, to_caller) = sys::pipe()?;
    match sys::fork()? {
        ForkResult::Child => {
            drop(from_daemon);
            let report = Report(to_caller);
            match leave() {
                Ok(()) => Ok(Role::Daemon(report)),
                Err(e) => {
                    report.failed(&Failure::system(mountpoint, &e));
                    std::process::exit(1);
                }
            }
        }
        ForkResult::Parent(pid) => {
            drop(to_caller);
            let mut said = Vec::new();
            from_daemon.read_to_end(&mut said)?;
            Ok(Role::Caller(match said.as_slice() {
                MOUNTED => Ok(()),
                [] => Err(Failure::at(mountpoint, died(sys::wait_for(pid)?))),
                line => Err(Failure::new(String::from_utf8_lossy(line))),
            }))
        }
    }
}

/// Detaches from the terminal, the working directory and the inherited files.
fn leave() -> io::Result<()> {
    sys::setsid()?;
    // stdout and stderr follow once the mount is ready, as duplicates of this one: that step must not fail.
    sys::redirect(&OpenOptions::new().read(true).write(true).open("/dev/null")?, 0)?;
    // Inherited locks and pipes must not stay open as long as the mount.
    sys::close_inherited();
    // Keeps no directory busy; all relative paths are resolved already.
    std::env::set_current_dir("/")
}

impl Report {
    /// Reports that the mount is ready, and releases the caller's terminal.
    ///
    /// # Errors
    /// Fails if the streams cannot be redirected.
    pub(super) fn mounted(mut self) -> io::Result<()> {
        sys::redirect(&io::stdin(), 1)?;
        sys::redirect(&io::stdin(), 2)?;
        // The caller may have exited.
        self.0.write_all(MOUNTED).ok();
        Ok(())
    }

    /// Reports that mounting failed.
    pub(super) fn failed(mut self, failure: &Failure) {
        // There is no other channel for a failure here.
        self.0.write_all(failure.to_string().as_bytes()).ok();
    }
}

/// Describes a daemon that ended without a report.
fn died(status: libc::c_int) -> String {
    if libc::WIFSIGNALED(status) {
        format!("the daemon was killed by signal {} before it could mount", libc::WTERMSIG(status))
    } else {
        format!("the daemon ended with status {} before it could mount", libc::WEXITSTATUS(status))
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
