//! Creates real files below one directory, through directory descriptors.
//!
//! Other users may be able to write to that directory and replace its contents with links concurrently. Each directory
//! on the way is opened relative to the descriptor of its parent, and links are not followed, so that nothing outside
//! is modified.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::platform::{self, AtFlags, CWD, Errno, Mode, OFlags, OwnedFd, RenameFlags, SEARCH, name_of_file};

/// A directory to write to.
#[derive(Debug)]
pub(super) struct Beneath(OwnedFd);

/// A name in a directory below it, which may or may not exist.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    dir: OwnedFd,
    name: Cow<'a, str>,
}

/// A file under a temporary name, private to this process, until it is complete.
#[derive(Debug)]
pub(super) struct PartialFile<'a> {
    slot: &'a Slot<'a>,
    name: String,
    /// Destination of the bytes.
    pub(super) file: File,
}

fn open_directory(above: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let flags = SEARCH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match platform::openat(above, name, flags, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => Err(not_a_directory()),
        other => Ok(other?),
    }
}

fn not_a_directory() -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, "exists and is not a directory")
}

impl Beneath {
    /// Opens `dir`, which may be a link to a directory; creates it and its parents if missing.
    ///
    /// # Errors
    /// From mkdir(2) and open(2).
    pub(super) fn make(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => not_a_directory(),
            _ => e,
        })?;
        let flags = SEARCH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(platform::openat(CWD, dir, flags, Mode::empty())?))
    }

    /// Creates the directory `path` and its parents, where missing.
    ///
    /// # Errors
    /// From mkdirat(2) and openat(2); also fails if a component is not a directory.
    pub(super) fn make_directory(&self, path: &str) -> io::Result<()> {
        self.walk(path, |above, name| match platform::mkdirat(above, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(e) => Err(e.into()),
        })
        .map(drop)
    }

    /// The directory `path` below it, which must exist.
    ///
    /// # Errors
    /// From openat(2); also fails if a component is not a directory.
    pub(super) fn below(&self, path: &str) -> io::Result<Self> {
        self.walk(path, |_, _| Ok(())).map(Self)
    }

    /// Sets when the directory `path`, which must exist, was modified.
    ///
    /// # Errors
    /// From openat(2) and futimens(2); also fails if a component is not a directory.
    pub(super) fn set_modified(&self, path: &str, time: SystemTime) -> io::Result<()> {
        let dir = self.walk(path, |_, _| Ok(()))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        File::from(platform::openat(&dir, ".", flags, Mode::empty())?).set_modified(time)
    }

    /// The slot for the file `path`; its directory must exist.
    ///
    /// # Errors
    /// From openat(2); also fails if a component is not a directory.
    pub(super) fn slot<'a>(&self, path: &'a str) -> io::Result<Slot<'a>> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok(Slot { dir: self.walk(dir, |_, _| Ok(()))?, name: name_of_file(name) })
    }

    /// Opens the directory `path`, calling `before` for each component.
    fn walk(&self, path: &str, before: impl Fn(&OwnedFd, &str) -> io::Result<()>) -> io::Result<OwnedFd> {
        let mut dir = self.0.try_clone()?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let name = name_of_file(name);
            before(&dir, &name)?;
            dir = open_directory(&dir, &name)?;
        }
        Ok(dir)
    }
}

impl<'a> Slot<'a> {
    /// Whether the name exists.
    pub(super) fn is_taken(&self) -> bool {
        platform::statat(&self.dir, &*self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Creates a symbolic link to `target`, which was modified at `time`, in seconds and nanoseconds; `force` replaces an existing entry.
    ///
    /// # Errors
    /// From symlinkat(2): `EEXIST` if the name is taken; from utimensat(2).
    pub(super) fn link(&self, target: &str, time: Option<(i64, i64)>, force: bool) -> io::Result<()> {
        let make = || platform::symlinkat(target, &self.dir, &*self.name).map_err(io::Error::from);
        match make() {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && force => {
                platform::unlinkat(&self.dir, &*self.name, AtFlags::empty())?;
                make()?;
            }
            made => made?,
        }
        time.map_or(Ok(()), |time| platform::date_link(&self.dir, &self.name, time))
    }

    /// Creates the file under its temporary name.
    ///
    /// # Errors
    /// From openat(2).
    pub(super) fn begin(&'a self) -> io::Result<PartialFile<'a>> {
        let name = format!(".{}.{}.part", self.name, std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = platform::openat(&self.dir, &name, flags, Mode::from_raw_mode(0o666))?;
        Ok(PartialFile { slot: self, name, file: file.into() })
    }
}

impl PartialFile<'_> {
    /// Moves the file to its final name; `force` replaces an existing entry.
    ///
    /// # Errors
    /// From linkat(2) and renameat(2): `EEXIST` if the name is taken.
    pub(super) fn finish(self, force: bool) -> io::Result<()> {
        let Slot { dir, name } = self.slot;
        let rename = || platform::renameat(dir, &self.name, dir, &**name).map_err(io::Error::from);
        if force {
            return rename();
        }
        // One change of the directory instead of two.
        match platform::renameat_with(dir, &self.name, dir, &**name, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(()),
            Err(e @ Errno::EXIST) => return Err(e.into()),
            // The file system cannot do that.
            Err(_) => {}
        }
        match platform::linkat(dir, &self.name, dir, &**name, AtFlags::empty()) {
            // Dropping removes the temporary name.
            Ok(()) => Ok(()),
            Err(e @ Errno::EXIST) => Err(e.into()),
            Err(_) if self.slot.is_taken() => Err(Errno::EXIST.into()),
            // The file system does not support hard links.
            Err(_) => rename(),
        }
    }
}

impl Drop for PartialFile<'_> {
    fn drop(&mut self) {
        // After a rename the temporary name is gone already.
        platform::unlinkat(&self.slot.dir, &self.name, AtFlags::empty()).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::testing::symlink;
    use std::io::Write;
    use std::time::Duration;

    #[test]
    fn a_file_gets_its_name_when_it_is_complete() {
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
        // A final name that was swapped for a link is replaced or refused, never followed.
        symlink(outside.join("victim"), inside.join("file")).unwrap();
        let slot = beneath.slot("file").unwrap();
        assert!(slot.begin().unwrap().finish(false).is_err());
        slot.link("target", Some((-1, 500_000_000)), true).unwrap();
        let modified = fs::symlink_metadata(inside.join("file")).unwrap().modified().unwrap();
        assert_eq!(modified, SystemTime::UNIX_EPOCH - Duration::from_millis(500));
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
