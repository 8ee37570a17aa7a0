//! The metalayers of a frame as attributes of its array.
//!
//! A value is `MessagePack`, JSON, or a gzip stream of JSON or of a pickled dictionary. The members of the metalayers
//! `attrs` and `mlarray` are attributes themselves; in a frame of xarray-blosc2, its internal keys are not attributes.
//! Values of other kinds are in `metalayers/` and `vlmetalayers/` alone.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::io::Read;
use std::sync::Arc;

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::about::{self, About, Attributes};

use super::dimensions::DIMENSIONS;
use super::frame::Frame;
use super::metalayers::LayerValue;
use super::{json, msgpack, pickle};

/// Metalayers that say how the array is stored.
const STRUCTURE: [&[u8]; 2] = [b"b2nd", b"caterva"];
/// Keys of xarray-blosc2 that are not attributes to it. [`OWNER`] are the names of variables, one of which it always writes.
const KEYS: [&[u8]; 6] = [b"is_coord", b"nbytes", b"cbytes", b"cratio", b"lineage", b"labels"];
const OWNER: [&[u8]; 2] = [b"var", b"coord_name"];
/// Metalayers whose members are attributes themselves.
const NAMESPACES: [&str; 2] = ["attrs", MLARRAY];
const MLARRAY: &str = "mlarray";
/// The first bytes of a gzip stream.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Maximum bytes of a value of unknown meaning.
const OPAQUE: usize = 4 << 10;
/// Maximum bytes of all values that are read.
const IN_ALL: u64 = 2 * about::MOST;

/// The attributes of the array in `frame`; `None` if it has no metalayers for them.
pub(super) fn about(frame: &Arc<Frame>) -> Option<About> {
    let names = frame.metalayers.iter().chain(frame.vlmetalayers.iter().flatten()).map(|layer| &*layer.name);
    let has_any = names.into_iter().any(|name| !STRUCTURE.contains(&name) && !DIMENSIONS.contains(&name));
    let frame = Arc::clone(frame);
    has_any.then(|| About::new(move || attributes(&frame)))
}

/// Whether `mlarray` wrote `frame`.
pub(super) fn is_of_mlarray(frame: &Frame) -> bool {
    frame.vlmetalayers.iter().flatten().any(|layer| layer.name == MLARRAY.as_bytes())
}

/// The same, read.
///
/// # Errors
/// Fails if a value cannot be read or decompressed.
fn attributes(frame: &Frame) -> Result<Attributes> {
    let variable = || frame.vlmetalayers.iter().flatten();
    let has = |name: &[u8]| variable().any(|layer| layer.name == name);
    let is_xarray = OWNER.iter().any(|name| has(name)) && DIMENSIONS.iter().any(|name| has(name));
    let is_key = |name: &[u8]| is_xarray && (KEYS.contains(&name) || OWNER.contains(&name) || name == b"dtype");
    let mut attributes = Attributes::new();
    let mut left = IN_ALL;
    let fixed = frame.metalayers.iter().map(|layer| (layer, false));
    for (layer, is_chunk) in fixed.chain(variable().map(|layer| (layer, true))) {
        if STRUCTURE.contains(&&*layer.name) || DIMENSIONS.contains(&&*layer.name) || is_key(&layer.name) {
            continue;
        }
        let value = if is_chunk {
            LayerValue::of_chunk(&frame.source, layer, &frame.chunks.item().memory)?
        } else {
            LayerValue::Stored(Arc::clone(&frame.source), layer.clone())
        };
        if value.len() > about::MOST || value.len() > left {
            continue;
        }
        left = left.saturating_sub(value.len());
        let name = String::from_utf8_lossy(&layer.name).into_owned();
        match meaning(&value.bytes()?) {
            Some(Value::Object(members)) if NAMESPACES.contains(&&*name) => attributes.extend(members),
            Some(Value::String(text)) if NAMESPACES.contains(&&*name) => match from_python(&text) {
                Some(Value::Object(members)) => attributes.extend(members),
                _ => drop(attributes.insert(name, text.into())),
            },
            Some(value) => drop(attributes.insert(name, value)),
            None => {}
        }
    }
    Ok(attributes)
}

/// The value of a metalayer as JSON, if it is one of a known kind.
fn meaning(bytes: &[u8]) -> Option<Value> {
    if bytes.starts_with(&GZIP) {
        return unzipped(bytes);
    }
    let Some(value) = json::to_json(bytes) else {
        return std::str::from_utf8(bytes).ok().and_then(from_python);
    };
    match msgpack::binary_of(bytes) {
        Some(inner) if inner.starts_with(&GZIP) => unzipped(inner),
        Some(inner) if inner.len() > OPAQUE => None,
        _ => Some(without_tuples(value)),
    }
}

/// The JSON or the pickled values in a gzip stream.
fn unzipped(bytes: &[u8]) -> Option<Value> {
    let mut content = Vec::new();
    let most = about::MOST.saturating_add(1);
    GzDecoder::new(bytes).take(most).read_to_end(&mut content).ok().filter(|&len| to_u64(len) < most)?;
    pickle::to_json(&content).or_else(|| from_python(std::str::from_utf8(&content).ok()?))
}

/// The JSON in `text`, in which Python writes NaN and infinities as words; they become text.
pub(super) fn from_python(text: &str) -> Option<Value> {
    let mut out = String::new();
    let (mut rest, mut is_string) = (text, false);
    while let Some(c) = rest.chars().next() {
        let word = ["NaN", "Infinity", "-Infinity"].into_iter().find(|word| !is_string && rest.starts_with(word));
        let len = match (word, c) {
            (Some(word), _) => {
                out.extend(["\"", word, "\""]);
                rest = rest.get(word.len()..)?;
                continue;
            }
            (None, '\\') => rest.chars().take(2).map(char::len_utf8).sum(),
            (None, c) => c.len_utf8(),
        };
        is_string ^= c == '"';
        let (copied, after) = rest.split_at_checked(len)?;
        out.push_str(copied);
        rest = after;
    }
    serde_json::from_str(&out).ok()
}

/// The value with tuples of python-blosc2, which are lists that begin with a mark, as lists.
pub(super) fn without_tuples(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let skipped = usize::from(items.first().is_some_and(|item| item == "__tuple__"));
            items.into_iter().skip(skipped).map(without_tuples).collect()
        }
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, without_tuples(value))).collect(),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing, reason = "a test")]
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use serde_json::json;

    use super::*;

    fn zipped(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn values_are_message_pack_or_json_or_gzip_of_json_or_of_a_pickle() {
        let json = zipped(br#"{"a": 1}"#);
        let bin = [&[0xc4, json.len() as u8][..], &json].concat();
        let rows: [(&[u8], Option<Value>); 8] = [
            (b"\xa1K", Some(json!("K"))),
            (b"\x93\xa9__tuple__\x01\x02", Some(json!([1, 2]))),
            (
                br#"{"a": [NaN, -Infinity, "NaN \" Infinity"]}"#,
                Some(json!({"a": ["NaN", "-Infinity", "NaN \" Infinity"]})),
            ),
            (&json, Some(json!({"a": 1}))),
            (&bin, Some(json!({"a": 1}))),
            (&zipped(b"\x80\x04}\x94\x8c\x01aK\x01s."), Some(json!({"a": 1}))),
            (&zipped(&vec![b' '; 2 << 20]), None),
            (b"\xff\xfe neither", None),
        ];
        for (bytes, want) in rows {
            assert_eq!(meaning(bytes), want, "{:?}", &bytes[..bytes.len().min(20)]);
        }
    }
}
