//! The names of the dimensions of the array in a frame.
//!
//! A metalayer of either kind, with one of the names [`DIMENSIONS`] and a list of texts as its value, names the
//! dimensions: the format itself does not define names.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::Arc;

use serde_json::Value;

use super::frame::Frame;
use super::metalayers::LayerValue;

/// Names of metalayers that programs use for the names of dimensions.
pub(super) const DIMENSIONS: [&[u8]; 3] = [b"dimension_names", b"_ARRAY_DIMENSIONS", b"dims"];
/// Maximum bytes of such a value.
const LONGEST: u64 = 64 << 10;

/// The names of the dimensions of the array in `frame`. A broken value counts as none.
pub(super) fn dimensions(frame: &Frame) -> Option<Vec<String>> {
    let is_one = |name: &[u8]| DIMENSIONS.contains(&name);
    let fixed = frame.metalayers.iter().find(|layer| is_one(&layer.name));
    let value = if let Some(layer) = fixed {
        LayerValue::Stored(Arc::clone(&frame.source), layer.clone())
    } else {
        let layer = frame.vlmetalayers.as_ref().ok()?.iter().find(|layer| is_one(&layer.name))?;
        LayerValue::of_chunk(&frame.source, layer, &frame.chunks.item().memory).ok()?
    };
    let json = Some(value).filter(|value| value.len() <= LONGEST)?.json().ok()??;
    let Value::Array(names) = serde_json::from_slice(&json).ok()? else { return None };
    names.into_iter().map(|name| name.as_str().map(str::to_owned)).collect()
}
