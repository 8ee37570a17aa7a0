//! `MessagePack` as JSON, with what python-blosc2 stores as extensions:
//!
//! | kind | payload | JSON |
//! |---|---|---|
//! | 44 | two big-endian `f64` | `[real, imaginary]` |
//! | 45 | a list | that list |
//! | 46 | a map: `dtype`, `shape` and `data`; or `shape` and `values` | lists within lists, as `numpy.ndarray.tolist` |
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use serde_json::{Map, Value};

use super::msgpack::{self, Head, to_hex};
use crate::bytes::{Cursor, FileOffset, to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::about::float;
use crate::format::dtype::{Dtype, Number};

const COMPLEX: i8 = 44;
const SET: i8 = 45;
const ARRAY: i8 = 46;
const WHAT: &str = "msgpack";
/// Maximum nesting depth.
const DEPTH: u32 = 64;
/// Lists of an array beyond its number of elements: what JSON takes is in proportion to what is stored.
const SPARE_LISTS: u64 = 64;

/// Converts the document in `bytes` to JSON; `None` unless `bytes` is exactly one document.
///
/// Values without a JSON equivalent become an object with a single key, `$bin` or `$ext`.
pub(super) fn to_json(bytes: &[u8]) -> Option<Value> {
    document(bytes, DEPTH)
}

/// As [`to_json`], with at most `depth` values within each other.
fn document(bytes: &[u8], depth: u32) -> Option<Value> {
    let mut cur = Cursor::new(bytes, FileOffset(0));
    let value = value(&mut cur, depth).ok()?;
    cur.is_empty().then_some(value)
}

/// Takes a value with at most `depth` values within each other.
///
/// # Errors
/// As [`msgpack::head`], and if it is nested too deeply.
fn value(cur: &mut Cursor<'_>, depth: u32) -> Result<Value> {
    let Some(depth) = depth.checked_sub(1) else { return Err(Error::corrupt("nested too deeply", WHAT)) };
    Ok(match msgpack::head(cur, WHAT)? {
        Head::Null => Value::Null,
        Head::Bool(is) => is.into(),
        Head::Uint(n) => n.into(),
        Head::Int(n) => n.into(),
        Head::Float(n) => float(n),
        Head::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => tagged("$bin", hex(bytes)),
        },
        Head::Binary(bytes) => tagged("$bin", hex(bytes)),
        Head::Extension(kind, data) => {
            extension(kind, data, depth).unwrap_or_else(|| tagged("$ext", Value::Array(vec![kind.into(), hex(data)])))
        }
        Head::List(len) => array(cur, len, depth)?,
        Head::Map(len) => map(cur, len, depth)?,
    })
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

/// The value of an extension that nests at most `depth` values; `None` if it is another one, or not as above.
fn extension(kind: i8, payload: &[u8], depth: u32) -> Option<Value> {
    match kind {
        COMPLEX => {
            let (real, imaginary) = payload.split_at_checked(8)?;
            let part = |bytes: &[u8]| Some(float(f64::from_be_bytes(bytes.try_into().ok()?)));
            Some(Value::Array(vec![part(real)?, part(imaginary)?]))
        }
        SET => document(payload, depth).filter(Value::is_array),
        ARRAY => numpy(payload, depth),
        _ => None,
    }
}

fn numpy(payload: &[u8], depth: u32) -> Option<Value> {
    let mut cur = Cursor::new(payload, FileOffset(0));
    let Head::Map(len) = msgpack::head(&mut cur, WHAT).ok()? else { return None };
    let (mut dtype, mut shape, mut data, mut values) = (None, None, None, None);
    for _ in 0..len {
        let Head::Text(key) = msgpack::head(&mut cur, WHAT).ok()? else { return None };
        match key {
            b"data" => match msgpack::head(&mut cur, WHAT).ok()? {
                Head::Binary(bytes) => data = Some(bytes),
                _ => return None,
            },
            b"dtype" => dtype = Some(value(&mut cur, depth).ok()?),
            b"shape" => shape = Some(value(&mut cur, depth).ok()?),
            b"values" => values = Some(value(&mut cur, depth).ok()?),
            _ => msgpack::skip(&mut cur, WHAT).ok()?,
        }
    }
    let shape = shape?.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>()?;
    if let Some(values) = values {
        return (shape.len() == 1).then_some(values);
    }
    let number = Number::of(&Dtype::parse(dtype?.get("str")?.as_str()?)?.descr)?;
    let data = data?;
    let (mut elements, mut lists) = (1_u64, 0_u64);
    for n in &shape {
        (lists, elements) = (lists.checked_add(elements)?, elements.checked_mul(*n)?);
    }
    let is_in_proportion =
        lists <= elements.saturating_add(SPARE_LISTS) && shape.len() < to_usize(depth.into(), WHAT).ok()?;
    (is_in_proportion && elements.checked_mul(number.width)? == to_u64(data.len()))
        .then(|| nested(&shape, data, number))?
}

/// The elements in `data`, row by row.
fn nested(shape: &[u64], data: &[u8], number: Number) -> Option<Value> {
    let Some((&n, rest)) = shape.split_first() else { return number.to_json(data) };
    let Some(len) = data.len().checked_div(to_usize(n, WHAT).ok()?) else { return Some(Value::Array(Vec::new())) };
    if len == 0 {
        return (0..n).map(|_| nested(rest, &[], number)).collect();
    }
    data.chunks_exact(len).map(|row| nested(rest, row, number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(got.as_deref(), *want, "{:x?}", bytes.chunks(8).next());
        }
    }

    /// A document that is an extension.
    fn extended(kind: u8, payload: &[u8]) -> Vec<u8> {
        [&[0xc9], &u32::try_from(payload.len()).unwrap().to_be_bytes()[..], &[kind], payload].concat()
    }

    fn array(dtype: &str, shape: &[u8], data: &[u8]) -> Vec<u8> {
        let text = |text: &str| [&[0xa0 | u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        let shape = [&[0x90 | u8::try_from(shape.len()).unwrap()], shape].concat();
        let data = [&[0xc4, u8::try_from(data.len()).unwrap()], data].concat();
        let dtype = [&[0x81], &*text("str"), &text(dtype)].concat();
        extended(46, &[&[0x83], &*text("dtype"), &dtype, &text("shape"), &shape, &text("data"), &data].concat())
    }

    #[test]
    fn values_of_python_are_shown_as_they_are() {
        let complex = [1.5_f64.to_be_bytes(), f64::NEG_INFINITY.to_be_bytes()].concat();
        let rows: [(Vec<u8>, &str); 15] = [
            (extended(44, &complex), r#"[1.5,"-Infinity"]"#),
            (extended(45, b"\x92\x01\xa1b"), r#"[1,"b"]"#),
            (extended(45, &extended(45, b"\x90")), "[]"),
            (array("<i2", &[2, 2], &[1, 0, 2, 0, 255, 255, 4, 0]), "[[1,2],[-1,4]]"),
            (array(">u4", &[1], &[0, 0, 1, 0]), "[256]"),
            (array("|b1", &[], &[1]), "true"),
            (array("<f2", &[2], &[0, 0x3e, 0, 0x7e]), r#"[1.5,"NaN"]"#),
            (array("<c8", &[1], &[0, 0, 0x80, 0x3f, 0, 0, 0, 0x40]), "[[1.0,2.0]]"),
            (array("|u1", &[2, 0], &[]), "[[],[]]"),
            (array("|u1", &[0, 2], &[]), "[]"),
            (extended(46, b"\x82\xa5shape\x91\x02\xa6values\x92\xc0\x01"), "[null,1]"),
            // Not as its library writes them: as any other extension.
            (extended(44, b"\x01"), r#"{"$ext":[44,"01"]}"#),
            (extended(45, b"\x01"), r#"{"$ext":[45,"01"]}"#),
            (extended(46, b"\x80"), r#"{"$ext":[46,"80"]}"#),
            (extended(47, b"\x80"), r#"{"$ext":[47,"80"]}"#),
        ];
        for (document, want) in rows {
            assert_eq!(to_json(&document).unwrap().to_string(), want, "{document:x?}");
        }
    }

    #[test]
    fn arrays_that_are_not_in_proportion_to_what_is_stored_stay_extensions() {
        for document in [
            array("<i2", &[2], &[1, 0]),
            array("<i2", &[], &[]),
            array("<U1", &[1], &[97, 0, 0, 0]),
            array("<f16", &[1], &[0; 16]),
            array("|u1", &[100, 0], &[]),
            array("|u1", &[50, 1, 1, 1], &[0; 50]),
            array("|u1", &[127; 15], &[]),
        ] {
            let value = to_json(&document).unwrap();
            assert!(value.get("$ext").is_some(), "{value}");
        }
        // Extensions in extensions end where lists in lists do.
        let deep = (0..100).fold(vec![0x90], |inner, _| extended(45, &inner));
        assert!(to_json(&deep).unwrap().to_string().contains("$ext"));
    }
}
