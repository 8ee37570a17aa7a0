//! The names of the files of a folder, each with the identity that the file had when it was pinned.
//!
//! Limits: [`MOST`] files; names and identities are lists of the account.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::time::Duration;

use super::dir::Dir;
use super::identity::Pin;
use crate::account::{Account, Names, Records};
use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;
use crate::platform::OsStrExt;

/// Maximum number of pinned files.
pub(super) const MOST: u64 = 1 << 20;

/// Names and pins, numbered in the order in which they were given.
#[derive(Debug)]
pub(super) struct PinnedNames {
    names: Names,
    pins: Records<{ Pin::WORDS }>,
}

impl PinnedNames {
    /// Pins the regular files in `dir` among `names`, each once; skips the others. Waits until any later write will
    /// change the timestamps of a file.
    ///
    /// # Errors
    /// Fails if a system call fails; [`Kind::TooLarge`] if there are too many files; otherwise as [`Records::push`].
    pub(super) fn new<N: AsRef<[u8]>>(
        dir: &Dir,
        names: impl IntoIterator<Item = Result<N>>,
        account: &Account,
    ) -> Result<Self> {
        let mut pinned = Self::empty(account);
        for name in names {
            pinned.add(dir, name?.as_ref())?;
        }
        pinned.finished(dir)
    }

    /// Likewise all files below `dir`, and the directories.
    ///
    /// # Errors
    /// As [`PinnedNames::new`], and [`Dir::names_below`].
    pub(super) fn below(dir: &Dir, account: &Account) -> Result<Self> {
        let mut pinned = Self::empty(account);
        dir.names_below(&mut |name| pinned.add(dir, name))?;
        pinned.finished(dir)
    }

    fn empty(account: &Account) -> Self {
        Self { names: Names::new(account), pins: Records::new(account, "files of a directory") }
    }

    fn finished(mut self, dir: &Dir) -> Result<Self> {
        self.names.finish()?;
        self.pins.finish()?;
        self.wait_for_step(dir)?;
        Ok(self)
    }

    fn add(&mut self, dir: &Dir, name: &[u8]) -> Result<()> {
        let identity = match dir.identity_below(OsStr::from_bytes(name)) {
            Ok(identity) if identity.regular().is_ok() || name.ends_with(b"/") => identity,
            Ok(_) => return Ok(()),
            Err(e) if is_missing(&e) => return Ok(()),
            Err(e) => return Err(e),
        };
        Limits::check(to_u64(self.len()).saturating_add(1), MOST, "number of files")?;
        if self.names.insert(name)? {
            self.pins.push(identity.pin().words())?;
        }
        Ok(())
    }

    /// Waits until any later write will change a file's timestamps, then pins the most recently changed files again.
    fn wait_for_step(&mut self, dir: &Dir) -> Result<()> {
        let fresh = self.pins().filter(|pin| !pin.step_left().is_zero());
        let Some(since) = fresh.map(|pin| pin.ctime()).min() else { return Ok(()) };
        std::thread::sleep(self.pins().map(|pin| pin.step_left()).max().unwrap_or(Duration::ZERO));
        for index in 0..self.len() {
            if self.pin(index).is_some_and(|pin| pin.ctime() >= since)
                // A file that is now missing is reported when it is read.
                && let Ok(identity) = dir.identity_below(self.name(index))
            {
                self.pins.set(index, identity.pin().words())?;
            }
        }
        Ok(())
    }

    /// The number of files.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// The index of the file `name`.
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        self.names.find(name)
    }

    /// The name of file `index`; empty if there is no such file.
    pub(super) fn name(&self, index: usize) -> &OsStr {
        OsStr::from_bytes(self.names.bytes(index).unwrap_or_default())
    }

    /// The pin of file `index`.
    pub(super) fn pin(&self, index: usize) -> Option<Pin> {
        self.pins.get(index).map(Pin::from_words)
    }

    fn pins(&self) -> impl Iterator<Item = Pin> {
        (0..self.len()).filter_map(|index| self.pin(index))
    }
}

/// Whether `e` says that there is no such file.
pub(super) fn is_missing(e: &Error) -> bool {
    matches!(e.kind(), Kind::Io(e) if e.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changed_just_now_is_looked_at_again_after_the_step_and_no_other() {
        let tmp = tempfile::tempdir().unwrap();
        let (dir, account) = (Dir::open(tmp.path()).unwrap(), Account::new(1 << 20, 0));
        std::fs::write(tmp.path().join("old"), b"old").unwrap();
        let long_ago = [1, 2, 3, 4];
        let is_seen = || {
            std::fs::write(tmp.path().join("new"), b"").unwrap();
            let mut pinned = PinnedNames::empty(&account);
            pinned.add(&dir, b"old").unwrap();
            pinned.add(&dir, b"new").unwrap();
            pinned.pins.set(0, long_ago).unwrap();
            // In the step in which it was pinned.
            std::fs::write(tmp.path().join("new"), b"more").unwrap();
            pinned.wait_for_step(&dir).unwrap();
            let pins: Vec<Pin> = pinned.pins().collect();
            assert_eq!(pins[0], Pin::from_words(long_ago));
            pins[1].size == 4
        };
        // This thread may be stopped for longer than a step.
        assert!((0..20).any(|_| is_seen()));
    }

    #[test]
    fn a_name_that_cannot_be_looked_up_is_an_error_and_one_that_is_missing_is_not() {
        let tmp = tempfile::tempdir().unwrap();
        let (dir, account) = (Dir::open(tmp.path()).unwrap(), Account::new(1 << 20, 0));
        std::fs::write(tmp.path().join("file"), b"text").unwrap();
        let pin = |name: &str| PinnedNames::new(&dir, [Ok(name)], &account).map(|pinned| pinned.len());
        assert_eq!((pin("file").unwrap(), pin("none").unwrap()), (1, 0));
        for name in ["file/x", &"x".repeat(1000)] {
            assert!(matches!(pin(name).unwrap_err().kind(), Kind::Io(_)), "{name}");
        }
    }
}
