//! Positions in the container file.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

/// A position in the container file, in bytes from its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileOffset(pub u64);

impl FileOffset {
    /// The position `len` bytes further on; saturates at `u64::MAX`.
    #[must_use]
    pub const fn plus(self, len: u64) -> Self {
        Self(self.0.saturating_add(len))
    }

    /// The position `len` bytes further on, or `None` past `u64::MAX`.
    pub const fn checked_add(self, len: u64) -> Option<Self> {
        match self.0.checked_add(len) {
            Some(at) => Some(Self(at)),
            None => None,
        }
    }
}
