//! The names of the files of a folder, each with the identity that the file had when it was pinned.
//!
//! Limits: 40 bytes per file plus its name.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::dir::Dir;
use super::identity::Pin;
use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;

/// Maximum number of pinned files.
const MOST: usize = 1 << 20;

/// Names and pins, sorted by name.
#[derive(Debug)]
pub(super) struct PinnedNames {
    /// All names, each preceded by its length in one byte.
    names: Vec<u8>,
    files: Vec<Pinned>,
}

#[derive(Debug)]
struct Pinned {
    /// Offset of its name.
    name: u32,
    pin: Pin,
}

impl PinnedNames {
    /// Pins those of `names` that are regular files in `dir`; skips the others. Waits until any later write will change
    /// the timestamps of a file.
    ///
    /// # Errors
    /// Fails if a system call fails; [`Kind::TooLarge`] if there are too many files.
    pub(super) fn new<N: AsRef<[u8]>>(dir: &Dir, names: impl IntoIterator<Item = Result<N>>) -> Result<Self> {
        let mut pinned = Self { names: Vec::new(), files: Vec::new() };
        for name in names {
            pinned.add(dir, name?.as_ref())?;
        }
        let Self { names, files } = &mut pinned;
        files.sort_by(|a, b| name_at(names, a.name).cmp(name_at(names, b.name)));
        files.dedup_by(|a, b| name_at(names, a.name) == name_at(names, b.name));
        files.shrink_to_fit();
        names.shrink_to_fit();
        pinned.wait_for_step(dir);
        Ok(pinned)
    }

    fn add(&mut self, dir: &Dir, name: &[u8]) -> Result<()> {
        let identity = match dir.stat(OsStr::from_bytes(name)) {
            Ok(identity) if identity.regular().is_ok() => identity,
            Ok(_) => return Ok(()),
            Err(e) if is_missing(&e) => return Ok(()),
            Err(e) => return Err(e),
        };
        Limits::check(to_u64(self.files.len()).saturating_add(1), to_u64(MOST), "number of files")?;
        let (Ok(at), Ok(len)) = (u32::try_from(self.names.len()), u8::try_from(name.len())) else { return Ok(()) };
        self.names.push(len);
        self.names.extend_from_slice(name);
        self.files.push(Pinned { name: at, pin: identity.pin() });
        Ok(())
    }

    /// Waits until any later write will change a file's timestamps, then pins the most recently changed files again.
    fn wait_for_step(&mut self, dir: &Dir) {
        let Self { names, files } = self;
        let fresh = |file: &Pinned| file.pin.step_left();
        let wait = files.iter().map(fresh).max().unwrap_or(Duration::ZERO);
        if wait.is_zero() {
            return;
        }
        let young: Vec<_> = files.iter_mut().filter(|file| !fresh(file).is_zero()).collect();
        std::thread::sleep(wait);
        for file in young {
            // A file that is now missing is reported when it is read.
            if let Ok(identity) = dir.stat(OsStr::from_bytes(name_at(names, file.name))) {
                file.pin = identity.pin();
            }
        }
    }

    /// The number of files.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are no files.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The index of the file `name`.
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        self.files.binary_search_by(|file| name_at(&self.names, file.name).cmp(name)).ok()
    }

    /// The name of file `index`; empty if there is no such file.
    pub(super) fn name(&self, index: usize) -> &OsStr {
        OsStr::from_bytes(self.files.get(index).map_or(&[], |file| name_at(&self.names, file.name)))
    }

    /// The pin of file `index`.
    pub(super) fn pin(&self, index: usize) -> Option<&Pin> {
        Some(&self.files.get(index)?.pin)
    }
}

/// The name at `at`.
fn name_at(names: &[u8], at: u32) -> &[u8] {
    let rest = names.get(at as usize..).unwrap_or_default();
    rest.split_first().and_then(|(&len, rest)| rest.get(..len.into())).unwrap_or_default()
}

/// Whether `e` says that there is no such file.
pub(super) fn is_missing(e: &Error) -> bool {
    matches!(e.kind(), Kind::Io(e) if e.kind() == io::ErrorKind::NotFound)
}
