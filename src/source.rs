//! The container file: `read(offset, buffer)`, and whether it is still the file that was opened.
//!
//! Read with `pread`, never mapped: a mapped file that shrinks raises SIGBUS in whoever touches it.
//! A file that is renamed over or deleted goes on being served from the open descriptor; one that
//! is written to or cut gives [`Kind::Changed`] from then on.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::bytes::{FileOffset, wide};
use crate::error::{Error, Kind, Result};
use crate::limits::zeroed;

/// What makes a file the same file: device, inode, size, modification time in seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    dev: u64,
    ino: u64,
    size: u64,
    mtime: (i64, i64),
}

impl Identity {
    fn of(meta: &std::fs::Metadata) -> Self {
        Self { dev: meta.dev(), ino: meta.ino(), size: meta.size(), mtime: (meta.mtime(), meta.mtime_nsec()) }
    }
}

/// One file of a container, pinned by its descriptor and its identity at opening.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    bytes: Backing,
    len: u64,
    /// Set once a mismatch was seen; it never goes back.
    changed: AtomicBool,
}

#[derive(Debug)]
enum Backing {
    File { file: File, identity: Identity },
    Memory(Vec<u8>),
}

impl Source {
    /// Opens the regular file at `path`.
    ///
    /// # Errors
    /// [`Kind::Io`] where the system refuses; [`Kind::Unsupported`] for anything but a regular file or a block device.
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        // A fifo would block in open; metadata first, then the descriptor's own identity counts.
        let kind = std::fs::metadata(path).map_err(|e| Error::io(e, "file"))?.file_type();
        if !kind.is_file() {
            return Err(Error::unsupported("not a regular file", "file"));
        }
        let file = File::open(path).map_err(|e| Error::io(e, "file"))?;
        let meta = file.metadata().map_err(|e| Error::io(e, "file"))?;
        let identity = Identity::of(&meta);
        Ok(Arc::new(Self {
            path: path.to_path_buf(),
            len: identity.size,
            bytes: Backing::File { file, identity },
            changed: AtomicBool::new(false),
        }))
    }

    /// A container in memory, for tests and for containers inside others.
    pub fn from_bytes(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            path: PathBuf::from("memory"),
            len: wide(bytes.len()),
            bytes: Backing::Memory(bytes),
            changed: AtomicBool::new(false),
        })
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
            Backing::File { identity, .. } => identity.mtime,
            Backing::Memory(_) => (0, 0),
        }
    }

    /// The open file itself, for those who watch it or ask the kernel what it has of it in memory.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.bytes {
            Backing::File { file, .. } => Some(file.as_fd()),
            Backing::Memory(_) => None,
        }
    }

    /// Fills `dst` from `at` on.
    ///
    /// # Errors
    /// [`Kind::Truncated`] when the file, as opened, ends before; [`Kind::Changed`] when it has become
    /// shorter since; [`Kind::Io`] when the system cannot read it.
    pub fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
        let need = wide(dst.len());
        let have = self.len.saturating_sub(at.0);
        if need > have {
            return Err(Error::new(Kind::Truncated { need, have }, what).at(at));
        }
        match &self.bytes {
            Backing::File { file, .. } => file.read_exact_at(dst, at.0).map_err(|e| {
                if e.kind() == io::ErrorKind::UnexpectedEof {
                    self.changed.store(true, Ordering::Relaxed);
                    Error::new(Kind::Changed, what).at(at)
                } else {
                    Error::io(e, what).at(at)
                }
            }),
            Backing::Memory(bytes) => {
                let start = crate::bytes::narrow(at.0, what)?;
                match bytes.get(start..).and_then(|rest| rest.get(..dst.len())) {
                    Some(src) => dst.copy_from_slice(src),
                    None => return Err(Error::new(Kind::Truncated { need, have }, what).at(at)),
                }
                Ok(())
            }
        }
    }

    /// The `len` bytes from `at` on where they are in memory already, so that nobody need copy them.
    pub fn held(&self, at: FileOffset, len: u64) -> Option<&[u8]> {
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

    /// Whether it is still the file that was opened: one `fstat`.
    ///
    /// Asked at each open, and after a decode before its bytes are kept.
    ///
    /// # Errors
    /// [`Kind::Changed`] once its size or modification time differ, for good.
    pub fn check(&self) -> Result<()> {
        let Backing::File { file, identity } = &self.bytes else { return Ok(()) };
        if self.changed.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Changed, "file"));
        }
        match file.metadata() {
            Ok(meta) if Identity::of(&meta) == *identity => Ok(()),
            Ok(_) => {
                self.changed.store(true, Ordering::Relaxed);
                Err(Error::new(Kind::Changed, "file"))
            }
            Err(e) => Err(Error::io(e, "file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_that_shrinks_or_grows_is_changed_for_good() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 100]).unwrap();
        let source = Source::open(file.path()).unwrap();
        let mut buf = [0; 10];
        source.read(FileOffset(90), &mut buf, "x").unwrap();
        source.check().unwrap();
        assert!(matches!(
            source.read(FileOffset(91), &mut buf, "x").unwrap_err().kind(),
            Kind::Truncated { need: 10, have: 9 }
        ));
        file.as_file().set_len(50).unwrap();
        assert!(matches!(source.read(FileOffset(45), &mut buf, "x").unwrap_err().kind(), Kind::Changed));
        file.as_file().set_len(100).unwrap();
        assert!(matches!(source.check().unwrap_err().kind(), Kind::Changed));
    }

    #[test]
    fn a_file_renamed_over_or_deleted_goes_on_being_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, b"first").unwrap();
        let source = Source::open(&path).unwrap();
        std::fs::write(dir.path().join("b"), b"second").unwrap();
        std::fs::rename(dir.path().join("b"), &path).unwrap();
        assert_eq!(source.get(FileOffset(0), 5, "x").unwrap(), b"first");
        source.check().unwrap();
    }

    #[test]
    fn a_length_past_the_end_is_refused_before_it_is_allocated() {
        let source = Source::from_bytes(vec![1, 2, 3]);
        assert!(source.get(FileOffset(1), 1 << 60, "x").is_err());
        assert!(source.get(FileOffset(u64::MAX), 1, "x").is_err());
        assert_eq!(source.get(FileOffset(1), 2, "x").unwrap(), [2, 3]);
    }
}
