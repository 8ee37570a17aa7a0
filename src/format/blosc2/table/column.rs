//! The values of a column, read by rows of its leaves.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use crate::account::Account;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::Array;
use crate::format::about::Attributes;
use crate::limits::{Limits, zeroed};
use crate::once::Once;

use super::super::frames::OpenFrame;
use super::batches::{Batches, ChunkForm, Item, item};
use super::leaves::TableLeaves;
use super::nulls::Missing;
use super::rows::{Rows, Touched};
use super::runs::{for_each_row, gather, pieces, total};
use super::schema::{ColumnKind, ColumnSpec, Nulls};
use super::texts::Texts;
use super::utf8::{descending, end_at, utf8};

/// Maximum bytes of the texts of a dictionary.
const DICTIONARY: u64 = 64 << 20;

/// A column, with its leaves open.
pub(super) struct Column {
    pub(super) spec: ColumnSpec,
    pub(super) data: Data,
    /// The marks of values that are not missing.
    marks: Option<Rows>,
    /// The value that stands for a missing one.
    missing: Option<Missing>,
}

/// Where the values of a column are.
pub(super) enum Data {
    /// Elements of this type.
    Fixed(Rows, Array),
    /// Truth values in bytes, of which 1 alone is true.
    Switches(Rows),
    /// Where each text ends, and the bytes of all.
    Utf8(Rows, Rows),
    Batches(Batches),
    Dictionary(Box<TextDictionary>),
}

/// Texts by number.
pub(super) struct TextDictionary {
    codes: Rows,
    values: Batches,
    null: i64,
    texts: Once<Texts>,
}

impl Column {
    /// Opens the leaves of the column that `spec` describes.
    ///
    /// # Errors
    /// Fails if one is missing or is of another kind.
    pub(super) fn open(spec: ColumnSpec, leaves: &TableLeaves) -> Result<Self> {
        let options = &leaves.options;
        let key = |suffix: &str| format!("_cols/{}{suffix}", spec.path);
        let rows = |suffix: &str| Rows::open(leaves.open(&key(suffix))?, options);
        let form = if let ColumnKind::Nested(form) = spec.kind { form } else { ChunkForm::Lists };
        let batches = |suffix: &str| Batches::open(leaves.open(&key(suffix))?, form, options);
        let data = match &spec.kind {
            ColumnKind::Utf8 => {
                let (ends, text) = (rows("")?, rows(".utf8")?);
                if ends.row_len != 8 || text.row_len != 1 {
                    return Err(Error::corrupt("must be numbers of 8 bytes, and bytes", "utf8"));
                }
                Data::Utf8(ends, text)
            }
            ColumnKind::Text | ColumnKind::Bytes | ColumnKind::Nested(_) | ColumnKind::Other(_) => {
                Data::Batches(batches("")?)
            }
            ColumnKind::Dictionary { null, .. } => {
                let (codes, values) = (rows("")?, batches("_dict")?);
                if codes.row_len != 4 {
                    return Err(Error::corrupt("must be numbers of 4 bytes", "dictionary"));
                }
                Data::Dictionary(Box::new(TextDictionary { codes, values, null: *null, texts: Once::new() }))
            }
            ColumnKind::Bool => {
                let (rows, array) = fixed(rows("")?)?;
                if array.descr == "'|b1'" { Data::Fixed(rows, array) } else { Data::Switches(rows) }
            }
            ColumnKind::Timestamp { unit, .. } => {
                let (rows, mut array) = fixed(rows("")?)?;
                if array.descr != "'<i8'" || !["s", "ms", "us", "ns"].contains(&&**unit) {
                    return Err(Error::corrupt(format!("elements {} of the unit {unit:?}", array.descr), "timestamp"));
                }
                array.descr = format!("'<M8[{unit}]'");
                Data::Fixed(rows, array)
            }
            ColumnKind::Fixed | ColumnKind::Arrays(_) => {
                fixed(rows("")?).map(|(rows, array)| Data::Fixed(rows, array))?
            }
        };
        let marks = match spec.nulls {
            Nulls::Mask if leaves.has(&key(".notnull")) => Some(rows(".notnull")?),
            _ => None,
        };
        if marks.as_ref().is_some_and(|marks| marks.row_len != 1) {
            return Err(Error::corrupt("must be bytes", "notnull"));
        }
        let missing = match (&spec.nulls, &data) {
            (Nulls::Value(value), Data::Fixed(_, array)) => {
                Some(Missing::element(value, &array.descr, array.itemsize)?)
            }
            (Nulls::Value(value), Data::Switches(_)) => Some(Missing::element(value, "'|u1'", 1)?),
            (Nulls::Value(value), Data::Utf8(..)) => Some(Missing::text(value)?),
            _ => None,
        };
        Ok(Self { spec, data, marks, missing })
    }

