//! Functions that Linux and macOS share.
#![expect(unsafe_code, reason = "libc has no safe way to map memory, to set signals, and to find a library")]

use std::borrow::Cow;
use std::ffi::{CStr, OsStr, OsString, c_void};
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{mem, ptr};

use memmap2::{MmapRaw, UncheckedAdvice};
use rustix::process::{Resource, geteuid, getrlimit, setrlimit};

use rustix::fs::{Timespec, Timestamps, UTIME_OMIT, utimensat};

pub use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, fcntl_setfl, fstat, fstatvfs, linkat, mkdirat,
    openat, readlinkat, renameat, renameat_with, statat, symlinkat, unlinkat,
};
pub use rustix::io::Errno;
pub use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
pub use std::os::unix::ffi::OsStrExt;
pub use std::os::unix::fs::FileExt;

/// Bytes written at a time where blocks cannot be allocated.
const STRIDE: usize = 1 << 20;

/// The rights of others.
const OTHERS: u32 = 0o077;

/// Whether a program may make symbolic links.
pub const MAKES_LINKS: bool = true;
/// Whether it can be told who else can write to a directory: [`check_private`].
pub const KNOWS_PRIVATE: bool = true;

/// The error with the number `errno`.
pub fn os_error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// The number of an error of the system.
pub fn errno(error: &io::Error) -> Option<i32> {
    error.raw_os_error()
}

/// How the limit that made a system call fail is raised, to append to its message.
pub fn advice(errno: i32) -> &'static str {
    match errno {
        libc::EMFILE => "; ulimit -n sets how many this process may have",
        libc::ENOMEM => "; ulimit -v sets how much this process may have",
        libc::EAGAIN => "; no more threads or processes may be started (ulimit -u, pids.max, ulimit -v)",
        _ => "",
    }
}

/// A path from the bytes of a `file://` URL.
pub fn path_of_url(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

/// `path` with `/` between its components, as it has.
pub fn slashed(path: &Path) -> Cow<'_, Path> {
    Cow::Borrowed(path)
}

/// The name of a file for an entry of a tree that is called `name`: any name but `.` and `..` will do.
pub fn name_of_file(name: &str) -> Cow<'_, str> {
    Cow::Borrowed(name)
}

