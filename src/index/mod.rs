//! A kept index: what is expensive to find again about a file, on disk, for later mounts and other processes.
//!
//! [`Index::of`] gives the records about one source: [`Records::get`] and [`Records::put`] take one by its name, which
//! begins with its kind.
//!
//! `record`: a record as a file. `passed`: checks that have passed. `secret`: the user's key. `places`: where both are by
//! default. The directory is a [`CacheDir`], with a directory for each version of a file; see [`Source::fingerprint`].
//!
//! Invariants: a record is returned only if this user wrote it, by this version of the format, under this name, about
//! this version of the file: all of that is authenticated (HMAC-SHA256), and the file is checked to be unchanged. So an
//! index that is stale, broken or from elsewhere is ignored. No failure here is one of the caller.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

mod hmac;
mod passed;
pub mod places;
pub mod record;
mod secret;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crate::bytes::to_u64;
use crate::error::os_message;
use crate::limits::zeroed;
use crate::platform;
use crate::source::{CacheDir, DirRoom, Source};
use record::Key;

/// Most bytes of an index, unless the user says otherwise.
pub const SIZE: u64 = 1 << 30;
/// Sources of fewer bytes have no records: to find anything again is cheap.
const LEAST: u64 = 64 << 10;

/// The index of a user, or none. Clones share it.
#[derive(Clone, Default)]
pub struct Index(Option<Arc<IndexState>>);

struct IndexState {
    dir: CacheDir,
    /// The directory of the secret.
    state: PathBuf,
    secret: OnceLock<Option<Key>>,
    room: DirRoom,
    /// Whether the user was told that nothing can be kept.
    is_told: AtomicBool,
}

/// The records about one version of one source.
pub struct Records {
    index: Arc<IndexState>,
    source: Arc<Source>,
    subject: OnceLock<Option<Subject>>,
}

struct Subject {
    key: Key,
    /// The name of its directory.
    dir: String,
}

impl Index {
    /// No index.
    pub fn off() -> Self {
        Self::default()
    }

    /// The index in the directory `dir`, of at most `size` bytes; `state` is the directory of the user's secret. Opens
    /// nothing.
    pub fn new(dir: PathBuf, size: u64, state: PathBuf) -> Self {
        let dir = CacheDir::new(dir, Some(size));
        let (secret, room, is_told) = (OnceLock::new(), DirRoom::default(), AtomicBool::new(false));
        Self(Some(Arc::new(IndexState { dir, state, secret, room, is_told })))
    }

    /// As [`Index::new`], with the secret where the user has it; none without a home.
    pub fn of_user(dir: PathBuf, size: Option<u64>) -> Self {
        let Some(state) = places::state() else {
            tracing::debug!("no index: neither XDG_STATE_HOME nor HOME is set");
            return Self::off();
        };
        Self::new(dir, size.unwrap_or(SIZE), state)
    }

    /// The records about `source`, if it has an identity that lasts. Reads nothing yet.
    pub fn of(&self, source: &Arc<Source>) -> Option<Arc<Records>> {
        let index = self.0.clone().filter(|_| source.len() >= LEAST)?;
        Some(Arc::new(Records { index, source: source.clone(), subject: OnceLock::new() }))
    }

    /// The bytes of all records.
    ///
    /// # Errors
    /// A message if the index cannot be used.
    pub fn used(&self) -> Result<u64, String> {
        let Some(shared) = &self.0 else { return Ok(0) };
        shared.dir.hold().map_err(|e| os_message(&e))?;
        Ok(shared.dir.used(record::is_name))
    }
}

impl IndexState {
    /// The user's secret, if the index can be used.
    fn secret(&self) -> Option<&Key> {
        if let Some(known) = self.secret.get() {
            return known.as_ref();
        }
        let secret = self.dir.hold().map_err(|e| (e, &self.dir.dir));
        let secret = secret.and_then(|_| secret::load(&self.state).map_err(|e| (e, &self.state)));
        let secret = match secret {
            Ok(secret) => Some(secret),
            Err((e, path)) if self.tell(path, &e) => None,
            // Later there may be room.
            Err(_) => return None,
        };
        self.secret.get_or_init(|| secret).as_ref()
    }

