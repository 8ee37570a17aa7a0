//! A decoded array that is kept: in memory, or in a file without a name where the budget has no room.
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::bytes::narrow;
use crate::error::{Error, Kind, Result};
use crate::limits::{Budget, Charge, zeroed};
use crate::scratch::{directory, unnamed};

/// Bytes that can be written once and read from any thread.
pub(super) struct Store {
    len: u64,
    what: &'static str,
    place: Place,
}

enum Place {
    Memory { bytes: Vec<u8>, _charge: Charge },
    File(File),
}

impl Store {
    /// A store of `len` bytes.
    ///
    /// # Errors
    /// Where there is neither room in the budget nor a directory for temporary files.
    pub(super) fn new(len: u64, budget: &Budget, what: &'static str) -> Result<Self> {
        let place = match budget.charge(len, what) {
            Ok(charge) => Place::Memory { bytes: zeroed(len, what)?, _charge: charge },
            Err(_) => Place::File(unnamed(&directory()).map_err(|e| Error::io(e, what))?),
        };
        Ok(Self { len, what, place })
    }

    /// Its bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `dst` from byte `at` on.
    pub(super) fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        match &self.place {
            Place::File(file) => file.read_exact_at(dst, at).map_err(|e| Error::io(e, self.what)),
            Place::Memory { bytes, .. } => {
                let own = bytes.get(narrow(at, self.what)?..).and_then(|own| own.get(..dst.len()));
                dst.copy_from_slice(own.ok_or_else(|| self.beyond(at))?);
                Ok(())
            }
        }
    }

    /// Writes `src` from byte `at` on.
    pub(super) fn write(&mut self, at: u64, src: &[u8]) -> Result<()> {
        let beyond = self.beyond(at);
        match &mut self.place {
            Place::File(file) => file.write_all_at(src, at).map_err(|e| Error::io(e, self.what)),
            Place::Memory { bytes, .. } => {
                let own = bytes.get_mut(narrow(at, self.what)?..).and_then(|own| own.get_mut(..src.len()));
                own.ok_or(beyond)?.copy_from_slice(src);
                Ok(())
            }
        }
    }

    fn beyond(&self, at: u64) -> Error {
        Error::new(Kind::TooLarge { value: at, limit: self.len }, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_in_memory_and_in_a_file() {
        for budget in [10, 9] {
            let budget = Budget::new(budget);
            let mut store = Store::new(10, &budget, "array").unwrap();
            store.write(2, &[1, 2, 3]).unwrap();
            store.write(5, &[4, 5, 6, 7, 8]).unwrap();
            let mut dst = [0; 4];
            store.read(4, &mut dst).unwrap();
            assert_eq!(dst, [3, 4, 5, 6]);
            assert!(store.read(8, &mut dst).is_err());
        }
    }
}
