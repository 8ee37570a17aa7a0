//! Where the bytes of a source come from: the interface of everything but a plain file.
//!
//! A plain file is the common case and is read without dynamic dispatch; everything else (files of a folder, bytes in
//! memory, ranges of another source, objects on servers, decoded files of an outer container) implements [`Origin`].
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use crate::bytes::FileOffset;
use crate::error::Result;

use super::fingerprint::combined;
use super::{Rights, Source};

/// The bytes of a source. Its size stays the same.
pub trait Origin: fmt::Debug + Send + Sync {
    /// As [`Source::len`].
    fn len(&self) -> u64;

    /// As [`Source::size`].
    ///
    /// # Errors
    /// As [`Source::size`].
    fn size(&self) -> Result<u64> {
        Ok(self.len())
    }

    /// Fills `dst` from offset `at`. The range is within the size.
    ///
    /// # Errors
    /// As [`Source::read`].
    fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()>;

    /// Reads several ranges, which are within the size. An origin that is far away fetches them at the same time.
    ///
    /// # Errors
    /// As [`Source::read`].
    fn read_parts(&self, parts: &mut [Part<'_>], what: &'static str) -> Result<()> {
        parts.iter_mut().try_for_each(|part| self.read(part.at, part.dst, what))
    }

    /// The ranges, which are within the size, will be read soon: a far origin begins to fetch them, neighbours with one
    /// request. Does not wait for them.
    fn announce(&self, _ranges: &[Range<u64>], _need: Need) {}

    /// The modification time when opened: seconds and nanoseconds since 1970.
    fn mtime(&self) -> (i64, i64) {
        (0, 0)
    }

    /// The entity tag of the version that was opened, if its server gives one.
    fn etag(&self) -> Option<&str> {
        None
    }

    /// As [`Source::fingerprint`].
    fn fingerprint(&self) -> Option<[u8; 32]> {
        None
    }

    /// The open file, if it is one and is open now.
    fn file(&self) -> Option<Arc<File>> {
        None
    }

    /// The bytes in `range`, without a copy, if they are in memory.
    fn as_slice(&self, _range: Range<u64>) -> Option<&[u8]> {
        None
    }

    /// Whether it is known to be unchanged, without waiting for anything.
    fn is_same_in_memory(&self) -> bool {
        true
    }

    /// Checks that it has not changed since it was opened.
    ///
    /// # Errors
    /// As [`Source::check`].
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// As [`Source::rights`].
    ///
    /// # Errors
    /// As [`Source::rights`].
    fn rights(&self) -> Result<Option<Rights>> {
        Ok(None)
    }

    /// Marks it as changed.
    fn set_changed(&self) {}

    /// Whether reading it may wait for a server.
    fn is_far(&self) -> bool {
        false
    }

    /// As [`Source::is_near`].
    fn is_near(&self, _range: Range<u64>) -> bool {
        true
    }

    /// Cancels fetches that nobody waits for.
    fn cancel(&self) {}
}

/// Why bytes are announced that will be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Somebody waits for them.
    Now,
    /// A sequential reader will come to them.
    Ahead,
}

/// A range to read, and where to.
#[derive(Debug)]
pub struct Part<'a> {
    /// Where it begins.
    pub at: FileOffset,
    /// Filled with the bytes from there on.
    pub dst: &'a mut [u8],
}

/// Bytes in memory.
pub(super) struct MemoryOrigin(pub(super) Vec<u8>);

impl fmt::Debug for MemoryOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryOrigin({})", self.0.len())
    }
}

impl Origin for MemoryOrigin {
    fn len(&self) -> u64 {
        crate::bytes::to_u64(self.0.len())
    }

    fn read(&self, at: FileOffset, dst: &mut [u8], _: &'static str) -> Result<()> {
        if let Some(bytes) = self.as_slice(at.0..at.0.saturating_add(crate::bytes::to_u64(dst.len()))) {
            dst.copy_from_slice(bytes);
        }
        Ok(())
    }

    fn as_slice(&self, range: Range<u64>) -> Option<&[u8]> {
        self.0.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
    }
}

/// A range of another source, such as a member of an archive that is not compressed.
#[derive(Debug)]
pub(super) struct Within {
    pub(super) outer: Arc<Source>,
    pub(super) range: Range<u64>,
}

impl Within {
    fn at(&self, at: FileOffset) -> FileOffset {
        FileOffset(self.range.start.saturating_add(at.0))
    }
}

