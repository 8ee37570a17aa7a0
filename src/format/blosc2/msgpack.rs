//! `MessagePack` as used by frames: fields with one fixed marker each, and conversion of any document to JSON.
//!
//! Markers are from `rmp`; bytes are read through the checked cursor, so that every error has an offset.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use rmp::Marker;
use serde_json::{Map, Value};

use crate::bytes::{Cursor, to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::about::float;

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

/// Converts the document in `bytes` to JSON; `None` unless `bytes` is exactly one document.
///
/// Values without a JSON equivalent become an object with a single key, `$bin` or `$ext`.
pub(super) fn to_json(bytes: &[u8]) -> Option<Value> {
    let mut cur = Cursor::new(bytes, crate::bytes::FileOffset(0));
    let value = value(&mut cur, DEPTH).ok()?;
    cur.is_empty().then_some(value)
}

/// The bytes in a document that is nothing else.
pub(super) fn binary_of(bytes: &[u8]) -> Option<&[u8]> {
    let mut cur = Cursor::new(bytes, crate::bytes::FileOffset(0));
    let len = match Marker::from_u8(cur.u8("msgpack").ok()?) {
        Marker::Bin8 => cur.u8("msgpack").ok()?.into(),
        Marker::Bin16 => cur.u16_be("msgpack").ok()?.into(),
        Marker::Bin32 => cur.u32_be("msgpack").ok()?,
        _ => return None,
    };
    cur.take(to_usize(len.into(), "msgpack").ok()?, "msgpack").ok()
}

/// Maximum nesting depth.
const DEPTH: u32 = 64;

fn value(cur: &mut Cursor<'_>, depth: u32) -> Result<Value> {
    let what = "msgpack";
    let be = |cur: &mut Cursor<'_>, len: usize| -> Result<u64> {
        Ok(cur.take(len, what)?.iter().fold(0, |n, &b| n << 8 | u64::from(b)))
    };
    let Some(depth) = depth.checked_sub(1) else { return Err(Error::corrupt("nested too deeply", what)) };
    let value = match Marker::from_u8(cur.u8(what)?) {
        Marker::Null => Value::Null,
        Marker::False => false.into(),
        Marker::True => true.into(),
        Marker::FixPos(n) => n.into(),
        Marker::FixNeg(n) => n.into(),
        Marker::U8 => be(cur, 1)?.into(),
        Marker::U16 => be(cur, 2)?.into(),
        Marker::U32 => be(cur, 4)?.into(),
        Marker::U64 => be(cur, 8)?.into(),
        Marker::I8 => i8::from_be_bytes(cur.array(what)?).into(),
        Marker::I16 => i16::from_be_bytes(cur.array(what)?).into(),
        Marker::I32 => i32::from_be_bytes(cur.array(what)?).into(),
        Marker::I64 => i64::from_be_bytes(cur.array(what)?).into(),
        Marker::F32 => float(f32::from_be_bytes(cur.array(what)?).into()),
        Marker::F64 => float(f64::from_be_bytes(cur.array(what)?)),
        Marker::FixStr(len) => string(cur, len.into())?,
        Marker::Str8 => be(cur, 1).and_then(|len| string(cur, len))?,
        Marker::Str16 => be(cur, 2).and_then(|len| string(cur, len))?,
        Marker::Str32 => be(cur, 4).and_then(|len| string(cur, len))?,
        Marker::Bin8 => be(cur, 1).and_then(|len| binary(cur, len))?,
        Marker::Bin16 => be(cur, 2).and_then(|len| binary(cur, len))?,
        Marker::Bin32 => be(cur, 4).and_then(|len| binary(cur, len))?,
        Marker::FixArray(len) => array(cur, len.into(), depth)?,
        Marker::Array16 => be(cur, 2).and_then(|len| array(cur, len, depth))?,
        Marker::Array32 => be(cur, 4).and_then(|len| array(cur, len, depth))?,
        Marker::FixMap(len) => map(cur, len.into(), depth)?,
        Marker::Map16 => be(cur, 2).and_then(|len| map(cur, len, depth))?,
        Marker::Map32 => be(cur, 4).and_then(|len| map(cur, len, depth))?,
        Marker::FixExt1 => extension(cur, 1)?,
        Marker::FixExt2 => extension(cur, 2)?,
        Marker::FixExt4 => extension(cur, 4)?,
        Marker::FixExt8 => extension(cur, 8)?,
        Marker::FixExt16 => extension(cur, 16)?,
        Marker::Ext8 => be(cur, 1).and_then(|len| extension(cur, len))?,
        Marker::Ext16 => be(cur, 2).and_then(|len| extension(cur, len))?,
        Marker::Ext32 => be(cur, 4).and_then(|len| extension(cur, len))?,
        Marker::Reserved => return Err(Error::corrupt("a reserved marker", what)),
    };
    Ok(value)
}

