//! `MessagePack` as used by frames: fields with one fixed marker each.
//!
//! Markers are from `rmp`; bytes are read through the checked cursor, so that every error has an offset.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::{Cursor, to_usize};
use crate::error::{Error, Result};
use rmp::Marker;

/// Reads a marker, which must be `want`.
pub(super) fn marker(cur: &mut Cursor<'_>, want: Marker, what: &'static str) -> Result<()> {
    let at = cur.at();
    let byte = cur.u8(what)?;
    if Marker::from_u8(byte) == want {
        return Ok(());
    }
    let why = format!("must begin with {:#04x}, begins with {byte:#04x}", want.to_u8());
    Err(Error::corrupt(why, what).at(at))
}

macro_rules! integers {
    ($($name:ident $marker:ident $raw:ident $ty:ty;)*) => {$(
        #[doc = concat!("Takes a `", stringify!($ty), "` with its marker.")]
        pub(super) fn $name(cur: &mut Cursor<'_>, what: &'static str) -> Result<$ty> {
            marker(cur, Marker::$marker, what)?;
            Ok(<$ty>::from_be_bytes(cur.array(what)?))
        }
    )*};
}

integers! {
    u16 U16 u16_be u16;
    u32 U32 u32_be u32;
    u64 U64 u64_be u64;
    i16 I16 u16_be i16;
    i32 I32 u32_be i32;
    i64 I64 u64_be i64;
}

/// Reads an `i32` that must not be negative.
pub(super) fn size(cur: &mut Cursor<'_>, what: &'static str) -> Result<u32> {
    let at = cur.at();
    let n = i32(cur, what)?;
    u32::try_from(n).map_err(|_| Error::corrupt(format!("must not be negative, is {n}"), what).at(at))
}

/// Reads an `i64` that must not be negative.
pub(super) fn long_size(cur: &mut Cursor<'_>, what: &'static str) -> Result<u64> {
    let at = cur.at();
    let n = i64(cur, what)?;
    u64::try_from(n).map_err(|_| Error::corrupt(format!("must not be negative, is {n}"), what).at(at))
}

/// The bytes in a document that is nothing else.
pub(super) fn binary_of(bytes: &[u8]) -> Option<&[u8]> {
    match head(&mut Cursor::new(bytes, crate::bytes::FileOffset(0)), "msgpack").ok()? {
        Head::Binary(inner) => Some(inner),
        _ => None,
    }
}

