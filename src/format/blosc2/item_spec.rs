//! The size and the arrangement of items, which a frame records and its chunks do not.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::Arc;

use crate::error::Result;

use super::header::ChunkHeader;
use super::memory::ContainerMemory;

/// The frame's parameters for the blocks of a chunk, and the memory to decode with.
#[derive(Debug, Clone)]
pub(super) struct ItemSpec {
    /// Where decoding allocates memory.
    pub(super) memory: Arc<ContainerMemory>,
    /// Item size in bytes according to the frame; `None` for a chunk without a frame.
    pub(super) typesize: Option<u32>,
    /// Number of items in a block per dimension; `None` if it is not an array, an error if that is unknown.
    pub(super) blockshape: Result<Option<Vec<u32>>>,
}

impl ItemSpec {
    /// Item size in bytes: from the frame if there is one, else from the chunk.
    pub(super) fn typesize(&self, header: &ChunkHeader) -> u32 {
        self.typesize.unwrap_or(header.typesize.into())
    }
}
