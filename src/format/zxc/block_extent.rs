//! Where a block is stored.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::FileOffset;
use crate::error::{Error, Result};

use super::header::{BlockHeader, FileHeader};
use super::index::ZxcFrame;

/// The stored bytes of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockExtent {
    /// Offset of the block header.
    pub(super) at: FileOffset,
    /// Bytes of header, payload and checksum.
    pub(super) size: u64,
}

impl BlockExtent {
    /// Locates block `index` of `frame`.
    ///
    /// # Errors
    /// Fails if there are fewer blocks.
    pub(super) fn find(frame: &ZxcFrame, index: u64) -> Result<Self> {
        let missing = || Error::corrupt("there are fewer blocks", "block");
        frame.block(index).map(|(at, size)| Self { at, size }).ok_or_else(missing)
    }

    /// Offset of the payload.
    pub(super) fn payload_at(self) -> FileOffset {
        self.at.plus(BlockHeader::LEN)
    }

    /// Size of the payload.
    pub(super) fn payload_len(self, header: &FileHeader) -> u64 {
        self.size.saturating_sub(BlockHeader::LEN).saturating_sub(header.checksum_len())
    }
}
