//! Values of any length: each chunk of the leaf is a batch, of lists of `MessagePack` or of Arrow streams one after
//! another, or a value.
//!
//! Limits: a batch of [`BATCH`] bytes; of all batches only the number of values is kept.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::Arc;

use crate::account::{Account, decode_budget};
use crate::bytes::{Cursor, FileOffset, to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::Options;
use crate::limits::{Charge, Limits};
use crate::once::Once;
use crate::source::Source;
use crate::wanted;

use super::super::frames::OpenFrame;
use super::super::msgpack::{self, Head};
use super::rows::decoded;
use super::streams;

/// Maximum decoded bytes of a batch.
const BATCH: u64 = 256 << 20;
/// The field of errors about the values.
const WHAT: &str = "batch";

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// No value.
    Null,
    /// Text or bytes.
    Bytes(&'a [u8]),
    /// Any other value.
    Other,
}

/// The values of a leaf.
pub(super) struct Batches {
    pub(super) frame: Arc<OpenFrame>,
    source: Arc<Source>,
    account: Account,
    form: ChunkForm,
    /// The values up to the end of each batch.
    ends: Once<(Vec<u64>, Charge)>,
}

/// The kind of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkForm {
    /// Lists of values.
    Lists,
    /// A value.
    Single,
    /// Arrow streams.
    Streams,
}

/// A place in the values of a batch, from which the ones after it are found.
struct ValuePlace<'a> {
    rest: Cursor<'a>,
    /// The number of the next value, and how many are left in its list.
    number: u64,
    left: u64,
}

impl Batches {
    /// The values in `frame`.
    ///
    /// # Errors
    /// Fails if it is an array.
    pub(super) fn open(frame: Arc<OpenFrame>, form: ChunkForm, options: &Options) -> Result<Self> {
        if frame.frame.array.clone()?.is_some() {
            return Err(Error::corrupt("an array, not batches", WHAT));
        }
        let source = decoded(&frame, options)?;
        Ok(Self { frame, source, account: options.account.clone(), form, ends: Once::new() })
    }

    fn bytes(&self, batch: u64) -> Result<(Vec<u8>, Charge)> {
        let range = self.frame.decoded.chunks.range(batch)?;
        let len = Limits::check(range.end.saturating_sub(range.start), BATCH, WHAT)?;
        decode_budget::charge(len)?;
        let charge = self.account.charge(len, WHAT)?;
        Ok((self.source.get(FileOffset(range.start), len, WHAT)?, charge))
    }

    fn ends(&self) -> Result<&[u64]> {
        let count = || {
            let batches = self.frame.decoded.chunks.count();
            let charge = self.account.charge(batches.saturating_mul(to_u64(size_of::<u64>())), WHAT)?;
            let mut ends = Vec::with_capacity(to_usize(batches, WHAT)?);
            let mut sum = 0_u64;
            for batch in 0..batches {
                wanted::check()?;
                sum = sum.saturating_add(self.count_in(batch)?);
                ends.push(sum);
            }
            Ok((ends, charge))
        };
        self.ends.get(count).map(|(ends, _)| &**ends)
    }

    /// The number of values in a batch.
    fn count_in(&self, batch: u64) -> Result<u64> {
        if self.form == ChunkForm::Single {
            return Ok(1);
        }
        let (bytes, _charge) = self.bytes(batch)?;
        let mut sum = 0_u64;
        if self.form == ChunkForm::Streams {
            streams::each(&bytes, |part| {
                sum = sum.saturating_add(part.len);
                Ok(())
            })?;
            return Ok(sum);
        }
        let mut cur = Cursor::new(&bytes, FileOffset(0));
        while !cur.is_empty() {
            let len = list(&mut cur)?;
            (0..len).try_for_each(|_| msgpack::skip(&mut cur, WHAT))?;
            sum = sum.saturating_add(len);
        }
        Ok(sum)
    }

    /// The number of values.
    pub(super) fn count(&self) -> Result<u64> {
        Ok(self.ends()?.last().copied().unwrap_or(0))
    }

    /// Passes the bytes of each batch that has values with the numbers in `runs`, which ascend, and their numbers there, to
    /// `each`.
    fn each_batch(&self, runs: &[Range<u64>], mut each: impl FnMut(&[u8], &[Range<u64>]) -> Result<()>) -> Result<()> {
        let ends = self.ends()?;
        let mut runs = runs.iter().filter(|run| !run.is_empty()).cloned().peekable();
        while let Some(number) = runs.peek().map(|run| run.start) {
            let batch = ends.partition_point(|&end| end <= number);
            let first = batch.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
            let Some(&end) = ends.get(batch) else {
                let why = format!("value {number} is needed, there are {first}");
                return Err(Error::corrupt(why, WHAT));
            };
            let mut here = Vec::new();
            while let Some(run) = runs.next_if(|run| run.end <= end) {
                here.push(run.start.saturating_sub(first)..run.end.saturating_sub(first));
            }
            if let Some(run) = runs.peek_mut().filter(|run| run.start < end) {
                here.push(run.start.saturating_sub(first)..end.saturating_sub(first));
                run.start = end;
            }
            let (bytes, _charge) = self.bytes(to_u64(batch))?;
            each(&bytes, &here)?;
        }
        Ok(())
    }

