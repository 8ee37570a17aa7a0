//! A column as Arrow has it: its type, and the buffers of some of its rows.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ops::Range;

use arrow_schema::{DataType, Field};

use crate::account::decode_budget;
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::format::{Number, NumberKind};

use super::super::Table;
use super::super::batches::Value;
use super::super::column::{Column, Data};
use super::super::room::Room;
use super::super::runs::total;
use super::super::schema::ColumnKind;
use super::buffers::{Buffers, set_bits, set_ends};
use super::message;
use super::nested;
use super::values::Values;

/// The most bytes that ends of 4 bytes can count.
const SMALL: u64 = (u32::MAX >> 1) as u64;

/// A column in the file.
pub(super) struct ArrowColumn {
    /// Its number in the table.
    pub(super) index: usize,
    pub(super) field: Field,
    shape: ColumnShape,
    has_nulls: bool,
    /// Structures of which it is the first column.
    pub(super) opens: usize,
}

/// The buffers of a column.
enum ColumnShape {
    /// Elements of this many bytes.
    Fixed(u64),
    /// Truth values in bits.
    Bits,
    /// Where each value ends, in 8 bytes or else in 4, and the values; with the bytes of those in each batch.
    Bytes { is_large: bool, lens: Vec<u64> },
    /// The numbers of texts.
    Codes,
    /// Lists of this many elements of this many bytes; `None`: truth values in bits.
    Lists(u64, Option<u64>),
    /// Values of a nested type: the nodes and buffers of each batch.
    Nested(Vec<message::Column>),
}

/// The type of the numbers `number`; `None` if Arrow has none.
fn number(number: Number) -> Option<DataType> {
    if number.is_big_endian && number.width > 1 {
        return None;
    }
    Some(match (number.kind, number.width) {
        (NumberKind::Bool, _) => DataType::Boolean,
        (NumberKind::Int, 1) => DataType::Int8,
        (NumberKind::Int, 2) => DataType::Int16,
        (NumberKind::Int, 4) => DataType::Int32,
        (NumberKind::Int, _) => DataType::Int64,
        (NumberKind::Uint, 1) => DataType::UInt8,
        (NumberKind::Uint, 2) => DataType::UInt16,
        (NumberKind::Uint, 4) => DataType::UInt32,
        (NumberKind::Uint, _) => DataType::UInt64,
        (NumberKind::Float, 2) => DataType::Float16,
        (NumberKind::Float, 4) => DataType::Float32,
        (NumberKind::Float, _) => DataType::Float64,
        (NumberKind::Complex, _) => return None,
    })
}

/// A list of `len` elements of the type `item`; `None` if there are too many.
fn list(item: DataType, len: u64) -> Option<DataType> {
    Some(DataType::new_fixed_size_list(item, i32::try_from(len).ok()?, true))
}

impl ArrowColumn {
    /// How Arrow has `column`, whose number is `index`; or why it does not.
    pub(super) fn new(index: usize, column: &Column) -> std::result::Result<Self, String> {
        let has_nulls = column.has_nulls();
        let name = column.spec.name.clone();
        if let ColumnKind::Nested(_) = column.spec.kind {
            let field = nested::field(&name, &column.spec.about)?;
            return Ok(Self { index, field, shape: ColumnShape::Nested(Vec::new()), has_nulls, opens: 0 });
        }
        let (data_type, shape) = of(column)?;
        let field = match &column.spec.kind {
            ColumnKind::Dictionary { is_ordered, .. } => {
                Field::new(name, data_type, true).with_dict_is_ordered(*is_ordered)
            }
            ColumnKind::Arrays(sides) => {
                // As python-blosc2 writes it.
                let shape = ("blosc2:ndarray_shape".to_owned(), format!("{sides:?}"));
                Field::new(name, data_type, true).with_metadata(HashMap::from([shape]))
            }
            _ => Field::new(name, data_type, true),
        };
        Ok(Self { index, field, shape, has_nulls, opens: 0 })
    }

    /// The bytes of a row, as far as all have the same.
    pub(super) fn row_len(&self) -> u64 {
        match &self.shape {
            ColumnShape::Fixed(len) => *len,
            ColumnShape::Bits => 1,
            ColumnShape::Bytes { .. } => 8,
            ColumnShape::Codes => 4,
            ColumnShape::Lists(len, item) => len.saturating_mul(item.unwrap_or(1)),
            ColumnShape::Nested(_) => Values::new(&self.field).least(),
        }
    }

    /// Bytes that are kept for each batch.
    pub(super) fn kept(&self) -> u64 {
        let ColumnShape::Nested(_) = &self.shape else { return 16 };
        let mut described = message::Column::default();
        Values::new(&self.field).describe(&mut described);
        to_u64(described.0.len() * size_of::<(u64, u64)>() + described.1.len() * size_of::<u64>()) + 64
    }

