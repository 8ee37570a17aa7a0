//! Listing in parts: a directory may have more entries than fit in memory.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use fzmfs::{Archive, Entries, Result};
use pyo3::prelude::*;

use crate::interrupt::detached;
use crate::listing::{self, EntryRow};
use crate::opened::Opened;
use crate::owned::Owned;

/// The remaining entries of a directory, or of all below it.
#[pyclass(frozen, module = "fzmfs._native")]
pub(crate) struct Walk {
    entries: Owned<Mutex<Entries>>,
    _archive: Arc<Opened>,
    source: String,
}

impl Walk {
    /// The entries of the directory `path` of `archive`, or of all below it.
    pub(crate) fn new(archive: &Archive, path: &str, below: bool, of: (Arc<Opened>, String)) -> Result<Self> {
        let entries = if below { archive.walk(path) } else { archive.list(path) }?;
        let (opened, source) = of;
        Ok(Self { entries: Owned::new(Mutex::new(entries)), _archive: opened, source })
    }
}

#[pymethods]
impl Walk {
    /// The next entries: `count`, or fewer before the end, where there are none.
    fn more(&self, py: Python<'_>, count: usize) -> PyResult<Vec<EntryRow>> {
        let entries = self.entries.get()?;
        let take = || {
            let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
            entries.by_ref().take(count).map(|entry| entry.map(|entry| listing::row(&entry))).collect::<Result<_>>()
        };
        detached(py, &self.source, take)
    }
}
