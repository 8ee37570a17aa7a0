//! Describes the content of a virtual file; the view layer maps byte ranges to it.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{BlobRef, Fetch};
use crate::bytes::FileOffset;
use crate::checksum::{ChecksumGate, Verified};
use crate::error::Result;
use crate::source::Source;
use crate::text;

/// Computes the bytes of a file; reads other content through `Fetch`.
pub type Generator = Arc<dyn Fn(&dyn Fetch) -> Result<Vec<u8>> + Send + Sync>;

/// A byte range of a container file, served as stored.
#[derive(Debug, Clone)]
pub struct FileExtent {
    /// The file.
    pub source: Arc<Source>,
    /// Offset of the first byte.
    pub at: FileOffset,
    /// Length in bytes.
    pub len: u64,
    /// The gate of the checksum that covers them.
    pub gate: Option<ChecksumGate>,
}

impl FileExtent {
    /// The gate to wait for before `len` bytes at `at` are served, unless it is open.
    pub fn shut(&self, at: u64, len: u64) -> Option<ChecksumGate> {
        ChecksumGate::shut(self.gate.as_ref(), self.is_end(at, len))
    }

    /// Waits for the gate before `len` bytes at `at`.
    ///
    /// # Errors
    /// As [`ChecksumGate::wait`].
    pub fn wait_before(&self, at: u64, len: u64) -> Result<()> {
        ChecksumGate::wait_before(self.gate.as_ref(), self.is_end(at, len))
    }

    fn is_end(&self, at: u64, len: u64) -> bool {
        at.saturating_add(len) >= self.len
    }
}

/// The content of a virtual file.
#[derive(Clone)]
pub enum Content {
    /// Bytes in memory.
    Bytes(Arc<[u8]>),
    /// Bytes computed when they are first read, or, if `len` is unknown, when the length is needed.
    Computed {
        /// Their number, if known beforehand.
        len: Option<u64>,
        /// Computes exactly these bytes; deterministic.
        make: Generator,
    },
    /// Content described only when the file is first used, so that directories with thousands of files can be listed
    /// cheaply.
    Deferred {
        /// Its length in bytes, if known beforehand.
        len: Option<u64>,
        /// Creates the description; deterministic.
        make: Arc<dyn Fn() -> Result<Content> + Send + Sync>,
    },
    /// A range of the container file.
    FileExtent(FileExtent),
    /// A whole blob.
    Blob(BlobRef),
    /// The n-dimensional array in a blob, in C order.
    Grid(Arc<Grid>),
    /// The given number of zero bytes.
    Zeros(u64),
    /// A concatenation.
    Join(Arc<[Content]>),
    /// A byte range of other content.
    Slice(Arc<Content>, Range<u64>),
}

impl Content {
    /// Bytes in memory.
    pub fn bytes(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self::Bytes(bytes.into())
    }

    /// A JSON document, pretty-printed.
    pub fn json(value: &serde_json::Value) -> Self {
        Self::bytes((text::json(value) + "\n").into_bytes())
    }

    /// The state of the checksums of this content; `None` for bytes that were computed or are in memory.
    ///
    /// # Errors
    /// Fails if deferred content cannot be described.
    pub fn verified(&self) -> Result<Option<Verified>> {
        Ok(match self {
            Self::Bytes(_) | Self::Computed { .. } | Self::Zeros(_) => None,
            Self::Deferred { make, .. } => return make()?.verified(),
            Self::FileExtent(extent) => Some(extent.gate.as_ref().map_or(Verified::No, ChecksumGate::verified)),
            Self::Blob(blob) => Some(blob.verified(0..u64::MAX)),
            Self::Grid(grid) => Some(grid.blob.verified(0..u64::MAX)),
            Self::Join(parts) => {
                parts.iter().try_fold(None, |worst, part| Ok::<_, crate::error::Error>(worst.max(part.verified()?)))?
            }
            Self::Slice(inner, range) => match &**inner {
                Self::Blob(blob) => Some(blob.verified(range.clone())),
                inner => return inner.verified(),
            },
        })
    }

    /// The byte range `range` of this content; it must be within the content.
    #[must_use]
    pub fn slice(self, range: Range<u64>) -> Self {
        Self::Slice(Arc::new(self), range)
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(b) => write!(f, "Bytes({})", b.len()),
            Self::Computed { len, .. } => write!(f, "Computed({len:?})"),
            Self::Deferred { len, .. } => write!(f, "Deferred({len:?})"),
            Self::FileExtent(s) => write!(f, "FileExtent({:?}, {})", s.at, s.len),
            Self::Blob(b) => b.fmt(f),
            Self::Grid(g) => g.fmt(f),
            Self::Zeros(n) => write!(f, "Zeros({n})"),
            Self::Join(parts) => f.debug_list().entries(parts.iter()).finish(),
            Self::Slice(inner, range) => write!(f, "Slice({inner:?}, {range:?})"),
        }
    }
}

/// An n-dimensional array that a blob stores chunk by chunk, and each chunk block by block.
///
/// The blob contains the chunks in C order of their grid, `ceil(shape / chunk)` per dimension. A chunk contains its
/// blocks in C order of their grid, `ceil(chunk / block)` per dimension, and a block contains its elements in C order.
/// Blocks are always complete: elements outside the chunk or the array are padding.
#[derive(Debug, Clone)]
pub struct Grid {
    /// The blob that contains the chunks.
    pub blob: BlobRef,
    /// Bytes of an element.
    pub itemsize: u64,
    /// Elements of the array per dimension, slowest first.
    pub shape: Vec<u64>,
    /// Elements of a chunk per dimension; none is 0 unless the array is empty.
    pub chunk: Vec<u64>,
    /// Elements of a block per dimension; none is 0 unless the array is empty.
    pub block: Vec<u64>,
    /// The part of the array that is shown; `None`: all of it.
    pub window: Option<Window>,
}

/// A box of an array, which may extend past the ends of the array: elements there are zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The index of its first element per dimension, which is in the array.
    pub start: Vec<u64>,
    /// Its elements per dimension; none is 0.
    pub shape: Vec<u64>,
}