    /// Says once why nothing is kept. A process that lacks descriptors or memory fails for that reason, and says so
    /// itself: then this is not said, and `false`.
    fn tell(&self, path: &Path, error: &io::Error) -> bool {
        let why = format!("{}: {}", path.display(), os_message(error));
        let is_short = matches!(platform::errno(error), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM));
        if is_short || self.is_told.swap(true, Ordering::Relaxed) {
            tracing::debug!("index: {why}");
        } else {
            tracing::warn!("index: nothing is kept: {why}");
        }
        !is_short
    }
}

impl Records {
    /// The key and the directory of the source; `None` if it has no identity.
    fn subject(&self) -> Option<&Subject> {
        let find = || {
            let key = self.source.fingerprint()?;
            let dir = key.iter().fold(String::new(), |dir, byte| dir + &format!("{byte:02x}"));
            Some(Subject { key, dir })
        };
        self.subject.get_or_init(find).as_ref()
    }

    /// Whether records can be kept and found.
    pub fn is_usable(&self) -> bool {
        self.index.secret().is_some() && self.subject().is_some()
    }

    /// The record `name`, if there is one of at most `most` bytes that is valid.
    pub fn get(&self, name: &str, most: u64) -> Option<Vec<u8>> {
        let secret = self.index.secret()?;
        let Subject { key, dir } = self.subject()?;
        let mut file = self.index.dir.file(dir, name)?;
        let len = file.metadata().ok()?.len();
        if len > most.saturating_add(record::OVERHEAD) {
            return None;
        }
        let mut bytes = zeroed(len, "index").ok()?;
        let whole = file.read_exact(&mut bytes);
        let Some(payload) = whole.ok().and_then(|()| record::open(&bytes, secret, key, name)) else {
            tracing::debug!("{}: a record of the index is not valid: {name}", self.source.path().display());
            self.index.dir.remove(dir, name);
            return None;
        };
        self.source.check().ok()?;
        // Marks it as just used: the oldest go first.
        file.set_modified(SystemTime::now()).ok();
        bytes.truncate(payload.end);
        bytes.drain(..payload.start);
        Some(bytes)
    }

    /// Keeps `payload` as the record `name`, if there is room; returns whether it was written.
    pub fn put(&self, name: &str, payload: &[u8]) -> bool {
        let Some(secret) = self.index.secret().filter(|_| record::is_name(name)) else { return false };
        let Some(Subject { key, dir }) = self.subject() else { return false };
        let [head, tag] = record::seal(secret, key, name, payload);
        // A record is of this version only if that is still there.
        if self.source.check().is_err() {
            return false;
        }
        let len = to_u64(payload.len()).saturating_add(record::OVERHEAD);
        let write = || {
            self.index.dir.make(dir)?;
            self.index.dir.write(dir, name, &[&head, payload, &tag])
        };
        match self.index.room.with(&self.index.dir, len, record::is_name, write) {
            Some(Ok(())) => true,
            Some(Err(e)) => {
                self.index.tell(&self.index.dir.dir, &e);
                false
            }
            None => false,
        }
    }

    /// The names of the records that begin with `kind`; whether they are valid is not known.
    pub fn names(&self, kind: &str) -> Vec<String> {
        let subject = self.index.secret().and_then(|_| self.subject());
        let names = subject.map(|subject| self.index.dir.names(&subject.dir));
        names.into_iter().flatten().filter(|name| name.starts_with(kind) && record::is_name(name)).collect()
    }

    /// Removes the record `name`.
    pub fn remove(&self, name: &str) {
        if self.index.secret().is_some()
            && let Some(subject) = self.subject()
        {
            self.index.dir.remove(&subject.dir, name);
        }
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(shared) => f.debug_tuple("Index").field(&shared.dir).finish(),
            None => f.write_str("Index(off)"),
        }
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Records").field(&self.source.path()).finish()
    }
}
