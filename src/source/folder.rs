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
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::fstat;
use rustix::process::{Resource, getrlimit};

use super::Rights;
use super::dir::{Dir, refused};
use super::identity::{Identity, Pin};
use super::pinned_names::{PinnedNames, is_missing};
use crate::account::Account;
use crate::bytes::FileOffset;
use crate::error::{Error, Kind, Result};
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

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
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
    let all = getrlimit(Resource::Nofile).current.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    NonZeroUsize::new((all / 8).min(OPEN)).unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    /// A change made to a file.
    type Step<'a> = (&'static str, &'a dyn Fn(&Path));

    fn names(n: usize) -> Vec<String> {
        (0..n).map(|i| format!("{i:05}")).collect()
    }

    /// A pinned directory of `n` files, each containing its number in 8 bytes.
    fn folder(n: usize) -> (tempfile::TempDir, Arc<Folder>) {
        let tmp = tempfile::tempdir().unwrap();
        for (i, name) in names(n).iter().enumerate() {
            std::fs::write(tmp.path().join(name), i.to_le_bytes()).unwrap();
        }
        let folder = pin(tmp.path(), n);
        (tmp, folder)
    }

    fn pin(path: &Path, n: usize) -> Arc<Folder> {
        // With duplicates.
        let names = names(n).into_iter().chain(names(n.min(3)));
        Folder::pin(&Dir::open(path).unwrap(), names.map(Ok), &Account::new(1 << 20, 0)).unwrap()
    }

    fn read(folder: &Arc<Folder>, i: usize) -> Result<usize> {
        let bytes = folder.source(format!("{i:05}"))?.get(FileOffset(0), 8, "x")?;
        Ok(usize::from_le_bytes(bytes.try_into().unwrap()))
    }

    #[test]
    fn files_at_any_depth_are_pinned_and_a_new_one_is_a_change() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tmp.path().join("a/b")).unwrap();
        std::fs::write(tmp.path().join("a/b/file"), [7; 8]).unwrap();
        std::fs::write(tmp.path().join("top"), [8; 8]).unwrap();
        symlink("a/b/file", tmp.path().join("link")).unwrap();
        symlink("a", tmp.path().join("dir")).unwrap();
        let pin = || Folder::pin_below(&Dir::open(tmp.path()).unwrap(), &Account::new(1 << 20, 0)).unwrap();
        let folder = pin();
        let mut names: Vec<_> = (0..folder.len()).map(|i| folder.name(i).to_vec()).collect();
        names.sort();
        assert_eq!(names, [&b"/"[..], b"a/", b"a/b/", b"a/b/file", b"top"]);
        assert_eq!(folder.source("a/b/file").unwrap().get(FileOffset(0), 8, "x").unwrap(), [7; 8]);
        folder.check_some(5).unwrap();
        for name in ["link", "dir/b/file", "a/../top", "../x", "a/b", "/top"] {
            assert!(folder.source(name).is_err(), "{name}");
        }
        // A directory on the way that is a link now.
        std::fs::rename(tmp.path().join("a"), tmp.path().join("c")).unwrap();
        symlink("c", tmp.path().join("a")).unwrap();
        let folder = {
            folder.open.clear();
            assert!(folder.source("a/b/file").unwrap().get(FileOffset(0), 8, "x").is_err());
            pin()
        };
        std::fs::write(tmp.path().join("c/b/new"), []).unwrap();
        assert!(matches!(folder.check_some(5).unwrap_err().kind(), Kind::Changed));
    }

    #[test]
    fn all_files_are_read_and_few_are_open() {
        let (_tmp, folder) = folder(500);
        assert_eq!(folder.len(), 500);
        for i in (0..500).chain([7, 499, 0]) {
            assert_eq!(read(&folder, i).unwrap(), i);
            assert!(folder.open.len() <= OPEN);
        }
        assert_eq!(folder.open.len(), descriptors().get());
        assert!(matches!(folder.source("00500").unwrap_err().kind(), Kind::NotFound));
        folder.check_some(500).unwrap();
    }

    #[test]
    fn the_list_of_files_is_charged_and_goes_to_the_disk_without_memory() {
        let tmp = tempfile::tempdir().unwrap();
        let names = (0..20_000).map(|i| format!("{i:05}"));
        for name in names.clone() {
            std::fs::hard_link(tmp.path().join("00000"), tmp.path().join(&name))
                .or_else(|_| std::fs::write(tmp.path().join(&name), [7; 8]))
                .unwrap();
        }
        for (memory, disk) in [(64 << 20, 0), (0, 64 << 20)] {
            let account = Account::new(memory, disk);
            let folder = Folder::pin(&Dir::open(tmp.path()).unwrap(), names.clone().map(Ok), &account).unwrap();
            let used = account.memory().used() + account.disk().used();
            assert!(used >= 500_000, "{used}");
            assert_eq!(folder.source("12345").unwrap().get(FileOffset(0), 8, "x").unwrap(), [7; 8]);
            drop(folder);
            assert_eq!(account.memory().used() + account.disk().used(), 0);
        }
    }

    #[test]
    fn any_change_of_a_file_is_one_of_all_whether_it_is_open_or_not() {
        let restored = |path: &Path, bytes: &[u8]| {
            let was = path.metadata().unwrap().modified().unwrap();
            let file = File::options().write(true).open(path).unwrap();
            file.write_all_at(bytes, 0).unwrap();
            file.set_modified(was).unwrap();
        };
        let secret = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(secret.path(), [0xEE; 8]).unwrap();
        let steps: [Step<'_>; 9] = [
            ("written in place", &|at| std::fs::write(at, [1; 8]).unwrap()),
            ("written in place, time restored", &|at| restored(at, &[1; 8])),
            ("cut", &|at| File::options().write(true).open(at).unwrap().set_len(3).unwrap()),
            ("renamed over", &|at| {
                let other = at.with_file_name("other");
                std::fs::write(&other, [1; 8]).unwrap();
                std::fs::rename(other, at).unwrap();
            }),
            ("deleted", &|at| std::fs::remove_file(at).unwrap()),
            ("renamed", &|at| std::fs::rename(at, at.with_file_name("other")).unwrap()),
            ("replaced by a link", &|at| {
                std::fs::remove_file(at).unwrap();
                symlink(secret.path(), at).unwrap();
            }),
            ("replaced by a link to the same bytes", &|at| {
                std::fs::rename(at, at.with_file_name("other")).unwrap();
                symlink("other", at).unwrap();
            }),
            ("replaced by a FIFO", &|at| {
                std::fs::remove_file(at).unwrap();
                let mode = rustix::fs::Mode::RUSR;
                rustix::fs::mknodat(rustix::fs::CWD, at, rustix::fs::FileType::Fifo, mode, 0).unwrap();
            }),
        ];
        for (what, step) in steps {
            for (is_open, by_reading) in [(false, true), (true, true), (false, false), (true, false)] {
                let (tmp, folder) = folder(5);
                if is_open {
                    assert_eq!(read(&folder, 3).unwrap(), 3);
                }
                step(&tmp.path().join("00003"));
                let seen = match (by_reading, is_open) {
                    // The old bytes can be read through the open descriptor until the change is detected.
                    (true, true) => {
                        read(&folder, 3).map_or_else(Err, |i| if i == 3 { folder.check_some(5) } else { Ok(()) })
                    }
                    (true, false) => read(&folder, 3).map(drop),
                    (false, _) => folder.check_some(5),
                };
                let e = seen.expect_err(what);
                assert!(matches!(e.kind(), Kind::Changed), "{what}: {e}");
                assert!(folder.unchanged().is_err() && read(&folder, 1).is_err(), "{what}");
                assert_eq!(folder.changed(), Some(tmp.path().join("00003")));
                assert!(folder.open.is_empty());
            }
        }
    }

    #[test]
    fn links_and_fifos_are_not_in_the_folder_and_what_comes_later_is_a_change() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(tmp.path().join("00000"), [0; 8]).unwrap();
        symlink("00000", tmp.path().join("00001")).unwrap();
        std::fs::create_dir(tmp.path().join("00002")).unwrap();
        let folder = pin(tmp.path(), 5);
        assert_eq!(folder.len(), 1);
        let why = |name: &str| folder.source(name).unwrap_err();
        assert!(why("00001").to_string().contains("symbolic link, which is not followed"));
        assert!(why("00002").to_string().contains("a directory"));
        assert!(matches!(why("00003").kind(), Kind::NotFound));
        assert!(matches!(why("../x").kind(), Kind::Unsupported(_)));
        std::fs::write(tmp.path().join("00003"), [0; 8]).unwrap();
        assert!(matches!(why("00003").kind(), Kind::Changed));
    }

    #[test]
    fn repeated_checks_of_some_files_reach_all() {
        for changed in [0, 1, 41, 99] {
            let (tmp, folder) = folder(100);
            std::fs::write(tmp.path().join(format!("{changed:05}")), b"x").unwrap();
            let rounds = (0..20).take_while(|_| folder.check_some(9).is_ok()).count();
            assert_eq!(rounds, changed / 9);
        }
    }

    #[test]
    fn the_directory_may_move() {
        let (tmp, folder) = folder(3);
        let inside = tmp.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        std::fs::rename(tmp.path().join("00000"), inside.join("00000")).unwrap();
        let other = pin(&inside, 1);
        std::fs::rename(&inside, tmp.path().join("moved")).unwrap();
        assert_eq!(read(&other, 0).unwrap(), 0);
        assert!(read(&folder, 0).is_err());
    }
}
