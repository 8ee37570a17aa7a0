//! The files of a container directory (chunks of a sparse frame, shards): pinned when the container is opened, open
//! only while being read.
//!
//! There may be a hundred thousand files, and descriptors are scarce: only the most recently read files stay open, at
//! most [`OPEN`] and at most an eighth of the process's limit. Every part of a file's identity must stay the same,
//! including the ctime: unlike for the main file, a rename, a link or chmod counts as a change. One changed file makes
//! the whole folder changed, permanently.
//!
//! Invariant: bytes are returned only if the file was found unchanged after reading them.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::Rights;
use super::dir::{Dir, refused};
use super::identity::{Identity, Pin};
use super::pinned_names::{PinnedNames, is_missing};
use crate::account::Account;
use crate::bytes::FileOffset;
use crate::error::{Error, Kind, Result};
use crate::platform::{BorrowedFd, FileExt, OsStrExt, fstat, most_descriptors};
use crate::recent::Recent;

/// Maximum number of open files.
const OPEN: usize = 64;

/// The pinned files of one directory.
#[derive(Debug)]
pub struct Folder {
    dir: Arc<Dir>,
    files: PinnedNames,
    open: Recent<usize, Arc<File>>,
    /// The first file found changed.
    changed: OnceLock<usize>,
    /// The next file for [`Folder::check_some`].
    next: AtomicUsize,
}

impl Folder {
    /// Pins the regular files in `dir` among `names`; skips the others.
    ///
    /// # Errors
    /// Fails if a system call fails; [`Kind::TooLarge`] if there are too many files; [`Kind::NoRoom`] if neither memory
    /// nor disk space is left for their names.
    pub fn pin<N: AsRef<[u8]>>(
        dir: &Arc<Dir>,
        names: impl IntoIterator<Item = Result<N>>,
        account: &Account,
    ) -> Result<Arc<Self>> {
        let checked = |name: Result<N>| {
            let name = name?;
            super::dir::plain(OsStr::from_bytes(name.as_ref())).map(|()| name)
        };
        Ok(Self::pinned_in(dir, PinnedNames::new(dir, names.into_iter().map(checked), account)?))
    }

    /// Pins all regular files below `dir`, and its directories, which change if a file is added: their names end with
    /// `/`.
    ///
    /// # Errors
    /// As [`Folder::pin`], and [`Dir::names_below`].
    pub fn pin_below(dir: &Arc<Dir>, account: &Account) -> Result<Arc<Self>> {
        Ok(Self::pinned_in(dir, PinnedNames::below(dir, account)?))
    }

    fn pinned_in(dir: &Arc<Dir>, files: PinnedNames) -> Arc<Self> {
        Arc::new(Self {
            dir: dir.clone(),
            files,
            open: Recent::new(descriptors()),
            changed: OnceLock::new(),
            next: AtomicUsize::new(0),
        })
    }

    /// The number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// The name of file `index`, from the directory on.
    pub fn name(&self, index: usize) -> &[u8] {
        self.files.name(index).as_bytes()
    }

    /// The index of the file `name`.
    pub fn find(&self, name: impl AsRef<[u8]>) -> Option<usize> {
        self.files.find(name.as_ref())
    }

    /// The index of the file `name`, or why it is none of this folder.
    pub(super) fn index(&self, name: &OsStr) -> Result<usize> {
        if let Some(index) = self.find(name.as_bytes()) {
            return Ok(index);
        }
        match self.dir.identity_below(name) {
            Ok(identity) => Err(identity.regular().err().unwrap_or_else(|| Error::new(Kind::Changed, "file"))),
            Err(e) if is_missing(&e) => Err(Error::new(Kind::NotFound, "file")),
            Err(e) => Err(e),
        }
    }

    /// The size of file `index` when it was pinned.
    pub(super) fn size(&self, index: usize) -> u64 {
        self.files.pin(index).map_or(0, |pin| pin.size)
    }

