//! An indexed frame with its dictionary, its checks, and its position in the decoded bytes.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::{Arc, OnceLock};

use crate::checksum::{ChecksumGate, Verified};
use crate::once::Once;

use super::block_sizes::BlockSizes;
use super::dict::FrameDictionary;
use super::index::ZxcFrame;

/// Memory of a frame besides its index: its state, and two gates of about this size.
pub(super) const MEMORY: usize = size_of::<FrameState>() + 2 * 256;
/// Target size of a piece that consists of several small blocks.
const PIECE: u64 = 256 << 10;

/// A frame and its state.
#[derive(Debug)]
pub(super) struct FrameState {
    pub(super) frame: Arc<ZxcFrame>,
    pub(super) dictionary: FrameDictionary,
    /// Verifies the hash over the block checksums, if there are any.
    pub(super) gate: Option<ChecksumGate>,
    pub(super) sizes: Once<BlockSizes>,
    /// Determines `sizes`, which needs decoding.
    pub(super) sizing: OnceLock<ChecksumGate>,
    /// Offset of the frame's decoded bytes in the decoded file.
    pub(super) start: u64,
    /// The number of its first piece.
    pub(super) first_piece: u64,
    /// The number of its first block.
    pub(super) first_block: u64,
}

impl FrameState {
    /// Whether a piece can contain more than one block.
    pub(super) fn shares_pieces(&self) -> bool {
        piece_len(&self.frame) > self.frame.header.block_size.into()
    }

    /// The state of the hash over its block checksums. A block is verified with each decode.
    pub(super) fn verified(&self) -> Verified {
        self.gate.as_ref().map_or(Verified::No, ChecksumGate::verified)
    }

    /// Whether the decoded ranges of the blocks are known.
    pub(super) fn is_sized(&self) -> bool {
        self.sizes.ready().is_some()
    }

    /// The number in the file of block `index` of the frame.
    pub(super) fn block_number(&self, index: u64) -> u64 {
        self.first_block.saturating_add(index)
    }

    /// The ends of its pieces in the decoded bytes of the file.
    pub(super) fn piece_ends(&self) -> impl Iterator<Item = u64> {
        let (start, total, len) = (self.start, self.frame.footer.total, piece_len(&self.frame));
        (1..=piece_count(&self.frame)).map(move |i| start.saturating_add(i.saturating_mul(len).min(total)))
    }
}

/// Size of a piece of `frame`: at least a block.
pub(super) fn piece_len(frame: &ZxcFrame) -> u64 {
    PIECE.max(frame.header.block_size.into())
}

/// Number of pieces of `frame`.
pub(super) fn piece_count(frame: &ZxcFrame) -> u64 {
    frame.footer.total.div_ceil(piece_len(frame))
}
