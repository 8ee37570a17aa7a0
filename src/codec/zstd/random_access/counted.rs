//! The sizes of frames that were counted, and the tools to count them.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::account::{Account, Records};
use crate::checksum::Threads;
use crate::error::{Error, Result};
use crate::source::Source;

use super::super::frame::Frame;
use super::super::measure::Measure;

/// Maximum errors kept of frames that could not be counted.
const ERRORS: usize = 1024;
/// Maximum frames with sizes that are kept for later mounts.
const RECORD: usize = 1 << 20;
/// The size of a frame that is not counted yet.
const UNKNOWN: u64 = u64::MAX;

/// Sizes that were counted.
pub(super) struct Counted {
    /// By frame; empty if all frames state theirs.
    sizes: Mutex<Records<1>>,
    /// Errors of frames that could not be counted.
    errors: Mutex<HashMap<usize, Error>>,
    measures: Mutex<Vec<Measure>>,
}

impl Counted {
    /// Creates a list for `count` frames.
    ///
    /// # Errors
    /// [`crate::error::Kind::NoRoom`] if the account is exhausted.
    pub(super) fn new(count: usize, account: &Account) -> Result<Self> {
        let sizes = Mutex::new(Records::filled(count, [UNKNOWN], account, "list of frames")?);
        Ok(Self { sizes, errors: Mutex::default(), measures: Mutex::default() })
    }

    /// The size of frame `index`, or the error of counting it, if it was counted.
    pub(super) fn get(&self, index: usize) -> Option<Result<u64>> {
        match lock(&self.sizes).get(index)? {
            [UNKNOWN] => lock(&self.errors).get(&index).cloned().map(Err),
            [size] => Some(Ok(size)),
        }
    }

    /// Sets the size of frame `index`, or the error of counting it.
    ///
    /// # Errors
    /// [`crate::error::Kind::NotFound`] if there is no such frame.
    pub(super) fn set(&self, index: usize, size: &Result<u64>) -> Result<()> {
        match size {
            Ok(size) => lock(&self.sizes).set(index, [*size]),
            Err(error) => {
                let mut errors = lock(&self.errors);
                if errors.len() < ERRORS {
                    errors.insert(index, error.clone());
                }
                Ok(())
            }
        }
    }

    /// The sizes that were counted of `count` frames, as bytes; `None` if there are too many for a record.
    pub(super) fn pack(&self, count: usize) -> Option<Vec<u8>> {
        let sizes = lock(&self.sizes);
        let size = |index| sizes.get(index).map_or(UNKNOWN, |[size]| size);
        (count <= RECORD).then(|| (0..count).flat_map(|index| size(index).to_le_bytes()).collect())
    }

    /// Sets the sizes that [`Counted::pack`] has packed, each if it is `plausible` for its frame.
    ///
    /// # Errors
    /// [`crate::error::Kind::NotFound`] if there is no such frame.
    pub(super) fn unpack(&self, packed: &[u8], plausible: impl Fn(usize, u64) -> bool) -> Result<()> {
        let (sizes, _) = packed.as_chunks::<8>();
        for (index, size) in sizes.iter().map(|size| u64::from_le_bytes(*size)).enumerate() {
            if size != UNKNOWN && plausible(index, size) {
                self.set(index, &Ok(size))?;
            }
        }
        Ok(())
    }

    /// Counts the content of `frame` without decoding, if possible.
    ///
    /// # Errors
    /// Fails if the file cannot be read or a header is malformed.
    pub(super) fn measure(&self, source: &Source, frame: &Frame, threads: &Threads) -> Result<Option<u64>> {
        let mut measure = lock(&self.measures).pop().unwrap_or_default();
        let counted = measure.frame(source, frame, threads);
        lock(&self.measures).push(measure);
        counted
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
