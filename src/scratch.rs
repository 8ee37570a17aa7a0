//! Decoded bytes which are costly to make again, kept in memory and, beyond that, in an unlinked temporary file.
//!
//! The file lies in `$TMPDIR`, or /var/tmp, has no name from the start, and is gone with the process. It never
//! takes more than its limit, nor more than half of the space that was free when it was made. A
//! thread of its own writes it, so that whoever decodes goes on decoding; what waits to be written is read from memory.
//!
//! Limits: the budget, bytes of the file, a few pieces that wait to be written.
//!
//! Invariant: a piece is looked up in the file only after all of its bytes were written.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::bytes::wide;
use crate::error::{Error, Result};
use crate::limits::{Budget, Charge};

/// Pieces that wait to be written before whoever brings another one has to wait too.
const WAITING: usize = 8;
/// Buffers kept to be used again.
const SPARE: usize = WAITING;

/// A place in which pieces are kept.
#[derive(Debug)]
pub struct Scratch {
    shared: Arc<Shared>,
    /// The next number for an owner.
    next: AtomicU64,
}

/// Which piece: its owner's number and its own.
type Key = (u64, u64);

#[derive(Debug)]
struct Shared {
    memory: Budget,
    /// Bytes that may be taken on a disk, before the free space is looked at.
    disk: u64,
    /// The file and the bytes it may take; made when the first piece goes there.
    file: OnceLock<Option<(File, u64)>>,
    state: Mutex<State>,
    /// Told when a piece waits, when one was written, and when nobody needs the file any more.
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pieces: HashMap<Key, Place>,
    /// Pieces that wait to be written.
    waiting: VecDeque<Key>,
    /// Bytes of the file that are taken.
    end: u64,
    spare: Vec<Vec<u8>>,
    writer: bool,
    closed: bool,
}

#[derive(Debug)]
enum Place {
    Memory {
        bytes: Arc<Vec<u8>>,
        /// What it takes of the budget; none for what waits to be written.
        _charge: Option<Charge>,
    },
    File {
        at: u64,
        len: usize,
    },
}

/// Where large temporary files belong: `TMPDIR`, or `/var/tmp`, which is on a disk where `/tmp` may be in memory.
pub fn directory() -> PathBuf {
    let own = std::env::var_os("TMPDIR").map(PathBuf::from);
    own.or_else(|| Some(PathBuf::from("/var/tmp")).filter(|dir| dir.is_dir())).unwrap_or_else(std::env::temp_dir)
}