    /// Counts the bytes of its text in 4 bytes.
    pub(super) fn narrow(&mut self) {
        if let (ColumnShape::Bytes { is_large, .. }, DataType::LargeUtf8) = (&mut self.shape, self.field.data_type()) {
            *is_large = false;
            self.field = self.field.clone().with_data_type(DataType::Utf8);
        }
    }

    /// Whether its values are numbers of a dictionary.
    pub(super) fn is_coded(&self) -> bool {
        matches!(self.shape, ColumnShape::Codes)
    }

    /// Whether the lengths of its buffers are not known by the number of rows.
    pub(super) fn is_measured(&self) -> bool {
        matches!(self.shape, ColumnShape::Bytes { .. } | ColumnShape::Nested(_))
    }

    /// Finds the lengths of the buffers of the next batch, of the rows in `runs`, where they are not known.
    ///
    /// # Errors
    /// Fails if a value is broken, or if they exceed `limit` bytes.
    pub(super) fn measure(&mut self, column: &Column, runs: &[Range<u64>], limit: u64) -> Result<()> {
        match &mut self.shape {
            ColumnShape::Bytes { is_large, lens } => {
                let limit = if *is_large { limit } else { limit.min(SMALL) };
                lens.push(column.text_len(runs, limit)?);
            }
            ColumnShape::Nested(all) => {
                let mut described = message::Column::default();
                collect(&self.field, column, runs, limit)?.0.describe(&mut described);
                all.push(described);
            }
            _ => {}
        }
        Ok(())
    }

    /// The nodes and buffers of `rows` rows, batch `batch`, of which `nulls` are missing, after those of its structures.
    pub(super) fn described(&self, batch: usize, rows: u64, nulls: u64) -> message::Column {
        let own = self.own(batch, rows, nulls);
        let nodes = std::iter::repeat_n((rows, 0), self.opens).chain(own.0).collect();
        (nodes, std::iter::repeat_n(0, self.opens).chain(own.1).collect())
    }

    /// The same without those of its structures.
    fn own(&self, batch: usize, rows: u64, nulls: u64) -> message::Column {
        let bits = rows.div_ceil(8);
        let valid = if self.has_nulls { bits } else { 0 };
        let own = (rows, nulls);
        match &self.shape {
            ColumnShape::Fixed(len) => (vec![own], vec![valid, rows.saturating_mul(*len)]),
            ColumnShape::Bits => (vec![own], vec![valid, bits]),
            ColumnShape::Bytes { is_large, lens } => {
                let end = if *is_large { 8 } else { 4 };
                (vec![own], vec![valid, (rows + 1) * end, lens.get(batch).copied().unwrap_or(0)])
            }
            ColumnShape::Codes => (vec![own], vec![valid, rows * 4]),
            ColumnShape::Lists(len, item) => {
                let items = rows.saturating_mul(*len);
                let bytes = item.map_or(items.div_ceil(8), |item| items.saturating_mul(item));
                (vec![own, (items, 0)], vec![valid, 0, bytes])
            }
            ColumnShape::Nested(all) => all.get(batch).cloned().unwrap_or_default(),
        }
    }

    /// How many of the rows in `range` are missing.
    pub(super) fn nulls(&self, table: &Table, range: Range<u64>) -> Result<u64> {
        if !self.has_nulls || matches!(self.shape, ColumnShape::Nested(_)) {
            return Ok(0);
        }
        let marks = table.not_null(table.column(self.index)?, range)?;
        Ok(to_u64(marks.len()).saturating_sub(marks.iter().map(|&mark| u64::from(mark)).sum()))
    }

    /// Fills `dst` with the buffers of the rows in `range`, batch `batch`.
    pub(super) fn write(&self, table: &Table, batch: usize, range: Range<u64>, dst: &mut [u8]) -> Result<()> {
        let column = table.column(self.index)?;
        let described = self.own(batch, range.end - range.start, 0);
        if let ColumnShape::Nested(_) = self.shape {
            let limit = table.leaves.options.limits.piece;
            let (values, _room) = collect(&self.field, column, &table.runs(range)?, limit)?;
            let mut found = message::Column::default();
            values.describe(&mut found);
            let is_same = found == described;
            return if is_same {
                values.write(&mut Buffers(dst))
            } else {
                Err(Error::corrupt("other than before", "batch"))
            };
        }
        let (_, lens) = described;
        let mut rest = Buffers(dst);
        let mut buffers = lens.into_iter().map(|len| rest.take(len)).collect::<Result<Vec<_>>>()?;
        if self.has_nulls {
            let marks = table.not_null(column, range.clone())?;
            buffers.first_mut().into_iter().for_each(|buffer| set_bits(buffer, &marks));
        }
        let runs = table.runs(range)?;
        match &self.shape {
            ColumnShape::Fixed(_) | ColumnShape::Lists(_, Some(_)) => {
                column.elements(&runs, buffers.last_mut().map_or(&mut [], |buffer| &mut **buffer))
            }
            ColumnShape::Bits | ColumnShape::Lists(_, None) => {
                let items = if let ColumnShape::Lists(len, _) = self.shape { len } else { 1 };
                let count = total(&runs).saturating_mul(items);
                let mut switches = crate::limits::zeroed(count, "column")?;
                column.elements(&runs, &mut switches)?;
                buffers.last_mut().into_iter().for_each(|buffer| set_bits(buffer, &switches));
                Ok(())
            }
            ColumnShape::Codes => {
                let of = column.dictionary().ok_or_else(|| Error::corrupt("no texts", "dictionary"))?;
                let codes = of.codes(&runs)?;
                let (dst, _) = buffers.last_mut().map_or(&mut [][..], |buffer| &mut **buffer).as_chunks_mut::<4>();
                dst.iter_mut().zip(codes).for_each(|(dst, code)| *dst = code.unwrap_or(0).to_le_bytes());
                Ok(())
            }
            ColumnShape::Bytes { is_large, .. } => {
                let len = buffers.last().map_or(0, |buffer| to_u64(buffer.len()));
                let texts = column.texts(&runs, len)?;
                if to_u64(texts.data.len()) != len {
                    return Err(Error::corrupt(format!("{} bytes, not {len}", texts.data.len()), "text"));
                }
                let [.., ends, data] = buffers.as_mut_slice() else { return Ok(()) };
                data.copy_from_slice(&texts.data);
                set_ends(ends, &texts.ends, *is_large);
                Ok(())
            }
            ColumnShape::Nested(_) => Ok(()),
        }
    }
}

