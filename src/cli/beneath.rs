//! Real files below one directory, made through directory descriptors.
//!
//! Others may be able to write to that directory, and swap what is in it for links while we work. Every directory on
//! the way is opened by the descriptor of the one above it, never through a link, so that nothing outside is touched.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// A directory to write below.
#[derive(Debug)]
pub(super) struct Beneath(OwnedFd);

/// A name in a directory below, which may or may not exist.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    dir: OwnedFd,
    name: &'a str,
}

/// A file while it is written: no other process takes it for the whole one, nor for its own.
#[derive(Debug)]
pub(super) struct Part<'a> {
    slot: &'a Slot<'a>,
    name: String,
    /// What is written to.
    pub(super) file: File,
}

fn open_directory(above: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(above, name, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
            Err(io::Error::new(io::ErrorKind::NotADirectory, "exists and is not a directory"))
        }
        other => Ok(other?),
    }
}

impl Beneath {
    /// Opens `dir`, which may be a link to a directory; makes it, and those above it, if it is missing.
    ///
    /// # Errors
    /// From mkdir(2) and open(2).
    pub(super) fn make(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::openat(CWD, dir, flags, Mode::empty())?))
    }

    /// Makes the directory `path` and those above it, as far as they are missing.
    ///
    /// # Errors
    /// From mkdirat(2) and openat(2); if something on the way is no directory.
    pub(super) fn make_directory(&self, path: &str) -> io::Result<()> {
        self.walk(path, |above, name| match rustix::fs::mkdirat(above, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(e) => Err(e.into()),
        })
        .map(drop)
    }

    /// The place of the file `path`, in a directory that was made before.
    ///
    /// # Errors
    /// From openat(2); if something on the way is no directory.
    pub(super) fn slot<'a>(&self, path: &'a str) -> io::Result<Slot<'a>> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok(Slot { dir: self.walk(dir, |_, _| Ok(()))?, name })
    }

    /// Opens the directory `path`, calling `before` for each one on the way.
    fn walk(&self, path: &str, before: impl Fn(&OwnedFd, &str) -> io::Result<()>) -> io::Result<OwnedFd> {
        let mut dir = self.0.try_clone()?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            before(&dir, name)?;
            dir = open_directory(&dir, name)?;
        }
        Ok(dir)
    }
}

impl<'a> Slot<'a> {
    /// Whether something has the name already.
    pub(super) fn is_taken(&self) -> bool {
        rustix::fs::statat(&self.dir, self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Makes a symbolic link to `target`; with `force` in place of what has the name.
    ///
    /// # Errors
    /// From symlinkat(2): `EEXIST` if the name is taken.
    pub(super) fn link(&self, target: &str, force: bool) -> io::Result<()> {
        let make = || rustix::fs::symlinkat(target, &self.dir, self.name).map_err(io::Error::from);
        match make() {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && force => {
                rustix::fs::unlinkat(&self.dir, self.name, AtFlags::empty())?;
                make()
            }
            other => other,
        }
    }

    /// Begins the file under another name.
    ///
    /// # Errors
    /// From openat(2).
    pub(super) fn begin(&'a self) -> io::Result<Part<'a>> {
        let name = format!(".{}.{}.part", self.name, std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, &name, flags, Mode::from_raw_mode(0o666))?;
        Ok(Part { slot: self, name, file: file.into() })
    }
}

impl Part<'_> {
    /// Gives the file its name; with `force` in place of what has it.
    ///
    /// # Errors
    /// From linkat(2) and renameat(2): `EEXIST` if the name is taken.
    pub(super) fn finish(self, force: bool) -> io::Result<()> {
        let Slot { dir, name } = self.slot;
        let rename = || rustix::fs::renameat(dir, &self.name, dir, *name).map_err(io::Error::from);
        if force {
            return rename();
        }
        match rustix::fs::linkat(dir, &self.name, dir, *name, AtFlags::empty()) {
            // Dropping takes the other name away.
            Ok(()) => Ok(()),
            Err(e @ rustix::io::Errno::EXIST) => Err(e.into()),
            Err(_) if self.slot.is_taken() => Err(rustix::io::Errno::EXIST.into()),
            // A file system without links.
            Err(_) => rename(),
        }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        // It is gone already if it was renamed.
        rustix::fs::unlinkat(&self.slot.dir, &self.name, AtFlags::empty()).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_has_its_name_once_it_is_whole() {
        let top = tempfile::tempdir().unwrap();
        let names = || {
            let mut names: Vec<_> = fs::read_dir(top.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let beneath = Beneath::make(top.path()).unwrap();
        let slot = beneath.slot("file").unwrap();
        let mut part = slot.begin().unwrap();
        part.file.write_all(b"new").unwrap();
        assert!(!slot.is_taken());
        part.finish(false).unwrap();
        assert_eq!((fs::read(top.path().join("file")).unwrap(), names()), (b"new".to_vec(), vec!["file".into()]));
        let error = slot.begin().unwrap().finish(false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        slot.begin().unwrap().finish(true).unwrap();
        assert_eq!((fs::read(top.path().join("file")).unwrap(), names()), (vec![], vec!["file".into()]));
        drop(slot.begin().unwrap());
        assert_eq!(names(), ["file"]);
    }

    #[test]
    fn a_directory_that_was_swapped_for_a_link_is_not_entered() {
        let top = tempfile::tempdir().unwrap();
        let (inside, outside) = (top.path().join("in"), top.path().join("out"));
        fs::create_dir(&outside).unwrap();
        let beneath = Beneath::make(&inside).unwrap();
        beneath.make_directory("a/b").unwrap();
        fs::rename(inside.join("a"), inside.join("old")).unwrap();
        symlink(&outside, inside.join("a")).unwrap();
        for error in [beneath.make_directory("a/b/c").unwrap_err(), beneath.slot("a/file").unwrap_err()] {
            assert!(error.to_string().contains("not a directory"), "{error}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        // A name that was swapped for a link is replaced, or refused, and never followed.
        symlink(outside.join("victim"), inside.join("file")).unwrap();
        let slot = beneath.slot("file").unwrap();
        assert!(slot.begin().unwrap().finish(false).is_err());
        slot.link("target", true).unwrap();
        slot.begin().unwrap().finish(true).unwrap();
        assert!(!inside.join("file").is_symlink());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn the_directory_itself_may_be_a_link() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("real")).unwrap();
        symlink("real", top.path().join("link")).unwrap();
        let beneath = Beneath::make(&top.path().join("link")).unwrap();
        beneath.make_directory("a").unwrap();
        assert!(top.path().join("real/a").is_dir());
    }
}
