//! Heads of items: their type and number, and the rules of deterministic encoding for them.
//!
//! Reference: sections 2 and 6.3.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use ciborium_ll::{Decoder, Header, simple};

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};

use super::{CborReader, Profile};

/// Decodes a one-byte head. About nine of ten heads are; ciborium would take most of the parse time for them.
#[inline]
pub(super) fn short(byte: u8) -> Option<Header> {
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

impl CborReader<'_> {
    /// The next head, after any tags.
    #[inline]
    pub(super) fn head(&mut self, what: &'static str) -> Result<Header> {
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
                    return Err(self.wrong(start, format!("the simple value {n} is not allowed"), what));
                }
                Header::Bytes(Some(n)) | Header::Text(Some(n)) | Header::Array(Some(n)) if n > self.rest().len() => {
                    return Err(self.wrong(
                        start,
                        format!("a count of {n}, but {} bytes left", self.rest().len()),
                        what,
                    ));
                }
                Header::Map(Some(n)) if n > self.rest().len() / 2 => {
                    return Err(self.wrong(start, format!("{n} pairs, but {} bytes left", self.rest().len()), what));
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
            ciborium_ll::Error::Syntax(_) => self.wrong(self.pos, "not CBOR", what),
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
                    return Err(self.wrong(start, "a NaN is not the canonical one", what));
                }
                float_len(f)
            }
            Header::Bytes(None) | Header::Text(None) | Header::Array(None) | Header::Map(None) | Header::Break => {
                return Err(self.wrong(start, "an item of indefinite length is not allowed", what));
            }
            Header::Tag(_) => return Err(self.wrong(start, "a tag is not allowed", what)),
            Header::Simple(n) => return Err(self.wrong(start, format!("the simple value {n} is not allowed"), what)),
        };
        if len == least { Ok(()) } else { Err(self.wrong(start, "not encoded in the shortest form", what)) }
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
