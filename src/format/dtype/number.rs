//! The element types that are numbers.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

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
}

#[cfg(test)]
mod tests {
    use super::*;

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
