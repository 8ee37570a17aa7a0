//! A single block as a blob.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use crate::checksum::{ChecksumGate, Verified};
use crate::error::{Error, Result};
use crate::format::{Blob, Layout, Measured};

use super::decoded_stream::DecodedStream;
use super::frame_state::FrameState;

/// A block of a frame. Used if the block shares its piece with others, so that a corrupt neighbour does not
/// affect it, and if its decoded range is not known yet.
pub(super) struct SingleBlock {
    pub(super) stream: Arc<DecodedStream>,
    /// The number of the block's frame.
    pub(super) frame: usize,
    /// The block's number in the frame.
    pub(super) index: u64,
}

impl SingleBlock {
    /// The frame, and the decoded range of the block relative to it.
    fn locate(&self) -> Result<(&FrameState, Range<u64>)> {
        let state = self.stream.frames.get(self.frame);
        let state = state.ok_or_else(|| Error::corrupt("there are fewer frames", "block"))?;
        Ok((state, self.stream.block_range(state, self.index)?))
    }
}

impl Blob for SingleBlock {
    fn layout(&self) -> Result<Layout> {
        let (_, range) = self.locate()?;
        let len = range.end - range.start;
        Ok(Layout::Uniform { len, piece: len.max(1) })
    }

    fn gate(&self, _: u64) -> Option<ChecksumGate> {
        let state = self.stream.frames.get(self.frame);
        self.stream.shut(self.frame, state.is_none_or(|state| self.index.saturating_add(1) >= state.frame.count()))
    }

    fn verified(&self, _: Range<u64>) -> Verified {
        self.stream.frames.get(self.frame).map_or(Verified::No, FrameState::verified)
    }

    fn decode(&self, _: u64, dst: &mut [u8]) -> Result<()> {
        let (state, range) = self.locate()?;
        self.stream.decode_range(state, range.start, dst)
    }

    fn measured(&self) -> Option<&dyn Measured> {
        Some(self)
    }
}

impl Measured for SingleBlock {
    fn known_len(&self) -> Option<u64> {
        let sized = self.stream.frames.get(self.frame).is_some_and(FrameState::is_sized);
        if sized { self.layout().ok().map(|layout| layout.len()) } else { None }
    }

    fn sizing(&self) -> Option<ChecksumGate> {
        self.stream.sizing(self.frame)
    }
}
