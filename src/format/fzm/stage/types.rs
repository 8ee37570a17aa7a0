//! Element types of a port (section 4, seed table `DataType`), and the byte representation of elements.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "these are single loads, shifts and stores of inner loops")]

use std::ops::{Add, Mul};

/// The element type of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DataType {
    /// Unsigned, 8 bits.
    U8 = 0,
    /// Unsigned, 16 bits.
    U16 = 1,
    /// Unsigned, 32 bits.
    U32 = 2,
    /// Unsigned, 64 bits.
    U64 = 3,
    /// Two's complement, 8 bits.
    I8 = 4,
    /// Two's complement, 16 bits.
    I16 = 5,
    /// Two's complement, 32 bits.
    I32 = 6,
    /// Two's complement, 64 bits.
    I64 = 7,
    /// IEEE 754, 32 bits.
    F32 = 8,
    /// IEEE 754, 64 bits.
    F64 = 9,
    /// Bytes without an element type.
    Opaque = 255,
}

impl DataType {
    const TYPED: [Self; 10] =
        [Self::U8, Self::U16, Self::U32, Self::U64, Self::I8, Self::I16, Self::I32, Self::I64, Self::F32, Self::F64];

    /// Its number in a file.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The type with number `code`.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            255 => Some(Self::Opaque),
            _ => Self::TYPED.get(usize::from(code)).copied(),
        }
    }

    /// Bytes of an element; 1 for opaque bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Opaque => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Its NumPy name, or `opaque`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::Opaque => "opaque",
        }
    }

    /// The `descr` of a NumPy header, with quotes: `'<f4'`. `None` for opaque bytes.
    pub const fn descr(self) -> Option<&'static str> {
        Some(match self {
            Self::U8 => "'|u1'",
            Self::U16 => "'<u2'",
            Self::U32 => "'<u4'",
            Self::U64 => "'<u8'",
            Self::I8 => "'|i1'",
            Self::I16 => "'<i2'",
            Self::I32 => "'<i4'",
            Self::I64 => "'<i8'",
            Self::F32 => "'<f4'",
            Self::F64 => "'<f8'",
            Self::Opaque => return None,
        })
    }

    /// Whether it is a signed integer.
    pub(super) const fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }
}

/// A number as stored in a stream: little-endian, `SIZE` bytes.
pub(super) trait Element: Copy + Default + PartialEq + Send + Sync + 'static {
    /// Bytes per element.
    const SIZE: usize;
    /// Reads it from exactly `SIZE` bytes.
    fn get(bytes: &[u8]) -> Self;
    /// Writes it into exactly `SIZE` bytes.
    fn put(self, bytes: &mut [u8]);
}

macro_rules! elements {
    ($($ty:ty)*) => {$(
        impl Element for $ty {
            const SIZE: usize = size_of::<$ty>();

            #[inline(always)]
            fn get(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$ty>()];
                own.copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }

            #[inline(always)]
            fn put(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

elements!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

/// An unsigned integer with the conventions of section 4.
pub(super) trait Unsigned: Element {
    /// Decodes zigzag to two's complement bits.
    fn unzigzag(self) -> Self;
    /// Decodes negabinary to two's complement bits.
    fn unnegabinary(self) -> Self;
    /// The sum, modulo the width.
    fn plus(self, other: Self) -> Self;
    /// The bits as a two's complement number.
    fn signed(self) -> i64;
    /// The bits as an unsigned number; only for types below 64 bits.
    fn plain(self) -> i64;
}

macro_rules! unsigned {
    ($($ty:ty, $signed:ty;)*) => {$(
        impl Unsigned for $ty {
            #[inline(always)]
            fn unzigzag(self) -> Self {
                (self >> 1) ^ (self & 1).wrapping_neg()
            }

            #[inline(always)]
            fn unnegabinary(self) -> Self {
                const MASK: $ty = <$ty>::MAX / 3 * 2;
                (self ^ MASK).wrapping_sub(MASK)
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn signed(self) -> i64 {
                self as $signed as i64
            }

            #[inline(always)]
            fn plain(self) -> i64 {
                self as i64
            }
        }
    )*};
}

unsigned!(u8, i8; u16, i16; u32, i32; u64, i64;);

/// A floating-point number.
pub(super) trait Float: Element + Add<Output = Self> + Mul<Output = Self> + Into<f64> {
    /// The nearest number to `x`.
    fn nearest(x: f64) -> Self;
    /// The product with `by`, plus `plus`, rounded once.
    fn times_plus(self, by: Self, plus: Self) -> Self;
    /// The nearest number to `n`.
    fn of(n: i64) -> Self;
    /// Converts `x`, exactly.
    fn from_f32(x: f32) -> Self;
    /// Whether it is neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// The result of a calculation, as every device gives it: processors make different NaNs, and a GPU sets all bits
    /// but the sign.
    fn canonical(self) -> Self;
}

impl Float for f32 {
    #[inline(always)]
    fn nearest(x: f64) -> Self {
        x as Self
    }

    #[inline(always)]
    fn times_plus(self, by: Self, plus: Self) -> Self {
        self.mul_add(by, plus)
    }

    fn is_finite(self) -> bool {
        Self::is_finite(self)
    }

    #[inline(always)]
    fn canonical(self) -> Self {
        if self.is_nan() { Self::from_bits(u32::MAX >> 1) } else { self }
    }

    #[inline(always)]
    fn of(n: i64) -> Self {
        n as Self
    }

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }
}

impl Float for f64 {
    #[inline(always)]
    fn nearest(x: f64) -> Self {
        x
    }

    #[inline(always)]
    fn times_plus(self, by: Self, plus: Self) -> Self {
        self.mul_add(by, plus)
    }

    fn is_finite(self) -> bool {
        Self::is_finite(self)
    }

    #[inline(always)]
    fn canonical(self) -> Self {
        if self.is_nan() { Self::from_bits(u64::MAX >> 1) } else { self }
    }

    #[inline(always)]
    fn of(n: i64) -> Self {
        n as Self
    }

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        Self::from(x)
    }
}

/// The whole elements in `bytes`, in order; a partial element at the end is ignored.
#[inline(always)]
pub(super) fn elements<T: Element>(bytes: &[u8]) -> impl ExactSizeIterator<Item = T> + DoubleEndedIterator + '_ {
    bytes.chunks_exact(T::SIZE).map(T::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_codes_decode_to_small_numbers_of_both_signs() {
        assert_eq!([0, 1, 2, 3, 255].map(|u: u8| u.unzigzag() as i8), [0, -1, 1, -2, -128]);
        // Base -2: 1 = 1, 10 = -2, 11 = -1, 110 = 4 - 2, 111 = 3.
        assert_eq!([0, 1, 2, 3, 6, 7].map(|u: u16| u.unnegabinary() as i16), [0, 1, -2, -1, 2, 3]);
        assert_eq!(3_u64.unnegabinary(), u64::MAX);
    }

    #[test]
    fn codes_sizes_and_names_agree() {
        for code in 0..=255 {
            let Some(ty) = DataType::from_code(code) else {
                assert!((10..255).contains(&code));
                continue;
            };
            assert_eq!(ty.code(), code);
            if let Some(descr) = ty.descr() {
                assert_eq!(descr.trim_matches('\'')[2..].parse::<usize>().unwrap(), ty.size(), "{descr}");
                assert!(ty.name().ends_with(&(8 * ty.size()).to_string()), "{}", ty.name());
            }
        }
        assert_eq!(DataType::Opaque.size(), 1);
    }
}
