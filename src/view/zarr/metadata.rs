//! The documents `zarr.json` of arrays and groups.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use serde_json::{Value, json};

use crate::format::about::Attributes;

use super::chunk::Chunks;

/// The attribute that names the element for missing values.
const FILL: &str = "_FillValue";

/// The document of an array with chunks `chunks`, the dimensions `dimensions` and these attributes.
pub fn array(chunks: &Chunks, dimensions: &[String], mut attributes: Attributes) -> Value {
    let data_type = chunks.data_type();
    // In another form, xarray fails to open the whole group.
    if let Some(value) = attributes.get_mut(FILL) {
        match data_type.fill(value) {
            Some(fill) => *value = fill,
            None => drop(attributes.shift_remove(FILL)),
        }
    }
    let codec = match data_type.endian {
        Some(endian) => json!({ "name": "bytes", "configuration": { "endian": endian } }),
        None => json!({ "name": "bytes" }),
    };
    json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": chunks.array().shape,
        "data_type": data_type.name,
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": chunks.sizes() } },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
        "fill_value": data_type.zero,
        "codecs": [codec],
        "attributes": attributes,
        "dimension_names": dimensions,
        "storage_transformers": [],
    })
}

/// The document of a group within consolidated metadata, which lists its members beside it.
pub fn group(attributes: &Attributes) -> Value {
    json!({ "zarr_format": 3, "node_type": "group", "attributes": attributes })
}

/// The parts of a group's document: before its attributes; from there to the first of its members' documents by name;
/// and after the last.
pub const GROUP: [&str; 3] = [
    "{\"zarr_format\": 3, \"node_type\": \"group\", \"attributes\": ",
    ", \"consolidated_metadata\": {\"kind\": \"inline\", \"must_understand\": false, \"metadata\": {",
    "}}}\n",
];
