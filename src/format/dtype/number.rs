//! The element types that are numbers.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use half::f16;
use serde_json::Value;

use crate::bytes::to_u64;
use crate::format::about;

/// An element type that is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// Its kind.
    pub kind: NumberKind,
    /// Bytes of an element.
    pub width: u64,
    /// Whether its most significant byte comes first.
    pub is_big_endian: bool,
}

/// A kind of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberKind {
    /// 0 or 1, in one byte.
    Bool,
    /// Signed integers of 1, 2, 4 or 8 bytes.
    Int,
    /// Unsigned integers of 1, 2, 4 or 8 bytes.
    Uint,
    /// Floats of 2, 4 or 8 bytes (IEEE 754).
    Float,
    /// Two floats of 4 or 8 bytes: the real part and the imaginary part.
    Complex,
}

impl Number {
    /// The number that `descr` of a `.npy` header describes: `'<f4'`, with its quotes. `None` for other types, and for
    /// floats of machine-dependent format (`f16`, `c32`).
    pub fn of(descr: &str) -> Option<Self> {
        let text = descr.strip_prefix('\'')?.strip_suffix('\'')?;
        let (order, name) = text.split_at_checked(1)?;
        let (kind, width) = name.split_at_checked(1)?;
        let width = width.parse().ok()?;
        let kind = match (kind, width) {
            ("b", 1) => NumberKind::Bool,
            ("i", 1 | 2 | 4 | 8) => NumberKind::Int,
            ("u", 1 | 2 | 4 | 8) => NumberKind::Uint,
            ("f", 2 | 4 | 8) => NumberKind::Float,
            ("c", 8 | 16) => NumberKind::Complex,
            _ => return None,
        };
        matches!(order, "<" | ">" | "|").then_some(Self { kind, width, is_big_endian: order == ">" })
    }

    /// The element in `bytes` as JSON; a complex number is the list of its parts. `None` if it is of another size.
    pub fn to_json(self, bytes: &[u8]) -> Option<Value> {
        if to_u64(bytes.len()) != self.width {
            return None;
        }
        Some(match self.kind {
            NumberKind::Bool => (bytes != [0]).into(),
            NumberKind::Int => {
                let sign = if self.is_big_endian { bytes.first() } else { bytes.last() }? >> 7;
                i64::from_le_bytes(self.extended(bytes, if sign == 1 { 0xff } else { 0 })).into()
            }
            NumberKind::Uint => u64::from_le_bytes(self.extended(bytes, 0)).into(),
            NumberKind::Float => about::float(Self::float(bytes, self.is_big_endian)?),
            NumberKind::Complex => {
                let part = |part| Some(about::float(Self::float(part, self.is_big_endian)?));
                bytes.chunks_exact(bytes.len() / 2).map(part).collect::<Option<_>>()?
            }
        })
    }

    /// A float of 2, 4, or 8 bytes.
    pub fn float(bytes: &[u8], is_big_endian: bool) -> Option<f64> {
        let mut bytes = bytes.to_vec();
        if is_big_endian {
            bytes.reverse();
        }
        match *bytes.as_slice() {
            [a, b] => Some(f16::from_le_bytes([a, b]).into()),
            [a, b, c, d] => Some(f32::from_le_bytes([a, b, c, d]).into()),
            _ => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
        }
    }

    /// The bytes of an integer from the lowest to the highest, the rest `fill`.
    fn extended(self, bytes: &[u8], fill: u8) -> [u8; 8] {
        let mut out = [fill; 8];
        for (i, byte) in bytes.iter().enumerate() {
            let at = if self.is_big_endian { bytes.len().saturating_sub(i).saturating_sub(1) } else { i };
            if let Some(out) = out.get_mut(at) {
                *out = *byte;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_are_json() {
        for (descr, element, want) in [
            ("'|i1'", &[0x80][..], Some(json!(-128))),
            ("'>i2'", &[0xff, 0xfe], Some(json!(-2))),
            ("'<i4'", &[0, 0, 0, 0x80], Some(json!(i32::MIN))),
            ("'>u8'", &[0xff; 8], Some(json!(u64::MAX))),
            ("'<u2'", &[0, 0x80], Some(json!(0x8000))),
            ("'>f4'", &[0x3f, 0x80, 0, 0], Some(json!(1.0))),
            ("'>c8'", &[0x3f, 0x80, 0, 0, 0xff, 0x80, 0, 0], Some(json!([1.0, "-Infinity"]))),
            ("'<i4'", &[1, 0], None),
        ] {
            assert_eq!(Number::of(descr).unwrap().to_json(element), want, "{descr}");
        }
    }

    #[test]
    fn numbers_are_told_from_other_types() {
        let number = |kind, width, is_big_endian| Some(Number { kind, width, is_big_endian });
        for (descr, want) in [
            ("'<f4'", number(NumberKind::Float, 4, false)),
            ("'>f2'", number(NumberKind::Float, 2, true)),
            ("'|b1'", number(NumberKind::Bool, 1, false)),
            ("'|u1'", number(NumberKind::Uint, 1, false)),
            ("'>i8'", number(NumberKind::Int, 8, true)),
            ("'<c16'", number(NumberKind::Complex, 16, false)),
            ("'<f16'", None),
            ("'<c32'", None),
            ("'|V2'", None),
            ("'|S1'", None),
            ("'<M8[ns]'", None),
            ("[('a', '<f4')]", None),
            ("''", None),
            ("<f4", None),
        ] {
            assert_eq!(Number::of(descr), want, "{descr}");
        }
    }
}
