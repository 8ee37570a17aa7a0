//! Values of any length: each chunk of the leaf is a batch, lists of `MessagePack` one after another.
//!
//! Limits: a batch of [`BATCH`] bytes; of all batches only the number of values is kept.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::Arc;

use rmp::Marker;

use crate::account::{Account, decode_budget};
use crate::bytes::{Cursor, FileOffset, to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::Options;
use crate::limits::{Charge, Limits};
use crate::once::Once;
use crate::source::Source;
use crate::wanted;

use super::super::frames::OpenFrame;
use super::rows::decoded;

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
    /// The document of any other value.
    Other(&'a [u8]),
}

/// The values of a leaf.
pub(super) struct Batches {
    pub(super) frame: Arc<OpenFrame>,
    source: Arc<Source>,
    account: Account,
    /// The values up to the end of each batch.
    ends: Once<(Vec<u64>, Charge)>,
}

/// A place in the values, from which the ones after it are found.
#[derive(Default)]
struct Place {
    /// The batch, and its bytes.
    batch: Option<u64>,
    bytes: Vec<u8>,
    _charge: Option<Charge>,
    /// The byte at which the next value begins, its number, and how many are left in its list.
    at: usize,
    number: u64,
    left: u64,
}

impl Batches {
    pub(super) fn open(frame: Arc<OpenFrame>, options: &Options) -> Result<Self> {
        if frame.frame.array.clone()?.is_some() {
            return Err(Error::corrupt("an array, not batches", WHAT));
        }
        let source = decoded(&frame, options)?;
        Ok(Self { frame, source, account: options.account.clone(), ends: Once::new() })
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
                let (bytes, _charge) = self.bytes(batch)?;
                let mut cur = Cursor::new(&bytes, FileOffset(0));
                while !cur.is_empty() {
                    let len = list(&mut cur)?;
                    (0..len).try_for_each(|_| skip(&mut cur))?;
                    sum = sum.saturating_add(len);
                }
                ends.push(sum);
            }
            Ok((ends, charge))
        };
        self.ends.get(count).map(|(ends, _)| &**ends)
    }

    /// The number of values.
    pub(super) fn count(&self) -> Result<u64> {
        Ok(self.ends()?.last().copied().unwrap_or(0))
    }

    /// Passes the values with the numbers in `runs`, which ascend, to `each`.
    pub(super) fn each(&self, runs: &[Range<u64>], each: &mut dyn FnMut(Item<'_>) -> Result<()>) -> Result<()> {
        let ends = self.ends()?;
        let mut place = Place::default();
        for number in runs.iter().cloned().flatten() {
            let batch = to_u64(ends.partition_point(|&end| end <= number));
            let first = |i: u64| to_usize(i, WHAT).ok().and_then(|i| ends.get(i.checked_sub(1)?)).copied().unwrap_or(0);
            if to_usize(batch, WHAT)? >= ends.len() {
                let why = format!("value {number} is needed, there are {}", first(batch));
                return Err(Error::corrupt(why, WHAT));
            }
            if place.batch != Some(batch) {
                let (bytes, charge) = self.bytes(batch)?;
                let (batch, number) = (Some(batch), first(batch));
                place = Place { batch, bytes, _charge: Some(charge), at: 0, number, left: 0 };
            }
            place.value(number, each)?;
        }
        Ok(())
    }
}

impl Place {
    /// Passes value `number`, which is in this batch and not before this place, to `each`, and goes past it.
    fn value(&mut self, number: u64, each: &mut dyn FnMut(Item<'_>) -> Result<()>) -> Result<()> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let mut cur = Cursor::new(rest, FileOffset(0));
        loop {
            while self.left == 0 {
                self.left = list(&mut cur)?;
            }
            self.left = self.left.saturating_sub(1);
            self.number = self.number.saturating_add(1);
            if self.number > number {
                break;
            }
            skip(&mut cur)?;
        }
        each(item(&mut cur)?)?;
        self.at = self.at.saturating_add(rest.len().saturating_sub(cur.len()));
        Ok(())
    }
}

fn big_endian(cur: &mut Cursor<'_>, len: usize) -> Result<u64> {
    Ok(cur.take(len, WHAT)?.iter().fold(0, |n, &byte| n << 8 | u64::from(byte)))
}

/// The length of the list that begins here.
fn list(cur: &mut Cursor<'_>) -> Result<u64> {
    match Marker::from_u8(cur.u8(WHAT)?) {
        Marker::FixArray(len) => Ok(len.into()),
        Marker::Array16 => big_endian(cur, 2),
        Marker::Array32 => big_endian(cur, 4),
        other => Err(Error::corrupt(format!("must be a list, is {other:?}"), WHAT)),
    }
}

/// The value that begins here; goes past it.
fn item<'a>(cur: &mut Cursor<'a>) -> Result<Item<'a>> {
    let all = cur.rest();
    let marker = Marker::from_u8(cur.u8(WHAT)?);
    let len = match marker {
        Marker::Null => return Ok(Item::Null),
        Marker::FixStr(len) => len.into(),
        Marker::Str8 | Marker::Bin8 => big_endian(cur, 1)?,
        Marker::Str16 | Marker::Bin16 => big_endian(cur, 2)?,
        Marker::Str32 | Marker::Bin32 => big_endian(cur, 4)?,
        _ => {
            *cur = Cursor::new(all, FileOffset(0));
            skip(cur)?;
            let len = all.len().saturating_sub(cur.len());
            return Ok(Item::Other(all.get(..len).unwrap_or_default()));
        }
    };
    Ok(Item::Bytes(cur.take(to_usize(len, WHAT)?, WHAT)?))
}