    /// Passes the documents of the values with the numbers in `runs`, which ascend, to `each`.
    ///
    /// # Errors
    /// Fails if they are not documents, or fewer; those of `each`.
    pub(super) fn each(&self, runs: &[Range<u64>], each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let left = match self.form {
            ChunkForm::Lists => 0,
            ChunkForm::Single => 1,
            ChunkForm::Streams => return Err(Error::corrupt("no documents", WHAT)),
        };
        self.each_batch(runs, |bytes, numbers| {
            let mut place = ValuePlace { rest: Cursor::new(bytes, FileOffset(0)), number: 0, left };
            numbers.iter().cloned().flatten().try_for_each(|number| each(place.document(number)?))
        })
    }

    /// Passes the same values as rows of Arrow.
    ///
    /// # Errors
    /// As [`Batches::each`].
    fn each_row(
        &self,
        runs: &[Range<u64>],
        each: &mut dyn FnMut(&streams::FieldPart<'_>, u64) -> Result<()>,
    ) -> Result<()> {
        self.each_batch(runs, |bytes, numbers| {
            let (mut first, mut numbers) = (0_u64, numbers.iter().cloned().flatten().peekable());
            streams::each(bytes, |part| {
                let end = first.saturating_add(part.len);
                while let Some(number) = numbers.next_if(|&number| number < end) {
                    each(part, number.saturating_sub(first))?;
                }
                first = end;
                Ok(())
            })
        })
    }

    /// Passes the same values in either form.
    ///
    /// # Errors
    /// As [`Batches::each`].
    pub(super) fn each_value(&self, runs: &[Range<u64>], each: &mut dyn FnMut(Value<'_>) -> Result<()>) -> Result<()> {
        match self.form {
            ChunkForm::Streams => self.each_row(runs, &mut |part, row| each(Value::Row(part, row))),
            _ => self.each(runs, &mut |document| each(Value::Document(document))),
        }
    }
}

/// A value in one of two forms.
pub(super) enum Value<'a> {
    Document(&'a [u8]),
    Row(&'a streams::FieldPart<'a>, u64),
}

impl Value<'_> {
    /// Whether it is missing.
    ///
    /// # Errors
    /// Fails if it is broken.
    pub(super) fn is_null(&self) -> Result<bool> {
        match self {
            Value::Document(document) => Ok(item(document)? == Item::Null),
            Value::Row(part, row) => Ok(part.head(*row)? == Head::Null),
        }
    }
}

impl<'a> ValuePlace<'a> {
    /// The document of value `number`, which is not before this place; goes past it.
    fn document(&mut self, number: u64) -> Result<&'a [u8]> {
        loop {
            while self.left == 0 {
                self.left = list(&mut self.rest)?;
            }
            self.left = self.left.saturating_sub(1);
            self.number = self.number.saturating_add(1);
            let document = self.rest.rest();
            msgpack::skip(&mut self.rest, WHAT)?;
            if self.number > number {
                return Ok(document.get(..document.len().saturating_sub(self.rest.len())).unwrap_or_default());
            }
        }
    }
}

/// The length of the list that begins here.
fn list(cur: &mut Cursor<'_>) -> Result<u64> {
    match msgpack::head(cur, WHAT)? {
        Head::List(len) => Ok(len),
        _ => Err(Error::corrupt("must be a list", WHAT)),
    }
}

/// The value that is all of `document`.
///
/// # Errors
/// Fails if it is truncated.
pub(super) fn item(document: &[u8]) -> Result<Item<'_>> {
    Ok(match msgpack::head(&mut Cursor::new(document, FileOffset(0)), WHAT)? {
        Head::Null => Item::Null,
        Head::Text(bytes) | Head::Binary(bytes) => Item::Bytes(bytes),
        _ => Item::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_any_kind_is_passed_or_skipped() {
        let rows: [&[u8]; 12] = [
            b"\xc0",
            b"\xa2ab",
            b"\xc4\x02ab",
            b"\x92\x01\x91\xa1x",
            b"\x81\xa1k\x93\x01\x02\x03",
            b"\xcb\0\0\0\0\0\0\0\0",
            b"\xd4\x05a",
            b"\xd8\x05aaaaaaaaaaaaaaaa",
            b"\xc7\x01\x05a",
            b"\xcd\0\x01",
            b"\xd9\x01a",
            b"\xff",
        ];
        let all = rows.concat();
        let mut cur = Cursor::new(&all, FileOffset(0));
        rows.iter().try_for_each(|_| msgpack::skip(&mut cur, WHAT)).unwrap();
        assert!(cur.is_empty());
        for row in rows {
            let want = match row.first() {
                Some(0xc0) => Item::Null,
                Some(0xa2 | 0xc4) => Item::Bytes(b"ab"),
                Some(0xd9) => Item::Bytes(b"a"),
                _ => Item::Other,
            };
            assert_eq!(item(row).unwrap(), want);
            for len in 0..row.len() {
                assert!(msgpack::skip(&mut Cursor::new(row.get(..len).unwrap(), FileOffset(0)), WHAT).is_err());
            }
        }
    }

    #[test]
    fn nesting_and_lengths_that_lie_are_errors() {
        let deep = [0x91].repeat(1 << 20);
        assert!(msgpack::skip(&mut Cursor::new(&deep, FileOffset(0)), WHAT).is_err());
        assert!(msgpack::skip(&mut Cursor::new(b"\xdf\xff\xff\xff\xff\x01", FileOffset(0)), WHAT).is_err());
        assert!(list(&mut Cursor::new(b"\xa1x", FileOffset(0))).is_err());
    }
}
