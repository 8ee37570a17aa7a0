//! A decoded array that is kept: on the heap, or in a mapped temporary file where the memory has no room.
#![forbid(unsafe_code)]

use crate::account::{Account, Buffer};
use crate::bytes::{narrow, wide};
use crate::error::{Error, Kind, Result};

/// Bytes that can be written once and read from any thread.
pub(super) struct Store {
    bytes: Buffer,
    what: &'static str,
}

impl Store {
    /// A store of `len` bytes.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] where neither memory nor disk space is left.
    pub(super) fn new(len: u64, account: &Account, what: &'static str) -> Result<Self> {
        Ok(Self { bytes: account.buffer(len, what)?, what })
    }

    /// Its bytes.
    pub(super) fn len(&self) -> u64 {
        wide(self.bytes.len())
    }

    /// Fills `dst` from byte `at` on.
    pub(super) fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        let start = narrow(at, self.what)?;
        let own = self.bytes.get(start..).and_then(|own| own.get(..dst.len()));
        dst.copy_from_slice(own.ok_or_else(|| self.beyond(at))?);
        self.bytes.release(start..start.saturating_add(dst.len()));
        Ok(())
    }

    /// Writes `src` from byte `at` on.
    pub(super) fn write(&mut self, at: u64, src: &[u8]) -> Result<()> {
        let beyond = self.beyond(at);
        let start = narrow(at, self.what)?;
        self.bytes.get_mut(start..).and_then(|own| own.get_mut(..src.len())).ok_or(beyond)?.copy_from_slice(src);
        self.bytes.release(start..start.saturating_add(src.len()));
        Ok(())
    }

    fn beyond(&self, at: u64) -> Error {
        Error::new(Kind::TooLarge { value: at, limit: self.len() }, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_in_memory_and_in_a_file() {
        for memory in [10, 9] {
            let account = Account::new(memory, 1 << 20);
            let mut store = Store::new(10, &account, "array").unwrap();
            store.write(2, &[1, 2, 3]).unwrap();
            store.write(5, &[4, 5, 6, 7, 8]).unwrap();
            let mut dst = [0; 4];
            store.read(4, &mut dst).unwrap();
            assert_eq!(dst, [3, 4, 5, 6]);
            assert!(store.read(8, &mut dst).is_err());
        }
    }
}
