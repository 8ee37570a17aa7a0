//! Values of a nested type, collected from `MessagePack` into the buffers of Arrow.
//!
//! Limits: what is collected, [`MARK`] bytes for each value at least, is counted and charged as it grows: neither the lengths of
//! lists nor the fields of structures that are missing cost more. Types bound the depth.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field};

use crate::bytes::{Cursor, to_u64};
use crate::error::{Error, Result};

use super::super::super::attributes::without_tuples;
use super::super::super::json;
use super::super::super::msgpack::{self, Head};
use super::super::room::Room;
use super::super::streams::{FieldPart, Number, PartData};
use super::buffers::{Buffers, set_bits, set_ends};
use super::message;
use super::nested::is_json;

/// The field of errors about the values.
const WHAT: &str = "batch";
/// Bytes that are counted for a mark: one, and the work for a value.
const MARK: u64 = 8;
/// How much memory a byte of a document may take while it becomes JSON.
const PER_BYTE: u64 = 80;

/// Values of one type.
#[derive(Debug)]
pub(super) struct Values {
    /// Whether each is not missing.
    not_null: Vec<u8>,
    nulls: u64,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Switches(Vec<u8>),
    Numbers { kind: Number, width: usize, bytes: Vec<u8> },
    Bytes { form: ValuesForm, ends: Vec<usize>, data: Vec<u8> },
    List { ends: Vec<usize>, item: Box<Values> },
    Struct { numbers: Arc<HashMap<Vec<u8>, usize>>, fields: Vec<Values> },
}

/// The kind of values of any length, and whether their ends take 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValuesForm {
    Text(bool),
    Binary,
    Json,
}

pub(super) fn expected(what: &str) -> Error {
    Error::corrupt(format!("must be {what}"), WHAT)
}

impl Values {
    /// No values of the type of `field`.
    pub(super) fn new(field: &Field) -> Self {
        let numbers = |kind, width| Data::Numbers { kind, width, bytes: Vec::new() };
        let bytes = |form| Data::Bytes { form, ends: Vec::new(), data: Vec::new() };
        let data = match field.data_type() {
            DataType::Boolean => Data::Switches(Vec::new()),
            DataType::Float32 => numbers(Number::Float, 4),
            DataType::Float64 => numbers(Number::Float, 8),
            DataType::List(item) => Data::List { ends: Vec::new(), item: Box::new(Self::new(item)) },
            DataType::Struct(fields) => {
                let numbers = fields.iter().enumerate().map(|(i, field)| (field.name().as_bytes().to_vec(), i));
                let numbers = Arc::new(numbers.collect());
                Data::Struct { numbers, fields: fields.iter().map(|field| Self::new(field)).collect() }
            }
            DataType::Utf8 if is_json(field) => bytes(ValuesForm::Json),
            DataType::Utf8 => bytes(ValuesForm::Text(false)),
            DataType::LargeUtf8 => bytes(ValuesForm::Text(true)),
            DataType::LargeBinary => bytes(ValuesForm::Binary),
            other if other.is_unsigned_integer() => numbers(Number::Unsigned, other.primitive_width().unwrap_or(8)),
            other => numbers(Number::Signed, other.primitive_width().unwrap_or(8)),
        };
        Self { not_null: Vec::new(), nulls: 0, data }
    }

    /// Bytes that a value takes at least.
    pub(super) fn least(&self) -> u64 {
        match &self.data {
            Data::Switches(_) => 1,
            Data::Numbers { width, .. } => to_u64(*width),
            Data::Bytes { .. } => 8,
            Data::List { .. } => 4,
            Data::Struct { fields, .. } => fields.iter().fold(1, |sum, field| field.least().saturating_add(sum)),
        }
    }

