//! Directories in which files are kept for later mounts and other processes: `remote_cache=`, `index=`.
//!
//! The directory has one for each subject, named by 64 hexadecimal digits, and that has the files. A file is written under
//! another name and renamed when complete. So any number of processes may share the directory.
//!
//! Invariants: no link is followed, and nothing is read or written elsewhere; only files whose names the caller knows are
//! removed.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

mod evict;

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::dir::{Links, open_dir, open_regular};

use crate::platform::{
    AsFd, AtFlags, BorrowedFd, CWD, Errno, Mode, OFlags, OwnedFd, check_private, create_private, mkdirat, openat,
    renameat, unlinkat,
};

/// Begins the names of files that are being written.
pub(super) const PART: &str = "part-";
/// Names to try for a file that is being written: a killed process may have left some.
pub(super) const NAMES: usize = 64;
/// Most bytes that are written between two looks at the free space.
const LOOK: u64 = 64 << 20;

/// A directory in which files are kept.
#[derive(Debug, Clone)]
pub struct CacheDir {
    /// The directory, absolute.
    pub dir: PathBuf,
    /// Most bytes in it; `None` if only the free space of the disk counts.
    pub size: Option<u64>,
    /// The directory itself, from its first use on: its path may later lead elsewhere.
    held: Arc<OnceLock<OwnedFd>>,
}

impl CacheDir {
    /// The directory `dir`, with at most `size` bytes. Opens nothing.
    pub fn new(dir: PathBuf, size: Option<u64>) -> Self {
        Self { dir, size, held: Arc::default() }
    }

    /// The directory, created if need be, and held open from now on: someone who can write to its parent may replace it,
    /// but not write to this one.
    ///
    /// # Errors
    /// Fails if it cannot be made, or others can write to it.
    pub fn hold(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(held) = self.top() {
            return Ok(held);
        }
        create_private(&self.dir)?;
        let dir = open_dir(CWD, self.dir.as_os_str(), OFlags::RDONLY, Links::Followed)?;
        check_private(&dir)?;
        Ok(self.held.get_or_init(|| dir).as_fd())
    }

