//! The description of a container, as `info.json` shows it.
#![forbid(unsafe_code)]

use serde_json::{Map, Value};

/// The description of a container: the head of `info.json`, which all formats share, and the rest.
#[derive(Debug, Clone)]
pub struct Info {
    /// The format's name, as in [`super::Format::name`].
    pub format: &'static str,
    /// The version of the format, as its specification writes it.
    pub format_version: String,
    /// Size of the container in bytes.
    pub file_size: u64,
    /// Total decoded size in bytes, if known without decoding.
    pub decoded_size: Option<u64>,
    /// The checksums in the container, as text or as an object.
    pub checksums: Value,
    /// How many of them `verify` checks; `None` if that is not known before all is read.
    pub checksum_count: Option<u64>,
    /// The remaining members, in display order.
    pub details: Map<String, Value>,
}

impl Info {
    /// The `info.json` object.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        map.insert("format".into(), self.format.into());
        map.insert("format_version".into(), self.format_version.clone().into());
        map.insert("file_size".into(), self.file_size.into());
        map.insert("decoded_size".into(), self.decoded_size.into());
        map.insert("checksums".into(), self.checksums.clone());
        map.extend(self.details.clone());
        Value::Object(map)
    }
}

/// The compression ratio in `info.json`, with three decimals; null without stored bytes.
pub(super) fn ratio(decoded: u64, stored: u64) -> Value {
    let ratio = |stored| ((decoded as f64 / stored as f64 * 1000.0).round() / 1000.0).into();
    Some(stored).filter(|&stored| stored > 0).map_or(Value::Null, ratio)
}
