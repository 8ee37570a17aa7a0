//! A pull parser for the CBOR of a manifest, which enforces the rules of the dialect.
//!
//! Reference: sections 2 (lenient, dialects 0.1 to 1.2) and 6.3 (strict, dialect 2).
//!
//! Limits: depth 64, or 32 if strict; a count is checked against the bytes left; 8 bytes per key of a large map while
//! the map is read, charged to the account.
//! Invariants: every item consumes at least one byte; no count from the file sizes an allocation; skipping an item
//! allocates nothing for it.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};

use ciborium_ll::{Decoder, Header, simple};
use serde_json::{Number, Value};

use crate::account::Account;
use crate::bytes::{FileOffset, to_u64, to_usize};
use crate::error::{Error, Kind, Result};

use super::quoted::quoted;
use super::sort::Sorter;
use super::spool::Spool;

/// How strict parsing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    /// Any well-formed CBOR without duplicate keys.
    Lenient,
    /// Deterministic encoding: definite lengths, shortest form, ascending keys, no tags.
    Strict,
}

impl Profile {
    const fn depth(self) -> u32 {
        match self {
            Self::Lenient => 64,
            Self::Strict => 32,
        }
    }
}

/// Decodes a one-byte head. About nine of ten heads are; ciborium would take most of the parse time for them.
#[inline]
fn short(byte: u8) -> Option<Header> {
    let n = byte & 0x1F;
    if n >= 24 {
        return None;
    }
    let (number, count) = (u64::from(n), Some(usize::from(n)));
    Some(match byte >> 5 {
        0 => Header::Positive(number),
        1 => Header::Negative(number),
        2 => Header::Bytes(count),
        3 => Header::Text(count),
        4 => Header::Array(count),
        5 => Header::Map(count),
        6 => Header::Tag(number),
        _ => Header::Simple(n),
    })
}

