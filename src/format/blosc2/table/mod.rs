//! Tables of python-blosc2 (`CTable`): leaves of a store with columns, the marks of live rows, and a schema.
//!
//! Shows as: `table.arrow`; `columns/`, an array for each column with its live rows alone, and beside a column with
//! missing values `<name>.notnull` with a mark for each row; the leaves themselves in `stored/`. Columns that python
//! computes have no values in the file. Text is shown as `<name>.npy` with elements of the longest one.
//! The number of live rows is that of the schema if it is all, and otherwise counted when the table is first listed.
//! Checked: each place of a text and number of a dictionary, and all text, when they are read.
//! Limits: see `schema`, `batches`, `live`, and `arrow`; lengths that are not recorded are found once, by [`WORK`].
#![forbid(unsafe_code)]

mod arrays;
mod arrow;
mod batches;
mod column;
mod derived;
mod files;
mod leaves;
mod live;
mod nulls;
mod room;
mod rows;
mod runs;
mod schema;
mod store_table;
mod streams;
mod tables;
mod texts;
mod utf8;

use std::ops::Range;
use std::sync::Arc;

use crate::checksum::{ChecksumGate, Verified};
use crate::error::{Error, Result};
use crate::format::{Far, Need};
use crate::once::Once;

use super::frames::OpenFrame;
use column::Column;
use leaves::TableLeaves;
use live::Live;
use rows::Rows;
use schema::{Parent, Schema};

pub(super) use leaves::Leaves;
pub(super) use tables::Tables;

/// Bytes that may be decoded to find a number of rows or the lengths of texts: a constant, plus a factor for each byte
/// of the file.
const WORK: (u64, u64) = (4 << 30, 1024);

/// A table.
pub(super) struct Table {
    leaves: TableLeaves,
    /// The number of live rows.
    rows: u64,
    /// The marks of live rows.
    marks: Arc<Rows>,
    live: Once<Live>,
    /// Each column, or its name and why it cannot be read.
    columns: Vec<std::result::Result<Column, (String, String, Error)>>,
    /// The names of columns without values.
    computed: Vec<String>,
    /// Structures of which the fields are columns.
    parents: Vec<Parent>,
}

/// Columns of a table on a server: each fetches the chunks that a piece needs.
struct FarColumns;

impl Far for FarColumns {
    fn announce(&self, _: &[Range<u64>], _: Need) {}
}

impl Table {
    /// Opens the table of these leaves.
    ///
    /// # Errors
    /// Fails if its schema or the marks of live rows cannot be read; a column that cannot breaks alone.
    fn open(leaves: TableLeaves) -> Result<Self> {
        let options = &leaves.options;
        let schema = Schema::read(&leaves.open("_meta")?.frame, options)?;
        let marks = Arc::new(Rows::open(leaves.open("_valid_rows")?, options)?);
        let live = Once::new();
        // A writer that was not closed leaves the number of before.
        let rows = match schema.rows {
            Some(rows) if rows == marks.count() => rows,
            _ => Self::count(&live, &marks, &leaves)?.count(),
        };
        let mut columns = Vec::new();
        for spec in schema.columns {
            let named = (spec.name.clone(), spec.path.clone());
            columns.push(match Column::open(spec, &leaves) {
                Err(e) if !e.is_lasting() => return Err(e),
                column => column.map_err(|e| (named.0.clone(), named.1, e.within(named.0))),
            });
        }
        Ok(Self { leaves, rows, marks, live, columns, computed: schema.computed, parents: schema.parents })
    }

    fn count<'a>(live: &'a Once<Live>, marks: &Arc<Rows>, leaves: &TableLeaves) -> Result<&'a Live> {
        let account = &leaves.options.account;
        live.build(account, leaves.work(), || Live::marked(Arc::clone(marks), account))
    }

    /// Which rows of the columns the live rows in `range` are.
    ///
    /// # Errors
    /// Fails if the marks cannot be decoded.
    fn runs(&self, range: Range<u64>) -> Result<Vec<Range<u64>>> {
        if self.rows == self.marks.count() {
            return Live::first(self.rows).runs(range);
        }
        Self::count(&self.live, &self.marks, &self.leaves)?.runs(range)
    }

    fn column(&self, index: usize) -> Result<&Column> {
        let column = self.columns.get(index).ok_or_else(|| Error::corrupt("no such column", "column"))?;
        column.as_ref().map_err(|(.., error)| error.clone())
    }

    /// Whether each live row in `range` of a column has a value.
    fn not_null(&self, column: &Column, range: Range<u64>) -> Result<Vec<u8>> {
        column.not_null(&self.runs(range)?, self.leaves.options.limits.piece).map_err(|e| e.within(&column.spec.name))
    }

    /// The most rows that are read together, of which each takes `len` bytes: about 1 MiB, less if few rows are live.
    fn step(&self, len: u64) -> u64 {
        let all = self.marks.count().max(1);
        let near = u128::from(24_u64 << 20) * u128::from(self.rows) / u128::from(all) / u128::from(len.max(1) + 1);
        ((1 << 20) / len.max(1)).min(u64::try_from(near).unwrap_or(u64::MAX)).max(1)
    }

    /// The frames of the marks and of a column.
    fn frames<'a>(&'a self, column: &'a Column) -> impl Iterator<Item = &'a Arc<OpenFrame>> {
        std::iter::once(&self.marks.frame).chain(column.frames())
    }

    /// The checksum to wait for before a part of `column` is served.
    fn gate(&self, column: &Column, is_end: bool) -> Option<ChecksumGate> {
        self.frames(column).find_map(|frame| ChecksumGate::shut(frame.frame.gate.as_ref(), is_end))
    }

    /// The state of the checksums of a column.
    fn verified(&self, column: &Column) -> Verified {
        let all = self.frames(column).map(|frame| frame.decoded.blob.verified(0..u64::MAX));
        all.max().unwrap_or(Verified::No)
    }

    /// Bytes that a column takes in the file.
    fn stored(column: &Column) -> u64 {
        column.frames().map(|frame| frame.frame.stored()).sum()
    }

    /// Passes the runs of all live rows, `step` at a time, to `each`; stops if nobody waits any more.
    fn for_each_step(&self, step: u64, mut each: impl FnMut(&[Range<u64>]) -> Result<()>) -> Result<()> {
        for first in (0..self.rows).step_by(usize::try_from(step.max(1)).unwrap_or(usize::MAX)) {
            crate::wanted::check()?;
            each(&self.runs(first..first.saturating_add(step).min(self.rows))?)?;
        }
        Ok(())
    }

    /// Characters of the longest text of `column`; at least 1, as NumPy has it.
    fn longest(&self, column: &Column) -> Result<u64> {
        let mut longest = 1;
        let step = self.step(column.mean_len(self.marks.count()).max(64));
        self.for_each_step(step, |runs| {
            longest = column.texts(runs, self.leaves.options.limits.piece)?.longest().max(longest);
            Ok(())
        })?;
        Ok(longest)
    }

    /// Whether the rows are on a server.
    fn far(&self) -> Option<&dyn Far> {
        if self.marks.frame.decoded.blob.is_far() { Some(&FarColumns) } else { None }
    }
}

impl TableLeaves {
    /// Bytes that may be decoded to find a length.
    fn work(&self) -> u64 {
        WORK.0.saturating_add(self.all.source().len().saturating_mul(WORK.1))
    }
}
