//! Big-endian components of dialect 0.1.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;

use crate::bytes::to_usize;
use crate::checksum::{ChecksumGate, Verified};
use crate::error::{Error, Result};
use crate::format::{Blob, FileExtent, Layout};

use super::manifest::Component;
use super::quoted::quoted;

/// The width of the numbers that need their bytes reversed; 1 if none do.
pub(super) fn swap_width(part: &Component<'_>) -> Result<u64> {
    match part.endianness.as_deref() {
        None | Some("little") => Ok(1),
        Some("big") => part.element().map(|e| e.number_width()).ok_or_else(|| {
            Error::unknown(format!("the element type {}", quoted(&part.dtype)), "dtype").at(part.described_at)
        }),
        Some(other) => {
            Err(Error::unknown(format!("the byte order {}", quoted(other)), "data_endianness").at(part.described_at))
        }
    }
}

/// Big-endian numbers, served as little-endian.
pub(super) struct ByteSwapped {
    pub(super) stored: FileExtent,
    pub(super) width: u64,
}

/// A multiple of every element width.
const PIECE: u64 = 1 << 20;

impl Blob for ByteSwapped {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: self.stored.len, piece: PIECE })
    }

    fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        self.stored.shut(piece.saturating_mul(PIECE), PIECE)
    }

    fn verified(&self, _: Range<u64>) -> Verified {
        self.stored.gate.as_ref().map_or(Verified::No, ChecksumGate::verified)
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        self.stored.wait_before(piece.saturating_mul(PIECE), PIECE)?;
        self.stored.source.read(self.stored.at.plus(piece.saturating_mul(PIECE)), dst, "component")?;
        for number in dst.chunks_exact_mut(to_usize(self.width, "element")?) {
            number.reverse();
        }
        Ok(())
    }
}