/// A reader over the bytes of a manifest.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    pos: usize,
    /// Offset of the manifest in the file.
    base: FileOffset,
    profile: Profile,
    depth: u32,
    /// Whether duplicate keys are allowed: inside attributes.
    free: bool,
    /// Charged with the keys of large maps while they are compared; `None` if they were compared before.
    account: Option<&'a Account>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], base: FileOffset, profile: Profile) -> Self {
        Self { bytes, pos: 0, base, profile, depth: 0, free: false, account: None }
    }

    /// Rejects duplicate keys; the keys of large maps are charged to `account` until the map ends.
    pub(super) fn comparing_keys(mut self, account: &'a Account) -> Self {
        self.account = Some(account);
        self
    }

    /// Continues at `pos`, where an item of depth `depth` starts.
    pub(super) fn at(mut self, pos: usize, depth: u32) -> Self {
        (self.pos, self.depth) = (pos, depth);
        self
    }

    /// Bytes read so far.
    pub(super) fn pos(&self) -> usize {
        self.pos
    }

    /// Offset of the next item in the file.
    pub(super) fn here(&self) -> FileOffset {
        self.base.plus(to_u64(self.pos))
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.pos..).unwrap_or_default()
    }

    /// An error about the item at `pos`.
    fn wrong(&self, pos: usize, why: impl Into<Cow<'static, str>>, what: &'static str) -> Error {
        Error::corrupt(why, what).at(self.base.plus(to_u64(pos)))
    }

    /// The next head, after any tags.
    #[inline]
    fn head(&mut self, what: &'static str) -> Result<Header> {
        for _ in 0..=self.profile.depth() {
            let start = self.pos;
            let (header, len) = match self.rest().first().copied().and_then(short) {
                Some(header) => (header, 1),
                None => self.pull(what)?,
            };
            self.pos = self.pos.saturating_add(len);
            if self.profile == Profile::Strict {
                self.strict(header, start, len, what)?;
            }
            match header {
                Header::Tag(_) => {}
                Header::Simple(n) if !(simple::FALSE..=simple::UNDEFINED).contains(&n) => {
                    return Err(self.wrong(start, format!("the simple value {n}"), what));
                }
                Header::Bytes(Some(n)) | Header::Text(Some(n)) | Header::Array(Some(n)) if n > self.rest().len() => {
                    return Err(self.wrong(start, format!("a count of {n}, {} bytes left", self.rest().len()), what));
                }
                Header::Map(Some(n)) if n > self.rest().len() / 2 => {
                    return Err(self.wrong(start, format!("{n} pairs, {} bytes left", self.rest().len()), what));
                }
                other => return Ok(other),
            }
        }
        Err(self.too_deep(what))
    }

    /// The next head, and its length in bytes.
    fn pull(&self, what: &'static str) -> Result<(Header, usize)> {
        let mut decoder = Decoder::from(self.rest());
        let header = decoder.pull().map_err(|e| match e {
            ciborium_ll::Error::Io(_) => {
                let kind = Kind::Truncated { need: 1, have: 0 };
                Error::new(kind, what).at(self.base.plus(to_u64(self.bytes.len())))
            }
            ciborium_ll::Error::Syntax(_) => self.wrong(self.pos, "this is not CBOR", what),
        })?;
        Ok((header, decoder.offset()))
    }

    /// Checks a head of `len` bytes against the rules of deterministic encoding.
    fn strict(&self, header: Header, start: usize, len: usize, what: &'static str) -> Result<()> {
        let shortest = |n: u64| match n {
            0..24 => 1,
            24..0x100 => 2,
            0x100..0x1_0000 => 3,
            0x1_0000..0x1_0000_0000 => 5,
            _ => 9,
        };
        let least = match header {
            Header::Positive(n) | Header::Negative(n) => shortest(n),
            Header::Bytes(Some(n)) | Header::Text(Some(n)) | Header::Array(Some(n)) | Header::Map(Some(n)) => {
                shortest(to_u64(n))
            }
            Header::Simple(simple::FALSE | simple::TRUE | simple::NULL) => 1,
            Header::Float(f) => {
                let bytes = self.bytes.get(start..self.pos).unwrap_or_default();
                if f.is_nan() && bytes != [0xF9, 0x7E, 0x00] {
                    return Err(self.wrong(start, "a NaN that is not the canonical one", what));
                }
                float_len(f)
            }
            Header::Bytes(None) | Header::Text(None) | Header::Array(None) | Header::Map(None) | Header::Break => {
                return Err(self.wrong(start, "an item of indefinite length", what));
            }
            Header::Tag(_) => return Err(self.wrong(start, "a tag", what)),
            Header::Simple(n) => return Err(self.wrong(start, format!("the simple value {n}"), what)),
        };
        if len == least { Ok(()) } else { Err(self.wrong(start, "not encoded in the shortest form", what)) }
    }

    fn too_deep(&self, what: &'static str) -> Error {
        let limit = u64::from(self.profile.depth());
        Error::new(Kind::TooLarge { value: limit.saturating_add(1), limit }, what).at(self.here()).within("nesting")
    }

    fn nested<T>(&mut self, what: &'static str, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= self.profile.depth() {
            return Err(self.too_deep(what));
        }
        self.depth = self.depth.saturating_add(1);
        let done = run(self);
        self.depth = self.depth.saturating_sub(1);
        done
    }

    /// Calls `each` at the start of every element of an array; `each` must consume the element.
    ///
    /// # Errors
    /// Fails if the next item is not an array, or if `each` fails.
    pub(super) fn array(&mut self, what: &'static str, mut each: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let start = self.pos;
        match self.head(what)? {
            Header::Array(count) => self.nested(what, |r| r.items(count, what, &mut each)),
            _ => Err(self.wrong(start, "not an array", what)),
        }
    }

    fn items(
        &mut self,
        count: Option<usize>,
        what: &'static str,
        each: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        while count.map_or_else(|| !self.take_break(what), |count| done < count) {
            each(self)?;
            done = done.saturating_add(1);
        }
        Ok(())
    }

    /// Consumes the end of an indefinite item, if it is next.
    fn take_break(&mut self, _what: &'static str) -> bool {
        let is_break = self.rest().first() == Some(&0xFF);
        if is_break {
            self.pos = self.pos.saturating_add(1);
        }
        is_break
    }

    /// Calls `each` with every key of a map and the key's position; the reader is at the value, which `each` must
    /// consume. Pairs whose key is not text are skipped, or rejected if `text_only`.
    ///
    /// # Errors
    /// Fails if the next item is not a map, a key is repeated, or `each` fails.
    pub(super) fn map(
        &mut self,
        what: &'static str,
        text_only: bool,
        mut each: impl FnMut(&mut Self, Cow<'a, str>, usize) -> Result<()>,
    ) -> Result<()> {
        let start = self.pos;
        let Header::Map(count) = self.head(what)? else {
            return Err(self.wrong(start, "not a map", what));
        };
        self.nested(what, |r| {
            let compares = r.profile == Profile::Lenient && !r.free;
            let mut keys = r.account.filter(|_| compares).map(Keys::new);
            let mut last: &[u8] = &[];
            r.items(count, what, &mut |r| {
                let at = r.pos;
                let major = r.rest().first().map(|b| b >> 5);
                let text = if major == Some(3) { Some(r.text(what)?) } else { None };
                if text.is_none() {
                    r.skip(what)?;
                }
                let encoded = r.bytes.get(at..r.pos).unwrap_or_default();
                if r.profile == Profile::Strict {
                    // The first byte contains the length of a short key, so it usually decides.
                    let is_after = match encoded.first().cmp(&last.first()) {
                        Ordering::Equal => encoded > last,
                        first => first == Ordering::Greater,
                    };
                    if !is_after {
                        return Err(r.wrong(at, "map keys are not in ascending order, or one comes twice", what));
                    }
                    last = encoded;
                }
                match text {
                    Some(text) => {
                        if let Some(keys) = &mut keys {
                            keys.add(text.clone(), at, r, what)?;
                        }
                        each(r, text, at)
                    }
                    None if text_only => Err(r.wrong(at, "a key that is no text", what)),
                    None => r.skip(what),
                }
            })?;
            keys.map_or(Ok(()), |keys| keys.finish(r, what))
        })
    }

    /// Calls `each` with the chunks of the next item, a text or byte string; most have one chunk.
    fn chunks(&mut self, is_text: bool, what: &'static str, each: &mut dyn FnMut(&'a [u8])) -> Result<()> {
        let names = if is_text {
            ["not a text", "a chunk of text that is no text"]
        } else {
            ["not a byte string", "a chunk of bytes that is none"]
        };
        let len = |header| match header {
            Header::Text(len) if is_text => Some(len),
            Header::Bytes(len) if !is_text => Some(len),
            _ => None,
        };
        let mut take = |r: &mut Self, start: usize, len: usize| {
            let bytes = r.rest().get(..len).unwrap_or_default();
            r.pos = r.pos.saturating_add(len);
            if is_text && std::str::from_utf8(bytes).is_err() {
                return Err(r.wrong(start, "text that is not UTF-8", what));
            }
            each(bytes);
            Ok(())
        };
        let start = self.pos;
        match len(self.head(what)?) {
            Some(Some(len)) => take(self, start, len),
            Some(None) => {
                while !self.take_break(what) {
                    let at = self.pos;
                    match len(self.head(what)?) {
                        Some(Some(len)) => take(self, at, len)?,
                        _ => return Err(self.wrong(at, names[1], what)),
                    }
                }
                Ok(())
            }
            None => Err(self.wrong(start, names[0], what)),
        }
    }

    /// Reads a text string.
    ///
    /// # Errors
    /// Fails if the next item is not text, or not UTF-8.
    pub(super) fn text(&mut self, what: &'static str) -> Result<Cow<'a, str>> {
        let mut text = Cow::Borrowed("");
        self.chunks(true, what, &mut |bytes| {
            // Validated by `chunks`.
            let chunk = std::str::from_utf8(bytes).unwrap_or_default();
            if text.is_empty() {
                text = Cow::Borrowed(chunk);
            } else {
                text.to_mut().push_str(chunk);
            }
        })?;
        Ok(text)
    }

    /// Reads an unsigned integer.
    ///
    /// # Errors
    /// Fails if the next item is not one.
    pub(super) fn unsigned(&mut self, what: &'static str) -> Result<u64> {
        let start = self.pos;
        match self.head(what)? {
            Header::Positive(n) => Ok(n),
            _ => Err(self.wrong(start, "not an unsigned integer", what)),
        }
    }

    /// Skips the next item, which is fully checked.
    ///
    /// # Errors
    /// Fails if it is malformed.
    pub(super) fn skip(&mut self, what: &'static str) -> Result<()> {
        let start = self.pos;
        match self.clone().head(what)? {
            Header::Array(_) => self.array(what, |r| r.skip(what)),
            Header::Map(_) => self.map(what, false, |r, _, _| r.skip(what)),
            Header::Text(_) => self.chunks(true, what, &mut |_| {}),
            Header::Bytes(_) => self.chunks(false, what, &mut |_| {}),
            Header::Break => Err(self.wrong(start, "an end without a start", what)),
            _ => self.head(what).map(drop),
        }
    }

    /// Skips an item in which keys may be repeated: the value of an attribute.
    ///
    /// # Errors
    /// Fails if it is malformed.
    pub(super) fn skip_free(&mut self, what: &'static str) -> Result<()> {
        let before = std::mem::replace(&mut self.free, true);
        let done = self.skip(what);
        self.free = before;
        done
    }

    /// Reads the next item as JSON: byte strings become `hex:...`, values that JSON lacks become text. For small items
    /// only: the result takes about fifty times the item's size.
    ///
    /// # Errors
    /// Fails if the item is malformed.
    pub(super) fn json(&mut self, account: &Account, what: &'static str) -> Result<Value> {
        let mut text = Spool::new(account, to_u64(self.bytes.len()).saturating_mul(64), what);
        self.json_text(0, &mut text, what)?;
        serde_json::from_slice(&text.bytes()).map_err(|e| Error::corrupt(e.to_string(), what))
    }

    /// Writes the next item as indented JSON, at nesting level `depth`.
    ///
    /// # Errors
    /// Fails if the item is malformed or the text exceeds its limit.
    pub(super) fn json_text(&mut self, depth: usize, out: &mut Spool, what: &'static str) -> Result<()> {
        let start = self.pos;
        let mut peek = self.clone();
        match peek.head(what)? {
            Header::Array(_) => {
                let mut first = true;
                out.push(b"[")?;
                self.array(what, |r| {
                    new_line(&mut first, depth.saturating_add(1), out)?;
                    r.json_text(depth.saturating_add(1), out, what)
                })?;
                close(first, depth, b"]", out)
            }
            Header::Map(_) => {
                let mut first = true;
                out.push(b"{")?;
                let before = std::mem::replace(&mut self.free, true);
                let done = self.map(what, false, |r, key, _| {
                    new_line(&mut first, depth.saturating_add(1), out)?;
                    out.json(&Value::String(key.into_owned()))?;
                    out.push(b": ")?;
                    r.json_text(depth.saturating_add(1), out, what)
                });
                self.free = before;
                done?;
                close(first, depth, b"}", out)
            }
            Header::Text(_) => {
                let text = self.text(what)?.into_owned();
                out.json(&Value::String(text))
            }
            Header::Bytes(_) => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                let mut done = out.push(b"\"hex:");
                self.chunks(false, what, &mut |bytes| {
                    for group in bytes.chunks(256) {
                        let digits =
                            |b: &u8| [b >> 4, b & 15].map(|n| DIGITS.get(usize::from(n)).copied().unwrap_or(0));
                        let hex: Vec<u8> = group.iter().flat_map(digits).collect();
                        if done.is_ok() {
                            done = out.push(&hex);
                        }
                    }
                })?;
                done?;
                out.push(b"\"")
            }
            Header::Break => Err(self.wrong(start, "an end without a start", what)),
            header => {
                *self = peek;
                out.json(&scalar(header))
            }
        }
    }

    /// Checks that no bytes remain.
    ///
    /// # Errors
    /// Fails if some do.
    pub(super) fn end(&self, what: &'static str) -> Result<()> {
        match self.rest().len() {
            0 => Ok(()),
            n => Err(self.wrong(self.pos, format!("{n} bytes follow it"), what)),
        }
    }
}

