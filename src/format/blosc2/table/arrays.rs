//! The arrays of a store with tables: its leaves, except those of tables, and the columns.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::format::about::Attributes;
use crate::format::{Arrays, File, Found};

use super::Tables;

/// The arrays of a store. A table is opened when one of its columns is looked for.
pub(super) struct StoreArrays {
    leaves: Arc<dyn Arrays>,
    tables: Arc<Tables>,
    /// The arrays up to the end of each table.
    ends: Vec<u64>,
}

impl StoreArrays {
    pub(super) fn new(leaves: Arc<dyn Arrays>, tables: Arc<Tables>, ends: Vec<u64>) -> Self {
        Self { leaves, tables, ends }
    }

    /// Array `index` of the tables.
    fn column(&self, index: u64) -> Result<Option<(Vec<u8>, File)>> {
        let table = self.ends.partition_point(|&end| end <= index);
        let before = table.checked_sub(1).and_then(|table| self.ends.get(table)).copied().unwrap_or(0);
        self.tables.array(table, index.saturating_sub(before))
    }
}

impl Arrays for StoreArrays {
    fn count(&self) -> u64 {
        self.leaves.count().saturating_add(self.ends.last().copied().unwrap_or(0))
    }

    fn find(&self, index: u64) -> Result<Found> {
        if let Some(index) = index.checked_sub(self.leaves.count()) {
            let found = self.column(index)?;
            return Ok(found.map_or(Found::Nothing, |(name, file)| Found::of(name, None, &file)));
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
            Some(index) => self.column(index)?.map(|(_, file)| file).ok_or_else(|| Error::new(Kind::NotFound, "array")),
            None => self.leaves.file(index),
        }
    }

    fn group(&self, name: &[u8]) -> Result<Attributes> {
        self.tables.attributes(name).unwrap_or_else(|| self.leaves.group(name))
    }
}
