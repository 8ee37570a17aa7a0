//! Opening regular files: confined to a directory, and without blocking.
//!
//! A file inside a container directory, or next to a container, is opened by a single name relative to the directory's
//! descriptor, and symbolic links are refused; so no file outside the directory is opened, even if the directory is
//! modified concurrently. The file named by the user may be a link. Only regular files are accepted: FIFOs, sockets and
//! devices are refused before opening them, and again after (in case of a race), and opening never blocks. Block
//! devices are refused too: they have no modification time that would reveal a change.
#![forbid(unsafe_code)]

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fcntl_setfl, fstat, openat, statat};
use rustix::io::Errno;

use super::identity::Identity;
use super::{Rights, Seen};
use crate::error::{Error, Result};

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    /// The path it was opened by, for messages.
    path: PathBuf,
}

/// Whether a symbolic link in the last path component is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    Followed,
    Refused,
}

/// Converts an errno to an error.
pub(super) fn refused(e: Errno) -> Error {
    Error::io(io::Error::from(e), "file")
}

/// Opens the regular file `name`, relative to `dir`.
pub(super) fn open_regular(dir: BorrowedFd<'_>, name: &OsStr, links: Links) -> Result<(File, Identity)> {
    let (at, flags) = match links {
        Links::Followed => (AtFlags::empty(), OFlags::empty()),
        Links::Refused => (AtFlags::SYMLINK_NOFOLLOW, OFlags::NOFOLLOW),
    };
    // Opening a device can have side effects.
    Identity::of(&statat(dir, name, at).map_err(refused)?).regular()?;
    let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = openat(dir, name, flags, Mode::empty()).map_err(refused)?;
    let identity = Identity::of(&fstat(&fd).map_err(refused)?);
    identity.regular()?;
    // O_NONBLOCK was for open(2) only.
    fcntl_setfl(&fd, OFlags::empty()).map_err(refused)?;
    Ok((File::from(fd), identity))
}

/// Opens the regular file at `path`, as given by the user.
pub(super) fn open_named(path: &Path) -> Result<(File, Identity)> {
    open_regular(CWD, path.as_os_str(), Links::Followed)
}

impl Dir {
    /// Opens the directory at `path`, as given by the user.
    ///
    /// # Errors
    /// From open(2).
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        Self::with(path, OFlags::RDONLY)
    }

    /// Opens the directory that contains `path`, for opening other files in it by name.
    ///
    /// # Errors
    /// From open(2).
    pub(super) fn around(path: &Path) -> Result<Arc<Self>> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        // O_PATH: the directory needs search permission only, not read permission.
        Self::with(parent.unwrap_or(Path::new(".")), OFlags::PATH)
    }

    fn with(path: &Path, flags: OFlags) -> Result<Arc<Self>> {
        let flags = flags | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(CWD, path, flags, Mode::empty()).map_err(refused)?;
        Ok(Arc::new(Self { fd, path: path.to_path_buf() }))
    }

    /// The directory behind `fd`, at `path`.
    pub(super) fn held(fd: OwnedFd, path: PathBuf) -> Arc<Self> {
        Arc::new(Self { fd, path })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names in it, unordered.
    ///
    /// # Errors
    /// From getdents(2).
    pub fn names(&self) -> Result<impl Iterator<Item = Result<CString>>> {
        let entries = rustix::fs::Dir::read_from(&self.fd).map_err(refused)?;
        Ok(entries.map(|entry| Ok(entry.map_err(refused)?.file_name().to_owned())))
    }

    pub(super) fn file(&self, name: &OsStr) -> Result<(File, Identity)> {
        self.open_in(name, Links::Refused)
    }

    /// The file named by the user, which may be a link.
    pub(super) fn named_file(&self, name: &OsStr) -> Result<(File, Identity)> {
        self.open_in(name, Links::Followed)
    }

    fn open_in(&self, name: &OsStr, links: Links) -> Result<(File, Identity)> {
        plain(name)?;
        open_regular(self.fd.as_fd(), name, links)
    }

    /// The identity of `name` now; links are not followed.
    pub(super) fn stat(&self, name: &OsStr) -> Result<Identity> {
        plain(name)?;
        let stat = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(refused)?;
        Ok(Identity::of(&stat))
    }

    /// Looks at `name`; links are not followed.
    pub(super) fn seen(&self, name: &OsStr) -> Result<Seen> {
        plain(name)?;
        let stat = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(refused)?;
        Ok(Seen::new(&stat, Rights::of(&stat, self.fd(), Some(name))))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Fails unless `name` is a single path component other than `.` and `..`.
fn plain(name: &OsStr) -> Result<()> {
    let name = name.as_bytes();
    let dots: [&CStr; 2] = [c".", c".."];
    if name.is_empty() || name.contains(&b'/') || dots.iter().any(|dot| dot.to_bytes() == name) {
        return Err(Error::unsupported("not the name of a file", "file"));
    }
    Ok(())
}