impl Origin for Within {
    fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
        self.outer.read(self.at(at), dst, what)
    }

    fn read_parts(&self, parts: &mut [Part<'_>], what: &'static str) -> Result<()> {
        let mut parts: Vec<Part<'_>> =
            parts.iter_mut().map(|part| Part { at: self.at(part.at), dst: &mut *part.dst }).collect();
        self.outer.read_parts(&mut parts, what)
    }

    fn announce(&self, ranges: &[Range<u64>], need: Need) {
        let at = |at: u64| self.at(FileOffset(at)).0;
        self.outer.announce(&ranges.iter().map(|range| at(range.start)..at(range.end)).collect::<Vec<_>>(), need);
    }

    fn mtime(&self) -> (i64, i64) {
        self.outer.mtime()
    }

    fn etag(&self) -> Option<&str> {
        self.outer.etag()
    }

    fn fingerprint(&self) -> Option<[u8; 32]> {
        let Range { start, end } = self.range;
        Some(combined("range", &[&self.outer.fingerprint()?, &start.to_le_bytes(), &end.to_le_bytes()]))
    }

    fn as_slice(&self, range: Range<u64>) -> Option<&[u8]> {
        let len = range.end.checked_sub(range.start)?;
        self.outer.as_slice(self.at(FileOffset(range.start)), len)
    }

    fn is_same_in_memory(&self) -> bool {
        self.outer.is_same_in_memory()
    }

    fn check(&self) -> Result<()> {
        self.outer.check()
    }

    fn rights(&self) -> Result<Option<Rights>> {
        self.outer.rights()
    }

    fn set_changed(&self) {
        self.outer.set_changed();
    }

    fn is_far(&self) -> bool {
        self.outer.is_far()
    }

    fn is_near(&self, range: Range<u64>) -> bool {
        self.outer.is_near(self.at(FileOffset(range.start)), range.end.saturating_sub(range.start))
    }

    fn cancel(&self) {
        self.outer.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::source::testing::far;

    #[test]
    fn a_range_of_a_source_is_a_source_and_ends_where_the_range_ends() {
        let outer = Source::from_bytes((0..100).collect());
        let inner = Source::within(&outer, 10..30, "inner").unwrap();
        assert_eq!((inner.len(), inner.get(FileOffset(5), 3, "x").unwrap()), (20, vec![15, 16, 17]));
        assert_eq!(inner.as_slice(FileOffset(18), 2), Some(&[28, 29][..]));
        assert!(matches!(inner.get(FileOffset(18), 3, "x").unwrap_err().kind(), Kind::Truncated { need: 3, have: 2 }));
        let nested = Source::within(&inner, 1..20, "nested").unwrap();
        let (mut a, mut b) = ([0; 2], [0; 1]);
        let mut parts = [Part { at: FileOffset(0), dst: &mut a }, Part { at: FileOffset(18), dst: &mut b }];
        nested.read_parts(&mut parts, "x").unwrap();
        assert_eq!((a, b), ([11, 12], [29]));
        for range in [0..21, 20..22, u64::MAX - 1..u64::MAX] {
            assert!(Source::within(&inner, range, "x").is_err());
        }
        assert!(nested.read_parts(&mut [Part { at: FileOffset(18), dst: &mut a }], "x").is_err());
    }

    #[test]
    fn a_range_of_a_far_source_is_as_far_and_what_is_asked_of_it_is_asked_of_that() {
        let (outer, asked) = far(100, 20..25);
        let inner = Source::within(&outer, 20..80, "inner").unwrap();
        let near = |source: &Source, at, len| source.is_near(FileOffset(at), len);
        for (source, start) in [(&outer, 20), (&inner, 0)] {
            assert!(source.is_far() && source.etag() == Some("tag"));
            assert!(near(source, start, 5) && !near(source, start + 1, 4) && !near(source, start, 6));
        }
        inner.announce(&[20..30, 0..5, 7..7, 50..90], Need::Ahead);
        inner.cancel();
        assert_eq!(*asked.lock().unwrap(), ["Ahead [20..25, 40..50, 70..80]", "cancel"]);
    }

    #[test]
    fn several_ranges_of_a_file_are_read_in_one_call() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), (0..200).collect::<Vec<u8>>()).unwrap();
        let source = Source::open(file.path()).unwrap();
        let (mut a, mut b) = ([0; 2], [0; 3]);
        let mut parts = [Part { at: FileOffset(197), dst: &mut b }, Part { at: FileOffset(7), dst: &mut a }];
        source.read_parts(&mut parts, "x").unwrap();
        assert_eq!((a, b), ([7, 8], [197, 198, 199]));
    }
}
