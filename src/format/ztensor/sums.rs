//! Results that need a whole component decoded, kept while the file is open: CRC-32 sums, and whether a sparse tensor
//! is consistent. Each is small and computed on request; transient failures are not kept.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::Result;

/// CRC-32 sums and sparse checks of one file.
#[derive(Default)]
pub(super) struct Sums {
    /// By tensor and member name.
    crcs: Kept<(usize, &'static str), u32>,
    /// By tensor.
    sparse: Kept<usize, ()>,
}

impl Sums {
    /// The CRC-32 of member `name` of tensor `index`, computed by `make` on first use.
    ///
    /// # Errors
    /// Fails if `make` fails; permanent failures are kept.
    pub(super) fn crc(&self, index: usize, name: &'static str, make: impl FnOnce() -> Result<u32>) -> Result<u32> {
        self.crcs.get((index, name), make)
    }

    /// Whether tensor `index` is a consistent sparse tensor, checked by `make` on first use.
    ///
    /// # Errors
    /// Fails if `make` fails; permanent failures are kept.
    pub(super) fn sparse(&self, index: usize, make: impl FnOnce() -> Result<()>) -> Result<()> {
        self.sparse.get(index, make)
    }
}

/// Results by key. Concurrent callers wait for a computation in progress.
struct Kept<K, T>(Mutex<HashMap<K, Arc<Slot<T>>>>);

#[derive(Default)]
struct Slot<T> {
    known: OnceLock<Result<T>>,
    making: Mutex<()>,
}

impl<K, T> Default for Kept<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq, T: Clone> Kept<K, T> {
    fn get(&self, key: K, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let slot = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let fresh = || Arc::new(Slot { known: OnceLock::new(), making: Mutex::default() });
            Arc::clone(all.entry(key).or_insert_with(fresh))
        };
        if let Some(known) = slot.known.get() {
            return known.clone();
        }
        let _one_at_a_time = slot.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = slot.known.get() {
            return known.clone();
        }
        match make() {
            Err(e) if !e.is_lasting() => Err(e),
            made => slot.known.get_or_init(|| made).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::error::{Error, Kind};

    #[test]
    fn numbers_and_verdicts_are_kept_and_what_the_system_prevented_is_tried_again() {
        let sums = Sums::default();
        let transient = || Err(Error::io(io::Error::from_raw_os_error(libc::EIO), "component"));
        assert!(sums.crc(0, "a", transient).is_err());
        assert_eq!(sums.crc(0, "a", || Ok(7)).unwrap(), 7);
        assert_eq!(sums.crc(0, "a", || Ok(8)).unwrap(), 7);
        assert_eq!(sums.crc(1, "a", || Ok(8)).unwrap(), 8);
        assert!(sums.sparse(0, || Err(Error::corrupt("no", "x"))).is_err());
        assert!(sums.sparse(0, || Ok(())).is_err());
        assert!(sums.sparse(1, || Err(Error::new(Kind::Changed, "file"))).is_err());
        sums.sparse(1, || Ok(())).unwrap();
    }
}
