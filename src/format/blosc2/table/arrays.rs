//! The arrays of a store with tables: its leaves, except those of tables, and the columns.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::Arc;

use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::about::Attributes;
use crate::format::{ArrayList, Arrays, File, Found, ListedArray};

use super::Tables;

/// The arrays of a store.
pub(super) struct StoreArrays {
    leaves: Arc<dyn Arrays>,
    tables: Arc<Tables>,
    columns: ArrayList,
    count: u64,
}

impl StoreArrays {
    pub(super) fn new(leaves: Arc<dyn Arrays>, tables: Arc<Tables>, columns: Vec<ListedArray>) -> Self {
        let count = to_u64(columns.len());
        Self { leaves, tables, columns: ArrayList::new(columns), count }
    }
}

impl Arrays for StoreArrays {
    fn count(&self) -> u64 {
        self.leaves.count().saturating_add(self.count)
    }

    fn find(&self, index: u64) -> Result<Found> {
        if let Some(index) = index.checked_sub(self.leaves.count()) {
            return self.columns.find(index);
        }
        let found = self.leaves.find(index)?;
        let name = match &found {
            Found::Array(array) => &array.name,
            Found::LeftOut(name, _) => name,
            Found::Nothing => return Ok(found),
        };
        Ok(if self.tables.has(name) { Found::Nothing } else { found })
    }

    fn file(&self, index: u64) -> Result<File> {
        match index.checked_sub(self.leaves.count()) {
            Some(index) => self.columns.file(index),
            None => self.leaves.file(index),
        }
    }

    fn group(&self, name: &[u8]) -> Result<Attributes> {
        self.tables.attributes(name).unwrap_or_else(|| self.leaves.group(name))
    }
}