    /// Whether values can be missing.
    pub(super) fn has_nulls(&self) -> bool {
        self.marks.is_some() || self.missing.is_some() || self.spec.nulls == Nulls::Native
    }

    /// The main frame that it is read from.
    fn frame(&self) -> &Arc<OpenFrame> {
        match &self.data {
            Data::Fixed(rows, _) | Data::Switches(rows) | Data::Utf8(rows, _) => &rows.frame,
            Data::Batches(batches) => &batches.frame,
            Data::Dictionary(of) => &of.codes.frame,
        }
    }

    /// Bytes of a value of any length in the middle of `rows`; 0 if all have the same.
    pub(super) fn mean_len(&self, rows: u64) -> u64 {
        let all = match &self.data {
            Data::Utf8(_, text) => text.count(),
            Data::Batches(batches) => batches.frame.decoded.chunks.total(),
            _ => 0,
        };
        all / rows.max(1)
    }

    /// The frames that it is read from.
    pub(super) fn frames(&self) -> impl Iterator<Item = &Arc<OpenFrame>> {
        let other = match &self.data {
            Data::Utf8(_, text) => Some(&text.frame),
            Data::Dictionary(of) => Some(&of.values.frame),
            _ => None,
        };
        std::iter::once(self.frame()).chain(other).chain(self.marks.as_ref().map(|marks| &marks.frame))
    }

    /// Fills `dst` with the rows in `runs`, as elements.
    ///
    /// # Errors
    /// Fails unless the elements have one size.
    pub(super) fn elements(&self, runs: &[Range<u64>], dst: &mut [u8]) -> Result<()> {
        match &self.data {
            Data::Fixed(rows, _) => gather(rows, runs, dst),
            Data::Switches(rows) => {
                gather(rows, runs, dst)?;
                for byte in dst {
                    *byte = (*byte == 1).into();
                }
                Ok(())
            }
            _ => Err(Error::corrupt("values of any size", "column")),
        }
    }

    /// Whether each row in `runs` has a value: 1, or 0 if it is missing.
    ///
    /// # Errors
    /// Fails if that cannot be decoded.
    pub(super) fn not_null(&self, runs: &[Range<u64>], limit: u64) -> Result<Vec<u8>> {
        let count = total(runs);
        if let Some(marks) = &self.marks {
            let mut found = zeroed(count, "notnull")?;
            gather(marks, runs, &mut found)?;
            for byte in &mut found {
                *byte = (*byte != 0).into();
            }
            return Ok(found);
        }
        match (&self.data, &self.missing) {
            (Data::Fixed(rows, _) | Data::Switches(rows), Some(missing)) => {
                let mut found = Vec::with_capacity(to_usize(count, "notnull")?);
                for_each_row(rows, runs, |row| {
                    found.push(u8::from(!missing.is_all(row)));
                    Ok(())
                })?;
                Ok(found)
            }
            (Data::Dictionary(of), _) => {
                of.codes(runs).map(|codes| codes.iter().map(|c| u8::from((*c).is_some())).collect())
            }
            (Data::Batches(batches), _) => {
                let mut found = Vec::with_capacity(to_usize(count, "notnull")?);
                batches.each_value(runs, &mut |value| {
                    found.push((!value.is_null()?).into());
                    Ok(())
                })?;
                Ok(found)
            }
            (Data::Utf8(ends, _), Some(_)) => {
                let mut found = Vec::with_capacity(to_usize(count, "notnull")?);
                for run in pieces(runs, (4 << 20) / self.mean_len(ends.count()).max(1) + 1) {
                    found.extend(self.texts(&[run], limit)?.not_null);
                }
                Ok(found)
            }
            _ => Ok(vec![1; to_usize(count, "notnull")?]),
        }
    }

    /// The rows in `runs` as text or bytes, at most `limit` bytes.
    ///
    /// # Errors
    /// Fails unless they are of that kind.
    pub(super) fn texts(&self, runs: &[Range<u64>], limit: u64) -> Result<Texts> {
        let mut texts = Texts::within(limit, self.account());
        match &self.data {
            Data::Utf8(ends, bytes) => utf8(ends, bytes, runs, &mut texts)?,
            Data::Batches(batches) => batches.each(runs, &mut |document| match item(document)? {
                Item::Null => texts.push(None),
                Item::Bytes(bytes) => texts.push(Some(bytes)),
                Item::Other => Err(Error::corrupt("must be text, bytes, or nothing", "batch")),
            })?,
            Data::Dictionary(of) => {
                let all = of.texts()?;
                let values: Vec<&[u8]> = all.iter().collect();
                for code in of.codes(runs)? {
                    texts.push(code.map(|code| values.get(code as usize).copied().unwrap_or_default()))?;
                }
            }
            Data::Fixed(rows, array) => {
                let is_text = array.descr.contains('U');
                for_each_row(rows, runs, |element| {
                    if is_text {
                        return texts.push_utf32(element, array.descr.starts_with("'>"));
                    }
                    let len = element.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                    texts.push(element.get(..len))
                })?;
            }
            Data::Switches(_) => return Err(Error::corrupt("no text", "column")),
        }
        if self.is_text() {
            texts.check()?;
        }
        if let Some(Missing::Bytes(missing)) = self.missing.as_ref().filter(|_| matches!(self.data, Data::Utf8(..))) {
            texts.not_null = texts.iter().map(|text| u8::from(text != missing)).collect();
        }
        Ok(texts)
    }