    /// Adds the value that begins at `cur`.
    ///
    /// # Errors
    /// Fails if it is of another type; as [`Room::take`].
    pub(super) fn push(&mut self, cur: &mut Cursor<'_>, room: &mut Room) -> Result<()> {
        if let Data::Bytes { form: ValuesForm::Json, ends, data } = &mut self.data {
            let is_null = push_json(cur, ends, data, room)?;
            return self.mark(!is_null, room);
        }
        let head = msgpack::head(cur, WHAT)?;
        if head == Head::Null {
            return self.push_null(room);
        }
        self.mark(true, room)?;
        match &mut self.data {
            Data::List { ends, item } => {
                let Head::List(len) = head else { return Err(expected("a list")) };
                for _ in 0..len {
                    item.push(cur, room)?;
                }
                push_end(ends, item, room)
            }
            Data::Struct { numbers, fields } => {
                let Head::Map(len) = head else { return Err(expected("a structure")) };
                let mut found = vec![None; fields.len()];
                for _ in 0..len {
                    let name = msgpack::head(cur, WHAT)?;
                    let Head::Text(name) = name else { return Err(expected("the name of a field")) };
                    let place = numbers.get(name).and_then(|&number| found.get_mut(number));
                    if let Some(place) = place {
                        *place = Some(cur.clone());
                    }
                    msgpack::skip(cur, WHAT)?;
                }
                fields.iter_mut().zip(found).try_for_each(|(field, found)| match found {
                    Some(mut at) => field.push(&mut at, room),
                    None => field.push_null(room),
                })
            }
            data => data.push_scalar(head, room),
        }
    }

    /// Adds the value in `row` of `part`.
    ///
    /// # Errors
    /// As [`Values::push`].
    pub(super) fn push_row(&mut self, part: &FieldPart<'_>, row: u64, room: &mut Room) -> Result<()> {
        let head = part.head(row)?;
        if head == Head::Null {
            return self.push_null(room);
        }
        self.mark(true, room)?;
        match (&mut self.data, &part.data) {
            (Data::List { ends, item }, PartData::List(places, items)) => {
                places.range(row, items.len)?.try_for_each(|row| item.push_row(items, row, room))?;
                push_end(ends, item, room)
            }
            (Data::Struct { numbers, fields }, PartData::Struct(parts)) => {
                let mut found = vec![None; fields.len()];
                for (name, part) in parts {
                    let place = numbers.get(name).and_then(|&number| found.get_mut(number));
                    if let Some(place) = place {
                        *place = Some(part);
                    }
                }
                fields.iter_mut().zip(found).try_for_each(|(field, found)| match found {
                    Some(part) => field.push_row(part, row, room),
                    None => field.push_null(room),
                })
            }
            (data, _) => data.push_scalar(head, room),
        }
    }

    fn mark(&mut self, is: bool, room: &mut Room) -> Result<()> {
        room.take(MARK, WHAT)?;
        self.nulls = self.nulls.saturating_add(u64::from(!is));
        self.not_null.push(is.into());
        Ok(())
    }

    /// Adds a missing value.
    fn push_null(&mut self, room: &mut Room) -> Result<()> {
        self.mark(false, room)?;
        match &mut self.data {
            Data::Switches(bytes) => bytes.push(0),
            Data::Numbers { width, bytes, .. } => {
                room.take(to_u64(*width), WHAT)?;
                bytes.resize(bytes.len().saturating_add(*width), 0);
            }
            Data::Bytes { ends, data, .. } => push_bytes(&[], ends, data, room)?,
            Data::List { ends, item } => push_end(ends, item, room)?,
            Data::Struct { fields, .. } => fields.iter_mut().try_for_each(|field| field.push_null(room))?,
        }
        Ok(())
    }

    fn rows(&self) -> u64 {
        to_u64(self.not_null.len())
    }

    /// Bytes of the marks of values that are not missing: none if all are there.
    fn valid_len(&self) -> u64 {
        if self.nulls == 0 { 0 } else { self.rows().div_ceil(8) }
    }