/// Maximum indented levels; deeper ones would be mostly spaces.
const INDENTED: usize = 12;

/// Starts an element on a new line.
fn new_line(first: &mut bool, depth: usize, out: &mut Spool) -> Result<()> {
    const SPACES: &[u8; 2 * INDENTED] = &[b' '; 2 * INDENTED];
    let indent = SPACES.get(..depth.min(INDENTED).saturating_mul(2)).unwrap_or_default();
    out.push(if std::mem::take(first) { b"\n" } else { b",\n" })?;
    out.push(indent)
}

/// Ends an array or a map; an empty one stays on one line.
fn close(empty: bool, depth: usize, mark: &[u8], out: &mut Spool) -> Result<()> {
    if !empty {
        new_line(&mut true, depth, out)?;
    }
    out.push(mark)
}

fn scalar(header: Header) -> Value {
    match header {
        Header::Positive(n) => n.into(),
        Header::Negative(n) => match i64::try_from(n) {
            Ok(n) => Value::from(!n),
            Err(_) => Value::String(format!("-{}", u128::from(n).saturating_add(1))),
        },
        Header::Float(f) => Number::from_f64(f).map_or_else(|| Value::String(f.to_string()), Value::Number),
        Header::Simple(simple::FALSE) => Value::Bool(false),
        Header::Simple(simple::TRUE) => Value::Bool(true),
        _ => Value::Null,
    }
}

