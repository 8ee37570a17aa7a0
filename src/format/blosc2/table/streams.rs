//! Arrow streams, of which a leaf may have its lists: each is a schema with one column, and a batch of it.
//!
//! Limits: [`MESSAGE`] bytes of a message, and [`DEPTH`] levels of types. Lengths and offsets are checked where values are
//! read.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;

use arrow_ipc::{Buffer, Field, FieldNode, MessageHeader, Precision, RecordBatch, Type, root_as_message};

use crate::bytes::{Cursor, FileOffset, to_u64, to_usize};
use crate::error::{Error, Result};
use crate::limits::Limits;

use super::super::msgpack::Head;
use super::schema::DEPTH;

/// Maximum bytes of a message without its body.
const MESSAGE: u64 = 1 << 20;
/// The field of errors about streams.
const WHAT: &str = "Arrow stream";

/// The values of a field in a batch.
#[derive(Debug)]
pub(super) struct FieldPart<'a> {
    pub(super) len: u64,
    /// A bit for each value that is not missing, unless all are there.
    valid: Option<&'a [u8]>,
    pub(super) data: PartData<'a>,
}

#[derive(Debug)]
pub(super) enum PartData<'a> {
    Bits(&'a [u8]),
    Numbers(Number, usize, &'a [u8]),
    Bytes { ends: Ends<'a>, bytes: &'a [u8], is_text: bool },
    List(Ends<'a>, Box<FieldPart<'a>>),
    Struct(Vec<(Vec<u8>, FieldPart<'a>)>),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Signed,
    Unsigned,
    Float,
}

/// Where each value ends, after where the first begins, and the bytes of such a number.
#[derive(Debug)]
pub(super) struct Ends<'a>(&'a [u8], usize);

fn broken(why: &str) -> Error {
    Error::corrupt(why.to_owned(), WHAT)
}

/// Passes the column of each stream in `bytes` to `each`.
///
/// # Errors
/// Fails if one is broken, or of a kind that is not known; those of `each`.
pub(super) fn each<'a>(bytes: &'a [u8], mut each: impl FnMut(&FieldPart<'a>) -> Result<()>) -> Result<()> {
    let mut cur = Cursor::new(bytes, FileOffset(0));
    while !cur.is_empty() {
        let (schema, _) = message(&mut cur)?.ok_or_else(|| broken("no schema"))?;
        let schema = root_as_message(&schema).map_err(|e| broken(&e.to_string()))?;
        let fields = schema.header_as_schema().and_then(|schema| schema.fields());
        let fields = fields.ok_or_else(|| Error::unknown("a stream without a schema", WHAT))?;
        let field = fields.iter().next().filter(|_| fields.len() == 1).ok_or_else(|| broken("must have one column"))?;
        while let Some((message, body)) = message(&mut cur)? {
            let message = root_as_message(&message).map_err(|e| broken(&e.to_string()))?;
            match message.header_as_record_batch() {
                Some(batch) if batch.compression().is_none() => each(&column(field, &batch, body)?)?,
                Some(_) => return Err(Error::unknown("a compressed batch", WHAT)),
                None => return Err(unknown(message.header_type())),
            }
        }
    }
    Ok(())
}

fn unknown(header: MessageHeader) -> Error {
    Error::unknown(format!("a message of the type {}", header.0), WHAT)
}

/// The next message, and its body; `None` at the end of the stream.
fn message<'a>(cur: &mut Cursor<'a>) -> Result<Option<(Vec<u8>, &'a [u8])>> {
    if cur.is_empty() {
        return Ok(None);
    }
    if cur.u32_le(WHAT)? != u32::MAX {
        return Err(Error::unknown("a stream of before Arrow 0.15", WHAT));
    }
    let len = Limits::check(cur.u32_le(WHAT)?.into(), MESSAGE, WHAT)?;
    if len == 0 {
        return Ok(None);
    }
    let message = cur.take(to_usize(len, WHAT)?, WHAT)?.to_vec();
    let body = root_as_message(&message).map_err(|e| broken(&e.to_string()))?.bodyLength();
    let body = u64::try_from(body).map_err(|_| broken("a negative length"))?;
    let body = cur.take(to_usize(body, WHAT)?, WHAT)?;
    Ok(Some((message, body)))
}

/// The nodes and buffers of a batch that are still to come.
struct BatchRest<'a, N, B> {
    nodes: N,
    buffers: B,
    body: &'a [u8],
}

/// The column `field` in `batch`, of which the buffers are in `body`.
fn column<'a>(field: Field<'_>, batch: &RecordBatch<'_>, body: &'a [u8]) -> Result<FieldPart<'a>> {
    let nodes = batch.nodes().ok_or_else(|| broken("no nodes"))?;
    let buffers = batch.buffers().ok_or_else(|| broken("no buffers"))?;
    let mut rest = BatchRest { nodes: nodes.iter(), buffers: buffers.iter(), body };
    let part = rest.part(field, DEPTH)?;
    if u64::try_from(batch.length()).ok() != Some(part.len) {
        return Err(broken("a column of another length"));
    }
    Ok(part)
}