    /// Adds the nodes and buffers of these values and of those in them to `to`.
    pub(super) fn describe(&self, to: &mut message::Column) {
        to.0.push((self.rows(), self.nulls));
        to.1.push(self.valid_len());
        let ends_len = |ends: &[usize], len| to_u64(ends.len()).saturating_add(1).saturating_mul(len);
        match &self.data {
            Data::Switches(bytes) => to.1.push(to_u64(bytes.len()).div_ceil(8)),
            Data::Numbers { bytes, .. } => to.1.push(to_u64(bytes.len())),
            Data::Bytes { form, ends, data } => {
                to.1.extend([ends_len(ends, if form.is_large() { 8 } else { 4 }), to_u64(data.len())]);
            }
            Data::List { ends, item } => {
                to.1.push(ends_len(ends, 4));
                item.describe(to);
            }
            Data::Struct { fields, .. } => fields.iter().for_each(|field| field.describe(to)),
        }
    }

    /// Writes the same buffers to `dst`.
    ///
    /// # Errors
    /// Fails if `dst` is too short.
    pub(super) fn write(&self, dst: &mut Buffers<'_>) -> Result<()> {
        set_bits(dst.take(self.valid_len())?, &self.not_null);
        match &self.data {
            Data::Switches(bytes) => set_bits(dst.take(to_u64(bytes.len()).div_ceil(8))?, bytes),
            Data::Numbers { bytes, .. } => dst.take(to_u64(bytes.len()))?.copy_from_slice(bytes),
            Data::Bytes { form, ends, data } => {
                write_ends(dst, ends, form.is_large())?;
                dst.take(to_u64(data.len()))?.copy_from_slice(data);
            }
            Data::List { ends, item } => {
                write_ends(dst, ends, false)?;
                item.write(dst)?;
            }
            Data::Struct { fields, .. } => fields.iter().try_for_each(|field| field.write(dst))?,
        }
        Ok(())
    }
}

impl Data {
    /// Adds a value that is neither a list nor a structure.
    fn push_scalar(&mut self, head: Head<'_>, room: &mut Room) -> Result<()> {
        match self {
            // Where values can be missing, python-blosc2 stores numbers.
            Self::Switches(bytes) => match head {
                Head::Bool(is) => bytes.push(is.into()),
                Head::Uint(n @ 0..=1) => bytes.push((n == 1).into()),
                _ => return Err(expected("true or false")),
            },
            Self::Numbers { kind, width, bytes } => {
                room.take(to_u64(*width), WHAT)?;
                let number = kind.to_bytes(head, *width)?;
                bytes.extend(number.get(..*width).unwrap_or_default());
            }
            Self::Bytes { form, ends, data } => {
                let (Head::Text(value) | Head::Binary(value)) = head else { return Err(expected("text or bytes")) };
                if *form == ValuesForm::Json {
                    return Err(Error::unknown("an object in an Arrow stream", WHAT));
                }
                if matches!(form, ValuesForm::Text(_)) && std::str::from_utf8(value).is_err() {
                    return Err(Error::corrupt("not UTF-8", "text"));
                }
                push_bytes(value, ends, data, room)?;
            }
            Self::List { .. } => return Err(expected("a list")),
            Self::Struct { .. } => return Err(expected("a structure")),
        }
        Ok(())
    }
}

fn push_end(ends: &mut Vec<usize>, item: &Values, room: &mut Room) -> Result<()> {
    room.take(8, WHAT)?;
    ends.push(item.not_null.len());
    Ok(())
}

impl ValuesForm {
    fn is_large(self) -> bool {
        matches!(self, Self::Text(true) | Self::Binary)
    }
}

fn push_bytes(value: &[u8], ends: &mut Vec<usize>, data: &mut Vec<u8>, room: &mut Room) -> Result<()> {
    room.take(to_u64(value.len()).saturating_add(8), WHAT)?;
    data.extend_from_slice(value);
    ends.push(data.len());
    Ok(())
}

