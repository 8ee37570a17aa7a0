//! The decoded bytes of frames as a blob.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::checksum::{ChecksumGate, Verified};
use crate::codec::zstd::ContentStream;
use crate::error::Result;
use crate::format::{Blob, Fragmented, InOrder, Layout, Measured, Piece};

/// The decoded bytes of frames.
pub(super) struct FramesBlob(pub(super) ContentStream);

impl Blob for FramesBlob {
    fn layout(&self) -> Result<Layout> {
        self.0.pieces().map(Layout::from)
    }

    fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        self.0.gate(piece)
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        self.0.decode(piece, dst)
    }

    fn verified(&self, range: Range<u64>) -> Verified {
        self.0.verified(range)
    }

    fn measured(&self) -> Option<&dyn Measured> {
        Some(self)
    }

    fn fragmented(&self) -> Option<&dyn Fragmented> {
        Some(self)
    }

    fn in_order(&self) -> Option<&dyn InOrder> {
        Some(self)
    }
}

impl Measured for FramesBlob {
    fn known_len(&self) -> Option<u64> {
        self.0.known_len()
    }

    fn longest(&self) -> Option<Layout> {
        self.0.longest().map(Layout::from)
    }

    fn sizing(&self) -> Option<ChecksumGate> {
        self.0.sizing()
    }
}

impl Fragmented for FramesBlob {
    fn fragments(&self) -> Option<Layout> {
        self.0.fragments().map(Layout::from)
    }

    fn decode_fragment(&self, piece: u64, at: u64, dst: &mut [u8]) -> Result<()> {
        self.0.decode_fragment(piece, at, dst)
    }
}

impl InOrder for FramesBlob {
    fn is_run(&self, piece: u64) -> bool {
        self.0.is_run(piece)
    }

    fn note_read(&self, piece: u64) {
        self.0.note_read(piece);
    }

    fn ready(&self, piece: u64) -> Option<Piece> {
        self.0.ready(piece)
    }

    fn is_coming(&self, piece: u64) -> bool {
        self.0.is_coming(piece)
    }

    fn ready_soon(&self, piece: u64) -> Option<Piece> {
        self.0.ready_soon(piece)
    }
}
