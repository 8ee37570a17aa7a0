//! What python-blosc2 stores as extensions of `MessagePack`, as JSON: complex numbers, sets, and NumPy arrays.
//!
//! | kind | payload | JSON |
//! |---|---|---|
//! | 44 | two big-endian `f64` | `[real, imaginary]` |
//! | 45 | a list | that list |
//! | 46 | a map: `dtype`, `shape` and `data`; or `shape` and `values` | lists within lists, as `numpy.ndarray.tolist` |
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use serde_json::Value;

use super::msgpack::{self, Head};
use crate::bytes::{Cursor, FileOffset, to_u64, to_usize};
use crate::format::about::float;
use crate::format::dtype::{Dtype, Number};

const COMPLEX: i8 = 44;
const SET: i8 = 45;
const ARRAY: i8 = 46;
const WHAT: &str = "msgpack";
/// Lists of an array beyond its number of elements: what JSON takes is in proportion to what is stored.
const SPARE_LISTS: u64 = 64;

/// The value of an extension that nests at most `depth` values; `None` if it is another one, or not as above.
pub(super) fn to_json(kind: i8, payload: &[u8], depth: u32) -> Option<Value> {
    match kind {
        COMPLEX => {
            let (real, imaginary) = payload.split_at_checked(8)?;
            let part = |bytes: &[u8]| Some(float(f64::from_be_bytes(bytes.try_into().ok()?)));
            Some(Value::Array(vec![part(real)?, part(imaginary)?]))
        }
        SET => msgpack::document(payload, depth).filter(Value::is_array),
        ARRAY => array(payload, depth),
        _ => None,
    }
}

fn array(payload: &[u8], depth: u32) -> Option<Value> {
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
            b"dtype" => dtype = Some(msgpack::value(&mut cur, depth).ok()?),
            b"shape" => shape = Some(msgpack::value(&mut cur, depth).ok()?),
            b"values" => values = Some(msgpack::value(&mut cur, depth).ok()?),
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
    use super::super::msgpack::to_json;

    /// A document that is an extension.
    fn extension(kind: u8, payload: &[u8]) -> Vec<u8> {
        [&[0xc9], &u32::try_from(payload.len()).unwrap().to_be_bytes()[..], &[kind], payload].concat()
    }

    fn array(dtype: &str, shape: &[u8], data: &[u8]) -> Vec<u8> {
        let text = |text: &str| [&[0xa0 | u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        let shape = [&[0x90 | u8::try_from(shape.len()).unwrap()], shape].concat();
        let data = [&[0xc4, u8::try_from(data.len()).unwrap()], data].concat();
        let dtype = [&[0x81], &*text("str"), &text(dtype)].concat();
        extension(46, &[&[0x83], &*text("dtype"), &dtype, &text("shape"), &shape, &text("data"), &data].concat())
    }

    #[test]
    fn values_of_python_are_shown_as_they_are() {
        let complex = [1.5_f64.to_be_bytes(), f64::NEG_INFINITY.to_be_bytes()].concat();
        let rows: [(Vec<u8>, &str); 15] = [
            (extension(44, &complex), r#"[1.5,"-Infinity"]"#),
            (extension(45, b"\x92\x01\xa1b"), r#"[1,"b"]"#),
            (extension(45, &extension(45, b"\x90")), "[]"),
            (array("<i2", &[2, 2], &[1, 0, 2, 0, 255, 255, 4, 0]), "[[1,2],[-1,4]]"),
            (array(">u4", &[1], &[0, 0, 1, 0]), "[256]"),
            (array("|b1", &[], &[1]), "true"),
            (array("<f2", &[2], &[0, 0x3e, 0, 0x7e]), r#"[1.5,"NaN"]"#),
            (array("<c8", &[1], &[0, 0, 0x80, 0x3f, 0, 0, 0, 0x40]), "[[1.0,2.0]]"),
            (array("|u1", &[2, 0], &[]), "[[],[]]"),
            (array("|u1", &[0, 2], &[]), "[]"),
            (extension(46, b"\x82\xa5shape\x91\x02\xa6values\x92\xc0\x01"), "[null,1]"),
            // Not as its library writes them: as any other extension.
            (extension(44, b"\x01"), r#"{"$ext":[44,"01"]}"#),
            (extension(45, b"\x01"), r#"{"$ext":[45,"01"]}"#),
            (extension(46, b"\x80"), r#"{"$ext":[46,"80"]}"#),
            (extension(47, b"\x80"), r#"{"$ext":[47,"80"]}"#),
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
        let deep = (0..100).fold(vec![0x90], |inner, _| extension(45, &inner));
        assert!(to_json(&deep).unwrap().to_string().contains("$ext"));
    }
}
