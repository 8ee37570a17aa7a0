//! Special chunks, which store a value or nothing in the place of items.
//!
//! Reference: section 6.2.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::FileOffset;
use crate::error::{Error, Result};

/// Maximum size of a repeated value, and of a block.
pub(super) const MAX_BLOCK: u32 = 536_866_816;

/// The content of a chunk that stores no items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Special {
    Zeros,
    Nan,
    /// A value of `len` bytes, stored after the header and repeated.
    Value {
        len: u32,
    },
    Uninitialised,
}

impl Special {
    /// Checks that `nbytes` of this content are possible with items of `typesize` bytes.
    pub(super) fn check(self, nbytes: u64, typesize: u64, at: FileOffset) -> Result<()> {
        let whole = |item: u64| nbytes.checked_rem(item) == Some(0);
        let why = match self {
            Self::Zeros => return Ok(()),
            Self::Nan if matches!(typesize, 4 | 8) && whole(typesize) => return Ok(()),
            Self::Nan => format!("NaN requires items of 4 or 8 bytes: {nbytes} bytes of items of {typesize}"),
            Self::Value { len } if len <= MAX_BLOCK && u64::from(len) <= nbytes && whole(len.into()) => return Ok(()),
            Self::Value { len } => format!("repeating a value of {len} bytes does not fill {nbytes} bytes"),
            Self::Uninitialised if whole(typesize) => return Ok(()),
            Self::Uninitialised => format!("{nbytes} bytes are not a multiple of the item size, {typesize}"),
        };
        Err(Error::corrupt(why, "special type").at(at))
    }
}
