//! The files of a container: `read(offset, buffer)`, and whether each is still the file that was opened.
//!
//! Read with `pread`, never mapped: a mapped file that shrinks raises SIGBUS in the thread that touches it.
//!
//! The main file is held open. Renamed over or deleted it goes on being served; written to or cut it gives
//! [`Kind::Changed`] from then on. What tells the two apart is in `identity`: device, inode, size and modification time
//! must not change. Where only the time of the status change moves, a lost name explains it; with a [`Evidence`] that
//! the file was not written to, so do another name, another mode or another owner. All else is a change: a write whose time
//! was set back looks the same. Other files of a container are in a [`Folder`].
//!
//! What `stat` cannot see: a write through a mapping, into pages that were written to before the file was opened
//! and have not gone to the disk since.
#![forbid(unsafe_code)]

mod dir;
mod folder;
mod identity;

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

/// A rename or a link moves the time first, and shows otherwise a moment later: how often, and after what time, is
/// looked again before a file that nothing explains counts as changed.
const LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// One file of a container, pinned by its identity at opening.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    bytes: Backing,
    len: u64,
}

#[derive(Debug)]
enum Backing {
    File(Held),
    /// A file that is opened when it is read.
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
    /// As at opening, or as after a change of its name or its rights.
    identity: Mutex<Identity>,
    /// Set once a change was seen; it never goes back.
    changed: AtomicBool,
    witness: OnceLock<Box<dyn Fn() -> Evidence + Send + Sync>>,
}

/// What is known of a file beside what `stat` says, by somebody who watches it.
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

    fn look(&self) -> Result<Identity> {
        fstat(&self.file).map(|stat| Identity::of(&stat)).map_err(dir::refused)
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

    /// Whether a moved time of the status change has a reason other than a write.
    fn judge(&self) -> Result<()> {
        // Locked throughout: another thread may be judging the same change.
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
            // What the witness has just seen counts too.
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
    /// Opens the regular file at `path`. Waits for nobody, whatever is there.
    ///
    /// # Errors
    /// [`Kind::Io`] where the system refuses; [`Kind::Unsupported`] for anything but a regular file.
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        let (file, identity) = dir::open_named(path)?;
        Self::pinned(path.to_path_buf(), file, identity)
    }

    /// As [`Source::open`], and the directory in which it was found, to look for other files of the container.
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

    /// A container in memory, for tests and for containers inside others.
    pub fn from_bytes(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { path: PathBuf::from("memory"), len: to_u64(bytes.len()), bytes: Backing::Memory(bytes) })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size in bytes, as at opening.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its modification time at opening: seconds and nanoseconds since 1970.
    pub fn mtime(&self) -> (i64, i64) {
        match &self.bytes {
            Backing::File(held) => held.mtime,
            Backing::Member { folder, index } => folder.mtime(*index),
            Backing::Memory(_) => (0, 0),
        }
    }

    /// The open file itself, for those who watch it or ask the kernel what it has of it in memory; `None` where it
    /// is not open now.
    pub fn file(&self) -> Option<Arc<File>> {
        match &self.bytes {
            Backing::File(held) => Some(held.file.clone()),
            Backing::Member { folder, index } => folder.opened(*index),
            Backing::Memory(_) => None,
        }
    }

    /// Sets who is asked whether a file that is held open was written to, where `stat` does not tell. Can be set once.
    pub fn set_witness(&self, witness: impl Fn() -> Evidence + Send + Sync + 'static) {
        if let Backing::File(held) = &self.bytes {
            // The first one has watched for longer.
            let _ = held.witness.set(Box::new(witness));
        }
    }

    /// Says that the file was written to, whatever `stat` says.
    pub fn set_changed(&self) {
        match &self.bytes {
            Backing::File(held) => held.changed.store(true, Ordering::Relaxed),
            Backing::Member { folder, index } => folder.set_changed(*index),
            Backing::Memory(_) => {}
        }
    }

    /// Fills `dst` from `at` on. Of a file in a [`Folder`] only with bytes from before any change; of another one
    /// [`Source::check`] has to be called behind it.
    ///
    /// # Errors
    /// [`Kind::Truncated`] when the file, as opened, ends before; [`Kind::Changed`] when it has become
    /// shorter since; [`Kind::Io`] when the system cannot read it.
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

    /// The `len` bytes from `at` on where they are in memory already, so that nobody need copy them.
    pub fn as_slice(&self, at: FileOffset, len: u64) -> Option<&[u8]> {
        let Backing::Memory(bytes) = &self.bytes else { return None };
        bytes.get(usize::try_from(at.0).ok()?..)?.get(..usize::try_from(len).ok()?)
    }

    /// The `len` bytes from `at` on, allocated only after `len` was held against the file's size.
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

    /// Whether it is still the file that was opened: one `stat`.
    ///
    /// Called at each open, and after a decode before its bytes are kept.
    ///
    /// # Errors
    /// [`Kind::Changed`] once it is not, for good.
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
