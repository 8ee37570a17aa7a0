//! A file that is held open: whether it is still the file that was opened.
#![forbid(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::dir;
use super::identity::{Identity, Verdict};
use crate::bytes::FileOffset;
use crate::error::{Error, Kind, Result};
use crate::platform::{FileExt, fstat};

/// A rename or link updates the ctime first and its other effects a moment later: how often, and at what interval, to
/// stat again before an unexplained ctime counts as a change.
const STAT_ATTEMPTS: u32 = 10;
const STAT_INTERVAL: Duration = Duration::from_millis(2);

/// A file that is held open.
pub(super) struct PinnedFile {
    pub(super) file: Arc<File>,
    /// As at opening, like `mtime`.
    pub(super) size: u64,
    pub(super) mtime: (i64, i64),
    /// As at opening, updated after a harmless change of name or permissions.
    identity: Mutex<Identity>,
    /// Set when a change is detected; never cleared.
    changed: AtomicBool,
    witness: OnceLock<Box<dyn Fn() -> Evidence + Send + Sync>>,
}

/// Evidence of a file watcher, beyond `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// It was written to, or may have been.
    Written,
    /// It was not written to.
    Untouched,
    /// It was not written to, and it was renamed.
    Renamed,
}

impl fmt::Debug for PinnedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedFile").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl PinnedFile {
    /// Pins `file`, whose identity is `identity`. May wait until any later write changes its timestamps.
    pub(super) fn pin(file: File, mut identity: Identity) -> Result<Self> {
        if identity.wait_for_step() {
            identity = Identity::of(&fstat(&file).map_err(dir::refused)?);
        }
        Ok(Self {
            file: Arc::new(file),
            size: identity.size,
            mtime: identity.mtime,
            identity: Mutex::new(identity),
            changed: AtomicBool::new(false),
            witness: OnceLock::new(),
        })
    }

    /// Marks the file as changed, regardless of `stat`.
    pub(super) fn set_changed(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Sets the callback that supplies [`Evidence`]. The first callback stays.
    pub(super) fn set_witness(&self, witness: impl Fn() -> Evidence + Send + Sync + 'static) {
        // The first one has been watching for longer.
        let _ = self.witness.set(Box::new(witness));
    }

    /// Fills `dst` from offset `at`.
    ///
    /// # Errors
    /// [`Kind::Changed`] if the file has shrunk; [`Kind::Io`] if reading fails.
    pub(super) fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
        self.file.read_exact_at(dst, at.0).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.refuse().at(at),
            _ => Error::io(e, what).at(at),
        })
    }

    /// The identity as it is known last.
    pub(super) fn identity(&self) -> Identity {
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    fn refuse(&self) -> Error {
        self.set_changed();
        Error::new(Kind::Changed, "file")
    }

    /// The identity now. On a network file system `stat` can fail for a moment, so it is tried several times.
    fn stat(&self) -> Result<Identity> {
        let look = || fstat(&self.file).map(|stat| Identity::of(&stat)).map_err(dir::refused);
        let mut seen = look();
        for _ in 1..STAT_ATTEMPTS {
            if seen.is_ok() {
                break;
            }
            std::thread::sleep(STAT_INTERVAL);
            seen = look();
        }
        seen
    }

    /// Whether the kernel knows the file as unchanged. Waits for nothing, not even a thread in [`PinnedFile::judge`].
    pub(super) fn is_same_in_memory(&self) -> bool {
        let known = || self.identity.try_lock().ok().map(|known| *known);
        !self.is_changed()
            && Identity::cached(&self.file)
                .zip(known())
                .is_some_and(|(now, known)| known.verdict(&now) == Verdict::Same)
    }

    /// Checks that the file is still the one that was opened.
    ///
    /// # Errors
    /// [`Kind::Changed`]; [`Kind::Io`] if `stat` fails.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_changed() {
            return Err(self.refuse());
        }
        let now = self.stat()?;
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
        for _ in 0..STAT_ATTEMPTS {
            let now = self.stat()?;
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
            std::thread::sleep(STAT_INTERVAL);
        }
        Err(self.refuse())
    }
}