/// The user and the group of this process.
pub fn user() -> (u32, u32) {
    (geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Makes a directory, and those above it, for this user alone.
///
/// # Errors
/// From mkdir(2).
pub fn create_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Fails unless nobody else can write to `dir`.
///
/// # Errors
/// That, and from stat(2).
pub fn check_private(dir: impl AsFd) -> io::Result<()> {
    let about = fstat(dir)?;
    if about.st_uid != geteuid().as_raw() || about.st_mode & 0o022 != 0 {
        return Err(io::Error::other("not a directory that only this user can write to"));
    }
    Ok(())
}

/// Opens a file to read; neither follows a link nor waits for a FIFO.
///
/// # Errors
/// From open(2).
pub fn open_unfollowed(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Makes a file that only this user can read.
///
/// # Errors
/// From open(2): also if it exists.
pub fn create_secret(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Whether a file is this user's, and only he can read it.
pub fn is_secret(about: &Metadata) -> bool {
    about.uid() == geteuid().as_raw() && about.mode() & OTHERS == 0
}

/// Makes `file` a program, as far as `mode` says, for those who may read it.
///
/// # Errors
/// From chmod(2).
pub fn set_executable(file: &File, mode: u32) -> io::Result<()> {
    let mut permissions = file.metadata()?.permissions();
    let now = permissions.mode();
    permissions.set_mode(now | (mode & (now & 0o444) >> 2));
    file.set_permissions(permissions)
}

/// A file with a name that is removed at once.
pub(super) fn unlinked(dir: &Path) -> io::Result<File> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let path = dir.join(format!(".fzmfs-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Extends `file` to `len` bytes by writing zeros.
pub(super) fn write_zeros(file: &File, len: u64) -> io::Result<()> {
    let zeros = vec![0; STRIDE];
    let mut at = 0;
    while at < len {
        let n = usize::try_from(len - at).map_or(STRIDE, |rest| rest.min(STRIDE));
        file.write_all_at(zeros.get(..n).unwrap_or_default(), at)?;
        at += n as u64;
    }
    Ok(())
}

/// Bytes available to unprivileged users on the file system of `dir`.
pub fn free_space(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

/// The size that `ulimit -f` allows for a file.
pub fn largest_file() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// How many descriptors this process may have.
pub fn most_descriptors() -> usize {
    getrlimit(Resource::Nofile).current.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX)
}

/// Raises the soft limit of open files to the hard limit: the soft limit is low only for the sake of select(2).
pub fn use_all_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, a lack of descriptors is reported where it occurs.
    setrlimit(Resource::Nofile, limit).ok();
}

/// The limit of the address space, if there is one.
pub fn address_space() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Makes a write beyond `ulimit -f` fail with EFBIG; otherwise SIGXFSZ would end the process. No other thread may exist.
pub fn fail_writes_over_the_limit() {
    // SAFETY: ignores a signal; no other thread exists.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Ends this process silently, by SIGPIPE, as `cat` ends when the reader of its output has gone. Only then: a server
/// that resets a connection must not end a command.
pub fn end_with_the_reader() -> ! {
    // SAFETY: sets the default action.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(libc::SIGPIPE) };
    // Blocked by the parent.
    std::process::exit(128 + libc::SIGPIPE)
}

/// Sets the time of modification of the symbolic link `name` in `dir`, in seconds and nanoseconds.
///
/// # Errors
/// From utimensat(2).
pub fn date_link(dir: impl AsFd, name: &str, (tv_sec, tv_nsec): (i64, i64)) -> io::Result<()> {
    let (omitted, modified) = (Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, Timespec { tv_sec, tv_nsec });
    let times = Timestamps { last_access: omitted, last_modification: modified };
    Ok(utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Maps address space without backing memory.
pub fn map_addresses(size: usize) -> Option<usize> {
    map(size, libc::PROT_NONE).map(<*mut c_void>::expose_provenance)
}

/// Unmaps a range returned by [`map_addresses`], of the same size, to which nothing refers.
pub fn unmap_addresses(start: usize, size: usize) {
    // SAFETY: nothing can be in the mapping, which may not be read or written.
    unsafe { libc::munmap(ptr::with_exposed_provenance_mut(start), size) };
}

/// Bytes of a memory page.
pub fn page_size() -> Option<usize> {
    // SAFETY: only asks.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()
}

/// A new private mapping, for which no memory is set aside.
pub(super) fn map(size: usize, protection: i32) -> Option<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping at an address that the kernel chooses.
    let start = unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, -1, 0) };
    (start != libc::MAP_FAILED).then_some(start)
}

/// Unmaps pages of a shared mapping of a file, which keeps the bytes; the next access maps them again.
///
/// # Errors
/// From madvise(2).
pub fn release(map: &MmapRaw, range: Range<usize>) -> io::Result<()> {
    // SAFETY: the mapping is shared with its file, which keeps the written bytes; only page table entries are dropped,
    // so borrowers see the same bytes.
    unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len()) }
}

/// The file that the code at `function` was loaded from; empty if that is not known.
pub fn library_of(function: usize) -> PathBuf {
    // SAFETY: all of it is integers and pointers, which may be zero.
    let mut info: libc::Dl_info = unsafe { mem::zeroed() };
    // SAFETY: it only fills `info`.
    if unsafe { libc::dladdr(ptr::without_provenance(function), &raw mut info) } == 0 || info.dli_fname.is_null() {
        return PathBuf::new();
    }
    // SAFETY: the name ends with zero, and stays while the library does.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Path::new(OsStr::from_bytes(name.to_bytes())).to_owned()
}

/// Sockets and signals of a server.
#[cfg(feature = "serve")]
pub mod net {
    use std::io;
    use std::net::TcpListener;

    use tokio::signal::unix::{Signal, SignalKind, signal};

    /// The signals that end a server; they do not end the process at once as soon as this exists.
    #[derive(Debug)]
    pub struct Signals {
        terminate: Signal,
        interrupt: Signal,
    }

    impl Signals {
        /// # Errors
        /// If the system refuses a handler.
        pub fn handled() -> io::Result<Self> {
            Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
        }

        /// Waits for one of them.
        pub async fn recv(&mut self) {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
        }
    }

    /// Lets `backlog` connections wait to be accepted.
    ///
    /// # Errors
    /// From listen(2).
    pub fn listen(listener: &TcpListener, backlog: i32) -> io::Result<()> {
        Ok(rustix::net::listen(listener, backlog)?)
    }
}

/// Files that tests make and the program does not.
#[cfg(test)]
pub mod testing {
    use std::io;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    pub use std::os::unix::fs::symlink;

    /// Makes a FIFO.
    ///
    /// # Errors
    /// From mkfifo(3).
    pub fn make_fifo(path: &Path) -> io::Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: takes a path that ends with zero.
        if unsafe { libc::mkfifo(path.as_ptr(), 0o400) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes a socket, which is there until this is dropped.
    ///
    /// # Errors
    /// From bind(2).
    pub fn make_socket(path: &Path) -> io::Result<UnixListener> {
        UnixListener::bind(path)
    }

    /// Whether a program that this one starts gets the descriptor.
    pub fn is_inherited(file: impl super::AsFd) -> bool {
        !rustix::io::fcntl_getfd(file).is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC))
    }

    /// Type and rights of a file.
    ///
    /// # Errors
    /// From stat(2).
    pub fn mode(path: &Path) -> io::Result<u32> {
        Ok(std::fs::metadata(path)?.permissions().mode())
    }

    /// Sets the rights of a file.
    ///
    /// # Errors
    /// From chmod(2).
    pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
    }
    /// Gives a file an access control list.
    ///
    /// # Errors
    /// From setxattr(2): also if its file system has none.
    pub fn set_access_list(path: &Path, list: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::setxattr(path, "system.posix_acl_access", list, rustix::fs::XattrFlags::empty())?)
    }
}
