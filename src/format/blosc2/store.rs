//! What chunks are stored in: a stretch of a file, a directory of chunk files, or a place of their own.
//!
//! Reference: section 3 (positions), section 5 (file ids).
//! Checked: positions against the chunk section; a file id is a number and makes a file name, nothing else.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::path::PathBuf;
use std::sync::Arc;

use crate::bytes::FileOffset;
use crate::error::{Error, Result};
use crate::source::Source;

use super::chunk::Place;

/// Smallest chunk in a frame.
const MIN_CHUNK: u64 = 32;

/// What chunks are stored in.
#[derive(Debug)]
pub(super) enum Store {
    /// The chunk section of a frame: an entry is a position in it.
    Section { source: Arc<Source>, start: FileOffset, len: u64, index: FileOffset },
    /// A directory: an entry is the number of a file.
    Directory { path: PathBuf, frame: Arc<Source>, index: FileOffset },
    /// A single chunk, without an index.
    Single(Place),
}

impl Store {
    /// Where the chunk lies whose entry is `entry`.
    pub(super) fn place(&self, entry: u64) -> Result<Place> {
        match self {
            Self::Single(place) => Ok(place.clone()),
            Self::Section { source, start, len, index } => {
                let room = len.saturating_sub(entry);
                if room < MIN_CHUNK {
                    let why = format!("{entry:#x} is outside the chunk section of {len:#x} bytes");
                    return Err(Error::corrupt(why, "chunk offset").at(*index));
                }
                Ok(Place { source: source.clone(), at: start.plus(entry), room })
            }
            Self::Directory { path, index, .. } => {
                let Ok(id) = u32::try_from(entry) else {
                    return Err(Error::corrupt(format!("{entry:#x} is no file number"), "chunk offset").at(*index));
                };
                let name = format!("{id:08X}.chunk");
                let source = Source::open(&path.join(&name)).map_err(|e| e.within(&name))?;
                let room = source.len();
                Ok(Place { source, at: FileOffset(0), room })
            }
        }
    }

    /// Whether the file that a chunk was read from has stayed as it was; the frame's own is
    /// asked by whoever keeps the bytes.
    pub(super) fn check(&self, read: &Source) -> Result<()> {
        match self {
            Self::Directory { .. } => read.check(),
            Self::Section { .. } | Self::Single(_) => Ok(()),
        }
    }

    /// Where the index lies, for errors about its entries.
    pub(super) fn index_at(&self) -> FileOffset {
        match self {
            Self::Section { index, .. } | Self::Directory { index, .. } => *index,
            Self::Single(place) => place.at,
        }
    }

    /// More chunks than that are not believed where the header of each has to be read.
    pub(super) fn most_chunks(&self) -> u64 {
        match self {
            Self::Section { len, .. } => (*len).max(64),
            Self::Directory { frame, .. } => frame.len().saturating_mul(64),
            Self::Single(_) => 1,
        }
    }

    /// Whether chunks are files of a directory.
    pub(super) fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }
}
