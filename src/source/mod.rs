//! The bytes of a container: a local file, an object on a server, or a part of something else; positioned reads, and
//! detection of changes since it was opened. The kinds of source are in `origin`; local files are described here.
//!
//! Files are read with `pread`, not mapped: if a mapped file shrinks, access to it raises SIGBUS.
//!
//! The main file stays open. If it is deleted or another file is renamed over it, reads continue; if it is written to
//! or truncated, they fail with [`Kind::Changed`] from then on. `identity` tells these cases apart: device, inode, size
//! and modification time must not change. If only the ctime changes, a lower link count explains it; a new name, mode
//! or owner explains it only with [`Evidence`] that the file was not written to. Anything else counts as a change,
//! since a write whose modification time is set back looks the same. Other files of a container are in a [`Folder`].
//!
//! Limits: `stat` does not reveal a write through a shared mapping to pages that were already dirty when the file was
//! opened and have not been written back since.
#![forbid(unsafe_code)]

mod cache_dir;
mod dir;
mod far_dir;
mod files;
mod fingerprint;
mod folder;
mod identity;
mod links;
pub mod location;
mod member;
#[cfg(not(feature = "remote"))]
mod no_remote;
mod on_demand;
mod origin;
mod pages;
mod passed;
mod pinned_file;
mod pinned_names;
#[cfg(feature = "remote")]
mod remote;
mod remote_options;
mod rights;
mod seen;
mod small_reads;
#[cfg(test)]
pub(crate) mod testing;
mod top;

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::account::Account;
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::limits::zeroed;

use identity::Identity;
use member::FolderMember;
use origin::{MemoryOrigin, Within};
use pinned_file::PinnedFile;

pub use cache_dir::{CacheDir, DirRoom};
pub use dir::Dir;
pub use files::{Files, PinnedFiles, Place};
pub use fingerprint::combined;
pub use folder::Folder;
pub use links::stays_inside;
pub use location::Location;
#[cfg(not(feature = "remote"))]
pub use no_remote::{ListedObjects, Objects, Prefix};
pub use on_demand::OpenFiles;
pub use origin::{Need, Origin, Part};
pub use passed::Passed;
pub use pinned_file::Evidence;
#[cfg(feature = "remote")]
pub use remote::{ListedObjects, Objects, Prefix};
pub use remote_options::RemoteOptions;
pub use rights::Rights;
pub use seen::{Seen, Version};
pub use small_reads::SmallReads;
pub use top::{Below, Space, Top};

/// One file of a container, pinned by its identity when opened.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    bytes: Backing,
}

#[derive(Debug)]
enum Backing {
    File(PinnedFile),
    Other(Box<dyn Origin>),
}

