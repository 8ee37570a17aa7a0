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
mod small_reads;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::fs::fstat;

use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::limits::zeroed;

use identity::{Identity, Verdict};

pub use dir::Dir;
pub use folder::Folder;
pub use small_reads::SmallReads;

/// A rename or link updates the ctime first and its other effects a moment later: how often, and at what interval, to
/// stat again before an unexplained ctime counts as a change.
const LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// One file of a container, pinned by its identity when opened.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    bytes: Backing,
    len: u64,
}

#[derive(Debug)]
enum Backing {
    File(Held),
    /// A file that is opened on demand.
    Member {
        folder: Arc<Folder>,
        index: usize,
    },
    Memory(Vec<u8>),
}

/// A file that is held open.
struct Held {
    file: Arc<File>,
    mtime: (i64, i64),
    /// As at opening, updated after a harmless change of name or permissions.
    identity: Mutex<Identity>,
    /// Set when a change is detected; never cleared.
    changed: AtomicBool,
    witness: OnceLock<Box<dyn Fn() -> Evidence + Send + Sync>>,
}

/// What a watcher of the file knows beyond `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// It was written to, or may have been.
    Written,
    /// It was not written to.
    Untouched,
    /// It was not written to, and it was renamed.
    Renamed,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Held {
    fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    fn refuse(&self) -> Error {
        self.changed.store(true, Ordering::Relaxed);
        Error::new(Kind::Changed, "file")
    }

    /// The identity now. On a network file system `stat` can fail for a moment, so it is tried several times.
    fn look(&self) -> Result<Identity> {
        let look = || fstat(&self.file).map(|stat| Identity::of(&stat)).map_err(dir::refused);
        let mut seen = look();
        for _ in 1..LOOKS {
            if seen.is_ok() {
                break;
            }
            std::thread::sleep(LOOK_AGAIN);
            seen = look();
        }
        seen
    }

    /// Whether the kernel knows the file as unchanged. Waits for nothing, not even for a thread in [`Held::judge`].
    fn is_same_in_memory(&self) -> bool {
        let known = || self.identity.try_lock().ok().map(|known| *known);
        !self.is_changed()
            && Identity::cached(&self.file)
                .zip(known())
                .is_some_and(|(now, known)| known.verdict(&now) == Verdict::Same)
    }

    fn check(&self) -> Result<()> {
        if self.is_changed() {
            return Err(self.refuse());
        }
        let now = self.look()?;
        let known = *self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        match known.verdict(&now) {
            Verdict::Same => Ok(()),
            Verdict::Changed => Err(self.refuse()),
            Verdict::Doubtful { .. } => self.judge(),
        }
    }

    /// Decides whether a changed ctime has a harmless cause.
    fn judge(&self) -> Result<()> {
        // Held throughout, since another thread may be judging the same change.
        let mut known = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..LOOKS {
            let now = self.look()?;
            let is_harmless = match known.verdict(&now) {
                Verdict::Same => return Ok(()),
                Verdict::Changed => break,
                Verdict::Doubtful { explained, lost_a_name } => match self.witness.get().map(|witness| witness()) {
                    None => lost_a_name,
                    Some(Evidence::Written) => break,
                    Some(Evidence::Untouched) => explained,
                    Some(Evidence::Renamed) => true,
                },
            };
            // The witness may have just marked the file as changed.
            if self.is_changed() {
                break;
            }
            if is_harmless {
                *known = now;
                return Ok(());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Err(self.refuse())
    }
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

    fn pinned(path: PathBuf, file: File, mut identity: Identity) -> Result<Arc<Self>> {
        if identity.wait_for_step() {
            identity = Identity::of(&fstat(&file).map_err(dir::refused)?);
        }
        let held = Held {
            file: Arc::new(file),
            mtime: identity.mtime,
            identity: Mutex::new(identity),
            changed: AtomicBool::new(false),
            witness: OnceLock::new(),
        };
        Ok(Arc::new(Self { path, len: identity.size, bytes: Backing::File(held) }))
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
            // The first one has been watching for longer.
            let _ = held.witness.set(Box::new(witness));
        }
    }

    /// Marks the file as changed, regardless of `stat`.
    pub fn set_changed(&self) {
        match &self.bytes {
            Backing::File(held) => held.changed.store(true, Ordering::Relaxed),
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
            Backing::File(held) => held.file.read_exact_at(dst, at.0).map_err(|e| {
                if e.kind() == io::ErrorKind::UnexpectedEof { held.refuse().at(at) } else { Error::io(e, what).at(at) }
            }),
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

    /// Checks that the file is still the one that was opened, with one `stat`, which may wait for a file server. If only
    /// the ctime changed, this can take 20 ms more.
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

#[cfg(test)]
mod tests;