/// Bytes of the shortest encoding that preserves a float's value.
fn float_len(f: f64) -> usize {
    if half::f16::from_f64(f).to_f64().to_bits() == f.to_bits() || f.is_nan() {
        3
    } else if f64::from(narrowed(f)).to_bits() == f.to_bits() {
        5
    } else {
        9
    }
}

#[allow(clippy::as_conversions, reason = "there is no other way to round a double to a float")]
fn narrowed(f: f64) -> f32 {
    f as f32
}

/// Maximum keys compared directly.
const FEW: usize = 32;

/// The keys of a map so far, to detect duplicates. Those of a large map are compared when it ends: sorted by a keyed
/// hash, then by their bytes if the hashes are equal.
struct Keys<'a> {
    account: &'a Account,
    few: Vec<(Cow<'a, str>, usize)>,
    /// Records with the hash in the upper half and the position in the lower half.
    many: Option<(RandomState, Sorter<1>)>,
    last: Cow<'a, str>,
    /// Whether every key so far is greater than the one before it; there are no duplicates then.
    ascending: bool,
}

impl<'a> Keys<'a> {
    fn new(account: &'a Account) -> Self {
        Self { account, few: Vec::new(), many: None, last: Cow::Borrowed(""), ascending: true }
    }

    /// Adds the key at `at`.
    fn add(&mut self, key: Cow<'a, str>, at: usize, reader: &Reader<'a>, what: &'static str) -> Result<()> {
        let fits = |pos: usize| u64::from(u32::try_from(pos).unwrap_or(u32::MAX));
        let record = |hash: &RandomState, key: &str, pos| [(hash.hash_one(key) & !u64::from(u32::MAX)) | fits(pos)];
        self.ascending &= (self.few.is_empty() && self.many.is_none()) || self.last < key;
        if let Some((hash, many)) = &mut self.many {
            many.push(record(hash, &key, at))?;
        } else {
            if !self.ascending && self.few.iter().any(|(other, _)| *other == key) {
                return Err(twice(reader, &key, at, what));
            }
            self.few.push((key.clone(), at));
            if self.few.len() > FEW {
                let (hash, mut many) = (RandomState::new(), Sorter::new(self.account, "keys of a map"));
                for (key, pos) in self.few.drain(..) {
                    many.push(record(&hash, &key, pos))?;
                }
                self.many = Some((hash, many));
            }
        }
        self.last = key;
        Ok(())
    }

