//! A table as an Arrow IPC file.
//!
//! Piece: the beginning with the dictionaries, the message of a batch, the buffers of a column in a batch, the end. The
//! length of a piece is known before it is decoded: that of text, lists and structures is found when the file is first
//! used.
//! Limits: [`ROWS`] rows of a batch, fewer if they take more than [`BATCH`] bytes of a column; text of a batch as a
//! piece. Columns of types that Arrow does not have are named in the schema.
#![forbid(unsafe_code)]

mod buffers;
mod field;
mod groups;
mod message;
mod nested;
mod number;
mod values;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::Schema;

use crate::bytes::{to_u64, to_usize};
use crate::checksum::{ChecksumGate, Verified};
use crate::error::{Error, Result};
use crate::format::{Blob, Far, Layout};
use crate::limits::{Charge, Limits, zeroed};

use super::Table;
use field::ArrowColumn;

/// Rows of a batch, and the most bytes that they may take in a column, if it has more than one row.
const ROWS: u64 = 64 << 10;
const BATCH: u64 = 4 << 20;
/// The key of the schema's metadata that names the columns that are not in the file.
const LEFT_OUT: &str = "fzmfs.left_out";

/// An Arrow file of a table.
pub(super) struct ArrowFile {
    table: Arc<Table>,
    columns: Vec<ArrowColumn>,
    /// Rows of each batch but the last.
    step: u64,
    /// Bytes of the message of a batch.
    message_len: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
    layout: Layout,
    _charge: Charge,
}

impl ArrowFile {
    /// Finds the length of each piece.
    ///
    /// # Errors
    /// Fails if a column is broken, or its text.
    pub(super) fn new(table: &Arc<Table>) -> Result<Self> {
        let (mut columns, mut left_out) = (Vec::new(), Vec::new());
        for index in 0..table.columns.len() {
            let column = table.column(index)?;
            match ArrowColumn::new(index, column) {
                Ok(found) => columns.push((column.spec.path.clone(), found)),
                Err(why) => left_out.push(format!("{}: {why}", column.spec.name)),
            }
        }
        left_out.extend(table.computed.iter().map(|name| format!("{name}: computed by python-blosc2")));
        let (fields, columns) = groups::arrange(columns, &table.parents);
        let mean = table.columns.iter().flatten().map(|column| column.mean_len(table.marks.count()));
        let widest = columns.iter().map(ArrowColumn::row_len).chain(mean).max().unwrap_or(1);
        let step = (BATCH / widest.max(1)).clamp(1, ROWS).min(table.step(widest).max(64));
        let count = if columns.is_empty() { 0 } else { table.rows.div_ceil(step) };
        // For each batch, its place; for each column in it, the ends of the piece, and its buffers or the end of text.
        let each = columns.iter().map(ArrowColumn::kept).sum::<u64>().saturating_add(64);
        let account = &table.leaves.options.account;
        let charge = account.charge(each.saturating_mul(count.saturating_add(1)), "batches")?;
        let mut this = Self {
            table: Arc::clone(table),
            columns,
            step,
            message_len: 0,
            head: Vec::new(),
            tail: Vec::new(),
            layout: Layout::Ends([].into()),
            _charge: charge,
        };
        this.measure(count)?;
        let metadata = (!left_out.is_empty()).then(|| (LEFT_OUT.to_owned(), left_out.join("\n")));
        let schema = Schema::new(fields).with_metadata(metadata.into_iter().collect::<HashMap<_, _>>());
        this.lay_out(&schema, count)?;
        Ok(this)
    }

    /// The rows of batch `batch`.
    fn rows(&self, batch: u64) -> Range<u64> {
        let start = batch.saturating_mul(self.step).min(self.table.rows);
        start..start.saturating_add(self.step).min(self.table.rows)
    }

    /// Finds the lengths of buffers of values of any length in each batch.
    fn measure(&mut self, count: u64) -> Result<()> {
        let limit = self.table.leaves.options.limits.piece;
        let mut columns = std::mem::take(&mut self.columns);
        for found in columns.iter_mut().filter(|found| found.is_measured()) {
            let column = self.table.column(found.index)?;
            for batch in 0..count {
                crate::wanted::check()?;
                let runs = self.table.runs(self.rows(batch))?;
                found.measure(column, &runs, limit).map_err(|e| e.within(&column.spec.name))?;
            }
        }
        self.columns = columns;
        Ok(())
    }

    fn described(&self, batch: u64, nulls: &[u64]) -> Result<Vec<message::Column>> {
        let (rows, batch) = (self.rows(batch), to_usize(batch, "batch")?);
        let nulls = nulls.iter().copied().chain(std::iter::repeat(0));
        let columns = self.columns.iter().zip(nulls);
        Ok(columns.map(|(column, nulls)| column.described(batch, rows.end - rows.start, nulls)).collect())
    }

