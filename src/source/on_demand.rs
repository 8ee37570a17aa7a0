//! A file below a served directory, open only while it is read: many containers share few descriptors.
//!
//! Every part of its identity must stay the same, including the ctime; a replacement counts as a change too.
//!
//! Invariant: bytes are returned only if the file was found unchanged after reading them.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::dir::refused;
use super::fingerprint::of_file;
use super::folder::descriptors;
use super::identity::{Identity, Pin};
use super::origin::Origin;
use super::pinned_names::is_missing;
use super::seen::Seen;
use super::top::Top;
use super::{Rights, Source};
use crate::bytes::FileOffset;
use crate::error::{Error, Kind, Result};
use crate::platform::{FileExt, fstat};
use crate::recent::Recent;

/// The open files: those read last, of all containers.
#[derive(Debug)]
pub struct OpenFiles {
    files: Recent<u64, Arc<File>>,
    next: AtomicU64,
}

impl Default for OpenFiles {
    fn default() -> Self {
        Self::new(descriptors())
    }
}

impl OpenFiles {
    /// Keeps at most `most` files open.
    pub fn new(most: NonZeroUsize) -> Self {
        Self { files: Recent::new(most), next: AtomicU64::new(0) }
    }

    /// The number of files that are open.
    pub fn len(&self) -> usize {
        self.files.len()
    }
}

#[derive(Debug)]
struct OnDemand {
    top: Arc<Top>,
    path: PathBuf,
    pin: Pin,
    files: Arc<OpenFiles>,
    key: u64,
    changed: AtomicBool,
}

impl Source {
    /// The regular file `path` below `top`, which is open only while it is among the files read last; also its state.
    /// May wait until any later write changes its timestamps.
    ///
    /// # Errors
    /// As [`Source::open`].
    pub fn on_demand(top: &Arc<Top>, path: &Path, files: &Arc<OpenFiles>) -> Result<(Arc<Self>, Seen)> {
        let (below, name) = top.around(path)?;
        let (file, identity) = below.identified(name)?;
        identity.wait_for_step();
        let seen = Seen::of(&file)?;
        let key = files.next.fetch_add(1, Ordering::Relaxed);
        files.files.put(key, Arc::new(file));
        let (top, files, shown) = (top.clone(), files.clone(), top.path().join(path));
        let changed = AtomicBool::new(false);
        let pin = Pin::from_words(seen.version());
        let origin = OnDemand { top, path: path.to_path_buf(), pin, files, key, changed };
        Ok((Self::of(shown, origin), seen))
    }
}

impl OnDemand {
    fn opened(&self) -> Option<Arc<File>> {
        self.files.files.get(&self.key)
    }

    fn open(&self) -> Result<Arc<File>> {
        if let Some(file) = self.opened() {
            return Ok(file);
        }
        let (below, name) = self.top.around(&self.path).map_err(|e| self.gone(e))?;
        let (file, identity) = below.identified(name).map_err(|e| self.gone(e))?;
        self.compare(&identity)?;
        let file = Arc::new(file);
        self.files.files.put(self.key, file.clone());
        Ok(file)
    }

    /// A file that is missing, or is a file no more, has changed.
    fn gone(&self, error: Error) -> Error {
        let is_other = matches!(error.kind(), Kind::Unsupported(_));
        if is_other || is_missing(&error) { self.refuse() } else { error }
    }

    fn refuse(&self) -> Error {
        self.set_changed();
        Error::new(Kind::Changed, "file")
    }

    fn compare(&self, now: &Identity) -> Result<()> {
        if !self.changed.load(Ordering::Relaxed) && now.pin() == self.pin { Ok(()) } else { Err(self.refuse()) }
    }
}

impl Origin for OnDemand {
    fn len(&self) -> u64 {
        self.pin.size
    }

    fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
        let file = self.open()?;
        match file.read_exact_at(dst, at.0) {
            Ok(()) => self.compare(&Identity::of(&fstat(&file).map_err(refused)?)).map_err(|e| e.at(at)),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(self.refuse().at(at)),
            Err(e) => Err(Error::io(e, what).at(at)),
        }
    }

    fn mtime(&self) -> (i64, i64) {
        self.pin.mtime()
    }

    fn fingerprint(&self) -> Option<[u8; 32]> {
        let file = self.open().ok()?;
        let identity = Identity::of(&fstat(&file).ok()?);
        self.compare(&identity).ok()?;
        of_file(&identity, |at, dst| self.read(at, dst, "file")).ok()
    }

    fn file(&self) -> Option<Arc<File>> {
        self.opened()
    }

    fn is_same_in_memory(&self) -> bool {
        let now = self.opened().and_then(|file| Identity::cached(&file));
        !self.changed.load(Ordering::Relaxed) && now.is_some_and(|now| now.pin() == self.pin)
    }

    fn check(&self) -> Result<()> {
        if self.changed.load(Ordering::Relaxed) {
            return Err(self.refuse());
        }
        let seen = self.top.around(&self.path).and_then(|(below, name)| below.stat(name)).map_err(|e| self.gone(e))?;
        if seen.version() == self.pin.words() { Ok(()) } else { Err(self.refuse()) }
    }

    fn rights(&self) -> Result<Option<Rights>> {
        let seen = Seen::of(&*self.open()?)?;
        if seen.version() == self.pin.words() { Ok(Some(seen.rights)) } else { Err(self.refuse()) }
    }

    fn set_changed(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }
}

impl Drop for OnDemand {
    fn drop(&mut self) {
        self.files.files.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Backing;
    use super::*;

    fn sources(dir: &Path, n: u64, files: &Arc<OpenFiles>) -> Vec<Arc<Source>> {
        let top = Top::open(dir).unwrap();
        let make = |i: u64| {
            std::fs::write(dir.join(i.to_string()), i.to_le_bytes()).unwrap();
            Source::on_demand(&top, Path::new(&i.to_string()), files).unwrap().0
        };
        (0..n).map(make).collect()
    }

    #[test]
    fn many_files_are_read_with_few_descriptors() {
        let dir = tempfile::tempdir().unwrap();
        let files = Arc::new(OpenFiles::new(NonZeroUsize::new(3).unwrap()));
        let sources = sources(dir.path(), 20, &files);
        for (i, source) in (0_u64..).zip(&sources).chain((0_u64..).zip(&sources)) {
            assert_eq!(source.get(FileOffset(0), 8, "x").unwrap(), i.to_le_bytes());
            assert!(files.len() <= 3 && source.is_same_in_memory());
        }
        assert_eq!(files.len(), 3);
        drop(sources);
        assert_eq!(files.len(), 0);
    }

    #[test]
    fn a_file_is_the_same_to_the_index_by_itself_and_in_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let sources = sources(dir.path(), 2, &Arc::default());
        let alone = |name: &str| Source::open(&dir.path().join(name)).unwrap().fingerprint();
        assert_eq!(sources[0].fingerprint(), alone("0"));
        assert!(alone("0").is_some() && alone("0") != alone("1"));
        std::fs::write(dir.path().join("0"), [7; 8]).unwrap();
        assert_eq!(sources[0].fingerprint(), None, "it has changed");
    }

    #[test]
    fn a_file_that_is_written_replaced_or_removed_is_changed_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let files = Arc::new(OpenFiles::new(NonZeroUsize::new(8).unwrap()));
        let sources = sources(dir.path(), 4, &files);
        std::fs::write(dir.path().join("0"), [7; 8]).unwrap();
        std::fs::write(dir.path().join("new"), [7; 8]).unwrap();
        std::fs::rename(dir.path().join("new"), dir.path().join("1")).unwrap();
        std::fs::remove_file(dir.path().join("2")).unwrap();
        for source in &sources[..3] {
            assert!(matches!(source.check().unwrap_err().kind(), Kind::Changed));
            assert!(matches!(source.get(FileOffset(0), 8, "x").unwrap_err().kind(), Kind::Changed));
        }
        sources[3].check().unwrap();
        assert_eq!(sources[3].get(FileOffset(0), 8, "x").unwrap(), 3_u64.to_le_bytes());
    }
    #[test]
    fn a_read_that_the_system_refuses_is_an_error_and_no_change() {
        let dir = tempfile::tempdir().unwrap();
        let source = sources(dir.path(), 1, &Arc::default()).remove(0);
        let Backing::Other(origin) = &source.bytes else { unreachable!() };
        // No file has such an offset.
        assert!(matches!(origin.read(FileOffset(1 << 63), &mut [0], "x").unwrap_err().kind(), Kind::Io(_)));
        source.check().unwrap();
        assert!(matches!(origin.read(FileOffset(8), &mut [0], "x").unwrap_err().kind(), Kind::Changed));
        assert!(source.check().is_err());
    }
}
