//! A directory whose files are served, with everything below it, reached by paths that cannot lead out of it: local, or
//! a prefix of a server.
//!
//! A directory of this machine is held by its descriptor: it may be renamed, or something else mounted over it. Paths
//! below it are resolved each time, follow no symbolic link, and do not enter other file systems that are mounted
//! below.
#![forbid(unsafe_code)]

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::dir::{Dir, Links, open_dir, open_regular, refused};
use super::far_dir::FarDir;
use super::identity::Identity;
use super::seen::{Seen, Version, Versions};
use super::{Passed, Prefix, Rights};
use crate::error::Result;
use crate::platform::{
    self, AsFd, AtFlags, BorrowedFd, CWD, Errno, FileType, OFlags, OsStrExt, OwnedFd, SEARCH, fstat, open_beneath,
    readlinkat, slashed, statat,
};

/// How often a path is resolved again while directories on it are being renamed.
const ATTEMPTS: u32 = 16;
/// Bytes of a path in one system call: `PATH_MAX` less the terminating zero.
const LONGEST: usize = 4095;

/// A directory that is served.
#[derive(Debug)]
pub struct Top {
    root: Root,
    path: PathBuf,
}

#[derive(Debug)]
enum Root {
    Local { fd: OwnedFd, device: u64 },
    Far(Arc<Prefix>),
}

/// The size of a file system, and what is free of it.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    /// The size of a block in bytes.
    pub block: u64,
    /// Its blocks.
    pub blocks: u64,
    /// Its free blocks.
    pub free: u64,
    /// Its blocks that are free for ordinary users.
    pub available: u64,
    /// Its files.
    pub files: u64,
    /// The files that it has room for.
    pub free_files: u64,
}

/// Unknown.
impl Default for Space {
    fn default() -> Self {
        Self { block: 4096, blocks: 0, free: 0, available: 0, files: 0, free_files: 0 }
    }
}

/// A directory below a [`Top`], to look at several of its entries.
#[derive(Debug)]
pub enum Below {
    /// Of this machine.
    Local(OwnedFd),
    /// On a server.
    Far(Box<FarDir>),
}

/// `name` as a part of a key, which is UTF-8.
fn key(name: &OsStr) -> Result<&str> {
    name.to_str().ok_or_else(|| refused(Errno::NOENT))
}

impl Below {
    /// Whether it is on a server.
    pub fn is_far(&self) -> bool {
        matches!(self, Self::Far(_))
    }

    /// State of `name`; does not follow a symbolic link.
    ///
    /// # Errors
    /// From stat(2).
    pub fn stat(&self, name: &OsStr) -> Result<Seen> {
        match self {
            Self::Local(fd) => {
                let stat = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(refused)?;
                Ok(Seen::new(&stat, Rights::of(&stat, fd.as_fd(), Some(name))))
            }
            Self::Far(dir) => dir.stat(key(name)?),
        }
    }

    /// State of the file `name` of a container that is all files below this directory: its version is theirs as well.
    ///
    /// # Errors
    /// From getdents(2) and stat(2).
    pub fn stat_of_all(&self, name: &OsStr) -> Result<Seen> {
        match self {
            Self::Local(_) => {
                let seen = self.stat(name)?;
                Ok(seen.with_all(Versions::below(&*self.readable(PathBuf::new())?)?))
            }
            Self::Far(dir) => dir.stat_of_all(key(name)?),
        }
    }

    /// State of the directory itself.
    ///
    /// # Errors
    /// From stat(2).
    pub fn stat_itself(&self) -> Result<Seen> {
        match self {
            Self::Local(fd) => Seen::of(fd),
            Self::Far(_) => Ok(Seen::far_dir()),
        }
    }

    /// The directory `name` in it; a symbolic link is not followed. On a server it need not exist.
    ///
    /// # Errors
    /// From openat(2).
    pub fn below(&self, name: &OsStr) -> Result<Self> {
        match self {
            Self::Local(fd) => open_dir(fd, name, SEARCH, Links::Refused).map(Self::Local).map_err(refused),
            Self::Far(dir) => Ok(Self::Far(Box::new(dir.below(key(name)?)))),
        }
    }

    /// As [`Seen::identity`] of `name`, without a look at its rights.
    ///
    /// # Errors
    /// From stat(2).
    pub fn identity(&self, name: &OsStr) -> Result<Version> {
        match self {
            Self::Local(fd) => {
                let stat = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(refused)?;
                Ok(Seen::new(&stat, Rights::far(0)).identity())
            }
            Self::Far(_) => self.stat(name).map(|seen| seen.identity()),
        }
    }