    /// Its values, if they are in batches.
    pub(super) fn batches(&self) -> Option<&Batches> {
        if let Data::Batches(batches) = &self.data { Some(batches) } else { None }
    }

    /// The account of the container.
    pub(super) fn account(&self) -> &Account {
        self.frame().frame.chunks.item().memory.account()
    }

    /// Whether its values are text.
    pub(super) fn is_text(&self) -> bool {
        match &self.data {
            Data::Utf8(..) | Data::Dictionary(_) => true,
            Data::Batches(_) => self.spec.kind == ColumnKind::Text,
            Data::Fixed(_, array) => array.descr.contains('U') && !array.descr.starts_with('['),
            Data::Switches(_) => false,
        }
    }

    /// Bytes of the text in `runs`, without decoding it where its ends are known.
    pub(super) fn text_len(&self, runs: &[Range<u64>], limit: u64) -> Result<u64> {
        let Data::Utf8(ends, bytes) = &self.data else {
            return self.texts(runs, limit).map(|texts| to_u64(texts.data.len()));
        };
        let mut touched = Touched::default();
        runs.iter().try_fold(0_u64, |sum, run| {
            let first = end_at(ends, run.start, bytes, &mut touched)?;
            let last = end_at(ends, run.end, bytes, &mut touched)?;
            let len = last.checked_sub(first).ok_or_else(descending)?;
            Limits::check(sum.saturating_add(len), limit, "text")
        })
    }

    /// The dictionary of its texts, if it has one.
    pub(super) fn dictionary(&self) -> Option<&TextDictionary> {
        if let Data::Dictionary(of) = &self.data { Some(of) } else { None }
    }

    /// Attributes for `data.zarr`; `marks` is the name of the array with the marks of values that are not missing.
    pub(super) fn about(&self, marks: Option<String>) -> Attributes {
        let mut about = self.spec.about.clone();
        if let Some(marks) = marks {
            about.insert("notnull".into(), Value::from(marks));
        }
        about
    }
}

impl TextDictionary {
    /// The number of the text of each row in `runs`; each is that of a text.
    pub(super) fn codes(&self, runs: &[Range<u64>]) -> Result<Vec<Option<u32>>> {
        let count = to_u64(self.texts()?.ends.len());
        let mut bytes = zeroed(total(runs).saturating_mul(4), "dictionary")?;
        gather(&self.codes, runs, &mut bytes)?;
        let (codes, _) = bytes.as_chunks::<4>();
        let code = |code: &[u8; 4]| match i32::from_le_bytes(*code) {
            code if i64::from(code) == self.null => Ok(None),
            code => match u32::try_from(code) {
                Ok(code) if u64::from(code) < count => Ok(Some(code)),
                _ => Err(Error::corrupt(format!("text {code} of {count}"), "dictionary")),
            },
        };
        codes.iter().map(code).collect()
    }

    /// Its texts.
    pub(super) fn texts(&self) -> Result<&Texts> {
        self.texts.get(|| {
            let account = self.values.frame.frame.chunks.item().memory.account();
            let mut texts = Texts::within(DICTIONARY, account);
            let count = Limits::check(self.values.count()?, DICTIONARY / 16, "dictionary")?;
            self.values.each(&[Range { start: 0, end: count }], &mut |document| match item(document)? {
                Item::Bytes(text) => texts.push(Some(text)),
                _ => Err(Error::corrupt("must be text", "dictionary")),
            })?;
            texts.check()?;
            Ok(texts)
        })
    }
}

/// `rows` with the type of its elements and the shape of all.
fn fixed(rows: Rows) -> Result<(Rows, Array)> {
    let array = rows.frame.decoded.own_array().ok_or_else(|| Error::corrupt("no element type", "b2nd"))?;
    if array.itemsize == 0 {
        return Err(Error::corrupt("elements without bytes", "typesize"));
    }
    Ok((rows, array))
}
