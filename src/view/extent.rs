//! The sources of the parts of a view, and the extents of a range.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::{BlobRef, Fetch, FileExtent, Layout, Piece};

use super::{Computed, GridReader, Lookup};

/// The source of a part.
#[derive(Debug, Clone)]
pub(super) enum Leaf {
    Bytes(Arc<[u8]>),
    Computed(Arc<Computed>),
    FileExtent(FileExtent),
    Blob(BlobRef, Layout),
    Grid(Arc<GridReader>),
    Zeros,
}

impl Leaf {
    /// Calls `each` for the extents of `len` bytes at `at`, which must be within the leaf.
    pub(super) fn extents<'a>(
        &'a self,
        at: u64,
        len: u64,
        each: &mut dyn FnMut(Extent<'a>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Bytes(bytes) => each(Extent::Bytes(subslice(bytes, at, to_usize(len, "extent")?)?)),
            Self::Computed(computed) => each(Extent::Computed { computed, at, len }),
            Self::FileExtent(stored) => each(Extent::FileExtent { stored, at, len }),
            Self::Grid(grid) => each(Extent::Grid { grid, at, len }),
            Self::Zeros => each(Extent::Zeros(len)),
            Self::Blob(blob, layout) => {
                let (mut at, end) = (at, at.saturating_add(len));
                while at < end {
                    let piece = layout.locate(at);
                    let bounds = layout.range(piece);
                    if !bounds.contains(&at) {
                        return Err(Error::corrupt("the pieces do not cover the blob", "layout"));
                    }
                    let (size, start) = (bounds.end - bounds.start, at - bounds.start);
                    let len = bounds.end.min(end) - at;
                    each(Extent::Piece { blob, piece, size, start, len })?;
                    at += len;
                }
                Ok(())
            }
        }
    }
}

/// An extent of a range of a view.
#[derive(Debug)]
pub enum Extent<'a> {
    /// Bytes in memory.
    Bytes(&'a [u8]),
    /// Computed bytes: `len` bytes at `at`.
    Computed {
        /// Computes them.
        computed: &'a Computed,
        /// Offset of the first byte.
        at: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Bytes of the container, served as stored.
    FileExtent {
        /// The file range that contains them.
        stored: &'a FileExtent,
        /// Offset of the first byte in that range.
        at: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Bytes of one decoded piece.
    Piece {
        /// The blob.
        blob: &'a BlobRef,
        /// The piece.
        piece: u64,
        /// Size of the whole piece.
        size: u64,
        /// Offset of the first byte in the piece.
        start: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Bytes of an n-dimensional array, gathered from its blocks.
    Grid {
        /// The array.
        grid: &'a GridReader,
        /// Offset of the first byte in C order.
        at: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Zero bytes.
    Zeros(u64),
}

impl Extent<'_> {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => to_u64(bytes.len()),
            Self::Computed { len, .. }
            | Self::FileExtent { len, .. }
            | Self::Piece { len, .. }
            | Self::Grid { len, .. }
            | Self::Zeros(len) => *len,
        }
    }

    /// Copies the bytes of the pieces that `lookup` returns to `dst`, which has the length of the extent. Writes the
    /// other bytes if there is `fetch`.
    pub(super) fn read(&self, dst: &mut [u8], lookup: &Lookup, fetch: Option<&dyn Fetch>) -> Result<()> {
        match *self {
            Self::Piece { blob, piece, size, start, .. } => {
                if let Some(piece) = lookup(blob, piece)? {
                    let bytes = whole(piece, size)?;
                    dst.copy_from_slice(subslice(&bytes, start, dst.len())?);
                }
            }
            Self::Grid { grid, at, .. } => grid.copy(at, dst, lookup, fetch.is_some())?,
            _ => fetch.map_or(Ok(()), |fetch| self.read_other(dst, fetch))?,
        }
        Ok(())
    }

    /// Fills `dst` if the extent needs no pieces.
    fn read_other(&self, dst: &mut [u8], fetch: &dyn Fetch) -> Result<()> {
        match *self {
            Self::Bytes(bytes) => dst.copy_from_slice(bytes),
            Self::Computed { computed, at, .. } => {
                let bytes = computed.bytes(fetch)?;
                dst.copy_from_slice(subslice(&bytes, at, dst.len())?);
            }
            Self::FileExtent { stored, at, len } => {
                stored.wait_before(at, len)?;
                stored.source.read(stored.at.plus(at), dst, "stored bytes")?;
            }
            Self::Zeros(_) => dst.fill(0),
            Self::Piece { .. } | Self::Grid { .. } => {}
        }
        Ok(())
    }
}

/// The `len` bytes of `bytes` at `at`.
pub(super) fn subslice(bytes: &[u8], at: u64, len: usize) -> Result<&[u8]> {
    let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
    from.and_then(|rest| rest.get(..len)).ok_or_else(|| Error::corrupt("shorter than announced", "extent"))
}

/// Returns `piece` if it has the length from its layout.
pub(super) fn whole(piece: Piece, size: u64) -> Result<Piece> {
    if to_u64(piece.len()) == size {
        Ok(piece)
    } else {
        Err(Error::corrupt("its length differs from the layout", "piece"))
    }
}