    /// Opens the regular file `name`, which is passed through; never blocks. An object must be the one that was found
    /// there last.
    ///
    /// # Errors
    /// As [`super::Source::open`] and [`Prefix::source`].
    pub fn file(&self, name: &OsStr) -> Result<Passed> {
        match self {
            Self::Local(_) => Ok(Passed::Local(self.identified(name)?.0)),
            Self::Far(dir) => dir.source(key(name)?).map(Passed::Far),
        }
    }

    /// The target of the symbolic link `name`.
    ///
    /// # Errors
    /// From readlink(2).
    pub fn link(&self, name: &OsStr) -> Result<CString> {
        readlinkat(self.fd()?, name, Vec::new()).map_err(refused)
    }

    pub(super) fn identified(&self, name: &OsStr) -> Result<(File, Identity)> {
        open_regular(self.fd()?, name, Links::Refused)
    }

    /// Calls `each` with the names in it, and their types where the file system gives them.
    ///
    /// # Errors
    /// From getdents(2).
    pub fn names(&self, mut each: impl FnMut(&[u8], FileType)) -> Result<()> {
        let mut next = Some(0);
        while let Some(at) = next {
            next = self.names_from(at, &mut each)?;
        }
        Ok(())
    }

    /// As [`Below::names`], but on a server only some of the names, from number `at` on: all known ones, or else the
    /// next page. Returns the number of the next name, if there may be more.
    ///
    /// # Errors
    /// From getdents(2); that the server refuses.
    pub fn names_from(&self, at: usize, each: &mut dyn FnMut(&[u8], FileType)) -> Result<Option<usize>> {
        let fd = match self {
            Self::Local(fd) => fd,
            Self::Far(dir) => return dir.names_from(at, each),
        };
        let fd = open_dir(fd, OsStr::new("."), OFlags::RDONLY, Links::Refused).map_err(refused)?;
        for entry in platform::Dir::new(fd).map_err(refused)? {
            let entry = entry.map_err(refused)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                each(name, entry.file_type());
            }
        }
        Ok(None)
    }

    /// Reads all of the list of a directory on a server, so that its names need no request each.
    ///
    /// # Errors
    /// As [`Below::names_from`].
    pub fn list_far(&self) -> Result<()> {
        let mut next = self.is_far().then_some(0);
        while let Some(at) = next {
            next = self.names_from(at, &mut |_, _| {})?;
        }
        Ok(())
    }

    /// The directory, to list it and to open files in it; `path` is for messages.
    ///
    /// # Errors
    /// From openat(2).
    pub fn readable(&self, path: PathBuf) -> Result<Arc<Dir>> {
        let fd = open_dir(self.fd()?, OsStr::new("."), OFlags::RDONLY, Links::Refused).map_err(refused)?;
        Ok(Dir::held(fd, path))
    }

    /// The directory, to open files in it by name; `path` is for messages.
    ///
    /// # Errors
    /// `ENOTSUP` on a server.
    pub fn into_dir(self, path: PathBuf) -> Result<Arc<Dir>> {
        match self {
            Self::Local(fd) => Ok(Dir::held(fd, path)),
            Self::Far(_) => Err(refused(Errno::NOTSUP)),
        }
    }

    fn fd(&self) -> Result<BorrowedFd<'_>> {
        match self {
            Self::Local(fd) => Ok(fd.as_fd()),
            // There are no links, and objects are opened by their keys.
            Self::Far(_) => Err(refused(Errno::NOTSUP)),
        }
    }
}

