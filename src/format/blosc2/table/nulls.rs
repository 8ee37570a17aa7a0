//! Values that stand for a missing one.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::cmp::Ordering;

use serde_json::Value;

use crate::bytes::to_usize;
use crate::error::{Error, Result};
use crate::format::{Number, NumberKind};

/// The value that stands for a missing one, compared with elements of one type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Missing {
    /// Floats of this many bytes; NaN stands for all of them.
    Float { value: f64, width: usize, is_big_endian: bool },
    /// Elements with these bytes; text has no size of its own.
    Bytes(Vec<u8>),
    /// No element: a value that the type does not have.
    Never,
}

impl Missing {
    /// `value` as an element of `itemsize` bytes of the type `descr`.
    ///
    /// # Errors
    /// Fails if it is of no known kind.
    pub(super) fn element(value: &Value, descr: &str, itemsize: u64) -> Result<Self> {
        let len = to_usize(itemsize, "null_value")?;
        let unknown = || Error::unknown(format!("{value} for elements of the type {descr}"), "null_value");
        let padded = |mut bytes: Vec<u8>| {
            if bytes.len() > len {
                return Self::Never;
            }
            bytes.resize(len, 0);
            Self::Bytes(bytes)
        };
        if let Some(Number { kind, is_big_endian, .. }) = Number::of(descr) {
            return match kind {
                NumberKind::Float => {
                    let value = value.as_f64().or_else(|| value.as_str()?.parse().ok()).ok_or_else(unknown)?;
                    Ok(Self::Float { value, width: len, is_big_endian })
                }
                NumberKind::Complex => Err(unknown()),
                _ => Self::integer(value, len, is_big_endian).ok_or_else(unknown),
            };
        }
        match (descr.trim_start_matches(['\'', '<', '>', '|', '=']).chars().next(), value) {
            (Some('M'), _) => Self::integer(value, len, descr.starts_with("'>")).ok_or_else(unknown),
            (Some('U'), Value::String(text)) if !descr.starts_with("'>") => {
                Ok(padded(text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect()))
            }
            (Some('S'), value) => {
                let text = value.get("base64").and_then(Value::as_str).ok_or_else(unknown)?;
                Ok(padded(from_base64(text).ok_or_else(unknown)?))
            }
            _ => Err(unknown()),
        }
    }

    /// `value` as text.
    ///
    /// # Errors
    /// Fails if it is not text.
    pub(super) fn text(value: &Value) -> Result<Self> {
        match value {
            Value::String(text) => Ok(Self::Bytes(text.as_bytes().to_vec())),
            _ => Err(Error::unknown(format!("{value} for text"), "null_value")),
        }
    }

    fn integer(value: &Value, len: usize, is_big_endian: bool) -> Option<Self> {
        let value = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))?;
        let mut bytes = value.to_le_bytes().get(..len)?.to_vec();
        if is_big_endian {
            bytes.reverse();
        }
        Some(Self::Bytes(bytes))
    }

    /// Whether `element` is this one.
    pub(super) fn is(&self, element: &[u8]) -> bool {
        match self {
            Self::Never => false,
            Self::Bytes(bytes) => bytes == element,
            Self::Float { value, is_big_endian, .. } => Number::float(element, *is_big_endian).is_some_and(|found| {
                found.partial_cmp(value) == Some(Ordering::Equal) || (found.is_nan() && value.is_nan())
            }),
        }
    }

    /// Whether all elements of `row` are this one.
    pub(super) fn is_all(&self, row: &[u8]) -> bool {
        let len = match self {
            Self::Never => return false,
            Self::Bytes(bytes) => bytes.len(),
            Self::Float { width, .. } => *width,
        };
        row.chunks(len.max(1)).all(|element| self.is(element))
    }
}

/// The bytes that `text` stands for.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| {
        let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        digits.iter().position(|&other| other == c).and_then(|digit| u32::try_from(digit).ok())
    };
    let mut out = Vec::new();
    for part in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = part.iter().try_fold(0_u32, |bits, &c| Some(bits << 6 | digit(c)?))?;
        // One digit alone is not a byte.
        let missing = 4_usize.checked_sub(part.len()).filter(|&missing| missing < 3)?;
        let shifted = bits.checked_shl(u32::try_from(missing.saturating_mul(6)).ok()?)?;
        let [_, a, b, c] = shifted.to_be_bytes();
        // One digit alone is less than a byte.
        let len = 3_usize.checked_sub(missing).filter(|&len| len > 0)?;
        out.extend([a, b, c].get(..len)?);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_missing_value_of_each_type() {
        let rows: [(Value, &str, &[u8], bool); 12] = [
            (json!(-1), "'<i4'", &[255; 4], true),
            (json!(258), "'>u2'", &[1, 2], true),
            (json!(u64::MAX), "'<u8'", &[255; 8], true),
            (json!(i64::MIN), "'<M8[ms]'", &[0, 0, 0, 0, 0, 0, 0, 0x80], true),
            (json!("NaN"), "'<f4'", &f32::NAN.to_le_bytes(), true),
            (json!("NaN"), "'<f4'", &0_f32.to_le_bytes(), false),
            (json!(0.0), "'<f8'", &(-0.0_f64).to_le_bytes(), true),
            (json!("-Infinity"), "'>f8'", &f64::NEG_INFINITY.to_be_bytes(), true),
            (json!("a"), "'<U2'", &[97, 0, 0, 0, 0, 0, 0, 0], true),
            (json!("abc"), "'<U2'", &[97, 0, 0, 0, 98, 0, 0, 0], false),
            (json!({"__bytes__": true, "base64": "YWI="}), "'|S3'", b"ab\0", true),
            (json!({"__bytes__": true, "base64": ""}), "'|S3'", b"\0\0\0", true),
        ];
        for (value, descr, element, want) in rows {
            let missing = Missing::element(&value, descr, element.len().try_into().unwrap()).unwrap();
            assert_eq!(missing.is(element), want, "{value} {descr}");
            assert_eq!(missing.is_all(&element.repeat(3)), want, "{value} {descr}");
        }
        assert!(Missing::element(&json!({}), "'<i4'", 4).is_err());
        assert!(Missing::element(&json!(0), "'<c8'", 8).is_err());
        assert_eq!(from_base64("AAEC/w==").unwrap(), [0, 1, 2, 255]);
        assert_eq!(from_base64("A"), None);
    }
}
