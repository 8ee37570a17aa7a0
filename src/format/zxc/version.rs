//! Versions of the format.
#![forbid(unsafe_code)]

/// A version of the format. Version byte 5 covers four dialects, which are read the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ZxcVersion {
    V4,
    V5,
    V6,
    V7,
    V8,
    V9,
}

impl ZxcVersion {
    /// The version byte of the file header.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V5 => 5,
            Self::V6 => 6,
            Self::V7 => 7,
            Self::V8 => 8,
            Self::V9 => 9,
        }
    }

    /// Maximum length of a Huffman code in bits.
    pub(super) fn code_bits(self) -> u32 {
        if self < Self::V7 { 8 } else { 11 }
    }
}
