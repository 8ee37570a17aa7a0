//! Which process serves a mount: the daemon reports it in extended attributes of the root.
//!
//! A process id is valid in its PID namespace only, so the daemon also reports its namespace.
//!
//! Each attribute has two names. One that begins with `user` is for people, but before it is read the kernel asks for
//! the mode of the root, and the answer may wait for the source of the mount. Programs use the other one.
#![forbid(unsafe_code)]

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::pinned::Pinned;
use super::{mountinfo, sys};

/// The process id of the daemon. Not listed, like the other; only returned by name.
const PID: [&CStr; 2] = [c"system.fzmfs.daemon.pid", c"user.fzmfs.daemon.pid"];
/// The PID namespace in which it is valid.
const NAMESPACE: [&CStr; 2] = [c"system.fzmfs.daemon.pid_namespace", c"user.fzmfs.daemon.pid_namespace"];

/// The daemon of a mount.
#[derive(Debug)]
pub(super) enum Daemon {
    /// A descriptor that becomes readable when it ends.
    Running(OwnedFd),
    /// It has ended.
    Ended,
    /// It runs, but this process cannot see it.
    Unseen,
}

/// The value of the attribute `name` of the root; `None` if it is not one of these.
pub(super) fn attribute(name: &OsStr) -> Option<Vec<u8>> {
    let is = |names: [&CStr; 2]| names.iter().any(|known| known.to_bytes() == name.as_bytes());
    if is(PID) {
        Some(std::process::id().to_string().into_bytes())
    } else if is(NAMESPACE) {
        Some(namespace().unwrap_or_default())
    } else {
        None
    }
}

/// Asks the daemon of the mount with root `root` for the first of `names` that it knows: an earlier version knows the last
/// one only.
fn ask(root: &Pinned, names: [&CStr; 2]) -> io::Result<Vec<u8>> {
    let [name, earlier] = names;
    match sys::getxattr(&root.link(), name) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENODATA)) => {
            sys::getxattr(&root.link(), earlier)
        }
        answer => answer,
    }
}

/// Names the PID namespace of this process.
fn namespace() -> io::Result<Vec<u8>> {
    Ok(std::fs::read_link("/proc/self/ns/pid")?.into_os_string().into_vec())
}

/// Whether the daemon of the mount with root `root` is gone. Attributes may be cached by the kernel; these are always
/// requested from the daemon.
pub(super) fn is_dead(root: &Pinned) -> bool {
    ask(root, PID).is_err_and(|e| mountinfo::is_dead(&e))
}

/// Finds the daemon of the mount with root `root` on `device`, a `major:minor`.
///
/// # Errors
/// Fails if the daemon does not answer: it is gone, or refuses this user.
pub(super) fn find(root: &Pinned, device: &str) -> io::Result<Daemon> {
    let Some(pid) = process_id(root)? else { return Ok(search(device)) };
    match sys::pidfd(pid) {
        // It still answers, so the id was not reused by another process before the descriptor was opened.
        Ok(daemon) if process_id(root)? == Some(pid) => Ok(Daemon::Running(daemon)),
        Ok(_) => Ok(Daemon::Ended),
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(Daemon::Ended),
        Err(_) => Ok(Daemon::Unseen),
    }
}

/// The process id of the daemon of the mount with root `root`; `None` if it is not valid in our namespace.
///
/// # Errors
/// As [`find`].
pub(super) fn process_id(root: &Pinned) -> io::Result<Option<u32>> {
    let answer = ask(root, PID)?;
    let is_ours = is_ours(ask(root, NAMESPACE).ok().as_deref(), namespace().ok().as_deref());
    Ok(str::from_utf8(&answer).ok().filter(|_| is_ours).and_then(|text| text.parse().ok()))
}

/// Whether a process id that is valid in the namespace `told` is valid in our namespace `own`. A daemon that reports
/// none is an older version, and taken to be in ours.
fn is_ours(told: Option<&[u8]>, own: Option<&[u8]>) -> bool {
    told.is_none_or(|told| own == Some(told))
}

/// Searches for the process that serves `device` among those that may be inspected.
pub(super) fn search(device: &str) -> Daemon {
    let found = find_server(device).and_then(|pid| sys::pidfd(pid).ok());
    found.map_or(Daemon::Unseen, Daemon::Running)
}

/// The process that has a FUSE descriptor of `device` open, the youngest if there are several: a stopped daemon keeps
/// its descriptor after its mount has gone, and its number may be used again. Kernels before 6.16 do not show that.
fn find_server(device: &str) -> Option<u32> {
    // The connection number is the minor number of the device.
    let (_, minor) = device.split_once(':')?;
    let serves = |pid: u32| {
        let infos = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
        infos.filter_map(|info| std::fs::read_to_string(info.path()).ok()).any(|text| {
            let mut lines = text.lines().filter_map(|line| line.strip_prefix("fuse_connection:"));
            lines.any(|number| number.trim() == minor)
        })
    };
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let ids = processes.filter_map(|p| p.file_name().to_str()?.parse().ok());
    ids.filter(|&pid| serves(pid)).max_by_key(|&pid| start_time(pid))
}

/// When the process was started, in clock ticks since the system was (`proc_pid_stat(5)`, field 22).
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field may contain anything but ends with the last parenthesis.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_id_counts_only_in_the_namespace_that_it_is_valid_in() {
        let [own, same] = NAMESPACE.map(|name| attribute(OsStr::from_bytes(name.to_bytes())).unwrap());
        assert_eq!(own, same);
        assert!(own.starts_with(b"pid:["));
        assert!(is_ours(Some(&own), namespace().ok().as_deref()) && is_ours(None, Some(&own)) && is_ours(None, None));
        assert!(!is_ours(Some(b"pid:[1]"), Some(&own)) && !is_ours(Some(&own), None));
    }
}
