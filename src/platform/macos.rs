//! macOS: compiled by the tests, not run by them.
#![expect(unsafe_code, reason = "libc has no safe way to ask for the size of the memory")]

use std::ffi::{OsStr, c_void};
use std::fs::File;
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr;

use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;

use super::InMemory;
use super::unix::{unlinked, write_zeros};

/// How a directory is opened in which only names are looked up. It must be readable: a directory that may only be
/// searched cannot be opened.
pub const SEARCH: OFlags = OFlags::RDONLY;

/// Type and rights of a file.
pub fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode.into()
}

/// The type of a file of this mode.
pub fn type_of(mode: u32) -> FileType {
    FileType::from_raw_mode(mode as u16)
}

/// There is no such system call: paths are resolved component by component.
///
/// # Errors
/// `ENOSYS`.
pub fn open_beneath(_: &OwnedFd, _: &[u8]) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}

/// There is no way to ask that does not wait for a file server.
pub fn in_memory(_: impl AsFd) -> Option<InMemory> {
    None
}

/// Access control lists are not read: the rights of a file are those of its mode.
///
/// # Errors
/// `ENOTSUP`.
pub fn access_list(_: BorrowedFd<'_>, _: Option<&OsStr>, _: &mut [u8]) -> Result<usize, Errno> {
    Err(Errno::NOTSUP)
}

/// Creates a file in `dir`, whose name is removed at once.
///
/// # Errors
/// From open(2).
pub fn unnamed(dir: &Path) -> io::Result<File> {
    unlinked(dir)
}

/// APFS copies only blocks that a clone shares.
pub fn write_in_place(_: &File) {}

/// A pipe grows by itself.
pub fn widen_pipe(_: &File, _: usize) {}

/// Extends `file` to `len` bytes, by writing them.
///
/// # Errors
/// From write(2).
pub fn allocate(file: &File, len: u64) -> io::Result<()> {
    write_zeros(file, len)
}

/// The memory of the machine in bytes.
pub fn available_memory() -> Option<u64> {
    let (mut size, mut len) = (0_u64, size_of::<u64>());
    // SAFETY: fills at most `len` bytes of `size`.
    let failed =
        unsafe { libc::sysctlbyname(c"hw.memsize".as_ptr(), (&raw mut size).cast(), &raw mut len, ptr::null_mut(), 0) };
    (failed == 0 && size > 0).then_some(size)
}

/// Fills `bytes` with random ones.
///
/// # Errors
/// From open(2) and read(2).
pub fn random(bytes: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(bytes)
}

/// There are no huge pages.
pub fn huge_range(_: usize, _: usize, _: bool) -> Option<*mut c_void> {
    None
}

/// The heap reserves no address space for threads.
pub fn share_the_heap() {}

/// It keeps little.
pub fn keep_little_freed_memory() {}

/// Likewise.
pub fn trim_heap() {}

/// Whether a socket that was passed to this process listens: the system does not say.
pub fn is_listening(_: &TcpListener) -> bool {
    true
}

/// A thread has no niceness of its own.
pub fn set_niceness(_: i32) {}
