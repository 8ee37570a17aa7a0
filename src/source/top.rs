//! A directory whose files are served, and everything below it: reached by paths that cannot lead out of it.
//!
//! The directory is held by its descriptor: it may be renamed, or something else mounted over it. Paths below it are
//! resolved each time, follow no symbolic link, and do not enter other file systems that are mounted below.
#![forbid(unsafe_code)]

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat, statat,
};
use rustix::io::Errno;

use super::dir::{Dir, Links, open_regular, refused};
use super::identity::Identity;
use crate::error::Result;

/// How often a path is resolved again while directories on it are being renamed.
const ATTEMPTS: u32 = 16;

/// A directory that is served.
#[derive(Debug)]
pub struct Top {
    fd: OwnedFd,
    path: PathBuf,
    device: u64,
}

/// What tells one state of a file from another: its place, size and times.
pub type Version = [u64; 4];

/// An entry of a directory below a [`Top`].
#[derive(Debug, Clone)]
pub struct Seen {
    /// The result of stat(2).
    pub stat: Stat,
    /// The type.
    pub kind: FileType,
}

impl Seen {
    fn new(stat: Stat) -> Self {
        Self { kind: FileType::from_raw_mode(stat.st_mode), stat }
    }

    /// What an open file is.
    ///
    /// # Errors
    /// From stat(2).
    pub fn of(file: &File) -> Result<Self> {
        Ok(Self::new(fstat(file).map_err(refused)?))
    }

    /// The version of the file.
    pub fn version(&self) -> Version {
        Identity::of(&self.stat).pin().words()
    }

    /// The modification time: seconds and nanoseconds since 1970.
    pub fn mtime(&self) -> (i64, i64) {
        Identity::of(&self.stat).mtime
    }
}

/// A directory below a [`Top`], to look at several of its entries.
#[derive(Debug)]
pub struct Below(OwnedFd);

impl Below {
    /// What `name` is; a symbolic link is not followed.
    ///
    /// # Errors
    /// From stat(2).
    pub fn stat(&self, name: &OsStr) -> Result<Seen> {
        Ok(Seen::new(statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).map_err(refused)?))
    }

    /// What the directory itself is.
    ///
    /// # Errors
    /// From stat(2).
    pub fn stat_itself(&self) -> Result<Seen> {
        Ok(Seen::new(fstat(&self.0).map_err(refused)?))
    }

    /// The directory `name` in it; a symbolic link is not followed.
    ///
    /// # Errors
    /// From openat(2).
    pub fn below(&self, name: &OsStr) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.0, name, flags, Mode::empty()).map(Self).map_err(refused)
    }

    /// The target of the symbolic link `name`.
    ///
    /// # Errors
    /// From readlink(2).
    pub fn link(&self, name: &OsStr) -> Result<CString> {
        readlinkat(&self.0, name, Vec::new()).map_err(refused)
    }

    /// Opens the regular file `name`; never blocks.
    ///
    /// # Errors
    /// As [`super::Source::open`].
    pub fn file(&self, name: &OsStr) -> Result<File> {
        self.identified(name).map(|(file, _)| file)
    }

    pub(super) fn identified(&self, name: &OsStr) -> Result<(File, Identity)> {
        open_regular(self.0.as_fd(), name, Links::Refused)
    }

    /// Calls `each` with the names in it, and their types where the file system gives them.
    ///
    /// # Errors
    /// From getdents(2).
    pub fn names(&self, mut each: impl FnMut(&[u8], FileType)) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(&self.0, ".", flags, Mode::empty()).map_err(refused)?;
        for entry in rustix::fs::Dir::new(fd).map_err(refused)? {
            let entry = entry.map_err(refused)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                each(name, entry.file_type());
            }
        }
        Ok(())
    }

    /// The directory, to list it and to open files in it; `path` is for messages.
    ///
    /// # Errors
    /// From openat(2).
    pub fn readable(&self, path: PathBuf) -> Result<Arc<Dir>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Dir::held(openat(&self.0, ".", flags, Mode::empty()).map_err(refused)?, path))
    }

    /// The directory, to open files in it by name; `path` is for messages.
    pub fn into_dir(self, path: PathBuf) -> Arc<Dir> {
        Dir::held(self.0, path)
    }
}

