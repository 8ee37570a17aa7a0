//! A table of a store, opened on first use: what it is made of is known before, but its rows may have to be counted.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::{Directory, Entry};
use crate::once::Once;

use super::Table;
use super::files::TableFiles;
use super::leaves::TableLeaves;
use super::rows::Rows;
use super::schema::{ColumnSpec, Schema};

/// A table.
pub(super) struct StoreTable {
    /// The key of the table; empty for the root.
    pub(super) key: Vec<u8>,
    pub(super) leaves: TableLeaves,
    files: Once<Arc<TableFiles>>,
}

impl StoreTable {
    pub(super) fn new(key: Vec<u8>, leaves: TableLeaves) -> Self {
        Self { key, leaves, files: Once::new() }
    }

    /// Opens it, unless it is open.
    ///
    /// # Errors
    /// As [`Table::open`].
    pub(super) fn files(&self) -> Result<&Arc<TableFiles>> {
        self.files.get(|| Table::open(self.leaves.clone()).map(TableFiles::new).map(Arc::new))
    }

    /// Its part of `info.json`. Counts nothing.
    pub(super) fn info(&self) -> Result<Value> {
        let options = &self.leaves.options;
        let schema = Schema::read(&self.leaves.open("_meta")?.frame, options)?;
        let stored = Rows::open(self.leaves.open("_valid_rows")?, options)?.count();
        let counted = self.files.ready().and_then(Result::ok).map(|files| files.table.rows);
        let column = |ColumnSpec { name, about, .. }: &ColumnSpec| {
            let mut map = Map::from_iter([("name".to_owned(), Value::from(&**name))]);
            map.extend(about.clone());
            Value::Object(map)
        };
        Ok(json!({
            "rows": counted.or(schema.rows),
            "stored_rows": stored,
            "columns": schema.columns.iter().map(column).collect::<Value>(),
            "computed_columns": schema.computed,
        }))
    }

    /// How many arrays it may have: for each column its values and its marks; at least one, which says why there are none.
    ///
    /// # Errors
    /// Fails if its schema cannot be read now.
    pub(super) fn arrays(&self) -> Result<u64> {
        let schema = self.leaves.open("_meta").and_then(|meta| Schema::read(&meta.frame, &self.leaves.options));
        match schema {
            Err(e) if !e.is_lasting() => Err(e),
            Err(_) => Ok(1),
            Ok(schema) => Ok(to_u64(schema.columns.len()).saturating_mul(2).max(1)),
        }
    }

    /// Opens it with all its columns.
    pub(super) fn check(&self) -> Result<()> {
        let table = &self.files()?.table;
        (0..table.columns.len()).try_for_each(|column| table.column(column).map(drop))
    }
}

/// `columns/` of a table.
pub(super) struct ColumnsDir(pub(super) Arc<StoreTable>);

impl Directory for ColumnsDir {
    fn is_made_again(&self) -> bool {
        true
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        self.0.files()?.entries()
    }
}