    /// Writes the beginning and the end, and finds the ends of all pieces.
    fn lay_out(&mut self, schema: &Schema, count: u64) -> Result<()> {
        let limit = self.table.leaves.options.limits.piece;
        self.head = message::head(schema);
        let dictionaries = self.write_dictionaries()?;
        let mut at = to_u64(self.head.len());
        let mut ends = vec![at];
        let mut blocks = Vec::new();
        for batch in 0..count {
            let columns = self.described(batch, &[])?;
            let rows = self.rows(batch);
            if batch == 0 {
                self.message_len = to_u64(message::record_batch(rows.end - rows.start, &columns).len());
            }
            blocks.push(message::block(at, self.message_len, message::body_len(&columns)));
            at = at.saturating_add(self.message_len);
            ends.push(at);
            for column in &columns {
                let len = Limits::check(message::body_len(std::slice::from_ref(column)), limit, "batch")?;
                at = at.saturating_add(len);
                ends.push(at);
            }
        }
        self.tail = message::tail(schema, &dictionaries, &blocks);
        ends.push(at.saturating_add(to_u64(self.tail.len())));
        self.layout = Layout::Ends(ends.into());
        Ok(())
    }

    /// Adds the dictionaries to the beginning.
    fn write_dictionaries(&mut self) -> Result<Vec<arrow_ipc::Block>> {
        let mut blocks = Vec::new();
        for column in self.columns.iter().filter(|column| column.is_coded()) {
            let of = self.table.column(column.index)?.dictionary();
            let texts = of.ok_or_else(|| Error::corrupt("no texts", "dictionary"))?.texts()?;
            let rows = to_u64(texts.ends.len());
            let lens = vec![0, (rows + 1) * 4, to_u64(texts.data.len())];
            let described = (vec![(rows, 0)], lens);
            let message = message::dictionary(to_u64(blocks.len()), rows, &described);
            let body = message::body_len(std::slice::from_ref(&described));
            blocks.push(message::block(to_u64(self.head.len()), to_u64(message.len()), body));
            self.head.extend(message);
            let mut bytes = zeroed(body, "dictionary")?;
            let (ends, data) = bytes.split_at_mut(to_usize(message::aligned((rows + 1) * 4), "dictionary")?);
            buffers::set_ends(&mut ends[..to_usize((rows + 1) * 4, "dictionary")?], &texts.ends, false);
            data[..texts.data.len()].copy_from_slice(&texts.data);
            self.head.extend(bytes);
        }
        Ok(blocks)
    }

    /// The batch and the column of piece `piece`; the message of a batch comes before its columns.
    fn part(&self, piece: u64) -> Result<(u64, Option<&ArrowColumn>)> {
        let (index, each) = (piece.saturating_sub(1), to_u64(self.columns.len()) + 1);
        let column = to_usize(index % each, "column")?.checked_sub(1);
        Ok((index / each, column.and_then(|column| self.columns.get(column))))
    }
}

impl Blob for ArrowFile {
    fn layout(&self) -> Result<Layout> {
        Ok(self.layout.clone())
    }

    fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        let is_end = piece + 2 >= self.layout.count();
        let columns = self.columns.iter().filter_map(|column| self.table.column(column.index).ok());
        columns.into_iter().find_map(|column| self.table.gate(column, is_end))
    }

    fn far(&self) -> Option<&dyn Far> {
        self.table.far()
    }

    fn verified(&self, _: Range<u64>) -> Verified {
        let columns = self.columns.iter().filter_map(|column| self.table.column(column.index).ok());
        columns.map(|column| self.table.verified(column)).max().unwrap_or(Verified::No)
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        if piece == 0 {
            dst.copy_from_slice(&self.head);
            return Ok(());
        }
        if piece + 1 == self.layout.count() {
            dst.copy_from_slice(&self.tail);
            return Ok(());
        }
        let (batch, column) = self.part(piece)?;
        let rows = self.rows(batch);
        if let Some(column) = column {
            let name = &self.table.column(column.index)?.spec.name;
            return column.write(&self.table, to_usize(batch, "batch")?, rows, dst).map_err(|e| e.within(name));
        }
        let nulls = self.columns.iter().map(|column| column.nulls(&self.table, rows.clone()));
        let columns = self.described(batch, &nulls.collect::<Result<Vec<_>>>()?)?;
        let message = message::record_batch(rows.end - rows.start, &columns);
        if message.len() != dst.len() {
            return Err(Error::corrupt(format!("{} bytes, not {}", message.len(), dst.len()), "message"));
        }
        dst.copy_from_slice(&message);
        Ok(())
    }
}
