//! This process, its memory and its limits.
#![expect(unsafe_code, reason = "system calls")]

use std::ffi::{OsStr, c_void};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::BorrowedHandle;
use std::path::{Path, PathBuf};
use std::ptr;

use memmap2::MmapRaw;
use windows_sys::Win32::Foundation::ERROR_NOT_LOCKED;
use windows_sys::Win32::Security::Cryptography::ProcessPrng;
use windows_sys::Win32::Storage::FileSystem::{FILE_FLAG_OPEN_REPARSE_POINT, GetDiskFreeSpaceExW};
use windows_sys::Win32::System::Memory::VirtualUnlock;
use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
use windows_sys::Win32::System::Threading::{GetCurrentThread, SetThreadPriority, THREAD_PRIORITY_BELOW_NORMAL};

use super::super::InMemory;
use super::{AsFd, Errno};

/// Whether it can be told who else can write to a directory.
pub const KNOWS_PRIVATE: bool = false;

/// There is no way to ask that does not wait for a file server.
pub fn in_memory(_: impl AsFd) -> Option<InMemory> {
    None
}

/// Access control lists are not read.
///
/// # Errors
/// `ENOTSUP`.
pub fn access_list(_: BorrowedHandle<'_>, _: Option<&OsStr>, _: &mut [u8]) -> Result<usize, Errno> {
    Err(Errno::NOTSUP)
}

/// Fills `bytes` with random ones.
///
/// # Errors
/// If there are none.
pub fn random(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: fills `bytes`.
    let done = unsafe { ProcessPrng(bytes.as_mut_ptr(), bytes.len()) };
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Users have no numbers.
pub fn user() -> (u32, u32) {
    (0, 0)
}

/// Makes a directory, and those above it, with the rights that the one above passes on.
///
/// # Errors
/// From the system.
pub fn create_private(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)
}

/// Fails: access control lists are not read.
///
/// # Errors
/// Always.
pub fn check_private(_: impl AsFd) -> io::Result<()> {
    Err(io::Error::other("not used on Windows, where it is not known who else can write to it"))
}

/// Opens a file to read; does not follow a link.
///
/// # Errors
/// From the system.
pub fn open_unfollowed(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT).open(path)
}

/// Makes a file, with the rights that its directory passes on.
///
/// # Errors
/// From the system; also if it exists.
pub fn create_secret(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Not known.
pub fn is_secret(_: &Metadata) -> bool {
    false
}

/// Its name says whether a file is a program.
///
/// # Errors
/// None.
pub fn set_executable(_: &File, _: u32) -> io::Result<()> {
    Ok(())
}

/// Bytes available to this user on the file system of `dir`.
pub fn free_space(dir: &Path) -> Option<u64> {
    let path: Vec<u16> = dir.as_os_str().encode_wide().chain([0]).collect();
    let mut free = 0;
    // SAFETY: reads a path that ends with zero, and fills a number.
    let done = unsafe { GetDiskFreeSpaceExW(path.as_ptr(), &raw mut free, ptr::null_mut(), ptr::null_mut()) };
    (done != 0).then_some(free)
}

/// There is no limit.
pub fn largest_file() -> u64 {
    u64::MAX
}

/// There is no limit that would be met.
pub fn most_descriptors() -> usize {
    usize::MAX
}

/// There is no limit to raise.
pub fn use_all_descriptors() {}

/// There is no limit.
pub fn address_space() -> Option<u64> {
    None
}

/// There is no such limit.
pub fn fail_writes_over_the_limit() {}

/// The heap reserves little.
pub fn share_the_heap() {}

/// It keeps little.
pub fn keep_little_freed_memory() {}

/// Likewise.
pub fn trim_heap() {}

/// Ends this process silently, after the reader of its output has gone.
pub fn end_with_the_reader() -> ! {
    std::process::exit(1)
}

/// Makes this thread yield to others, if `nice` says so.
pub fn set_niceness(nice: i32) {
    if nice > 0 {
        // SAFETY: only asks.
        let this = unsafe { GetCurrentThread() };
        // SAFETY: the pseudo handle of this thread is always valid.
        unsafe { SetThreadPriority(this, THREAD_PRIORITY_BELOW_NORMAL) };
    }
}

/// The memory of the machine in bytes; the limits of jobs and containers are not seen.
pub fn available_memory() -> Option<u64> {
    let mut about = MEMORYSTATUSEX { dwLength: size_of::<MEMORYSTATUSEX>() as u32, ..Default::default() };
    // SAFETY: fills a structure of integers that says its size.
    let done = unsafe { GlobalMemoryStatusEx(&raw mut about) };
    (done != 0 && about.ullTotalPhys > 0).then_some(about.ullTotalPhys)
}

/// Pages have 4 KiB on all processors.
pub fn page_size() -> Option<usize> {
    Some(4096)
}

/// There is no limit of address space, for which it would be reserved.
pub fn map_addresses(_: usize) -> Option<usize> {
    None
}

/// Nothing was mapped.
pub fn unmap_addresses(_: usize, _: usize) {}

/// Large pages need a privilege that ordinary users lack.
pub fn huge_range(_: usize, _: usize, _: bool) -> Option<*mut c_void> {
    None
}

/// Takes pages of a mapping of a file from this process; the next access brings them back.
///
/// # Errors
/// From the system.
pub fn release(map: &MmapRaw, range: Range<usize>) -> io::Result<()> {
    let start = map.as_ptr().wrapping_add(range.start);
    // SAFETY: changes no byte. Pages that are not locked leave the working set, and that is said to be an error.
    let done = unsafe { VirtualUnlock(start.cast(), range.len()) };
    let error = io::Error::last_os_error();
    let is_done = done != 0 || error.raw_os_error() == Some(ERROR_NOT_LOCKED.cast_signed());
    if is_done { Ok(()) } else { Err(error) }
}

/// Not known.
pub fn library_of(_: usize) -> PathBuf {
    PathBuf::new()
}

/// Whether a socket that was passed to this process listens: nobody passes one that does not.
pub fn is_listening(_: &TcpListener) -> bool {
    true
}

/// Sockets and signals of a server.
#[cfg(feature = "serve")]
pub mod net {
    use std::io;
    use std::net::TcpListener;

    use tokio::signal::windows::{
        CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown,
    };

    /// The signals that end a server; none ends the process at once as soon as this exists.
    #[derive(Debug)]
    pub struct Signals {
        c: CtrlC,
        pause: CtrlBreak,
        close: CtrlClose,
        shutdown: CtrlShutdown,
    }

    impl Signals {
        /// # Errors
        /// If the system refuses a handler.
        pub fn handled() -> io::Result<Self> {
            Ok(Self { c: ctrl_c()?, pause: ctrl_break()?, close: ctrl_close()?, shutdown: ctrl_shutdown()? })
        }

        /// Waits for one of them.
        pub async fn recv(&mut self) {
            tokio::select! {
                _ = self.c.recv() => {}
                _ = self.pause.recv() => {}
                _ = self.close.recv() => {}
                _ = self.shutdown.recv() => {}
            }
        }
    }

    /// As many connections wait to be accepted as the system says.
    ///
    /// # Errors
    /// None.
    pub fn listen(_: &TcpListener, _: i32) -> io::Result<()> {
        Ok(())
    }
}
