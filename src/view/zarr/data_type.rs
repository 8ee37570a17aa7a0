//! Element types of Zarr, from those of NumPy.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use serde_json::{Value, json};

/// An element type.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DataType {
    /// Its name in Zarr.
    pub(super) name: &'static str,
    /// The configuration of the codec `bytes`: the byte order; `None` for single bytes.
    pub(super) endian: Option<&'static str>,
    /// Its zero, as a fill value.
    pub(super) zero: Value,
}

/// The types that all readers have, without byte order.
const TYPES: &[(&str, &str)] = &[
    ("b1", "bool"),
    ("i1", "int8"),
    ("i2", "int16"),
    ("i4", "int32"),
    ("i8", "int64"),
    ("u1", "uint8"),
    ("u2", "uint16"),
    ("u4", "uint32"),
    ("u8", "uint64"),
    ("f2", "float16"),
    ("f4", "float32"),
    ("f8", "float64"),
    ("c8", "complex64"),
    ("c16", "complex128"),
];

impl DataType {
    /// The type with the NumPy name `descr`, as in a `.npy` header; `None` if Zarr lacks it.
    pub(super) fn of(descr: &str) -> Option<Self> {
        let (order, code) = descr.trim_matches('\'').split_at_checked(1)?;
        let &(_, name) = TYPES.iter().find(|(known, _)| *known == code)?;
        let endian = match order {
            "<" => Some("little"),
            ">" => Some("big"),
            "|" => None,
            _ => return None,
        };
        let zero = match code.as_bytes().first() {
            Some(b'b') => false.into(),
            Some(b'f') => 0.0.into(),
            Some(b'c') => json!([0.0, 0.0]),
            _ => 0.into(),
        };
        Some(Self { name, endian, zero })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_all_readers_are_named_and_others_are_none() {
        let rows = [
            ("'|b1'", Some(("bool", None, json!(false)))),
            ("'|u1'", Some(("uint8", None, json!(0)))),
            ("'<i2'", Some(("int16", Some("little"), json!(0)))),
            ("'>f8'", Some(("float64", Some("big"), json!(0.0)))),
            ("'<c8'", Some(("complex64", Some("little"), json!([0.0, 0.0])))),
            ("'<V2'", None),
            ("'|S4'", None),
            ("'<U4'", None),
            ("'<M8[ns]'", None),
            ("'<f16'", None),
            ("[('a', '<f4')]", None),
            ("", None),
        ];
        for (descr, want) in rows {
            let want = want.map(|(name, endian, zero)| DataType { name, endian, zero });
            assert_eq!(DataType::of(descr), want, "{descr}");
        }
    }
}
