//! Windows: the part of `rustix` and `std::os::unix` that is used, over handles.
//!
//! Every path below a directory is opened component by component, relative to the handle of the one before it; no
//! reparse point (symbolic link, junction, placeholder of a cloud) is followed, and no name leads elsewhere: see `names`.
//!
//! Weaker here than on Unix:
//! - A write changes the times of a file only when its writer closes it. Until then new bytes may be read as old ones.
//! - Owners, groups and rights are not those of access control lists: every file counts as readable by all.
//! - A file is deleted on close, and not at once: a name that is being deleted counts as missing.

mod errors;
mod files;
mod flags;
mod listing;
mod names;
mod nt;
mod process;
mod stat;

pub use errors::{Errno, advice, errno, os_error};
pub use files::{
    MAKES_LINKS, allocate, date_link, fcntl_setfl, fstatvfs, linkat, mkdirat, open_beneath, openat, readlinkat,
    renameat, renameat_with, statat, symlinkat, unlinkat, unnamed, widen_pipe, write_in_place,
};
pub use flags::{AtFlags, Mode, OFlags, RenameFlags, SEARCH};
pub use listing::Dir;
pub use names::{OsStrExt, name_of_file, path_of_url, slashed};
pub use nt::CWD;
#[cfg(feature = "serve")]
pub use process::net;
pub use process::{
    KNOWS_PRIVATE, access_list, address_space, available_memory, check_private, create_private, create_secret,
    end_with_the_reader, fail_writes_over_the_limit, free_space, huge_range, in_memory, is_listening, is_secret,
    keep_little_freed_memory, largest_file, library_of, map_addresses, most_descriptors, open_unfollowed, page_size,
    random, release, set_executable, set_niceness, share_the_heap, trim_heap, unmap_addresses, use_all_descriptors,
    user,
};
pub use stat::{FileType, Stat, fstat, mode_of, type_of};
pub use std::os::windows::io::{BorrowedHandle as BorrowedFd, OwnedHandle as OwnedFd};

use std::fs::File;
use std::io;
use std::os::windows::io::AsHandle;

/// An object with a handle.
pub trait AsFd {
    /// The handle.
    fn as_fd(&self) -> BorrowedFd<'_>;
}

impl<T: AsHandle + ?Sized> AsFd for T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.as_handle()
    }
}

/// Positioned reads and writes. They move the position of the file, which nothing else may use.
pub trait FileExt {
    /// Reads at most as many bytes as `buffer` has, from `offset` on.
    ///
    /// # Errors
    /// From the system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before; otherwise from the system.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// From the system.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

impl FileExt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(self, buffer, offset)
    }

    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buffer = buffer.get_mut(n..).unwrap_or_default();
                    offset = offset.saturating_add(n as u64);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match std::os::windows::fs::FileExt::seek_write(self, bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    bytes = bytes.get(n..).unwrap_or_default();
                    offset = offset.saturating_add(n as u64);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Files that tests make and the program does not: as far as Windows has it.
#[cfg(test)]
pub mod testing {
    use std::io::{self, ErrorKind};
    use std::path::Path;

    pub use std::os::windows::fs::symlink_file as symlink;

    /// There are none.
    ///
    /// # Errors
    /// Always.
    pub fn make_fifo(_: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    /// There are none that have names of files.
    ///
    /// # Errors
    /// Always.
    pub fn make_socket(_: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Handles are not, unless they are made for that.
    pub fn is_inherited<T>(_: T) -> bool {
        false
    }

    /// There are no such rights.
    ///
    /// # Errors
    /// Always.
    pub fn mode(_: &Path) -> io::Result<u32> {
        Err(ErrorKind::Unsupported.into())
    }

    /// There are no such rights.
    ///
    /// # Errors
    /// Always.
    pub fn set_mode(_: &Path, _: u32) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    /// There are no such lists.
    ///
    /// # Errors
    /// Always.
    pub fn set_access_list(_: &Path, _: &[u8]) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
}
