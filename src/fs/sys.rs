//! System calls missing from the standard library, each behind a safe function.
//!
//! Invariant: all unsafe code of this folder is in this file.
#![expect(unsafe_code, reason = "system calls through libc")]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Converts a result of -1 to the current errno.
fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// The effective user and group ids.
pub(super) fn effective_ids() -> (u32, u32) {
    // SAFETY: no preconditions; cannot fail.
    let uid = unsafe { libc::geteuid() };
    // SAFETY: as above.
    let gid = unsafe { libc::getegid() };
    (uid, gid)
}

/// This program, to be started again.
pub(super) fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("fzmfs");
    command
}

/// Whether the kernel gives a session of FUSE more descriptors. qemu's user mode does not know how.
pub(super) fn clones_sessions(device: &File) -> bool {
    // `FUSE_DEV_IOC_CLONE` of linux/fuse.h.
    const CLONE: libc::Ioctl = 0x8004_E500_u32 as libc::Ioctl;
    let own = device.as_raw_fd();
    // SAFETY: it reads one integer. A descriptor without a session is refused, by who knows the request.
    let cloned = check(unsafe { libc::ioctl(own, CLONE, &raw const own) });
    !cloned.is_err_and(|why| matches!(why.raw_os_error(), Some(libc::ENOSYS | libc::ENOTTY)))
}

/// Starts a new session, without a controlling terminal.
pub(super) fn setsid() -> io::Result<()> {
    // SAFETY: no preconditions.
    check(unsafe { libc::setsid() }).map(drop)
}

/// Makes descriptor `onto` (0, 1 or 2) a duplicate of `file`.
pub(super) fn redirect(file: &impl AsRawFd, onto: RawFd) -> io::Result<()> {
    // SAFETY: `file` is open; dup2 closes `onto`, and callers pass only the standard streams.
    check(unsafe { libc::dup2(file.as_raw_fd(), onto) }).map(drop)
}

/// Closes inherited descriptors other than the standard streams. Does nothing if `/proc` is missing.
pub(super) fn close_inherited() {
    let fds = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let fds: Vec<RawFd> = fds.filter_map(|fd| fd.file_name().to_str()?.parse().ok()).collect();
    for fd in fds.into_iter().filter(|fd| *fd > 2) {
        // SAFETY: only reads flags; fails if the descriptor is not open.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            // SAFETY: every descriptor that we open is close-on-exec; this one is not, so it was inherited and has no
            // owner here.
            unsafe { libc::close(fd) };
        }
    }
}

/// Creates a pipe: the reading end and the writing end.
pub(super) fn pipe() -> io::Result<(File, File)> {
    let (read, write) = io::pipe()?;
    Ok((OwnedFd::from(read).into(), OwnedFd::from(write).into()))
}

/// Creates an event descriptor: readable once 8 bytes, a nonzero number, were written to it.
pub(super) fn event_fd() -> io::Result<File> {
    // SAFETY: passes two integers.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })?;
    // SAFETY: newly created, without another owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A set of signals.
fn signal_set(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: initializes `set`.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for &signal in signals {
        // SAFETY: `set` is initialized.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: `set` is initialized.
    unsafe { set.assume_init() }
}

/// Blocks `signals` in this thread and in threads it starts.
pub(super) fn block(signals: &[libc::c_int]) -> io::Result<()> {
    change_mask(libc::SIG_BLOCK, signals)
}

/// Lets `signals` arrive in this thread.
pub(super) fn unblock(signals: &[libc::c_int]) -> io::Result<()> {
    change_mask(libc::SIG_UNBLOCK, signals)
}

fn change_mask(how: libc::c_int, signals: &[libc::c_int]) -> io::Result<()> {
    let set = signal_set(signals);
    // SAFETY: the old set may be null.
    match unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Opens a descriptor that reports `signals`, which are blocked.
pub(super) fn signal_fd(signals: &[libc::c_int]) -> io::Result<File> {
    let set = signal_set(signals);
    // SAFETY: -1 requests a new descriptor.
    let fd = check(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) })?;
    // SAFETY: newly created, without another owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Ignores SIGPIPE: a write to a pipe without readers fails instead of ending the process.
pub(super) fn ignore_broken_pipes() {
    // SAFETY: sets the disposition that the Rust runtime also sets at startup.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Size of one record of a signal descriptor; its first four bytes are the signal number.
pub(super) const SIGNAL_REPORT: usize = size_of::<libc::signalfd_siginfo>();

/// Waits until one of `fds` is readable or hung up; returns which, all false after `timeout` or a signal.
pub(super) fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    // Rounded up, so that a timeout below one millisecond does not cause a busy loop.
    let millis = timeout.map_or(-1, |t| i32::try_from(t.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
    // SAFETY: the array has the given number of entries.
    match check(unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis) }) {
        Ok(_) => Ok(polled.iter().map(|p| p.revents != 0).collect()),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(vec![false; fds.len()]),
        Err(e) => Err(e),
    }
}

/// Whether a FUSE descriptor still serves a mount.
pub(super) fn is_connected(device: BorrowedFd<'_>) -> bool {
    let mut polled = libc::pollfd { fd: device.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one entry, as stated.
    let answer = unsafe { libc::poll(&raw mut polled, 1, 0) };
    answer >= 0 && polled.revents & libc::POLLERR == 0
}

/// Opens a descriptor that becomes readable when process `pid` ends.
pub(super) fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: passes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::pid_t::try_from(pid).unwrap_or(-1), 0) };
    let fd = check(libc::c_int::try_from(fd).unwrap_or(-1))?;
    // SAFETY: newly created, without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads the extended attribute `name` of `path`, at most 1 KiB.
pub(super) fn getxattr(path: &Path, name: &CStr) -> io::Result<Vec<u8>> {
    let path = c_path(path)?;
    let mut value = vec![0_u8; 1024];
    // SAFETY: NUL-terminated strings, and a buffer of the given size.
    let n = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    value.truncate(n);
    Ok(value)
}

/// Lets the program started by `command` inherit `fd`.
pub(super) fn inherit(command: &mut Command, fd: BorrowedFd<'_>) {
    let fd = fd.as_raw_fd();
    // SAFETY: `fd` is open; fcntl is async-signal-safe.
    let keep = move || check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }).map(drop);
    // SAFETY: `keep` calls only async-signal-safe functions.
    unsafe { command.pre_exec(keep) };
}

/// Reads at `offset` from the page cache only; fails with `WouldBlock` if the disk is needed.
pub(super) fn read_cached(file: BorrowedFd<'_>, dst: &mut [u8], offset: u64) -> io::Result<usize> {
    let iov = libc::iovec { iov_base: dst.as_mut_ptr().cast(), iov_len: dst.len() };
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: one exclusively borrowed buffer of the given size.
    let n = unsafe { libc::preadv2(file.as_raw_fd(), &raw const iov, 1, offset, libc::RWF_NOWAIT) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}
