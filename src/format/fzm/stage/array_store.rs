//! Bytes that a stage keeps: on the heap, or in a mapped temporary file if memory is short.
//!
//! Pages of the file are released after a few megabytes of accesses, so that the file's content does not also stay in
//! memory.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::account::{Account, Buffer};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};

/// Limit of resident bytes of a mapped store.
const RESIDENT: usize = 16 << 20;
/// Bytes that an access may make resident: the kernel maps pages around it too, up to a huge page.
const AROUND: usize = 2 << 20;

/// Bytes written by one owner, then read from any thread.
pub(super) struct ArrayStore {
    bytes: Buffer,
    what: &'static str,
    /// Bytes made resident since the last release, and the huge page touched last.
    touched: AtomicUsize,
    last: AtomicUsize,
}

impl ArrayStore {
    /// Creates a store of `len` zero bytes.
    ///
    /// # Errors
    /// Fails with [`Kind::NoRoom`] if neither memory nor disk space is left.
    pub(super) fn new(len: u64, account: &Account, what: &'static str) -> Result<Self> {
        Ok(Self {
            bytes: account.buffer(len, what)?,
            what,
            touched: AtomicUsize::new(0),
            last: AtomicUsize::new(usize::MAX),
        })
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        to_u64(self.bytes.len())
    }

    /// Whether it is in a file.
    pub(super) fn is_spilled(&self) -> bool {
        self.bytes.is_spilled()
    }

    /// The `len` bytes at `at`.
    ///
    /// # Errors
    /// Fails if they are outside the store.
    pub(super) fn get(&self, at: u64, len: usize) -> Result<&[u8]> {
        let range = self.range(at, len)?;
        self.touch(&range);
        self.bytes.get(range).ok_or_else(|| self.beyond(at))
    }

    /// As [`ArrayStore::get`], mutable.
    ///
    /// # Errors
    /// As for [`ArrayStore::get`].
    pub(super) fn get_mut(&mut self, at: u64, len: usize) -> Result<&mut [u8]> {
        let (range, beyond) = (self.range(at, len)?, self.beyond(at));
        self.touch(&range);
        self.bytes.get_mut(range).ok_or(beyond)
    }

    /// Fills `dst` with the bytes at `at`.
    ///
    /// # Errors
    /// As for [`ArrayStore::get`].
    pub(super) fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        for (at, part) in (at..).step_by(AROUND).zip(dst.chunks_mut(AROUND)) {
            part.copy_from_slice(self.get(at, part.len())?);
        }
        Ok(())
    }

    /// Writes `src` at `at`.
    ///
    /// # Errors
    /// As for [`ArrayStore::get`].
    pub(super) fn write(&mut self, at: u64, src: &[u8]) -> Result<()> {
        self.get_mut(at, src.len())?.copy_from_slice(src);
        Ok(())
    }

    /// Entry `index` of a store of 8-byte entries.
    ///
    /// # Errors
    /// As for [`ArrayStore::get`].
    pub(super) fn entry(&self, index: u64) -> Result<u64> {
        let at = index.saturating_mul(8);
        let bytes = self.get(at, 8)?.first_chunk().ok_or_else(|| self.beyond(at))?;
        Ok(u64::from_le_bytes(*bytes))
    }

    fn range(&self, at: u64, len: usize) -> Result<Range<usize>> {
        let start = to_usize(at, self.what)?;
        Ok(start..start.checked_add(len).ok_or_else(|| self.beyond(at))?)
    }

    fn touch(&self, range: &Range<usize>) {
        let (first, end) = (range.start / AROUND, range.end / AROUND);
        if !self.bytes.is_spilled() || first == end && self.last.load(Ordering::Relaxed) == first {
            return;
        }
        self.last.store(end, Ordering::Relaxed);
        let more = (end - first + 1) * AROUND;
        if self.touched.fetch_add(more, Ordering::Relaxed) >= RESIDENT {
            self.touched.store(more, Ordering::Relaxed);
            self.bytes.release(0..self.bytes.len());
        }
    }

    fn beyond(&self, at: u64) -> Error {
        Error::new(Kind::TooLarge { value: at, limit: self.len() }, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bytes_are_read_back_from_memory_and_from_a_file() {
        for memory in [10, 9] {
            let account = Account::new(memory, 1 << 20);
            let mut store = ArrayStore::new(10, &account, "array").unwrap();
            store.write(2, &[1, 2, 3]).unwrap();
            store.write(5, &[4, 5, 6, 7, 8]).unwrap();
            let mut dst = [0; 4];
            store.read(4, &mut dst).unwrap();
            assert_eq!(dst, [3, 4, 5, 6]);
            assert_eq!(store.entry(0).unwrap(), 0x0605_0403_0201_0000);
            assert!(store.read(8, &mut dst).is_err() && store.entry(1).is_err() && store.entry(u64::MAX).is_err());
        }
    }

    #[test]
    fn a_store_over_memory_and_disk_is_refused_before_anything_is_written() {
        let account = Account::new(10, 0);
        let e = ArrayStore::new(11, &account, "array").err().unwrap();
        assert!(matches!(e.kind(), Kind::NoRoom { need: 11, memory: 10, disk: 0 }), "{e}");
        assert_eq!(account.peaks().disk, 0);
    }
}
