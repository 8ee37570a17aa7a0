//! Opening files without being led elsewhere, and without waiting for anybody.
//!
//! A file of a container that is a directory, or beside a container, is opened by its name alone, through the
//! directory's descriptor, and is never a link: so nothing outside the directory is opened, whatever happens to the
//! directory meanwhile. The file that the user named may be a link. All of them are regular files: a FIFO, a socket
//! or a device is refused, before it is opened and, should it come to be one just then, after, and never waited for.
//! A block device is refused too: its bytes have no time of modification by which a change would show.
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

use super::Source;
use super::identity::Identity;
use crate::error::{Error, Result};

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    /// Where it was found, for messages.
    path: PathBuf,
}

/// Whether a link in the last place of a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    Followed,
    Refused,
}

/// What the system said.
pub(super) fn refused(e: Errno) -> Error {
    Error::io(io::Error::from(e), "file")
}

/// Opens the regular file `name` of `dir`.
pub(super) fn open_regular(dir: BorrowedFd<'_>, name: &OsStr, links: Links) -> Result<(File, Identity)> {
    let (at, flags) = match links {
        Links::Followed => (AtFlags::empty(), OFlags::empty()),
        Links::Refused => (AtFlags::SYMLINK_NOFOLLOW, OFlags::NOFOLLOW),
    };
    // Opening a device may already do something.
    Identity::of(&statat(dir, name, at).map_err(refused)?).regular()?;
    let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = openat(dir, name, flags, Mode::empty()).map_err(refused)?;
    let identity = Identity::of(&fstat(&fd).map_err(refused)?);
    identity.regular()?;
    // Only opening must not wait.
    fcntl_setfl(&fd, OFlags::empty()).map_err(refused)?;
    Ok((File::from(fd), identity))
}

/// Opens the regular file that the user calls `path`.
pub(super) fn open_named(path: &Path) -> Result<(File, Identity)> {
    open_regular(CWD, path.as_os_str(), Links::Followed)
}

impl Dir {
    /// Opens the directory that the user calls `path`.
    ///
    /// # Errors
    /// As the system says.
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        Self::with(path, OFlags::RDONLY)
    }

    /// Opens the directory that `path` is in, to look for other files there by their names.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn around(path: &Path) -> Result<Arc<Self>> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        // To go through a directory it need not be readable.
        Self::with(parent.unwrap_or(Path::new(".")), OFlags::PATH)
    }

    fn with(path: &Path, flags: OFlags) -> Result<Arc<Self>> {
        let flags = flags | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(CWD, path, flags, Mode::empty()).map_err(refused)?;
        Ok(Arc::new(Self { fd, path: path.to_path_buf() }))
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names in it, in no order.
    ///
    /// # Errors
    /// As the system says.
    pub fn names(&self) -> Result<impl Iterator<Item = Result<CString>>> {
        let entries = rustix::fs::Dir::read_from(&self.fd).map_err(refused)?;
        Ok(entries.map(|entry| Ok(entry.map_err(refused)?.file_name().to_owned())))
    }

    /// The regular file `name` of this directory, held open.
    ///
    /// # Errors
    /// As [`Source::open`]; for a link.
    pub fn source(&self, name: &str) -> Result<Arc<Source>> {
        let (file, identity) = self.file(name.as_ref())?;
        Source::pinned(self.path.join(name), file, identity)
    }

    pub(super) fn file(&self, name: &OsStr) -> Result<(File, Identity)> {
        self.open_in(name, Links::Refused)
    }

    /// The file that the user named, which may be a link.
    pub(super) fn named_file(&self, name: &OsStr) -> Result<(File, Identity)> {
        self.open_in(name, Links::Followed)
    }

    fn open_in(&self, name: &OsStr, links: Links) -> Result<(File, Identity)> {
        plain(name)?;
        open_regular(self.fd.as_fd(), name, links)
    }

    /// What has the name now; never what a link leads to.
    pub(super) fn look(&self, name: &OsStr) -> Result<Identity> {
        plain(name)?;
        let stat = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(refused)?;
        Ok(Identity::of(&stat))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Fails for a name that leads out of a directory, or deeper into it.
fn plain(name: &OsStr) -> Result<()> {
    let name = name.as_bytes();
    let dots: [&CStr; 2] = [c".", c".."];
    if name.is_empty() || name.contains(&b'/') || dots.iter().any(|dot| dot.to_bytes() == name) {
        return Err(Error::unsupported("not the name of a file", "file"));
    }
    Ok(())
}