/// The values of the rows in `runs`, which take at most `limit` bytes, and the room for them.
fn collect(field: &Field, column: &Column, runs: &[Range<u64>], limit: u64) -> Result<(Values, Room)> {
    let mut values = Values::new(field);
    let mut room = Room::within(limit.min(SMALL), column.account());
    let batches = column.batches().ok_or_else(|| Error::corrupt("not in batches", "column"))?;
    batches.each_value(runs, &mut |value| match value {
        Value::Document(document) => values.push(&mut Cursor::new(document, FileOffset(0)), &mut room),
        Value::Row(part, row) => values.push_row(part, row, &mut room),
    })?;
    decode_budget::charge(room.used)?;
    Ok((values, room))
}

/// The type of `column`, and its buffers.
fn of(column: &Column) -> std::result::Result<(DataType, ColumnShape), String> {
    let bytes = |is_large| ColumnShape::Bytes { is_large, lens: Vec::new() };
    Ok(match (&column.spec.kind, &column.data) {
        (ColumnKind::Utf8, _) => (DataType::LargeUtf8, bytes(true)),
        (ColumnKind::Text, _) => (DataType::Utf8, bytes(false)),
        (ColumnKind::Bytes, _) => (DataType::LargeBinary, bytes(true)),
        (ColumnKind::Other(kind), _) => return Err(format!("values of the kind {kind:?}")),
        (ColumnKind::Dictionary { .. }, _) => {
            (DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into()), ColumnShape::Codes)
        }
        (_, Data::Switches(_)) => (DataType::Boolean, ColumnShape::Bits),
        (ColumnKind::Timestamp { unit, timezone }, _) => {
            let unit = nested::time_unit(unit).ok_or_else(|| format!("times of the unit {unit:?}"))?;
            (DataType::Timestamp(unit, timezone.clone().map(Into::into)), ColumnShape::Fixed(8))
        }
        (kind, Data::Fixed(rows, array)) => {
            let unknown = || format!("elements of the type {}", array.descr);
            let items = rows.row_len / array.itemsize.max(1);
            let is_list = matches!(kind, ColumnKind::Arrays(_)) || items != 1;
            if !is_list && array.descr.starts_with("'|S") {
                return Ok((DataType::LargeBinary, bytes(true)));
            }
            if !is_list && column.is_text() {
                return Ok((DataType::Utf8, bytes(false)));
            }
            let found = Number::of(&array.descr).ok_or_else(unknown)?;
            match (number(found), found.kind) {
                (Some(DataType::Boolean), _) if is_list => {
                    (list(DataType::Boolean, items).ok_or_else(unknown)?, ColumnShape::Lists(items, None))
                }
                (Some(DataType::Boolean), _) => (DataType::Boolean, ColumnShape::Bits),
                (Some(item), _) if is_list => {
                    (list(item, items).ok_or_else(unknown)?, ColumnShape::Lists(items, Some(array.itemsize)))
                }
                (Some(item), _) => (item, ColumnShape::Fixed(array.itemsize)),
                // A complex number is its two parts.
                (None, NumberKind::Complex) if !found.is_big_endian => {
                    let part = if array.itemsize == 8 { DataType::Float32 } else { DataType::Float64 };
                    let parts = items.saturating_mul(2);
                    (list(part, parts).ok_or_else(unknown)?, ColumnShape::Lists(parts, Some(array.itemsize / 2)))
                }
                _ => return Err(unknown()),
            }
        }
        _ => return Err("values of any size".into()),
    })
}