impl<'a, 'b, N: Iterator<Item = &'b FieldNode>, B: Iterator<Item = &'b Buffer>> BatchRest<'a, N, B> {
    /// The next buffer, which must have `len` bytes at least.
    fn buffer(&mut self, len: u64) -> Result<&'a [u8]> {
        let buffer = self.buffers.next().ok_or_else(|| broken("too few buffers"))?;
        let place = |n: i64| u64::try_from(n).ok().and_then(|n| usize::try_from(n).ok());
        let range = place(buffer.offset()).zip(place(buffer.length()));
        let range = range.and_then(|(start, len)| Some(start..start.checked_add(len)?));
        let bytes =
            range.and_then(|range| self.body.get(range)).ok_or_else(|| broken("a buffer outside of its batch"))?;
        if to_u64(bytes.len()) < len { Err(broken("a buffer is too short")) } else { Ok(bytes) }
    }

    fn ends(&mut self, len: u64, width: u64) -> Result<Ends<'a>> {
        let need = if len == 0 { 0 } else { len.saturating_add(1).saturating_mul(width) };
        Ok(Ends(self.buffer(need)?, to_usize(width, WHAT)?))
    }

    fn part(&mut self, field: Field<'_>, depth: u32) -> Result<FieldPart<'a>> {
        let depth = depth.checked_sub(1).ok_or_else(|| broken("nested too deeply"))?;
        let node = self.nodes.next().ok_or_else(|| broken("too few nodes"))?;
        let len = u64::try_from(node.length()).map_err(|_| broken("a negative length"))?;
        let marks = self.buffer(0)?;
        let valid = (node.null_count() != 0).then_some(marks);
        if valid.is_some_and(|valid| to_u64(valid.len()) < len.div_ceil(8)) {
            return Err(broken("a buffer is too short"));
        }
        let data = match field.type_type() {
            Type::Bool => PartData::Bits(self.buffer(len.div_ceil(8))?),
            Type::Int | Type::FloatingPoint | Type::Timestamp => {
                let (number, width) = number(field)?;
                PartData::Numbers(number, width, self.buffer(len.saturating_mul(to_u64(width)))?)
            }
            of @ (Type::Utf8 | Type::Binary | Type::LargeUtf8 | Type::LargeBinary) => {
                let is_text = matches!(of, Type::Utf8 | Type::LargeUtf8);
                let ends = self.ends(len, if matches!(of, Type::Utf8 | Type::Binary) { 4 } else { 8 })?;
                PartData::Bytes { ends, bytes: self.buffer(0)?, is_text }
            }
            of @ (Type::List | Type::LargeList) => {
                let ends = self.ends(len, if of == Type::List { 4 } else { 8 })?;
                let item = field.children().and_then(|children| children.iter().next());
                let item = item.ok_or_else(|| broken("a list of no type"))?;
                PartData::List(ends, Box::new(self.part(item, depth)?))
            }
            Type::Struct_ => {
                let mut fields = Vec::new();
                for child in field.children().into_iter().flatten() {
                    let part = self.part(child, depth)?;
                    if part.len < len {
                        return Err(broken("a field is too short"));
                    }
                    fields.push((child.name().unwrap_or_default().as_bytes().to_vec(), part));
                }
                PartData::Struct(fields)
            }
            other => return Err(Error::unknown(format!("values of the type {}", other.0), WHAT)),
        };
        Ok(FieldPart { len, valid, data })
    }
}

/// The numbers of `field`, and the bytes of one.
fn number(field: Field<'_>) -> Result<(Number, usize)> {
    if let Some(of) = field.type_as_int() {
        let width = match of.bitWidth() {
            8 => 1,
            16 => 2,
            32 => 4,
            64 => 8,
            other => return Err(Error::unknown(format!("integers of {other} bits"), WHAT)),
        };
        return Ok((if of.is_signed() { Number::Signed } else { Number::Unsigned }, width));
    }
    match field.type_as_floating_point().map(|of| of.precision()) {
        Some(Precision::SINGLE) => Ok((Number::Float, 4)),
        Some(Precision::DOUBLE) => Ok((Number::Float, 8)),
        Some(_) => Err(Error::unknown("floats of 16 bits", WHAT)),
        None => Ok((Number::Signed, 8)),
    }
}

impl<'a> FieldPart<'a> {
    fn is_null(&self, row: u64) -> bool {
        self.valid.is_some_and(|valid| !bit(valid, row))
    }

