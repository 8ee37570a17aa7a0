//! The leaves of a store, and those of a table in it.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::format::Options;
use crate::source::Source;

use super::super::frames::OpenFrame;

/// The leaves of a store, by number.
pub(in crate::format::blosc2) trait Leaves: Send + Sync {
    /// Opens leaf `index`, unless it is open.
    ///
    /// # Errors
    /// Fails if it is corrupt, or cannot be read now.
    fn open(&self, index: u64) -> Result<Arc<OpenFrame>>;

    /// The file that all are in, or that says which there are.
    fn source(&self) -> &Arc<Source>;
}

/// The leaves of a table.
#[derive(Clone)]
pub(super) struct TableLeaves {
    pub(super) all: Arc<dyn Leaves>,
    /// Their numbers, by the key in the table.
    pub(super) numbers: Arc<HashMap<Vec<u8>, u64>>,
    pub(super) options: Options,
}

impl TableLeaves {
    pub(super) fn has(&self, key: &str) -> bool {
        self.numbers.contains_key(key.as_bytes())
    }

    /// Opens the leaf `key`.
    ///
    /// # Errors
    /// Fails if there is none.
    pub(super) fn open(&self, key: &str) -> Result<Arc<OpenFrame>> {
        let missing = || Error::new(Kind::Corrupt("missing".into()), key.to_owned());
        let number = self.numbers.get(key.as_bytes()).ok_or_else(missing)?;
        self.all.open(*number)
    }
}
