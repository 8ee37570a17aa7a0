//! The live rows of a column as elements of one size.
//!
//! Piece: the rows in about 1 MiB, fewer where few rows are live.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use crate::checksum::{ChecksumGate, Verified};
use crate::error::Result;
use crate::format::{Blob, Far, Layout};

use super::Table;

/// The value derived from each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// Its value.
    Value,
    /// Whether it has one.
    NotNull,
    /// Its text, of this many characters.
    Text(u64),
}

/// A column, row by row.
pub(super) struct ColumnRows {
    table: Arc<Table>,
    column: usize,
    shown: Shown,
    /// Bytes of a row, and rows of a piece.
    row_len: u64,
    step: u64,
}

impl ColumnRows {
    /// Shows each row of column `column` in `row_len` bytes.
    pub(super) fn new(table: &Arc<Table>, column: usize, shown: Shown, row_len: u64) -> Self {
        Self { table: Arc::clone(table), column, shown, row_len, step: table.step(row_len) }
    }

    fn rows(&self, piece: u64) -> Range<u64> {
        let start = piece.saturating_mul(self.step).min(self.table.rows);
        start..start.saturating_add(self.step).min(self.table.rows)
    }

    fn is_end(&self, piece: u64) -> bool {
        self.rows(piece).end == self.table.rows
    }
}

impl Blob for ColumnRows {
    fn layout(&self) -> Result<Layout> {
        let len = self.table.rows.saturating_mul(self.row_len);
        Ok(Layout::Uniform { len, piece: self.step.saturating_mul(self.row_len).max(1) })
    }

    fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        self.table.gate(self.table.column(self.column).ok()?, self.is_end(piece))
    }

    fn far(&self) -> Option<&dyn Far> {
        self.table.far()
    }

    fn verified(&self, _: Range<u64>) -> Verified {
        self.table.column(self.column).map_or(Verified::No, |column| self.table.verified(column))
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        let column = self.table.column(self.column)?;
        let runs = self.table.runs(self.rows(piece))?;
        let mut decode = || match self.shown {
            Shown::Value => column.elements(&runs, dst),
            Shown::NotNull => {
                let marks = column.not_null(&runs, self.table.leaves.options.limits.piece)?;
                dst.iter_mut().zip(marks).for_each(|(byte, mark)| *byte = mark);
                Ok(())
            }
            Shown::Text(width) => column.texts(&runs, self.table.leaves.options.limits.piece)?.to_utf32(width, dst),
        };
        decode().map_err(|e| e.within(&column.spec.name))
    }
}