    /// The value in `row`, which must be one, as `MessagePack` has it.
    ///
    /// # Errors
    /// Fails if it is outside of its buffers.
    pub(super) fn head(&self, row: u64) -> Result<Head<'a>> {
        if self.is_null(row) {
            return Ok(Head::Null);
        }
        Ok(match &self.data {
            PartData::Bits(bits) => Head::Bool(bit(bits, row)),
            PartData::Numbers(number, width, bytes) => {
                let start = to_usize(row.saturating_mul(to_u64(*width)), WHAT)?;
                let bytes =
                    bytes.get(start..start.saturating_add(*width)).ok_or_else(|| broken("a buffer is too short"))?;
                number.head(bytes)
            }
            PartData::Bytes { ends, bytes, is_text } => {
                let range = ends.range(row, to_u64(bytes.len()))?;
                let bytes = bytes.get(to_usize(range.start, WHAT)?..to_usize(range.end, WHAT)?).unwrap_or_default();
                if *is_text { Head::Text(bytes) } else { Head::Binary(bytes) }
            }
            PartData::List(ends, item) => {
                let range = ends.range(row, item.len)?;
                Head::List(range.end.saturating_sub(range.start))
            }
            PartData::Struct(fields) => Head::Map(to_u64(fields.len())),
        })
    }
}

impl Number {
    fn head(self, bytes: &[u8]) -> Head<'static> {
        let fill = if matches!(self, Self::Signed) && bytes.last().is_some_and(|&last| last > 0x7f) { 0xff } else { 0 };
        let mut wide = [fill; 8];
        wide.iter_mut().zip(bytes).for_each(|(wide, &byte)| *wide = byte);
        match (self, bytes) {
            (Self::Signed, _) => Head::Int(i64::from_le_bytes(wide)),
            (Self::Unsigned, _) => Head::Uint(u64::from_le_bytes(wide)),
            (Self::Float, &[a, b, c, d]) => Head::Float(f32::from_le_bytes([a, b, c, d]).into()),
            (Self::Float, _) => Head::Float(f64::from_le_bytes(wide)),
        }
    }
}

impl Ends<'_> {
    /// The places of value `row`, of `len` in all.
    ///
    /// # Errors
    /// Fails if it ends before it begins, or outside.
    pub(super) fn range(&self, row: u64, len: u64) -> Result<Range<u64>> {
        let at = |row: u64| {
            let start = to_usize(row, WHAT).ok()?.checked_mul(self.1)?;
            Some(
                self.0
                    .get(start..start.checked_add(self.1)?)?
                    .iter()
                    .rev()
                    .fold(0_u64, |n, &byte| n << 8 | u64::from(byte)),
            )
        };
        let (start, end) = at(row).zip(at(row.saturating_add(1))).ok_or_else(|| broken("a buffer is too short"))?;
        if start > end || end > len {
            return Err(broken(&format!("a value from {start} to {end} of {len}")));
        }
        Ok(start..end)
    }
}

fn bit(bits: &[u8], row: u64) -> bool {
    let byte = usize::try_from(row / 8).ok().and_then(|byte| bits.get(byte)).copied().unwrap_or(0);
    byte.checked_shr(u32::try_from(row % 8).unwrap_or(0)).unwrap_or(0) & 1 != 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test")]
    use std::fmt::Write;

    use super::*;

    fn stored() -> Vec<u8> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/blosc2/stores/tables/parts.arrows");
        std::fs::read(path).unwrap()
    }

    /// The values of all rows, at most a thousand, as text.
    fn shown(part: &FieldPart<'_>, rows: Range<u64>, out: &mut String) -> Result<()> {
        for row in rows.take(1000) {
            write!(out, "{:?} ", part.head(row)?).unwrap();
            match &part.data {
                _ if part.is_null(row) || out.len() > 10_000 => {}
                PartData::List(ends, item) => shown(item, ends.range(row, item.len)?, out)?,
                PartData::Struct(fields) => {
                    fields.iter().try_for_each(|(_, part)| shown(part, row..row.saturating_add(1), out))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read(bytes: &[u8]) -> Result<Vec<String>> {
        let mut all = Vec::new();
        each(bytes, |part| {
            let mut out = String::new();
            shown(part, 0..part.len, &mut out)?;
            all.push(out);
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn streams_have_the_values_of_their_columns() {
        let parts = "List(2) Map(3) Int(-1) List(2) Float(0.5) Null Text([97]) Null Null List(0) \
                     List(1) Map(3) Int(7) Null Text([]) ";
        assert_eq!(read(&stored()).unwrap(), [parts, "Bool(true) Null Bool(false) Bool(true) "]);
    }

    #[test]
    fn a_stream_with_a_changed_byte_is_read_or_refused() {
        let bytes = stored();
        for at in 0..bytes.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                drop(read(&changed));
            }
            drop(read(&bytes[..at]));
        }
    }
}