/// Adds the value that begins at `cur` as JSON; returns whether it is missing.
fn push_json(cur: &mut Cursor<'_>, ends: &mut Vec<usize>, data: &mut Vec<u8>, room: &mut Room) -> Result<bool> {
    let all = cur.rest();
    msgpack::skip(cur, WHAT)?;
    let document = all.get(..all.len().saturating_sub(cur.len())).unwrap_or_default();
    let _reading = room.account.charge(to_u64(document.len()).saturating_mul(PER_BYTE), WHAT)?;
    let value = json::to_json(document).ok_or_else(|| Error::corrupt("nested too deeply", WHAT))?;
    let text = if value.is_null() { String::new() } else { without_tuples(value).to_string() };
    push_bytes(text.as_bytes(), ends, data, room)?;
    Ok(text.is_empty())
}

fn write_ends(dst: &mut Buffers<'_>, ends: &[usize], is_large: bool) -> Result<()> {
    let len = if is_large { 8 } else { 4 };
    set_ends(dst.take(to_u64(ends.len()).saturating_add(1).saturating_mul(len))?, ends, is_large);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::account::Account;
    use crate::bytes::FileOffset;
    use crate::error::Kind;

    use super::*;

    fn room(limit: u64) -> Room {
        Room::within(limit, &Account::new(256 << 20, 0))
    }

    fn push(values: &mut Values, document: &[u8], room: &mut Room) -> Result<()> {
        values.push(&mut Cursor::new(document, FileOffset(0)), room)
    }

    fn list_of(item: DataType) -> Field {
        Field::new("a", DataType::new_list(item, true), true)
    }

    #[test]
    fn buffers_are_those_of_arrow() {
        let point = DataType::Struct(
            [Field::new("x", DataType::Int16, true), Field::new("b", DataType::Boolean, true)].to_vec().into(),
        );
        let (mut values, mut room) = (Values::new(&list_of(point)), room(1000));
        // Fields come in any order, and are missing, or not known.
        for document in [&b"\x92\x83\xa1b\xc3\xa1x\xfe\xa1y\x01\x80"[..], b"\xc0", b"\x91\x81\xa1x\xcd\x01\x02"] {
            push(&mut values, document, &mut room).unwrap();
        }
        let mut described = message::Column::default();
        values.describe(&mut described);
        assert_eq!(described, (vec![(3, 1), (3, 0), (3, 1), (3, 2)], vec![1, 16, 0, 1, 6, 1, 1]));
        let mut bytes = vec![0xff; 6 * 64];
        values.write(&mut Buffers(&mut bytes)).unwrap();
        let buffers: Vec<_> =
            bytes.chunks(64).map(|buffer| buffer.iter().take(16).copied().collect::<Vec<_>>()).collect();
        let padded = |bytes: &[u8]| [bytes, &[0; 16]].concat().into_iter().take(16).collect::<Vec<_>>();
        let want = [&[5][..], &[0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3], &[5], &[0xfe, 0xff, 0, 0, 2, 1], &[1], &[1]];
        assert_eq!(buffers, want.map(padded));
        bytes.truncate(5 * 64);
        assert!(values.write(&mut Buffers(&mut bytes)).is_err());
    }

    #[test]
    fn what_is_missing_is_counted_too() {
        let fields = (0..1000).map(|i| Field::new(i.to_string(), DataType::Float64, true)).collect::<Vec<_>>();
        let mut values = Values::new(&list_of(DataType::Struct(fields.into())));
        // A thousand bytes, each a structure of a thousand fields.
        let document = [&b"\xdc\x03\xe8"[..], &[0xc0; 1000]].concat();
        let mut room = room(1 << 20);
        let error = push(&mut values, &document, &mut room).unwrap_err();
        assert!(matches!(error.kind(), Kind::TooLarge { .. }) && room.used < 2 << 20, "{error}");
    }
}
