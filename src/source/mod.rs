//! The files of a container: positioned reads, and detection of changes since they were opened.
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

mod dir;
mod folder;
mod identity;
mod pinned_file;
mod pinned_names;
mod small_reads;

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::limits::zeroed;

use identity::Identity;
use pinned_file::PinnedFile;

pub use dir::Dir;
pub use folder::Folder;
pub use pinned_file::Evidence;
pub use small_reads::SmallReads;

/// One file of a container, pinned by its identity when opened.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    bytes: Backing,
    len: u64,
}

#[derive(Debug)]
enum Backing {
    File(PinnedFile),
    /// A file that is opened on demand.
    Member {
        folder: Arc<Folder>,
        index: usize,
    },
    Memory(Vec<u8>),
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
        let held = PinnedFile::pin(file, identity)?;
        Ok(Arc::new(Self { path, len: held.size, bytes: Backing::File(held) }))
    }

    /// A container in memory, for tests and for nested containers.
    pub fn from_bytes(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { path: PathBuf::from("memory"), len: to_u64(bytes.len()), bytes: Backing::Memory(bytes) })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size in bytes when opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The modification time when opened: seconds and nanoseconds since 1970.
    pub fn mtime(&self) -> (i64, i64) {
        match &self.bytes {
            Backing::File(held) => held.mtime,
            Backing::Member { folder, index } => folder.mtime(*index),
            Backing::Memory(_) => (0, 0),
        }
    }

    /// The open file, for watching it or for reading from the page cache; `None` if it is not open now.
    pub fn file(&self) -> Option<Arc<File>> {
        match &self.bytes {
            Backing::File(held) => Some(held.file.clone()),
            Backing::Member { folder, index } => folder.opened(*index),
            Backing::Memory(_) => None,
        }
    }

    /// Sets the callback that supplies [`Evidence`] for a file that is held open. The first callback stays.
    pub fn set_witness(&self, witness: impl Fn() -> Evidence + Send + Sync + 'static) {
        if let Backing::File(held) = &self.bytes {
            held.set_witness(witness);
        }
    }

    /// Marks the file as changed, regardless of `stat`.
    pub fn set_changed(&self) {
        match &self.bytes {
            Backing::File(held) => held.set_changed(),
            Backing::Member { folder, index } => folder.set_changed(*index),
            Backing::Memory(_) => {}
        }
    }

    /// Fills `dst` from offset `at`. For a file in a [`Folder`], the bytes are known to predate any change; for another
    /// file the caller must call [`Source::check`] afterwards.
    ///
    /// # Errors
    /// [`Kind::Truncated`] if the range exceeds the size when opened; [`Kind::Changed`] if the file has shrunk since;
    /// [`Kind::Io`] if reading fails.
    pub fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
        let need = to_u64(dst.len());
        let have = self.len.saturating_sub(at.0);
        if need > have {
            return Err(Error::new(Kind::Truncated { need, have }, what).at(at));
        }
        match &self.bytes {
            Backing::File(held) => held.read(at, dst, what),
            Backing::Member { folder, index } => folder.read(*index, at, dst, what),
            Backing::Memory(bytes) => {
                let start = crate::bytes::to_usize(at.0, what)?;
                match bytes.get(start..).and_then(|rest| rest.get(..dst.len())) {
                    Some(src) => dst.copy_from_slice(src),
                    None => return Err(Error::new(Kind::Truncated { need, have }, what).at(at)),
                }
                Ok(())
            }
        }
    }

    /// The `len` bytes at `at`, without a copy, if the source is in memory.
    pub fn as_slice(&self, at: FileOffset, len: u64) -> Option<&[u8]> {
        let Backing::Memory(bytes) = &self.bytes else { return None };
        bytes.get(usize::try_from(at.0).ok()?..)?.get(..usize::try_from(len).ok()?)
    }

    /// Reads `len` bytes at `at`. Allocates only after checking `len` against the size of the file.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn get(&self, at: FileOffset, len: u64, what: &'static str) -> Result<Vec<u8>> {
        let have = self.len.saturating_sub(at.0);
        if len > have {
            return Err(Error::new(Kind::Truncated { need: len, have }, what).at(at));
        }
        let mut bytes = zeroed(len, what)?;
        self.read(at, &mut bytes, what)?;
        Ok(bytes)
    }

    /// Whether the file is known to be unchanged, from memory: for threads that must not wait. If this is false,
    /// [`Source::check`] decides.
    pub fn is_same_in_memory(&self) -> bool {
        match &self.bytes {
            Backing::File(held) => held.is_same_in_memory(),
            Backing::Member { folder, index } => folder.is_same_in_memory(*index),
            Backing::Memory(_) => true,
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
            Backing::Member { folder, index } => folder.check(*index),
            Backing::Memory(_) => Ok(()),
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
        let bytes = Backing::Member { folder: self.clone(), index };
        Ok(Arc::new(Source { path: self.path(index), len: self.size(index), bytes }))
    }
}

#[cfg(test)]
mod tests;