    /// The directory, for watching it.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.dir.fd()
    }

    /// The first file found changed, if any.
    pub fn changed(&self) -> Option<PathBuf> {
        self.changed.get().map(|&index| self.path(index))
    }

    /// Fails if a change was detected before. Does not stat any file.
    ///
    /// # Errors
    /// [`Kind::Changed`].
    pub fn unchanged(&self) -> Result<()> {
        if self.changed.get().is_some() { Err(Error::new(Kind::Changed, "file")) } else { Ok(()) }
    }

    /// Marks file `index` as changed.
    pub fn set_changed(&self, index: usize) {
        // The first one is kept.
        let _ = self.changed.set(index);
        self.open.clear();
    }

    /// Checks that the name of file `index` still refers to the same, unchanged file.
    ///
    /// # Errors
    /// [`Kind::Changed`]; [`Kind::Io`] if `stat` fails.
    pub fn check(&self, index: usize) -> Result<()> {
        self.unchanged()?;
        let pin = self.pinned(index)?;
        match self.dir.identity_below(self.files.name(index)) {
            Ok(identity) if identity.pin() == pin => Ok(()),
            Ok(_) => Err(self.refuse(index)),
            Err(e) if is_missing(&e) => Err(self.refuse(index)),
            Err(e) => Err(e),
        }
    }

    /// As [`Folder::check`], for the next `count` files; repeated calls cycle through all files.
    ///
    /// # Errors
    /// [`Kind::Changed`].
    pub fn check_some(&self, count: usize) -> Result<()> {
        let (all, count) = (self.files.len().max(1), count.min(self.files.len()));
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        for index in (0..count).map(|i| first.wrapping_add(i) % all) {
            match self.check(index) {
                Err(e) if matches!(e.kind(), Kind::Changed) => return Err(e),
                // If `stat` fails, the error is reported when the file is read.
                _ => {}
            }
        }
        Ok(())
    }

    /// `rights`, reduced to the users who may read every file.
    ///
    /// # Errors
    /// [`Kind::Changed`]; [`Kind::Io`] if `stat` fails.
    pub fn rights(&self, rights: Rights) -> Result<Rights> {
        (0..self.len()).try_fold(rights, |rights, index| {
            let seen = self.dir.seen_below(self.files.name(index))?;
            let is_same = self.pinned(index)?.words() == seen.version();
            if is_same { Ok(rights.and(seen.rights)) } else { Err(self.refuse(index)) }
        })
    }

    /// Fills `dst` from offset `at` of file `index`.
    pub(super) fn read(&self, index: usize, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
        let file = self.file(index)?;
        match file.read_exact_at(dst, at.0) {
            Ok(()) => self.check_file(index, &file).map_err(|e| e.at(at)),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(self.refuse(index).at(at)),
            Err(e) => Err(Error::io(e, what).at(at)),
        }
    }

    /// Checks that `file`, opened as file `index`, is unchanged.
    fn check_file(&self, index: usize, file: &File) -> Result<()> {
        self.unchanged()?;
        let now = Identity::of(&fstat(file).map_err(refused)?);
        if now.pin() == self.pinned(index)? { Ok(()) } else { Err(self.refuse(index)) }
    }

    /// Whether the kernel knows file `index`, which is open, as unchanged.
    pub(super) fn is_same_in_memory(&self, index: usize) -> bool {
        let now = self.opened(index).and_then(|file| Identity::cached(&file));
        self.unchanged().is_ok() && now.zip(self.files.pin(index)).is_some_and(|(now, known)| now.pin() == known)
    }

    /// File `index`, if open.
    pub(super) fn opened(&self, index: usize) -> Option<Arc<File>> {
        self.open.get(&index)
    }

    pub(super) fn mtime(&self, index: usize) -> (i64, i64) {
        self.files.pin(index).map_or((0, 0), |pin| pin.mtime())
    }

    fn file(&self, index: usize) -> Result<Arc<File>> {
        self.unchanged()?;
        if let Some(file) = self.opened(index) {
            return Ok(file);
        }
        self.pinned(index)?;
        let (file, _) = match self.dir.file_below(self.files.name(index)) {
            Ok(opened) => opened,
            // A replacement may fail to open: report the change instead.
            Err(e) => return Err(self.check(index).err().unwrap_or(e)),
        };
        self.check_file(index, &file)?;
        let file = Arc::new(file);
        self.open.put(index, file.clone());
        Ok(file)
    }

    fn pinned(&self, index: usize) -> Result<Pin> {
        self.files.pin(index).ok_or_else(|| Error::new(Kind::NotFound, "file"))
    }

    pub(super) fn path(&self, index: usize) -> PathBuf {
        self.dir.path().join(self.files.name(index))
    }

    fn refuse(&self, index: usize) -> Error {
        self.set_changed(index);
        Error::new(Kind::Changed, "file")
    }
}

/// Maximum number of files that one folder keeps open.
pub(super) fn descriptors() -> NonZeroUsize {
    share(most_descriptors())
}

/// The part of `most` descriptors that a folder may have.
fn share(most: usize) -> NonZeroUsize {
    NonZeroUsize::new((most / 8).min(OPEN)).unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests;
