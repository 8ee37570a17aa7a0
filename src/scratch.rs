//! An unlinked temporary file that keeps decoded bytes which are costly to make again.
//!
//! It lies in `$TMPDIR`, or /var/tmp, has no name from the start, and is gone with the process. It never
//! takes more than its limit, nor more than half of the space that was free when it was made.
//!
//! Invariant: a piece is looked up only after all of its bytes were written.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::bytes::wide;
use crate::error::{Error, Result};

/// A file without a name, in which pieces are kept.
#[derive(Debug)]
pub struct Scratch {
    /// Bytes that may be taken, before the free space is looked at.
    limit: u64,
    /// The file and the bytes it may take; made when the first piece is kept.
    file: OnceLock<Option<(File, u64)>>,
    /// The next number for an owner.
    next: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    end: u64,
    /// Where each piece lies, by its owner's number and its own.
    pieces: HashMap<(u64, u64), (u64, usize)>,
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
    /// One that keeps at most `limit` bytes; nothing is made before the first piece comes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, file: OnceLock::new(), next: AtomicU64::new(0), table: Mutex::default() })
    }

    /// The first of `count` numbers for owners of pieces, given to nobody else.
    pub fn owners(&self, count: u64) -> u64 {
        self.next.fetch_add(count, Ordering::Relaxed)
    }

    /// Whether it keeps anything at all.
    pub fn is_on(&self) -> bool {
        self.limit > 0
    }

    fn file(&self) -> Option<&(File, u64)> {
        let make = || {
            let dir = directory();
            let half = free_space(&dir)? / 2;
            match unnamed(&dir) {
                Ok(file) => Some((file, self.limit.min(half))),
                Err(e) => {
                    tracing::warn!("no temporary file in {}: {e}; decoded data is not kept there", dir.display());
                    None
                }
            }
        };
        self.file.get_or_init(make).as_ref()
    }

    /// Keeps `bytes` as piece `piece` of `owner`, if there is room; whether it did.
    pub fn put(&self, owner: u64, piece: u64, bytes: &[u8]) -> bool {
        if !self.is_on() {
            return false;
        }
        let Some((file, limit)) = self.file() else { return false };
        let at = {
            let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            let end = table.end.saturating_add(wide(bytes.len()));
            if end > *limit || table.pieces.contains_key(&(owner, piece)) {
                return false;
            }
            std::mem::replace(&mut table.end, end)
        };
        if let Err(e) = file.write_all_at(bytes, at) {
            tracing::warn!("temporary file: {e}");
            return false;
        }
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.pieces.insert((owner, piece), (at, bytes.len()));
        true
    }

    /// Fills `dst` with piece `piece` of `owner`, if it was kept; whether it was.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn get(&self, owner: u64, piece: u64, dst: &mut [u8]) -> Result<bool> {
        if !self.is_on() {
            return Ok(false);
        }
        let found = self.table.lock().unwrap_or_else(PoisonError::into_inner).pieces.get(&(owner, piece)).copied();
        let (Some((at, len)), Some((file, _))) = (found, self.file()) else { return Ok(false) };
        if len != dst.len() {
            return Ok(false);
        }
        file.read_exact_at(dst, at).map_err(|e| Error::io(e, "temporary file"))?;
        Ok(true)
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
        let scratch = Scratch::new(10);
        assert!(scratch.put(1, 0, b"abcdef") && !scratch.put(1, 1, b"ghijk") && scratch.put(2, 0, b"ghij"));
        let mut dst = [0; 6];
        assert!(scratch.get(1, 0, &mut dst).unwrap());
        assert_eq!(&dst, b"abcdef");
        assert!(!scratch.get(1, 1, &mut dst).unwrap() && !scratch.get(2, 0, &mut dst).unwrap());
        assert!(scratch.get(2, 0, &mut dst[..4]).unwrap());
        assert_eq!(&dst[..4], b"ghij");
    }

    #[test]
    fn one_that_is_off_makes_no_file() {
        let scratch = Scratch::new(0);
        assert!(!scratch.put(1, 0, b"a") && !scratch.get(1, 0, &mut [0]).unwrap());
        assert!(scratch.file.get().is_none());
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
