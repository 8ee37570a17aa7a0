//! Element types: their names in each dialect, their widths, and their names in NumPy and safetensors.
//!
//! Reference: sections 3, 4 and 6.4.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

/// The type of a tensor's elements: a stored type, or a logical type over one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TensorElement {
    /// Its short name: `f32`, `complex64`.
    pub(super) name: &'static str,
    /// Other names used by some dialects.
    aliases: &'static [&'static str],
    /// The stored type of a logical type; its own name for a plain one.
    pub(super) storage: &'static str,
    /// Bits of one element.
    bits: u64,
    /// The value of `descr` in a `.npy` header; empty if NumPy has no such type.
    pub(super) descr: &'static str,
    /// Its name in safetensors files; empty if the format has no such type.
    pub(super) safetensors: &'static str,
}

const fn plain(
    name: &'static str,
    aliases: &'static [&'static str],
    bits: u64,
    descr: &'static str,
    st: &'static str,
) -> TensorElement {
    TensorElement { name, aliases, storage: name, bits, descr, safetensors: st }
}

const fn logical(
    name: &'static str,
    storage: &'static str,
    bits: u64,
    descr: &'static str,
    st: &'static str,
) -> TensorElement {
    TensorElement { name, aliases: &[], storage, bits, descr, safetensors: st }
}

/// Types of a `dtype` field.
const STORED: &[TensorElement] = &[
    plain("f64", &["float64"], 64, "'<f8'", "F64"),
    plain("f32", &["float32"], 32, "'<f4'", "F32"),
    plain("f16", &["float16"], 16, "'<f2'", "F16"),
    plain("bf16", &["bfloat16"], 16, "'<V2'", "BF16"),
    plain("i64", &["int64"], 64, "'<i8'", "I64"),
    plain("i32", &["int32"], 32, "'<i4'", "I32"),
    plain("i16", &["int16"], 16, "'<i2'", "I16"),
    plain("i8", &["int8"], 8, "'|i1'", "I8"),
    plain("u64", &["uint64"], 64, "'<u8'", "U64"),
    plain("u32", &["uint32"], 32, "'<u4'", "U32"),
    plain("u16", &["uint16"], 16, "'<u2'", "U16"),
    plain("u8", &["uint8"], 8, "'|u1'", "U8"),
    plain("bool", &[], 8, "'|b1'", "BOOL"),
    // Specified for 1.1 only.
    plain("f8_e4m3", &[], 8, "'|V1'", "F8_E4M3"),
    plain("f8_e5m2", &[], 8, "'|V1'", "F8_E5M2"),
    plain("complex64", &[], 64, "'<c8'", "C64"),
    plain("complex128", &[], 128, "'<c16'", ""),
];

/// Types of a `type` field.
const LOGICAL: &[TensorElement] = &[
    logical("bool", "u8", 8, "'|b1'", "BOOL"),
    logical("f8_e4m3fn", "u8", 8, "'|V1'", "F8_E4M3"),
    logical("f8_e4m3", "u8", 8, "'|V1'", "F8_E4M3"),
    logical("f8_e5m2", "u8", 8, "'|V1'", "F8_E5M2"),
    logical("f8_e4m3fnuz", "u8", 8, "'|V1'", ""),
    logical("f8_e5m2fnuz", "u8", 8, "'|V1'", ""),
    logical("f8_e8m0", "u8", 8, "'|V1'", "F8_E8M0"),
    logical("f4_e2m1", "u8", 4, "", ""),
    logical("complex64", "f32", 64, "'<c8'", "C64"),
    logical("complex128", "f64", 128, "'<c16'", ""),
];

impl TensorElement {
    /// The stored type with the given `dtype` name.
    pub(super) fn stored(name: &str) -> Option<Self> {
        STORED.iter().find(|e| e.name == name || e.aliases.contains(&name)).copied()
    }

    /// The logical type with the given `type` name.
    pub(super) fn logical(name: &str) -> Option<Self> {
        LOGICAL.iter().find(|e| e.name == name).copied()
    }

    /// Bytes of `count` elements; `None` on overflow.
    pub(super) fn bytes(&self, count: u64) -> Option<u64> {
        let bits = u128::from(count).checked_mul(u128::from(self.bits))?;
        u64::try_from(bits.div_ceil(8)).ok()
    }

    /// Bytes of one element; 1 for elements smaller than a byte.
    pub(super) fn width(&self) -> u64 {
        self.bits.div_ceil(8)
    }

    /// Bytes of one number of an element: half of a complex one. Byte order applies to numbers.
    pub(super) fn number_width(&self) -> u64 {
        if self.name.starts_with("complex") { self.width() / 2 } else { self.width() }
    }

    /// Whether it is a plain integer type, which counts and indices require.
    pub(super) fn is_integer(&self) -> bool {
        self.name == self.storage && matches!(self.name.as_bytes().first(), Some(b'i' | b'u'))
    }

    /// Whether it is a signed integer.
    pub(super) fn is_signed(&self) -> bool {
        self.name.starts_with('i')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_their_names_in_every_dialect() {
        for (name, width) in [("float64", 8), ("f64", 8), ("bfloat16", 2), ("bf16", 2), ("bool", 1), ("complex128", 16)]
        {
            assert_eq!(TensorElement::stored(name).unwrap().width(), width, "{name}");
        }
        assert!(TensorElement::stored("float8").is_none() && TensorElement::logical("f32").is_none());
        assert_eq!(TensorElement::logical("f4_e2m1").unwrap().bytes(5), Some(3));
        assert_eq!(TensorElement::logical("complex128").unwrap().bytes(u64::MAX), None);
        let number = |name| TensorElement::stored(name).unwrap().number_width();
        assert_eq!(["complex64", "complex128", "f64", "u8"].map(number), [4, 8, 8, 1]);
        assert!(
            TensorElement::stored("u8").unwrap().is_integer() && !TensorElement::stored("bool").unwrap().is_integer()
        );
    }
}
