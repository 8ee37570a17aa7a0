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

mod head;
mod json;
mod keys;

use std::borrow::Cow;
use std::cmp::Ordering;

use ciborium_ll::Header;

use crate::account::Account;
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};

use keys::Keys;

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

/// A reader over the bytes of a manifest.
#[derive(Debug, Clone)]
pub(super) struct CborReader<'a> {
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

impl<'a> CborReader<'a> {
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
    /// consume. Pairs with a key that is not text are skipped, or rejected if `text_only`.
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
                        return Err(r.wrong(at, "map keys are not in ascending order, or one is repeated", what));
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
                    None if text_only => Err(r.wrong(at, "a key is not text", what)),
                    None => r.skip(what),
                }
            })?;
            keys.map_or(Ok(()), |keys| keys.finish(r, what))
        })
    }

    /// Calls `each` with the chunks of the next item, a text or byte string; most have one chunk.
    fn chunks(&mut self, is_text: bool, what: &'static str, each: &mut dyn FnMut(&'a [u8])) -> Result<()> {
        let names = if is_text {
            ["not text", "a chunk of a text is not text"]
        } else {
            ["not a byte string", "a chunk of a byte string is not a byte string"]
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
                return Err(r.wrong(start, "text is not UTF-8", what));
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
            Header::Break => Err(self.wrong(start, "a break without an item of indefinite length", what)),
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

#[cfg(test)]
mod tests;
