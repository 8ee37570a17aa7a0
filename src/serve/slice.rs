//! A picture of any slice of an array, its numbers, and what is known of the array: `<array>.png?slice=12,:,:`,
//! `<array>.json?slice=12,5,:` and `<array>.json?about`.
//!
//! `<array>` is the path of the array's `.raw` file without that suffix: `data`, `tensors/weight`. Parameters: `slice`, as
//! in NumPy without steps, empty for the middle; `size`, most pixels of a side, or points; of a picture also `vmin`,
//! `vmax` and `cmap`.
//! Limits: what is decoded for a reply, and its size, whatever the size of the array (`view::preview`).
#![forbid(unsafe_code)]

use std::collections::HashMap;

use hyper::header::{self, HeaderMap};
use hyper::{Method, StatusCode};
use serde_json::{Number, Value, json};
use xxhash_rust::xxh3::xxh3_128;

use super::body::ReplyBody;
use super::file::conditions;
use super::reply::{Reply, empty, failed, refused, reply, set};
use super::tree::{Resource, ServedTree};
use super::url_path::decoded_segment;
use crate::archive::{Array, Curve, Drawing};
use crate::error::{Error, Kind, Result};

/// The parameters that are known.
const PARAMETERS: [&str; 5] = ["slice", "size", "vmin", "vmax", "cmap"];

/// The parameters of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Picture,
    Numbers,
    About,
}

/// Answers `method`, which is GET or HEAD, for `path`; `None` if `query` asks for nothing of an array.
pub(super) fn answer(
    tree: &ServedTree,
    method: &Method,
    headers: &HeaderMap,
    path: &str,
    query: &str,
) -> Option<Reply> {
    let is_asked = query.split('&').any(|pair| pair == "slice" || pair.starts_with("slice="));
    let (stem, asked) = match path.rsplit_once('.')? {
        (stem, "json") if query == "about" => (stem, Asked::About),
        (stem, "png") if is_asked => (stem, Asked::Picture),
        (stem, "json") if is_asked => (stem, Asked::Numbers),
        _ => return None,
    };
    Some(found(tree, method, headers, (stem, asked), query).unwrap_or_else(|e| match e.kind() {
        Kind::Usage(_) => refused(StatusCode::BAD_REQUEST, &e.to_string()),
        Kind::TooLarge { .. } => refused(StatusCode::UNPROCESSABLE_ENTITY, &e.to_string()),
        _ => failed(&e),
    }))
}

fn found(
    tree: &ServedTree,
    method: &Method,
    headers: &HeaderMap,
    (stem, asked): (&str, Asked),
    query: &str,
) -> Result<Reply> {
    let drawing = if asked == Asked::About { Drawing::default() } else { drawing(query)? };
    let missing = || Error::new(Kind::NotFound, format!("{stem}: an array of known type and shape"));
    let Resource::File(file) = tree.resolve(&format!("{stem}.raw"))? else { return Err(missing()) };
    let array = file.array().ok_or_else(missing)?;
    let drawing = Drawing { type_name: array.type_name().map(str::to_owned), ..drawing };
    let version = [&file.tag.to_le_bytes(), query.as_bytes(), env!("CARGO_PKG_VERSION").as_bytes()].concat();
    let tag = format!("\"{:032x}\"", xxh3_128(&version));
    let mut answer = match conditions(headers, &tag, file.mtime) {
        Some(status) => empty(status),
        None => drawn(&array, &drawing, asked, method)?,
    };
    set(&mut answer, header::ETAG, &tag);
    set(&mut answer, header::CACHE_CONTROL, "no-cache");
    Ok(answer)
}

fn drawn(array: &Array, drawing: &Drawing, asked: Asked, method: &Method) -> Result<Reply> {
    let (kind, bytes) = match asked {
        Asked::Picture => ("image/png", array.picture(drawing)?),
        Asked::Numbers => ("application/json", numbers(&array.curve(drawing)?).into_bytes()),
        Asked::About => ("application/json", about(array)?.into_bytes()),
    };
    let len = bytes.len();
    let body = if method == Method::HEAD { ReplyBody::of("") } else { ReplyBody::of(bytes) };
    let mut answer = reply(StatusCode::OK, kind, body);
    set(&mut answer, header::CONTENT_LENGTH, &len.to_string());
    Ok(answer)
}

fn about(array: &Array) -> Result<String> {
    let about = json!({
        "dtype": array.dtype(),
        "type_name": array.type_name(),
        "itemsize": array.itemsize(),
        "shape": array.shape(),
        "chunks": array.chunks(),
        "stored": array.stored(),
        "attributes": array.attributes()?,
    });
    Ok(about.to_string())
}

/// Infinities and NaN are null.
fn numbers(curve: &Curve) -> String {
    let list = |values: &[f64]| -> Vec<Value> {
        values.iter().map(|&value| Number::from_f64(value).map_or(Value::Null, Value::Number)).collect()
    };
    json!({
        "slice": curve.shown,
        "elements": curve.elements,
        "decoded": curve.decoded,
        "minimum": curve.minimum,
        "maximum": curve.maximum,
        "low": list(&curve.low),
        "high": list(&curve.high),
    })
    .to_string()
}

/// The parameters of a query.
fn drawing(query: &str) -> Result<Drawing> {
    let mut given = HashMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded_segment(&value.replace('+', " ")).ok_or_else(|| wrong(key, "is not a text"))?;
        if !PARAMETERS.contains(&key) {
            return Err(wrong(key, &format!("is none of {}", PARAMETERS.join(", "))));
        }
        if given.insert(key, value).is_some() {
            return Err(wrong(key, "is given twice"));
        }
    }
    let number = |key: &str| -> Result<Option<f64>> {
        let text = given.get(key).filter(|text| !text.is_empty());
        let value = text.map(|text| text.parse().map_err(|_| wrong(key, "is not a number")));
        value.transpose()
    };
    let (low, high) = (number("vmin")?, number("vmax")?);
    let size = given.get("size").map(|text| text.parse().map_err(|_| wrong("size", "is not a number of pixels")));
    let text = |key: &str| given.get(key).cloned().unwrap_or_default();
    Ok(Drawing { slice: text("slice"), size: size.transpose()?, low, high, colours: text("cmap"), type_name: None })
}

fn wrong(key: &str, why: &str) -> Error {
    Error::new(Kind::Usage(why.to_owned().into()), format!("parameter {}", crate::text::escaped(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_wrong_ones_are_refused_by_name() {
        let want = Drawing {
            slice: "12,:,3:7".to_owned(),
            size: Some(512),
            low: Some(-1.5),
            high: None,
            colours: "magma_r".to_owned(),
            type_name: None,
        };
        assert_eq!(drawing("slice=12%2C:,3%3A7&size=512&vmin=-1.5&vmax=&cmap=magma_r").unwrap(), want);
        assert_eq!(drawing("slice").unwrap(), Drawing::default());
        for (query, key) in [
            ("slice=%zz", "slice"),
            ("slice=1&slice=2", "slice"),
            ("slice=1&color=red", "color"),
            ("slice=1&size=big", "size"),
            ("slice=1&size=-1", "size"),
            ("slice=1&vmin=low", "vmin"),
        ] {
            let error = drawing(query).unwrap_err();
            assert!(matches!(error.kind(), Kind::Usage(_)) && error.to_string().contains(key), "{query}: {error}");
        }
    }
}