impl Top {
    /// Opens the directory `path`, as given by the user.
    ///
    /// # Errors
    /// From open(2).
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let fd = open_dir(CWD, path.as_os_str(), SEARCH, Links::Followed).map_err(refused)?;
        let device = Identity::of(&fstat(&fd).map_err(refused)?).device();
        Ok(Arc::new(Self { root: Root::Local { fd, device }, path }))
    }

    /// The content of a prefix of a server.
    pub fn far(prefix: Arc<Prefix>) -> Arc<Self> {
        let path = prefix.path().to_path_buf();
        Arc::new(Self { root: Root::Far(prefix), path })
    }

    /// The prefix, if it is on a server.
    pub fn prefix(&self) -> Option<&Arc<Prefix>> {
        match &self.root {
            Root::Local { .. } => None,
            Root::Far(prefix) => Some(prefix),
        }
    }

    /// The path it was opened by, made absolute; or its URL.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file system it is on; nothing is known of a server.
    ///
    /// # Errors
    /// From statvfs(3).
    pub fn space(&self) -> Result<Space> {
        let Root::Local { fd, .. } = &self.root else { return Ok(Space::default()) };
        let space = platform::fstatvfs(fd).map_err(refused)?;
        Ok(Space {
            block: space.f_frsize,
            blocks: space.f_blocks,
            free: space.f_bfree,
            available: space.f_bavail,
            files: space.f_files,
            free_files: space.f_ffree,
        })
    }

    /// Opens the regular file at `path`, which is passed through; never blocks. An object must be the one that was
    /// found there last.
    ///
    /// # Errors
    /// As [`super::Source::open`] and [`Prefix::source`].
    pub fn file(&self, path: &Path) -> Result<Passed> {
        let (below, name) = self.around(path)?;
        below.file(name)
    }

    /// As [`Top::below`]; also the state of each directory on the way, from the first component to the last. Empty on a
    /// server.
    ///
    /// # Errors
    /// As [`Top::below`].
    pub fn below_seeing(&self, path: &Path) -> Result<(Below, Vec<Seen>)> {
        let Root::Local { fd, device } = &self.root else { return Ok((self.below(path)?, Vec::new())) };
        let mut seen = Vec::new();
        let below = walk(fd, *device, path, |dir| {
            seen.push(Seen::of(dir)?);
            Ok(())
        })?;
        Ok((Below::Local(below), seen))
    }

    /// The directory `path` below it; an empty path is the directory itself.
    ///
    /// # Errors
    /// From openat2(2): `EXDEV` if it is on another file system, `ELOOP` if a component is a symbolic link.
    pub fn below(&self, path: &Path) -> Result<Below> {
        let (fd, device) = match &self.root {
            Root::Local { fd, device } => (fd, *device),
            Root::Far(prefix) => {
                return Ok(Below::Far(Box::new(FarDir::new(prefix, key(slashed(path).as_os_str())?.to_owned()))));
            }
        };
        let (mut at, mut rest) = (None, path.as_os_str().as_bytes());
        loop {
            let (part, more) = one_call(rest);
            match resolved(|| open_beneath(at.as_ref().unwrap_or(fd), part)) {
                Ok(fd) if more.is_empty() => return Ok(Below::Local(fd)),
                Ok(fd) => at = Some(fd),
                // The system call is missing, or forbidden here.
                Err(Errno::AGAIN | Errno::NOSYS | Errno::PERM) => {
                    return walk(fd, device, path, |_| Ok(())).map(Below::Local);
                }
                Err(e) => return Err(refused(e)),
            }
            rest = more;
        }
    }

    /// The directory that contains `path`, and the last component of `path`.
    ///
    /// # Errors
    /// As [`Top::below`].
    pub fn around<'a>(&self, path: &'a Path) -> Result<(Below, &'a OsStr)> {
        let name = path.file_name().unwrap_or(OsStr::from_bytes(b"."));
        Ok((self.below(path.parent().unwrap_or(Path::new("")))?, name))
    }
}

/// The beginning of `path` that one system call takes, and the rest.
fn one_call(path: &[u8]) -> (&[u8], &[u8]) {
    let most = path.get(..LONGEST).filter(|most| most.len() < path.len());
    match most.and_then(|most| most.iter().rposition(|&byte| byte == b'/')) {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (path, &[]),
    }
}

/// What `open` finds, which is called again while directories on the way are being renamed.
fn resolved<T>(open: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    (1..ATTEMPTS).map(|_| open()).find(|found| !matches!(found, Err(Errno::AGAIN))).unwrap_or_else(&open)
}

/// The directory `path` below `fd`, component by component; calls `each` with every one.
fn walk(fd: &OwnedFd, device: u64, path: &Path, mut each: impl FnMut(&OwnedFd) -> Result<()>) -> Result<OwnedFd> {
    let mut at = fd.try_clone().map_err(|e| crate::error::Error::io(e, "file"))?;
    for component in path.components() {
        let Component::Normal(name) = component else { return Err(refused(Errno::XDEV)) };
        at = open_dir(&at, name, SEARCH, Links::Refused).map_err(refused)?;
        if Identity::of(&fstat(&at).map_err(refused)?).device() != device {
            return Err(refused(Errno::XDEV));
        }
        each(&at)?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests;