    /// The directory, if it is held.
    pub fn top(&self) -> Option<BorrowedFd<'_>> {
        self.held.get().map(OwnedFd::as_fd)
    }

    /// Makes the directory of `subject`.
    ///
    /// # Errors
    /// As [`CacheDir::hold`].
    pub fn make(&self, subject: &str) -> io::Result<()> {
        match mkdirat(self.hold()?, subject, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The names of the files of `subject`.
    pub fn names(&self, subject: &str) -> impl Iterator<Item = String> {
        self.top().and_then(|top| evict::entries(top, subject)).into_iter().flatten()
    }

    /// The file `name` of `subject`, if it is a regular one.
    pub fn file(&self, subject: &str, name: &str) -> Option<File> {
        open_regular(self.top()?, at(subject, name).as_ref(), Links::Refused).ok().map(|(file, _)| file)
    }

    /// Writes a file atomically: complete, or not at all.
    ///
    /// # Errors
    /// From open(2), write(2) or rename(2).
    pub fn write(&self, subject: &str, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let top = self.top().ok_or(Errno::BADF)?;
        let (part, mut file) = self.new_file(subject)?;
        let written = parts.iter().try_for_each(|part| file.write_all(part));
        let kept = written.and_then(|()| Ok(renameat(top, at(subject, &part), top, at(subject, name))?));
        kept.inspect_err(|_| self.remove(subject, &part))
    }

    /// A new file, and its name.
    pub(super) fn new_file(&self, subject: &str) -> io::Result<(String, File)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let top = self.top().ok_or(Errno::BADF)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..NAMES {
            let part = format!("{PART}{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
            match openat(top, at(subject, &part), flags, Mode::RUSR | Mode::WUSR) {
                Err(Errno::EXIST) => {}
                opened => return Ok((part, File::from(opened?))),
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Removes the file `name` of `subject`.
    pub fn remove(&self, subject: &str, name: &str) {
        // Another process may have removed it.
        self.top().into_iter().for_each(|top| _ = unlinkat(top, at(subject, name), AtFlags::empty()));
    }

    /// The bytes of all files whose names `is_own` knows.
    pub fn used(&self, is_own: impl Fn(&str) -> bool) -> u64 {
        self.top().map_or(0, |top| evict::used(top, is_own))
    }
}

/// The path of the file `name` of `subject` in the directory.
fn at(subject: &str, name: &str) -> String {
    format!("{subject}/{name}")
}

/// The room that writers need in a directory.
#[derive(Debug)]
pub struct DirRoom {
    /// Bytes being written, and bytes written since the last look at the free space.
    pending: AtomicU64,
    written: AtomicU64,
}

impl Default for DirRoom {
    fn default() -> Self {
        Self { pending: AtomicU64::new(0), written: AtomicU64::new(LOOK) }
    }
}

impl DirRoom {
    /// Runs `write`, which writes `len` bytes, if there is room; makes room from time to time by removing the files that
    /// were used least recently, of those whose names `is_own` knows.
    pub fn with<T>(
        &self,
        dir: &CacheDir,
        len: u64,
        is_own: impl Fn(&str) -> bool,
        write: impl FnOnce() -> T,
    ) -> Option<T> {
        let pending = self.pending.fetch_add(len, Ordering::AcqRel).saturating_add(len);
        let written = self.is_there(dir, len, pending, is_own).then(write);
        self.pending.fetch_sub(len, Ordering::AcqRel);
        written
    }

    fn is_there(&self, dir: &CacheDir, len: u64, pending: u64, is_own: impl Fn(&str) -> bool) -> bool {
        let written = self.written.fetch_add(len, Ordering::AcqRel).saturating_add(len);
        let look = dir.size.map_or(LOOK, |most| LOOK.min(most / 8));
        if written < look {
            return true;
        }
        let need = pending.saturating_add(look);
        let is_room = dir.top().is_some_and(|top| evict::make_room(top, dir.size, need, is_own));
        if is_room {
            self.written.store(0, Ordering::Release);
        }
        is_room
    }
}

impl PartialEq for CacheDir {
    fn eq(&self, other: &Self) -> bool {
        self.dir == other.dir && self.size == other.size
    }
}

impl Eq for CacheDir {}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::platform::testing::mode;

    #[test]
    fn a_file_is_written_whole_for_its_owner_alone_and_counted() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = CacheDir::new(tmp.path().join("cache"), None);
        let subject = "0".repeat(64);
        assert_eq!((dir.used(|_| true), dir.top().is_none()), (0, true));
        dir.make(&subject).unwrap();
        dir.make(&subject).unwrap();
        dir.write(&subject, "own", &[b"12", b"345"]).unwrap();
        dir.write(&subject, "other", &[b"123"]).unwrap();
        let mut bytes = Vec::new();
        dir.file(&subject, "own").unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"12345");
        assert_eq!(mode(&tmp.path().join("cache").join(&subject).join("own")).unwrap() & 0o777, 0o600);
        assert_eq!((dir.used(|name| name == "own"), dir.names(&subject).count()), (5, 2));
        dir.remove(&subject, "own");
        assert!(dir.file(&subject, "own").is_none());
    }

    #[test]
    fn directories_are_the_same_by_name_and_size() {
        let dir = |name: &str, size| CacheDir::new(PathBuf::from(name), size);
        assert!(dir("a", Some(1)) == dir("a", Some(1)));
        assert!(dir("a", Some(1)) != dir("b", Some(1)) && dir("a", Some(1)) != dir("a", None));
    }

    #[test]
    fn room_is_looked_for_after_an_eighth_of_the_size_was_written() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = CacheDir::new(tmp.path().join("cache"), Some(8000));
        dir.make(&"0".repeat(64)).unwrap();
        let room = DirRoom::default();
        let looks = std::cell::Cell::new(0);
        let put = |len| {
            dir.write(&"0".repeat(64), "own", &[b"1"]).unwrap();
            room.with(&dir, len, |_| looks.replace(looks.get() + 1) > 0, || ())
        };
        // At once, since nothing is known; then after 1000 bytes.
        let looked = [10, 400, 599, 1, 999, 1].map(|len| {
            let before = looks.get();
            assert!(put(len).is_some());
            looks.get() > before
        });
        assert_eq!(looked, [true, false, false, true, false, true]);
    }
}
