//! Where chunks are stored: the chunk section of a frame, a directory of chunk files, or a single location.
//!
//! Reference: section 3 (positions), section 5 (file ids).
//! Checked: positions against the chunk section; a file id can only name a chunk file of the directory.
//! Chunk files are pinned when the frame is opened: see [`crate::source::Folder`].
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ffi::CString;
use std::sync::Arc;

use crate::account::Account;
use crate::bytes::FileOffset;
use crate::error::{Error, Kind, Result};
use crate::source::{Files, Folder, Place, Source};

use super::stored_chunk::ChunkLocation;

/// The file of a sparse frame that contains the index.
pub(in crate::format) const INDEX: &str = "chunks.b2frame";
/// Minimum size of a chunk in a frame.
const MIN_CHUNK: u64 = 32;

/// Where chunks are stored.
#[derive(Debug)]
pub(super) enum ChunkStore {
    /// The chunk section of a frame: an index entry is a position in it.
    Section { source: Arc<Source>, start: FileOffset, len: u64 },
    /// A directory: an index entry is the number of a chunk file.
    Directory { files: Files, frame: Arc<Source> },
    /// A single chunk, without an index.
    Single(ChunkLocation),
}

/// Pins all chunk files in `place`; the list of them is charged to `account`. On a server there is no list: each is
/// pinned when it is read.
pub(super) fn pin(place: &Place, account: &Account) -> Result<Files> {
    let dir = match place {
        Place::Local(dir) => dir,
        Place::Remote(objects) => return Ok(Files::Remote(objects.clone())),
    };
    let is_chunk = |name: &[u8]| {
        let digits = name.strip_suffix(b".chunk").unwrap_or_default();
        digits.len() == 8 && digits.iter().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(b))
    };
    let chunk = |name: Result<CString>| match name {
        Ok(name) => is_chunk(name.to_bytes()).then(|| Ok(name.into_bytes())),
        Err(e) => Some(Err(e)),
    };
    Folder::pin(dir, dir.names()?.filter_map(chunk), account).map(Files::Local)
}

impl ChunkStore {
    /// Location of the chunk with the index entry `entry`. Errors have no offset; the caller adds that of the entry.
    pub(super) fn location(&self, entry: u64) -> Result<ChunkLocation> {
        match self {
            Self::Single(location) => Ok(location.clone()),
            Self::Section { source, start, len } => {
                let max_len = len.saturating_sub(entry);
                if max_len < MIN_CHUNK {
                    let why = format!("{entry:#x} is outside the chunk section of {len:#x} bytes");
                    return Err(Error::corrupt(why, "chunk offset"));
                }
                Ok(ChunkLocation { source: source.clone(), at: start.plus(entry), max_len })
            }
            Self::Directory { files, .. } => {
                let broken = |why| Error::corrupt(why, "chunk offset").within(INDEX);
                let id = u32::try_from(entry).map_err(|_| broken(format!("{entry:#x} is not a file number")))?;
                let name = format!("{id:08X}.chunk");
                let source = files.source(name.as_ref()).map_err(|e| match e.kind() {
                    Kind::NotFound => broken(format!("the file {name} is missing")),
                    _ => e.within(&name),
                })?;
                let max_len = source.len();
                Ok(ChunkLocation { source, at: FileOffset(0), max_len })
            }
        }
    }

    /// Adds the file name to `error` if each chunk has its own file.
    pub(super) fn with_file_name(&self, file: &Source, error: Error) -> Error {
        match (self, file.path().file_name()) {
            (Self::Directory { .. }, Some(name)) => error.within(name.display()),
            _ => error,
        }
    }

    /// Maximum plausible number of chunks, if the header of each has to be read.
    pub(super) fn max_chunks(&self) -> u64 {
        match self {
            Self::Section { len, .. } => (*len).max(64),
            Self::Directory { frame, .. } => frame.len().saturating_mul(64),
            Self::Single(_) => 1,
        }
    }

    /// Whether the chunks are parts of one file on a server.
    pub(super) fn is_far(&self) -> bool {
        match self {
            Self::Section { source, .. } | Self::Single(ChunkLocation { source, .. }) => source.is_far(),
            Self::Directory { .. } => false,
        }
    }

    /// The chunk files, if each chunk has its own file.
    pub(super) fn files(&self) -> Option<Arc<Folder>> {
        match self {
            Self::Directory { files, .. } => files.folder(),
            Self::Section { .. } | Self::Single(_) => None,
        }
    }
}