/// Goes past the value that begins here.
fn skip(cur: &mut Cursor<'_>) -> Result<()> {
    // The values that are still to come: without recursion, nesting is no danger.
    let mut open = 1_u64;
    while let Some(rest) = open.checked_sub(1) {
        open = rest;
        let (bytes, values) = match Marker::from_u8(cur.u8(WHAT)?) {
            Marker::Null | Marker::False | Marker::True | Marker::FixPos(_) | Marker::FixNeg(_) => (0, 0),
            Marker::U8 | Marker::I8 => (1, 0),
            Marker::U16 | Marker::I16 | Marker::FixExt1 => (2, 0),
            Marker::FixExt2 => (3, 0),
            Marker::U32 | Marker::I32 | Marker::F32 => (4, 0),
            Marker::FixExt4 => (5, 0),
            Marker::U64 | Marker::I64 | Marker::F64 => (8, 0),
            Marker::FixExt8 => (9, 0),
            Marker::FixExt16 => (17, 0),
            Marker::FixStr(len) => (len.into(), 0),
            Marker::Str8 | Marker::Bin8 => (big_endian(cur, 1)?, 0),
            Marker::Str16 | Marker::Bin16 => (big_endian(cur, 2)?, 0),
            Marker::Str32 | Marker::Bin32 => (big_endian(cur, 4)?, 0),
            Marker::Ext8 => (big_endian(cur, 1)?.saturating_add(1), 0),
            Marker::Ext16 => (big_endian(cur, 2)?.saturating_add(1), 0),
            Marker::Ext32 => (big_endian(cur, 4)?.saturating_add(1), 0),
            Marker::FixArray(len) => (0, len.into()),
            Marker::Array16 => (0, big_endian(cur, 2)?),
            Marker::Array32 => (0, big_endian(cur, 4)?),
            Marker::FixMap(len) => (0, u64::from(len).saturating_mul(2)),
            Marker::Map16 => (0, big_endian(cur, 2)?.saturating_mul(2)),
            Marker::Map32 => (0, big_endian(cur, 4)?.saturating_mul(2)),
            Marker::Reserved => return Err(Error::corrupt("a reserved marker", WHAT)),
        };
        cur.take(to_usize(bytes, WHAT)?, WHAT)?;
        open = open.saturating_add(values);
    }
    Ok(())
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
        rows.iter().try_for_each(|_| skip(&mut cur)).unwrap();
        assert!(cur.is_empty());
        for row in rows {
            let want = match row.first() {
                Some(0xc0) => Item::Null,
                Some(0xa2 | 0xc4) => Item::Bytes(b"ab"),
                Some(0xd9) => Item::Bytes(b"a"),
                _ => Item::Other(row),
            };
            assert_eq!(item(&mut Cursor::new(row, FileOffset(0))).unwrap(), want);
            for len in 0..row.len() {
                assert!(skip(&mut Cursor::new(row.get(..len).unwrap(), FileOffset(0))).is_err());
            }
        }
    }

    #[test]
    fn nesting_and_lengths_that_lie_are_errors() {
        let deep = [0x91].repeat(1 << 20);
        assert!(skip(&mut Cursor::new(&deep, FileOffset(0))).is_err());
        assert!(skip(&mut Cursor::new(b"\xdf\xff\xff\xff\xff\x01", FileOffset(0))).is_err());
        assert!(list(&mut Cursor::new(b"\xa1x", FileOffset(0))).is_err());
    }
}