impl Top {
    /// Opens the directory `path`, as given by the user.
    ///
    /// # Errors
    /// From open(2).
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let fd =
            openat(CWD, &path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(refused)?;
        let device = Identity::of(&fstat(&fd).map_err(refused)?).device();
        Ok(Arc::new(Self { fd, path, device }))
    }

    /// The path it was opened by, made absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file system it is on.
    ///
    /// # Errors
    /// From statvfs(3).
    pub fn space(&self) -> Result<rustix::fs::StatVfs> {
        rustix::fs::fstatvfs(&self.fd).map_err(refused)
    }

    /// The directory `path` below it; an empty path is the directory itself.
    ///
    /// # Errors
    /// From openat2(2): `EXDEV` if it is on another file system, `ELOOP` if a component is a symbolic link.
    pub fn below(&self, path: &Path) -> Result<Below> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let shown = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        for _ in 0..ATTEMPTS {
            match openat2(&self.fd, shown, flags, Mode::empty(), resolve) {
                Ok(fd) => return Ok(Below(fd)),
                Err(Errno::AGAIN) => {}
                // Not there, or not allowed here; or the path is too long for one call.
                Err(Errno::NOSYS | Errno::PERM | Errno::NAMETOOLONG) => break,
                Err(e) => return Err(refused(e)),
            }
        }
        self.walk(path).map(Below)
    }

    /// As [`Top::below`], component by component.
    fn walk(&self, path: &Path) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = self.fd.try_clone().map_err(|e| crate::error::Error::io(e, "file"))?;
        for component in path.components() {
            let Component::Normal(name) = component else { return Err(refused(Errno::XDEV)) };
            at = openat(&at, name, flags, Mode::empty()).map_err(refused)?;
            if Identity::of(&fstat(&at).map_err(refused)?).device() != self.device {
                return Err(refused(Errno::XDEV));
            }
        }
        Ok(at)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_leads_to_what_is_below_and_nowhere_else() {
        let outer = tempfile::tempdir().unwrap();
        let inside = outer.path().join("in");
        std::fs::create_dir_all(inside.join("a/b")).unwrap();
        std::fs::write(inside.join("a/b/file"), b"inside").unwrap();
        std::fs::write(outer.path().join("secret"), b"secret").unwrap();
        symlink("..", inside.join("up")).unwrap();
        symlink("a", inside.join("link")).unwrap();
        symlink("../secret", inside.join("leak")).unwrap();
        let top = Top::open(&inside).unwrap();
        for ways in [Top::below as fn(&Top, &Path) -> Result<Below>, |top, path| top.walk(path).map(Below)] {
            let below = ways(&top, Path::new("a/b")).unwrap();
            assert_eq!(below.stat(OsStr::new("file")).unwrap().stat.st_size, 6);
            assert!(ways(&top, Path::new("")).unwrap().file(OsStr::new("leak")).is_err());
            for out in ["up", "..", "a/../..", "/", "link", "link/b", "a/b/file", "up/in", "none"] {
                assert!(ways(&top, Path::new(out)).is_err(), "{out}");
            }
        }
        // It is the directory that was opened, whatever its path is now.
        std::fs::rename(&inside, outer.path().join("moved")).unwrap();
        let (below, name) = top.around(Path::new("a/b/file")).unwrap();
        assert!(below.file(name).is_ok());
        let mut names = Vec::new();
        top.below(Path::new("")).unwrap().names(|name, _| names.push(name.to_vec())).unwrap();
        names.sort();
        assert_eq!(names, [&b"a"[..], b"leak", b"link", b"up"]);
    }
}