fn string(cur: &mut Cursor<'_>, len: u64) -> Result<Value> {
    let bytes = cur.take(to_usize(len, "msgpack")?, "msgpack")?;
    Ok(match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => tagged("$bin", hex(bytes)),
    })
}

fn binary(cur: &mut Cursor<'_>, len: u64) -> Result<Value> {
    Ok(tagged("$bin", hex(cur.take(to_usize(len, "msgpack")?, "msgpack")?)))
}

fn extension(cur: &mut Cursor<'_>, len: u64) -> Result<Value> {
    let kind = i8::from_be_bytes(cur.array("msgpack")?);
    let data = hex(cur.take(to_usize(len, "msgpack")?, "msgpack")?);
    Ok(tagged("$ext", Value::Array(vec![kind.into(), data])))
}

fn array(cur: &mut Cursor<'_>, len: u64, depth: u32) -> Result<Value> {
    // An element takes at least one byte, so the rest of the input bounds the number of elements.
    let items = (0..len.min(to_u64(cur.len()).saturating_add(1))).map(|_| value(cur, depth));
    items.collect::<Result<_>>().map(Value::Array)
}

fn map(cur: &mut Cursor<'_>, len: u64, depth: u32) -> Result<Value> {
    let mut map = Map::new();
    for _ in 0..len {
        let key = match value(cur, depth)? {
            Value::String(text) => text,
            other => other.to_string(),
        };
        map.insert(key, value(cur, depth)?);
    }
    Ok(Value::Object(map))
}

fn tagged(tag: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(tag.to_owned(), value)]))
}

fn hex(bytes: &[u8]) -> Value {
    to_hex(bytes).into()
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

    #[test]
    fn only_complete_documents_become_json() {
        const NESTED: &[u8] = &[0x91; 1000];
        let rows: &[(&[u8], Option<&str>)] = &[
            (&[0x05], Some("5")),
            (&[0xff], Some("-1")),
            (&[0xcd, 1, 0], Some("256")),
            (&[0xd1, 0xff, 0], Some("-256")),
            (&[0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0], Some("1.5")),
            (&[0xca, 0x7f, 0xc0, 0, 0], Some("\"NaN\"")),
            (&[0xa2, b'h', b'i'], Some("\"hi\"")),
            (&[0xa1, 0xff], Some("{\"$bin\":\"ff\"}")),
            (&[0xc4, 2, 1, 2], Some("{\"$bin\":\"0102\"}")),
            (&[0xd4, 0x2a, 7], Some("{\"$ext\":[42,\"07\"]}")),
            (&[0x92, 0xc0, 0xc3], Some("[null,true]")),
            (&[0x81, 0xa1, b'k', 0x90], Some("{\"k\":[]}")),
            (&[0x81, 0x01, 0x02], Some("{\"1\":2}")),
            (&[], None),
            (&[0x05, 0x05], None),
            (&[0xc1], None),
            (&[0xdd, 0xff, 0xff, 0xff, 0xff], None),
            (&[0xdf, 0xff, 0xff, 0xff, 0xff], None),
            (&[0xdb, 0xff, 0xff, 0xff, 0xff, b'x'], None),
            (NESTED, None),
        ];
        for (bytes, want) in rows {
            let got = to_json(bytes).map(|v| v.to_string());
            assert_eq!(got.as_deref(), *want, "{:x?}", &bytes[..bytes.len().min(8)]);
        }
    }
}