    /// Checks for duplicate keys.
    fn finish(self, reader: &Reader<'a>, what: &'static str) -> Result<()> {
        let Some((_, many)) = self.many.filter(|_| !self.ascending) else { return Ok(()) };
        let mut hash = 0;
        let mut same: Vec<usize> = Vec::new();
        many.finish(&mut |[record]| {
            if record >> 32 != hash {
                (hash, same) = (record >> 32, Vec::new());
            }
            let pos = to_usize(record & u64::from(u32::MAX), "key")?;
            let text = |pos| reader.clone().at(pos, reader.depth).text(what);
            for &other in &same {
                let key = text(pos)?;
                if key == text(other)? {
                    return Err(twice(reader, &key, pos, what));
                }
            }
            same.push(pos);
            Ok(())
        })
    }
}

fn twice(reader: &Reader<'_>, key: &str, at: usize, what: &'static str) -> Error {
    reader.wrong(at, format!("the key {} comes twice", quoted(key)), what)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn heads_of_one_byte_are_what_ciborium_makes_of_them() {
        for byte in 0..=255 {
            let Some(header) = short(byte) else { continue };
            assert_eq!(Decoder::from(&[byte][..]).pull().unwrap(), header, "{byte:#x}");
        }
        assert_eq!((0..=255).filter(|&b| short(b).is_some()).count(), 8 * 24);
    }

    fn check(bytes: &[u8], profile: Profile) -> Result<Value> {
        let account = Account::new(1 << 20, 0);
        let mut reader = Reader::new(bytes, FileOffset(100), profile).comparing_keys(&account);
        reader.clone().skip("item")?;
        let value = reader.json(&account, "item")?;
        reader.end("item")?;
        Ok(value)
    }

    #[test]
    fn items_of_every_sort_become_json() {
        let cases: &[(&[u8], &str)] = &[
            (&[0x18, 0x2A], "42"),
            (&[0x38, 0x29], "-42"),
            (&[0x3B, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], "\"-18446744073709551616\""),
            (&[0xF9, 0x41, 0x00], "2.5"),
            (&[0xF9, 0x7C, 0x00], "\"inf\""),
            (&[0x43, 1, 2, 0xAB], "\"hex:0102ab\""),
            (&[0x5F, 0x41, 1, 0x41, 2, 0xFF], "\"hex:0102\""),
            (&[0x7F, 0x61, b'a', 0x61, b'b', 0xFF], "\"ab\""),
            (&[0x9F, 1, 0xF5, 0xF6, 0xFF], "[1,true,null]"),
            (&[0xBF, 0x61, b'k', 0xC1, 0x05, 0xFF], "{\"k\":5}"),
            (&[0xA2, 1, 2, 0x61, b'k', 3], "{\"k\":3}"),
        ];
        for (bytes, want) in cases {
            assert_eq!(check(bytes, Profile::Lenient).unwrap().to_string(), *want, "{bytes:02x?}");
        }
    }

    #[test]
    fn what_is_no_item_is_refused_with_its_place() {
        let cases: &[(&[u8], &str)] = &[
            (&[], "needs 1 bytes, 0 left"),
            (&[0x1C], "this is not CBOR"),
            (&[0xFF], "an end without a start"),
            (&[0x61, 0xFF], "not UTF-8"),
            (&[0x9A, 0xFF, 0xFF, 0xFF, 0xFF], "a count of 4294967295, 0 bytes left"),
            (&[0xBB, 0x40, 0, 0, 0, 0, 0, 0, 0, 0], "pairs, 1 bytes left"),
            (&[0x82, 1], "left"),
            (&[0xF0], "the simple value 16"),
            (&[1, 2], "1 bytes follow it"),
            (&[0xA2, 0x61, b'k', 1, 0x61, b'k', 2], "comes twice"),
            (&[0xA3, 0x61, b'k', 1, 0x61, b'a', 2, 0x61, b'k', 2], "comes twice"),
            (&[0x7F, 0x41, b'a', 0xFF], "a chunk of text"),
        ];
        for (bytes, want) in cases {
            let e = check(bytes, Profile::Lenient).unwrap_err();
            assert!(e.to_string().contains(want) && e.offset().is_some(), "{bytes:02x?}: {e}");
        }
        for (profile, depth) in [(Profile::Lenient, 64), (Profile::Strict, 32)] {
            let nest = |n: usize| [vec![0x81; n], vec![0]].concat();
            assert!(check(&nest(depth), profile).is_ok(), "{depth}");
            assert!(check(&nest(depth + 1), profile).unwrap_err().to_string().contains("limit"), "{depth}");
        }
    }

    #[test]
    fn a_key_of_a_large_map_that_comes_twice_is_found_and_charged() {
        let map = |keys: &[u32]| {
            let mut bytes = vec![0xBF];
            for key in keys {
                bytes.extend(format!("\x68{key:08x}\x00").into_bytes());
            }
            bytes.push(0xFF);
            bytes
        };
        let scattered: Vec<u32> = (0..1_100_000).map(|i: u32| i.wrapping_mul(2_654_435_761)).collect();
        let bytes = map(&scattered);
        for (memory, spill) in [(16 << 20, 0), (0, 16 << 20)] {
            let account = Account::new(memory, spill);
            Reader::new(&bytes, FileOffset(0), Profile::Lenient).comparing_keys(&account).skip("item").unwrap();
            let peaks = account.peaks();
            assert_eq!(peaks.memory + peaks.disk, 1_100_000 * 8, "{peaks:?}");
        }
        for (from, to) in [(7, 1000), (1000, 7), (0, 31), (33, 32)] {
            let mut keys = scattered[..1001].to_vec();
            keys[to] = keys[from];
            let e = check(&map(&keys), Profile::Lenient).unwrap_err();
            assert!(e.to_string().contains(&format!("the key \"{:08x}\" comes twice", keys[from])), "{e}");
            let at = 101 + 10 * to_u64(from.max(to));
            assert_eq!(e.offset(), Some(FileOffset(at)), "{e}");
        }
    }

    #[test]
    fn json_is_laid_out_as_serde_does_it_and_deep_levels_are_not_indented_further() {
        let bytes = [0xA3, 0x61, b'a', 0x82, 1, 0x80, 0x61, b'b', 0xA0, 0x61, b'c', 0xA1, 0x61, b'"', 0x42, 0, 255];
        let account = Account::new(1 << 20, 0);
        let text = |bytes: &[u8]| {
            let mut out = Spool::new(&account, 1 << 20, "text");
            Reader::new(bytes, FileOffset(0), Profile::Lenient).json_text(0, &mut out, "item").unwrap();
            String::from_utf8(out.bytes()).unwrap()
        };
        assert_eq!(text(&bytes), format!("{:#}", check(&bytes, Profile::Lenient).unwrap()));
        let deep = text(&[vec![0x81; 60], vec![0]].concat());
        assert!(deep.lines().all(|line| line.len() <= 2 * INDENTED + 1) && deep.lines().count() == 121, "{deep}");
    }

    #[test]
    fn strict_manifests_have_one_encoding_only() {
        let refused: &[&[u8]] = &[
            &[0x18, 0x05],
            &[0x58, 0x01, 7],
            &[0x9F, 0xFF],
            &[0x7F, 0xFF],
            &[0xC1, 0x05],
            &[0xF7],
            &[0xFA, 0x40, 0x20, 0, 0],
            &[0xF9, 0x7E, 0x01],
            &[0xA2, 0x61, b'b', 1, 0x61, b'a', 2],
            &[0xA2, 0x61, b'a', 1, 0x61, b'a', 2],
            &[0xA2, 0x62, b'a', b'a', 1, 0x61, b'b', 2],
        ];
        for bytes in refused {
            assert!(check(bytes, Profile::Strict).is_err(), "{bytes:02x?}");
        }
        let taken: &[&[u8]] = &[
            &[0x18, 0x18],
            &[0xF9, 0x7E, 0x00],
            &[0xFA, 0x3F, 0x80, 0, 1],
            &[0xFB, 0x3F, 0xB9, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9A],
            &[0xA2, 0x61, b'b', 1, 0x62, b'a', b'a', 2],
        ];
        for bytes in taken {
            assert!(check(bytes, Profile::Strict).is_ok(), "{bytes:02x?}");
        }
    }

    fn value(depth: u32) -> impl proptest::strategy::Strategy<Value = ciborium::Value> {
        use ciborium::Value as V;
        use proptest::prelude::*;
        let leaf = prop_oneof![
            any::<u64>().prop_map(|n| V::Integer(n.into())),
            any::<i64>().prop_map(|n| V::Integer(n.into())),
            any::<bool>().prop_map(V::Bool),
            Just(V::Null),
            (-1e9..1e9).prop_map(V::Float),
            ".{0,40}".prop_map(V::Text),
        ];
        leaf.prop_recursive(depth, 64, 6, |inner| {
            let pair = (".{0,12}".prop_map(V::Text), inner.clone());
            prop_oneof![
                prop::collection::vec(inner, 0..6).prop_map(V::Array),
                prop::collection::vec(pair, 0..6).prop_map(|mut pairs| {
                    pairs.sort_by(|a, b| a.0.as_text().cmp(&b.0.as_text()));
                    pairs.dedup_by(|a, b| a.0 == b.0);
                    V::Map(pairs)
                }),
            ]
        })
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            failure_persistence: Some(Box::new(proptest::test_runner::FileFailurePersistence::Direct("tests/suite/regressions/cbor.txt"))),
            ..proptest::prelude::ProptestConfig::default()
        })]

        /// What ciborium writes reads back as the value that serde gives.
        #[test]
        fn what_ciborium_writes_is_read(value in value(5)) {
            let mut bytes = Vec::new();
            ciborium::into_writer(&value, &mut bytes).unwrap();
            let want = value.deserialized::<Value>().unwrap();
            proptest::prop_assert_eq!(check(&bytes, Profile::Lenient).unwrap(), want);
            for cut in 0..bytes.len() {
                proptest::prop_assert!(check(bytes.get(..cut).unwrap(), Profile::Lenient).is_err());
            }
        }
    }
}
