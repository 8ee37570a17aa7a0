//! Linux.
#![expect(unsafe_code, reason = "libc has no safe way to advise the kernel and the allocator")]

mod memory;

use std::ffi::{OsStr, c_void};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, IFlags, Mode, OFlags, ResolveFlags, Stat, StatxFlags, getxattr, lgetxattr,
    makedev, openat2, statx,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::InMemory;
use super::unix::{map, unlinked, write_zeros};

pub use memory::available_memory;

/// How a directory is opened in which only names are looked up: search permission suffices.
pub const SEARCH: OFlags = OFlags::PATH;

/// The attribute that holds the access control list of a file.
const ACL: &str = "system.posix_acl_access";

/// Type and rights of a file.
pub fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode
}

/// The type of a file of this mode.
pub fn type_of(mode: u32) -> FileType {
    FileType::from_raw_mode(mode)
}

/// The directory `path` below `dir`; an empty path is `dir` itself. Neither follows a symbolic link nor enters another
/// file system.
///
/// # Errors
/// From openat2(2): `EAGAIN` while directories on the way are being renamed; `ENOSYS` or `EPERM` if the system call is
/// missing, or forbidden here.
pub fn open_beneath(dir: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    openat2(dir, if path.is_empty() { b"." } else { path }, flags, Mode::empty(), resolve)
}

/// The identity of `file` as the kernel has it in memory: does not wait for a file server, whose file may have changed
/// since. `None` if the kernel cannot say.
pub fn in_memory(file: impl std::os::fd::AsFd) -> Option<InMemory> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(file, "", flags, StatxFlags::BASIC_STATS).ok()?;
    Some(InMemory {
        dev: makedev(stat.stx_dev_major, stat.stx_dev_minor),
        ino: stat.stx_ino,
        size: stat.stx_size,
        mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec.into()),
        ctime: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec.into()),
        nlink: stat.stx_nlink.into(),
        mode: stat.stx_mode.into(),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
    })
}

/// The access control list of `name` in `dir`, or of `dir` itself. Returns its length.
///
/// # Errors
/// From getxattr(2): `ENODATA` or `ENOTSUP` if it has none.
pub fn access_list(dir: BorrowedFd<'_>, name: Option<&OsStr>, list: &mut [u8]) -> Result<usize, Errno> {
    // Neither call takes a descriptor that was opened with O_PATH.
    let link = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    match name {
        Some(name) => lgetxattr(link.join(name), ACL, list),
        None => getxattr(link, ACL, list),
    }
}

/// Creates a file in `dir` that has no name.
///
/// # Errors
/// From open(2).
pub fn unnamed(dir: &Path) -> io::Result<File> {
    match OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(dir) {
        // The file system does not support O_TMPFILE.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => unlinked(dir),
        made => made,
    }
}

/// Disables copy-on-write, so that writes go to the blocks that were allocated. This has to come before the first
/// block. Other file systems refuse it, and do not need it.
pub fn write_in_place(file: &File) {
    if let Ok(flags) = rustix::fs::ioctl_getflags(file) {
        rustix::fs::ioctl_setflags(file, flags | IFlags::NOCOW).ok();
    }
}

/// Lets the pipe `file` hold at least `len` bytes, if it is one and the user may have so many, so that its ends wait for each
/// other less often.
pub fn widen_pipe(file: &File, len: usize) {
    if rustix::pipe::fcntl_getpipe_size(file).is_ok_and(|has| has < len) {
        rustix::pipe::fcntl_setpipe_size(file, len).ok();
    }
}

/// Extends `file` to `len` bytes and allocates all of its blocks.
///
/// # Errors
/// From fallocate(2) and write(2).
pub fn allocate(file: &File, len: u64) -> io::Result<()> {
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, len),
        done => Ok(done?),
    }
}

/// A range of addresses for an allocator, `size` bytes from a multiple of `page` on, of which all but the first `page` bytes
/// are huge pages if these are `wanted` and there are any. Nothing is reserved under a limit of address space (`ulimit -v`), or where
/// every mapping counts as used memory (`vm.overcommit_memory=2`).
pub fn huge_range(size: usize, page: usize, wanted: bool) -> Option<*mut c_void> {
    if is_limited() {
        return None;
    }
    let start = map(size + page, libc::PROT_READ | libc::PROT_WRITE)?.cast::<u8>();
    // SAFETY: the first boundary of a page is within the mapping.
    let first = unsafe { start.add(start.align_offset(page)) };
    // SAFETY: the second boundary is within it, too.
    let second = unsafe { first.add(page) };
    // Without huge pages the range serves as well; `never` may be the system's setting.
    let advice = if wanted { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // Its beginning holds tables of mimalloc, mostly unwritten. SAFETY: a part of the mapping.
    unsafe { libc::madvise(second.cast(), size - page, advice) };
    Some(first.cast())
}

/// Whether addresses without memory are limited.
fn is_limited() -> bool {
    let mut overcommit = [0];
    let read = File::open("/proc/sys/vm/overcommit_memory").and_then(|mut file| file.read(&mut overcommit));
    super::address_space().is_some() || (read.is_ok() && overcommit == *b"2")
}

/// Prevents glibc from reserving 64 MiB of address space per thread. No other thread may exist.
pub fn share_the_heap() {
    // SAFETY: passes two integers; no other thread is allocating.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Has glibc return large memory to the system when it is freed. By default it keeps up to twice the largest that was
/// ever freed, in each thread. No other thread may exist.
pub fn keep_little_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (limit, bytes) in [(libc::M_MMAP_THRESHOLD, 2 << 20), (libc::M_TRIM_THRESHOLD, 1 << 19)] {
        // SAFETY: passes two integers; no other thread is allocating.
        unsafe { libc::mallopt(limit, bytes) };
    }
}

/// Returns freed memory to the system, after a burst of it. glibc keeps freed memory per thread, so that the bursts of
/// several threads would add up.
pub fn trim_heap() {
    // SAFETY: touches nothing that is allocated.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Fills `bytes` with random ones.
///
/// # Errors
/// From getrandom(2).
pub fn random(mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = rustix::io::retry_on_intr(|| getrandom(&mut *bytes, GetRandomFlags::empty()))?;
        bytes = bytes.get_mut(n..).unwrap_or_default();
    }
    Ok(())
}

/// Whether a socket that was passed to this process listens.
pub fn is_listening(socket: &TcpListener) -> bool {
    rustix::net::sockopt::socket_acceptconn(socket).unwrap_or(false)
}

/// Gives this thread the niceness `nice`.
pub fn set_niceness(nice: i32) {
    _ = rustix::process::setpriority_process(None, nice);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_file_has_no_name() {
        let dir = tempfile::tempdir().unwrap();
        for file in [unnamed(dir.path()).unwrap(), unlinked(dir.path()).unwrap()] {
            allocate(&file, 10 << 20).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 10 << 20);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
        assert!(unnamed(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn a_range_is_reserved_unless_addresses_are_limited() {
        assert_eq!(huge_range(1 << 30, 2 << 20, true).is_some(), !is_limited());
    }
}
