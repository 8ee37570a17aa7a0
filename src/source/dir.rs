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
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::identity::Identity;
use super::{Rights, Seen};
use crate::error::{Error, Kind, Result};
use crate::platform::{
    self, AsFd, AtFlags, BorrowedFd, CWD, Errno, FileType, Mode, OFlags, OsStrExt, OwnedFd, SEARCH, Stat, fcntl_setfl,
    fstat, openat, statat,
};

/// Maximum depth of directories below one.
pub(super) const DEPTH: u64 = 64;

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

/// Opens the directory `name`, relative to `dir`: to look up names in it (`SEARCH`), or to list it (`RDONLY`).
pub(super) fn open_dir(dir: impl AsFd, name: &OsStr, access: OFlags, links: Links) -> Result<OwnedFd, Errno> {
    let follow = if links == Links::Refused { OFlags::NOFOLLOW } else { OFlags::empty() };
    openat(dir, name, access | follow | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
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
        Self::with(parent.unwrap_or(Path::new(".")), SEARCH)
    }

    fn with(path: &Path, access: OFlags) -> Result<Arc<Self>> {
        let fd = open_dir(CWD, path.as_os_str(), access, Links::Followed).map_err(refused)?;
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
        let entries = platform::Dir::read_from(&self.fd).map_err(refused)?;
        Ok(entries.map(|entry| Ok(entry.map_err(refused)?.file_name().to_owned())))
    }

    pub(super) fn file(&self, name: &OsStr) -> Result<(File, Identity)> {
        self.open_in(name, Links::Refused)
    }

    /// The names of all regular files and directories below it, unordered: those of directories end with `/`, and its
    /// own is `/`. Symbolic links are not files.
    ///
    /// # Errors
    /// From getdents(2); [`crate::error::Kind::TooLarge`] if directories are nested too deeply.
    pub fn names_below(&self, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        each(b"/")?;
        list(self.fd(), b"", DEPTH, each)
    }

    /// The directory that `name`, a path below this one, is in, unless it is this one; and its name there, unless it is
    /// this one itself.
    fn around_below<'a>(&self, name: &'a OsStr) -> Result<(Option<OwnedFd>, Option<&'a OsStr>)> {
        let path = name.as_bytes().strip_suffix(b"/").unwrap_or(name.as_bytes());
        if path.is_empty() {
            return Ok((None, None));
        }
        let mut parts = path.split(|&byte| byte == b'/').map(OsStr::from_bytes);
        let last = parts.next_back().unwrap_or_default();
        let mut dir: Option<OwnedFd> = None;
        for part in parts {
            plain(part)?;
            let from = dir.as_ref().map_or_else(|| self.fd(), AsFd::as_fd);
            dir = Some(open_dir(from, part, SEARCH, Links::Refused).map_err(refused)?);
        }
        plain(last)?;
        Ok((dir, Some(last)))
    }

    /// Opens the regular file `name`, a path below this directory.
    pub(super) fn file_below(&self, name: &OsStr) -> Result<(File, Identity)> {
        let (dir, name) = self.around_below(name)?;
        let name = name.unwrap_or_default();
        plain(name)?;
        open_regular(dir.as_ref().map_or_else(|| self.fd(), AsFd::as_fd), name, Links::Refused)
    }

    /// State of `name`, a path below this directory, and what [`Dir::around_below`] finds on the way.
    fn stat_below<'a>(&self, name: &'a OsStr) -> Result<(Stat, Option<OwnedFd>, Option<&'a OsStr>)> {
        let (dir, name) = self.around_below(name)?;
        let at = dir.as_ref().map_or_else(|| self.fd(), AsFd::as_fd);
        let stat = name.map_or_else(|| fstat(at), |name| statat(at, name, AtFlags::SYMLINK_NOFOLLOW));
        Ok((stat.map_err(refused)?, dir, name))
    }

    /// The identity of `name`, a path below this directory, now; links are not followed.
    pub(super) fn identity_below(&self, name: &OsStr) -> Result<Identity> {
        self.stat_below(name).map(|(stat, ..)| Identity::of(&stat))
    }

    /// Looks at `name`, a path below this directory; links are not followed. Of a directory, its readers are those who
    /// may search it.
    pub(super) fn seen_below(&self, name: &OsStr) -> Result<Seen> {
        let (stat, dir, name) = self.stat_below(name)?;
        let rights = Rights::of(&stat, dir.as_ref().map_or_else(|| self.fd(), AsFd::as_fd), name);
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        Ok(Seen::new(&stat, if is_dir { rights.searching() } else { rights }))
    }

    /// The file named by the user, which may be a link.
    pub(super) fn named_file(&self, name: &OsStr) -> Result<(File, Identity)> {
        self.open_in(name, Links::Followed)
    }

    fn open_in(&self, name: &OsStr, links: Links) -> Result<(File, Identity)> {
        plain(name)?;
        open_regular(self.fd.as_fd(), name, links)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Lists the files and directories below `dir`, whose path is `path`.
fn list(dir: BorrowedFd<'_>, path: &[u8], depth: u64, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let below = depth.checked_sub(1).ok_or_else(|| {
        let (value, limit) = (DEPTH.saturating_add(1), DEPTH);
        Error::new(Kind::TooLarge { value, limit }, "depth of directories")
    })?;
    for entry in platform::Dir::read_from(dir).map_err(refused)? {
        let entry = entry.map_err(refused)?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => FileType::from_raw_mode(
                statat(dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).map_err(refused)?.st_mode,
            ),
            kind => kind,
        };
        let mut path = [path, name].concat();
        match kind {
            FileType::RegularFile => each(&path)?,
            FileType::Directory => {
                path.push(b'/');
                each(&path)?;
                let dir = open_dir(dir, OsStr::from_bytes(name), OFlags::RDONLY, Links::Refused).map_err(refused)?;
                list(dir.as_fd(), &path, below, each)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Fails unless `name` is a single path component other than `.` and `..`.
pub(super) fn plain(name: &OsStr) -> Result<()> {
    let name = name.as_bytes();
    let dots: [&CStr; 2] = [c".", c".."];
    if name.is_empty() || name.contains(&b'/') || dots.iter().any(|dot| dot.to_bytes() == name) {
        return Err(Error::unsupported("not the name of a file", "file"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::testing::{is_inherited, make_fifo, symlink};

    #[test]
    fn what_is_opened_is_of_its_kind_not_behind_a_link_and_not_inherited() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        std::fs::create_dir(at("dir")).unwrap();
        std::fs::write(at("file"), b"text").unwrap();
        make_fifo(&at("fifo")).unwrap();
        symlink("dir", at("to-dir")).unwrap();
        symlink("file", at("to-file")).unwrap();
        let dir = Dir::open(top.path()).unwrap();
        assert!(!is_inherited(dir.fd()));
        for access in [SEARCH, OFlags::RDONLY] {
            let open = |name: &str, links| open_dir(dir.fd(), OsStr::new(name), access, links);
            assert!(!is_inherited(open("dir", Links::Refused).unwrap()));
            assert!(open("to-dir", Links::Followed).is_ok());
            for name in ["to-dir", "to-file", "file", "fifo"] {
                assert!(open(name, Links::Refused).is_err(), "{name}");
            }
            for name in ["to-file", "file", "fifo"] {
                assert!(open(name, Links::Followed).is_err(), "{name}");
            }
        }
        let open = |name: &str, links| open_regular(dir.fd(), OsStr::new(name), links);
        assert!(!is_inherited(open("file", Links::Refused).unwrap().0));
        assert!(open("to-file", Links::Followed).is_ok());
        for name in ["to-dir", "dir", "fifo"] {
            assert!(open(name, Links::Followed).is_err(), "{name}");
        }
        assert!(open("to-file", Links::Refused).is_err());
    }
}
