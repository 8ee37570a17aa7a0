//! Bytes that are computed on first use, once per view.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::format::{Fetch, Generator};

/// Computed bytes: the first reader computes them; they are kept as long as the view.
pub struct Computed {
    make: Generator,
    promised: Option<u64>,
    bytes: OnceLock<Arc<[u8]>>,
    making: Mutex<()>,
}

impl Computed {
    /// Creates the value; computes nothing yet.
    pub(super) fn new(make: Generator, promised: Option<u64>) -> Self {
        Self { make, promised, bytes: OnceLock::new(), making: Mutex::new(()) }
    }

    /// Returns the bytes, computing them if necessary. Failures are not cached.
    ///
    /// # Errors
    /// The error of the computation; [`Kind::Corrupt`] if the length differs from the promised one.
    pub fn bytes(&self, fetch: &dyn Fetch) -> Result<Arc<[u8]>> {
        if let Some(bytes) = self.bytes.get() {
            return Ok(bytes.clone());
        }
        let _one_at_a_time = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = self.bytes.get() {
            return Ok(bytes.clone());
        }
        let bytes = (self.make)(fetch)?;
        if self.promised.is_some_and(|promised| promised != to_u64(bytes.len())) {
            return Err(Error::corrupt("its length differs from the announced one", "computed file"));
        }
        Ok(self.bytes.get_or_init(|| bytes.into()).clone())
    }

    /// Whether [`Computed::bytes`] returns immediately.
    pub fn is_ready(&self) -> bool {
        self.bytes.get().is_some()
    }
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Computed")
            .field("promised", &self.promised)
            .field("is_ready", &self.is_ready())
            .finish_non_exhaustive()
    }
}

/// Stands for "not available yet" when only bytes in memory are requested; never shown to a user.
pub(super) fn absent() -> Error {
    Error::new(Kind::NotFound, "piece in the cache")
}