/// How a value begins: all of it, or how many values follow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Head<'a> {
    Null,
    Bool(bool),
    Uint(u64),
    Int(i64),
    Float(f64),
    Text(&'a [u8]),
    Binary(&'a [u8]),
    Extension(i8, &'a [u8]),
    /// So many values follow.
    List(u64),
    /// So many pairs of values follow.
    Map(u64),
}

/// Takes the head of a value, of which errors say that it is `what`.
///
/// # Errors
/// Fails if it is truncated, or begins with a reserved marker.
pub(super) fn head<'a>(cur: &mut Cursor<'a>, what: &'static str) -> Result<Head<'a>> {
    let be = |cur: &mut Cursor<'a>, len: usize| -> Result<u64> {
        Ok(cur.take(len, what)?.iter().fold(0, |n, &b| n << 8 | u64::from(b)))
    };
    let bytes = |cur: &mut Cursor<'a>, len: u64| cur.take(to_usize(len, what)?, what);
    let extension = |cur: &mut Cursor<'a>, len: u64| {
        let kind = i8::from_be_bytes(cur.array(what)?);
        Ok(Head::Extension(kind, bytes(cur, len)?))
    };
    let at = cur.at();
    Ok(match Marker::from_u8(cur.u8(what)?) {
        Marker::Null => Head::Null,
        Marker::False => Head::Bool(false),
        Marker::True => Head::Bool(true),
        Marker::FixPos(n) => Head::Uint(n.into()),
        Marker::FixNeg(n) => Head::Int(n.into()),
        Marker::U8 => Head::Uint(be(cur, 1)?),
        Marker::U16 => Head::Uint(be(cur, 2)?),
        Marker::U32 => Head::Uint(be(cur, 4)?),
        Marker::U64 => Head::Uint(be(cur, 8)?),
        Marker::I8 => Head::Int(i8::from_be_bytes(cur.array(what)?).into()),
        Marker::I16 => Head::Int(i16::from_be_bytes(cur.array(what)?).into()),
        Marker::I32 => Head::Int(i32::from_be_bytes(cur.array(what)?).into()),
        Marker::I64 => Head::Int(i64::from_be_bytes(cur.array(what)?)),
        Marker::F32 => Head::Float(f32::from_be_bytes(cur.array(what)?).into()),
        Marker::F64 => Head::Float(f64::from_be_bytes(cur.array(what)?)),
        Marker::FixStr(len) => Head::Text(bytes(cur, len.into())?),
        Marker::Str8 => be(cur, 1).and_then(|len| bytes(cur, len)).map(Head::Text)?,
        Marker::Str16 => be(cur, 2).and_then(|len| bytes(cur, len)).map(Head::Text)?,
        Marker::Str32 => be(cur, 4).and_then(|len| bytes(cur, len)).map(Head::Text)?,
        Marker::Bin8 => be(cur, 1).and_then(|len| bytes(cur, len)).map(Head::Binary)?,
        Marker::Bin16 => be(cur, 2).and_then(|len| bytes(cur, len)).map(Head::Binary)?,
        Marker::Bin32 => be(cur, 4).and_then(|len| bytes(cur, len)).map(Head::Binary)?,
        Marker::FixArray(len) => Head::List(len.into()),
        Marker::Array16 => Head::List(be(cur, 2)?),
        Marker::Array32 => Head::List(be(cur, 4)?),
        Marker::FixMap(len) => Head::Map(len.into()),
        Marker::Map16 => Head::Map(be(cur, 2)?),
        Marker::Map32 => Head::Map(be(cur, 4)?),
        Marker::FixExt1 => extension(cur, 1)?,
        Marker::FixExt2 => extension(cur, 2)?,
        Marker::FixExt4 => extension(cur, 4)?,
        Marker::FixExt8 => extension(cur, 8)?,
        Marker::FixExt16 => extension(cur, 16)?,
        Marker::Ext8 => be(cur, 1).and_then(|len| extension(cur, len))?,
        Marker::Ext16 => be(cur, 2).and_then(|len| extension(cur, len))?,
        Marker::Ext32 => be(cur, 4).and_then(|len| extension(cur, len))?,
        Marker::Reserved => return Err(Error::corrupt("a reserved marker", what).at(at)),
    })
}

/// Goes past the value that begins here.
///
/// # Errors
/// As [`head`].
pub(super) fn skip(cur: &mut Cursor<'_>, what: &'static str) -> Result<()> {
    // The values that are still to come: without recursion, nesting is harmless.
    let mut open = 1_u64;
    while let Some(rest) = open.checked_sub(1) {
        open = rest.saturating_add(match head(cur, what)? {
            Head::List(len) => len,
            Head::Map(len) => len.saturating_mul(2),
            _ => 0,
        });
    }
    Ok(())
}

/// Two hexadecimal digits per byte.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, b| text + &format!("{b:02x}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing, reason = "a test")]
    use super::*;
    use crate::bytes::FileOffset;

    #[test]
    fn a_wrong_marker_is_an_error_with_its_offset() {
        let mut cur = Cursor::new(&[0xd2, 0, 0, 1, 0, 0xd2, 0xff, 0, 0, 0, 0xcf], FileOffset(0x10));
        assert_eq!(i32(&mut cur, "a").unwrap(), 256);
        let e = size(&mut cur, "b").unwrap_err();
        assert_eq!(e.to_string(), "must not be negative, is -16777216 (b, at byte 0x15)");
        let e = i32(&mut cur, "c").unwrap_err();
        assert_eq!(e.to_string(), "must begin with 0xd2, begins with 0xcf (c, at byte 0x1a)");
        assert_eq!(i32(&mut cur, "d").unwrap_err().to_string(), "needs 1 bytes, 0 left (d, at byte 0x1b)");
    }
}