impl Source {
    /// Opens the regular file at `path`. Never blocks on a FIFO or device.
    ///
    /// # Errors
    /// [`Kind::Io`] if a system call fails; [`Kind::Unsupported`] if it is not a regular file.
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        let (file, identity) = dir::open_named(path)?;
        Self::pinned(path.to_path_buf(), file, identity)
    }

    /// As [`Source::open`]; also returns its directory, for opening other files of the container.
    ///
    /// # Errors
    /// As [`Source::open`].
    pub fn open_with_dir(path: &Path) -> Result<(Arc<Self>, Option<Arc<Dir>>)> {
        let Some(name) = path.file_name() else { return Self::open(path).map(|source| (source, None)) };
        let dir = Dir::around(path)?;
        let (file, identity) = dir.named_file(name)?;
        Ok((Self::pinned(path.to_path_buf(), file, identity)?, Some(dir)))
    }

    fn pinned(path: PathBuf, file: File, identity: Identity) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { path, bytes: Backing::File(PinnedFile::pin(file, identity)?) }))
    }

    /// Opens the object at `url`, on a server; see [`Objects`] for its siblings.
    ///
    /// # Errors
    /// [`Kind::Io`] if the server cannot be reached or refuses; [`Kind::Unsupported`] if it cannot be read by parts, if
    /// its versions cannot be distinguished, or if this build has no remote sources; [`Kind::Usage`] if it is another
    /// version than expected.
    pub fn open_remote(url: &str, options: &RemoteOptions, account: &Account) -> Result<Arc<Self>> {
        Objects::beside(url, options, account).map(|(source, _)| source)
    }

    /// Bytes of another origin, under the path `path`.
    pub fn of(path: impl Into<PathBuf>, origin: impl Origin + 'static) -> Arc<Self> {
        Arc::new(Self { path: path.into(), bytes: Backing::Other(Box::new(origin)) })
    }

    /// A container in memory, for tests.
    pub fn from_bytes(bytes: Vec<u8>) -> Arc<Self> {
        Self::of("memory", MemoryOrigin(bytes))
    }

    /// The bytes of `outer` in `range`, as a separate source, under the path `path`.
    ///
    /// # Errors
    /// [`Kind::Truncated`] if the range exceeds `outer`.
    pub fn within(outer: &Arc<Self>, range: Range<u64>, path: impl Into<PathBuf>) -> Result<Arc<Self>> {
        let need = range.end.saturating_sub(range.start);
        outer.has(FileOffset(range.start), need, "range")?;
        let range = range.start..range.start.saturating_add(need);
        Ok(Self::of(path, Within { outer: outer.clone(), range }))
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size in bytes when opened. Of a stream that does not record its length and was not read to its end yet, the
    /// most that it can be: [`Source::size`] counts it.
    pub fn len(&self) -> u64 {
        match &self.bytes {
            Backing::File(held) => held.size,
            Backing::Other(origin) => origin.len(),
        }
    }

    /// The size in bytes; counts it if that was not done yet.
    ///
    /// # Errors
    /// Fails if a stream is broken, or cannot be read now.
    pub fn size(&self) -> Result<u64> {
        match &self.bytes {
            Backing::File(held) => Ok(held.size),
            Backing::Other(origin) => origin.size(),
        }
    }

    /// The modification time when opened: seconds and nanoseconds since 1970.
    pub fn mtime(&self) -> (i64, i64) {
        match &self.bytes {
            Backing::File(held) => held.mtime,
            Backing::Other(origin) => origin.mtime(),
        }
    }

    /// The entity tag of an object on a server, if any: it distinguishes versions better than size and time.
    pub fn etag(&self) -> Option<&str> {
        match &self.bytes {
            Backing::File(_) => None,
            Backing::Other(origin) => origin.etag(),
        }
    }

    /// The open file, for watching it or for reading from the page cache; `None` if it is not open now.
    pub fn file(&self) -> Option<Arc<File>> {
        match &self.bytes {
            Backing::File(held) => Some(held.file.clone()),
            Backing::Other(origin) => origin.file(),
        }
    }

    /// Sets the callback that supplies [`Evidence`] for a file that is held open. The first callback stays.
    pub fn set_witness(&self, witness: impl Fn() -> Evidence + Send + Sync + 'static) {
        if let Backing::File(held) = &self.bytes {
            held.set_witness(witness);
        }
    }

    /// The rights of the file; `None` if it has none: an object on a server, bytes in memory.
    ///
    /// # Errors
    /// [`Kind::Changed`] if it is another file now; [`Kind::Io`] if `stat` fails.
    pub fn rights(&self) -> Result<Option<Rights>> {
        match &self.bytes {
            Backing::File(held) => Seen::of(&held.file).map(|seen| Some(seen.rights)),
            Backing::Other(origin) => origin.rights(),
        }
    }

    /// Marks the file as changed, regardless of `stat`.
    pub fn set_changed(&self) {
        match &self.bytes {
            Backing::File(held) => held.set_changed(),
            Backing::Other(origin) => origin.set_changed(),
        }
    }

    /// Whether reading it may wait for a server.
    pub fn is_far(&self) -> bool {
        matches!(&self.bytes, Backing::Other(origin) if origin.is_far())
    }

    /// Whether almost none of the `len` bytes at `at` would have to be fetched from a server: at most a sixteenth, or
    /// 64 KiB. From memory.
    pub fn is_near(&self, at: FileOffset, len: u64) -> bool {
        match &self.bytes {
            Backing::File(_) => true,
            Backing::Other(origin) => {
                let end = at.0.saturating_add(len).min(self.len());
                origin.is_near(at.0..end)
            }
        }
    }

    /// Begins to fetch `ranges` from a server, those near each other with one request; does not wait for them. Nothing
    /// for other sources.
    pub fn announce(&self, ranges: &[Range<u64>], need: Need) {
        if let Backing::Other(origin) = &self.bytes {
            let len = self.len();
            let inside = |range: &Range<u64>| range.start.min(len)..range.end.min(len);
            let mut ranges: Vec<Range<u64>> = ranges.iter().map(inside).filter(|range| !range.is_empty()).collect();
            ranges.sort_unstable_by_key(|range| range.start);
            origin.announce(&ranges, need);
        }
    }

    /// Cancels fetches from a server that nobody waits for.
    pub fn cancel(&self) {
        if let Backing::Other(origin) = &self.bytes {
            origin.cancel();
        }
    }

    /// Fills `dst` from offset `at`. For a file in a [`Folder`], the bytes are known to predate any change; for another
    /// file the caller must call [`Source::check`] afterwards.
    ///
    /// # Errors
    /// [`Kind::Truncated`] if the range exceeds the size when opened; [`Kind::Changed`] if the file has shrunk since;
    /// [`Kind::Io`] if reading fails.
    pub fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
        self.has(at, to_u64(dst.len()), what)?;
        match &self.bytes {
            Backing::File(held) => held.read(at, dst, what),
            Backing::Other(origin) => origin.read(at, dst, what),
        }
    }

    /// Reads several ranges; from a far source, concurrently.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn read_parts(&self, parts: &mut [Part<'_>], what: &'static str) -> Result<()> {
        parts.iter().try_for_each(|part| self.has(part.at, to_u64(part.dst.len()), what))?;
        match &self.bytes {
            Backing::File(held) => parts.iter_mut().try_for_each(|part| held.read(part.at, part.dst, what)),
            Backing::Other(origin) => origin.read_parts(parts, what),
        }
    }

    /// Fails unless `need` bytes follow `at`.
    fn has(&self, at: FileOffset, need: u64, what: &'static str) -> Result<()> {
        let have = self.len().saturating_sub(at.0);
        if need > have { Err(Error::new(Kind::Truncated { need, have }, what).at(at)) } else { Ok(()) }
    }

    /// The `len` bytes at `at`, without a copy, if the source is in memory.
    pub fn as_slice(&self, at: FileOffset, len: u64) -> Option<&[u8]> {
        match &self.bytes {
            Backing::File(_) => None,
            Backing::Other(origin) => origin.as_slice(at.0..at.0.checked_add(len)?),
        }
    }

    /// Reads `len` bytes at `at`. Allocates only after checking `len` against the size of the file.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn get(&self, at: FileOffset, len: u64, what: &'static str) -> Result<Vec<u8>> {
        self.has(at, len, what)?;
        let mut bytes = zeroed(len, what)?;
        self.read(at, &mut bytes, what)?;
        Ok(bytes)
    }

    /// Reads the bytes at `at`: `most` of them, or as many as are left.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn get_most(&self, at: FileOffset, most: u64, what: &'static str) -> Result<Vec<u8>> {
        loop {
            let left = self.len().saturating_sub(at.0);
            match self.get(at, most.min(left), what) {
                // Reading has shown where the end is.
                Err(_) if self.len().saturating_sub(at.0) < most.min(left) => {}
                got => return got,
            }
        }
    }

    /// Whether the file is known to be unchanged, from memory: for threads that must not wait. If this is false,
    /// [`Source::check`] decides.
    pub fn is_same_in_memory(&self) -> bool {
        match &self.bytes {
            Backing::File(held) => held.is_same_in_memory(),
            Backing::Other(origin) => origin.is_same_in_memory(),
        }
    }

    /// Checks that the file is still the one that was opened, with one `stat`, which may wait for a file server. If
    /// only the ctime changed, this can take 20 ms more.
    ///
    /// Called at each open, and after a decode before its bytes are cached.
    ///
    /// # Errors
    /// [`Kind::Changed`] if it is not; permanent. [`Kind::Io`] if `stat` fails.
    pub fn check(&self) -> Result<()> {
        match &self.bytes {
            Backing::File(held) => held.check(),
            Backing::Other(origin) => origin.check(),
        }
    }
}

impl Dir {
    /// Opens the regular file `name` in this directory and holds it open.
    ///
    /// # Errors
    /// As [`Source::open`]; also fails for a symbolic link.
    pub fn source(&self, name: &str) -> Result<Arc<Source>> {
        let (file, identity) = self.file(name.as_ref())?;
        Source::pinned(self.path().join(name), file, identity)
    }
}

impl Folder {
    /// The file `name`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the file is missing; [`Kind::Unsupported`] if it is not a regular file;
    /// [`Kind::Changed`] if it was created after the folder was pinned.
    pub fn source(self: &Arc<Self>, name: impl AsRef<OsStr>) -> Result<Arc<Source>> {
        let index = self.index(name.as_ref())?;
        Ok(Source::of(self.path(index), FolderMember { folder: self.clone(), index }))
    }
}

#[cfg(test)]
mod tests;