/// A file in `dir` that never has a name.
///
/// # Errors
/// What the system says when it cannot be made.
pub fn unnamed(dir: &Path) -> io::Result<File> {
    match OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(dir) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => {
            // A file system without nameless files: made with a name that is taken away at once.
            static NEXT: AtomicU64 = AtomicU64::new(0);
            let path = dir.join(format!(".fzmfs-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
        made => made,
    }
}

impl Scratch {
    /// One that keeps what `memory` has room for, and beyond that at most `disk` bytes in a file; nothing is made
    /// before the first piece comes.
    pub fn new(memory: Budget, disk: u64) -> Arc<Self> {
        let shared = Shared { memory, disk, file: OnceLock::new(), state: Mutex::default(), moved: Condvar::new() };
        Arc::new(Self { shared: Arc::new(shared), next: AtomicU64::new(0) })
    }

    /// One that keeps nothing.
    pub fn off() -> Arc<Self> {
        Self::new(Budget::new(0), 0)
    }

    /// The first of `count` numbers for owners of pieces, given to nobody else.
    pub fn owners(&self, count: u64) -> u64 {
        self.next.fetch_add(count, Ordering::Relaxed)
    }

    /// Whether it keeps anything at all.
    pub fn is_on(&self) -> bool {
        self.shared.disk > 0 || self.shared.memory.total() > 0
    }

    /// A buffer of `len` bytes of whatever they were: to be filled and handed to [`Scratch::put`].
    pub fn buffer(&self, len: usize) -> Vec<u8> {
        let spare = self.shared.lock().spare.pop();
        spare.map_or_else(
            || vec![0; len],
            |mut buffer| {
                buffer.resize(len, 0);
                buffer
            },
        )
    }

    /// Keeps `bytes` as piece `piece` of `owner`; gives them back where there is no room.
    pub fn put(&self, owner: u64, piece: u64, bytes: Vec<u8>) -> Option<Vec<u8>> {
        if self.is_on() { self.shared.put((owner, piece), bytes) } else { Some(bytes) }
    }

    /// Piece `piece` of `owner`, if it is in memory.
    pub fn held(&self, owner: u64, piece: u64) -> Option<Arc<Vec<u8>>> {
        match self.shared.lock().pieces.get(&(owner, piece))? {
            Place::Memory { bytes, .. } => Some(Arc::clone(bytes)),
            Place::File { .. } => None,
        }
    }

    /// Fills `dst` with piece `piece` of `owner`, if it was kept; whether it was.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn get(&self, owner: u64, piece: u64, dst: &mut [u8]) -> Result<bool> {
        if !self.is_on() {
            return Ok(false);
        }
        // Copied without the lock.
        let found = match self.shared.lock().pieces.get(&(owner, piece)) {
            None => return Ok(false),
            Some(Place::File { at, len }) => Err((*at, *len)),
            Some(Place::Memory { bytes, .. }) => Ok(Arc::clone(bytes)),
        };
        let (at, len) = match found {
            Err(place) => place,
            Ok(bytes) if bytes.len() == dst.len() => {
                dst.copy_from_slice(&bytes);
                return Ok(true);
            }
            Ok(_) => return Ok(false),
        };
        let Some((file, _)) = self.shared.file().filter(|_| len == dst.len()) else { return Ok(false) };
        file.read_exact_at(dst, at).map_err(|e| Error::io(e, "temporary file"))?;
        Ok(true)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.moved.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self) -> Option<&(File, u64)> {
        let make = || {
            if self.disk == 0 {
                return None;
            }
            let dir = directory();
            let half = free_space(&dir)? / 2;
            match unnamed(&dir) {
                Ok(file) => Some((file, self.disk.min(half))),
                Err(e) => {
                    tracing::warn!("no temporary file in {}: {e}; decoded data is not kept there", dir.display());
                    None
                }
            }
        };
        self.file.get_or_init(make).as_ref()
    }

    fn put(self: &Arc<Self>, key: Key, bytes: Vec<u8>) -> Option<Vec<u8>> {
        if let Ok(charge) = self.memory.charge(wide(bytes.len()), "decoded pieces") {
            let place = Place::Memory { bytes: Arc::new(bytes), _charge: Some(charge) };
            self.lock().pieces.entry(key).or_insert(place);
            return None;
        }
        let Some((_, limit)) = self.file() else { return Some(bytes) };
        let mut state = self.lock();
        while state.waiting.len() >= WAITING {
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let end = state.end.saturating_add(wide(bytes.len()));
        if end > *limit || state.pieces.contains_key(&key) {
            return Some(bytes);
        }
        if !state.writer {
            let writer = Arc::clone(self);
            let started = std::thread::Builder::new().name("fzmfs-spill".into()).spawn(move || writer.write());
            if started.is_err() {
                return Some(bytes);
            }
            state.writer = true;
        }
        state.end = end;
        state.pieces.insert(key, Place::Memory { bytes: Arc::new(bytes), _charge: None });
        state.waiting.push_back(key);
        drop(state);
        self.moved.notify_all();
        None
    }

    /// Writes what waits, in order, until nobody is left to ask for it.
    fn write(&self) {
        let Some((file, _)) = self.file() else { return };
        let mut at = 0;
        let mut state = self.lock();
        while !state.closed {
            let next = state.waiting.front().copied();
            let Some((key, Place::Memory { bytes, .. })) = next.and_then(|key| Some((key, state.pieces.get(&key)?)))
            else {
                state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let bytes = Arc::clone(bytes);
            drop(state);
            let written = file.write_all_at(&bytes, at);
            state = self.lock();
            state.waiting.pop_front();
            match written {
                Ok(()) => drop(state.pieces.insert(key, Place::File { at, len: bytes.len() })),
                Err(e) => {
                    tracing::warn!("temporary file: {e}");
                    state.pieces.remove(&key);
                }
            }
            at = at.saturating_add(wide(bytes.len()));
            if let Some(bytes) = Arc::into_inner(bytes) {
                state.recycle(bytes);
            }
            self.moved.notify_all();
        }
    }
}

impl State {
    fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(bytes);
        }
    }
}

/// Bytes free for us on the file system of `dir`.
fn free_space(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_until_the_limit_is_reached() {
        for scratch in [Scratch::new(Budget::new(0), 10), Scratch::new(Budget::new(10), 0)] {
            assert!(scratch.put(1, 0, b"abcdef".to_vec()).is_none());
            assert_eq!(scratch.put(1, 1, b"ghijk".to_vec()).unwrap(), b"ghijk");
            assert!(scratch.put(2, 0, b"ghij".to_vec()).is_none());
            let mut dst = [0; 6];
            assert!(scratch.get(1, 0, &mut dst).unwrap());
            assert_eq!(&dst, b"abcdef");
            assert!(!scratch.get(1, 1, &mut dst).unwrap() && !scratch.get(2, 0, &mut dst).unwrap());
            assert!(scratch.get(2, 0, &mut dst[..4]).unwrap());
            assert_eq!(&dst[..4], b"ghij");
        }
    }

    #[test]
    fn pieces_are_the_same_while_they_wait_and_once_they_are_written() {
        let scratch = Scratch::new(Budget::new(1 << 20), 64 << 20);
        let bytes = |piece: u64| vec![piece as u8; 100_000 + piece as usize];
        for piece in 0..100 {
            let mut buffer = scratch.buffer(100_000 + piece as usize);
            buffer.fill(piece as u8);
            assert!(scratch.put(7, piece, buffer).is_none());
            for piece in [piece, piece / 2] {
                let mut dst = vec![0xAA; 100_000 + piece as usize];
                assert!(scratch.get(7, piece, &mut dst).unwrap());
                assert!(dst == bytes(piece), "{piece}");
            }
        }
        // With time all but the first ten are in the file.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !scratch.shared.lock().waiting.is_empty() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
        for piece in 0..100 {
            assert_eq!(scratch.held(7, piece).is_some(), piece < 10, "{piece}");
            let mut dst = vec![0xAA; 100_000 + piece as usize];
            assert!(scratch.get(7, piece, &mut dst).unwrap());
            assert!(dst == bytes(piece), "{piece}");
        }
    }

    #[test]
    fn one_that_is_off_makes_no_file() {
        let scratch = Scratch::off();
        assert!(scratch.put(1, 0, b"a".to_vec()).is_some());
        assert!(!scratch.get(1, 0, &mut [0]).unwrap());
        assert!(scratch.shared.file.get().is_none());
    }

    #[test]
    fn a_file_leaves_no_name_behind() {
        let dir = tempfile::tempdir().unwrap();
        let file = unnamed(dir.path()).unwrap();
        file.write_all_at(&[1], 0).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(unnamed(Path::new("/nonexistent")).is_err());
    }
}
