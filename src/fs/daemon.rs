//! Going to the background: the caller waits until the mount answers, or for the reason why not.
//!
//! The fork comes before any thread, pool or device exists; what they need is made in the child.
#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use super::sys::{self, ForkResult};
use crate::error::os_message;

/// What the child says when the mount answers; anything else is the reason why there is none.
const MOUNTED: &[u8] = b"\0mounted";

/// What the caller of [`split`] is.
#[derive(Debug)]
pub(super) enum Role {
    /// The program that the user started: the daemon has reported, this is what it said.
    Caller(Result<(), String>),
    /// The daemon, which has to report through this.
    Daemon(Report),
}

/// The daemon's line to the terminal that it came from.
#[derive(Debug)]
pub(super) struct Report(File);

/// Forks. In the caller it returns after the daemon has reported or died.
///
/// # Errors
/// Where there cannot be a second process.
pub(super) fn split() -> io::Result<Role> {
    let (mut from_daemon, to_caller) = sys::pipe()?;
    match sys::fork()? {
        ForkResult::Child => {
            drop(from_daemon);
            let report = Report(to_caller);
            match leave() {
                Ok(()) => Ok(Role::Daemon(report)),
                Err(e) => {
                    report.failed(&os_message(&e));
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
                [] => Err(died(sys::wait_for(pid)?)),
                why => Err(String::from_utf8_lossy(why).into_owned()),
            }))
        }
    }
}

/// Leaves the terminal, the directory and the files of whoever started us.
fn leave() -> io::Result<()> {
    sys::setsid()?;
    // The other streams follow when the mount answers, which must not fail then.
    sys::redirect(&OpenOptions::new().read(true).write(true).open("/dev/null")?, 0)?;
    // A lock or a pipe must not live as long as the mount.
    sys::close_inherited();
    // Not to keep a directory busy; everything relative was opened before.
    std::env::set_current_dir("/")
}

impl Report {
    /// The mount answers: lets the caller go, and leaves its terminal alone from now on.
    ///
    /// # Errors
    /// Where the streams cannot be redirected.
    pub(super) fn mounted(mut self) -> io::Result<()> {
        sys::redirect(&io::stdin(), 1)?;
        sys::redirect(&io::stdin(), 2)?;
        // A caller that has gone away does not need to hear it.
        self.0.write_all(MOUNTED).ok();
        Ok(())
    }

    /// There is no mount, because of `why`.
    pub(super) fn failed(mut self, why: &str) {
        // Nobody else is left to tell.
        self.0.write_all(why.as_bytes()).ok();
    }
}

/// A daemon that ended without a word.
fn died(status: libc::c_int) -> String {
    if libc::WIFSIGNALED(status) {
        format!("the daemon was killed by signal {} before it could mount", libc::WTERMSIG(status))
    } else {
        format!("the daemon ended with status {} before it could mount", libc::WEXITSTATUS(status))
    }
}

/// Tells systemd that a service of `Type=notify` is ready; nothing where nobody asked.
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
