//! What is inside a virtual file: a description that the view layer turns into byte ranges.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bytes::{FileOffset, to_u64};
use crate::checksum::ChecksumGate;
use crate::error::Result;
use crate::source::Source;
use crate::text;

/// A stream of decoded bytes that can be had piece by piece, in any order, from any thread.
pub trait Blob: Send + Sync {
    /// How the decoded bytes divide into pieces of about 1 MiB. Always the same answer.
    ///
    /// Cheap, except where the container does not say how long the stream is: then the first call
    /// may decode to find out. Listing a directory does not call it.
    ///
    /// # Errors
    /// Where the length cannot be found out because the stream is broken.
    fn layout(&self) -> Result<Layout>;

    /// All decoded bytes, where that can be said without decoding: what listing a directory asks.
    /// A blob whose [`Blob::layout`] may decode has to answer `None` until that has happened.
    fn known_len(&self) -> Option<u64> {
        self.layout().ok().map(|layout| layout.len())
    }

    /// What has to be computed before [`Blob::layout`] answers, where that means to decode: work over a whole stream,
    /// which several blobs may share. `None` where nothing has, or it was. May read structure; decodes nothing.
    fn sizing(&self) -> Option<ChecksumGate> {
        None
    }

    /// What has to be decided before piece `piece` can be decoded, if something has and is not yet: who must not
    /// wait parks here ([`ChecksumGate::when_open`]), then asks again. Answers at once.
    fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        let _ = piece;
        None
    }

    /// Decodes piece `piece` into `dst`, which is exactly as long as the piece, after every
    /// checksum that covers it was verified. After an error `dst` holds unspecified bytes.
    ///
    /// Takes well under a second once [`Blob::gate`] has nothing left; before that it waits for the gate, and checks
    /// in the caller if nobody does. Never waits for another piece.
    ///
    /// # Errors
    /// What is broken, where.
    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()>;

    /// How many pieces in a row are best decoded by one [`Blob::decode_many`]; at least one. Cheap. Asked before
    /// each batch, so the answer may change; their bytes are all in memory together, on every core.
    fn batch(&self) -> u64 {
        1
    }

    /// Decodes the pieces from `first` on, one into each of `pieces`, which are exactly as long as they are.
    /// Each verified as by [`Blob::decode`].
    ///
    /// # Errors
    /// What is broken in one of them; all then hold unspecified bytes, and whoever wants those that are whole
    /// decodes them one by one.
    fn decode_many(&self, first: u64, pieces: &mut [&mut [u8]]) -> Result<()> {
        (first..).zip(pieces).try_for_each(|(piece, dst)| self.decode(piece, dst))
    }

    /// Piece `piece`, where the blob itself keeps it decoded and checked: what is shared is neither copied nor
    /// held twice. Answers at once.
    fn ready(&self, piece: u64) -> Option<Piece> {
        let _ = piece;
        None
    }
}

/// How the bytes of a blob divide into pieces.
#[derive(Debug, Clone)]
pub enum Layout {
    /// Pieces of `piece` bytes (at least one), the last one shorter.
    Uniform {
        /// All decoded bytes.
        len: u64,
        /// Bytes of a piece.
        piece: u64,
    },
    /// The end of every piece, ascending; piece 0 starts at 0.
    Ends(Arc<[u64]>),
}

impl Layout {
    /// All decoded bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Uniform { len, .. } => *len,
            Self::Ends(ends) => ends.last().copied().unwrap_or(0),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many pieces there are.
    pub fn count(&self) -> u64 {
        match self {
            Self::Uniform { len, piece } => len.div_ceil((*piece).max(1)),
            Self::Ends(ends) => to_u64(ends.len()),
        }
    }

    /// The decoded bytes of piece `index`; empty past the last one.
    pub fn range(&self, index: u64) -> Range<u64> {
        match self {
            Self::Uniform { len, piece } => {
                let start = index.saturating_mul((*piece).max(1)).min(*len);
                start..start.saturating_add((*piece).max(1)).min(*len)
            }
            Self::Ends(ends) => {
                let end = |i: usize| ends.get(i).copied();
                let Ok(i) = usize::try_from(index) else { return self.len()..self.len() };
                let start = i.checked_sub(1).map_or(Some(0), end).unwrap_or(self.len());
                start..end(i).unwrap_or(start)
            }
        }
    }

    /// The piece that holds decoded byte `offset`, which lies before the end.
    pub fn locate(&self, offset: u64) -> u64 {
        match self {
            Self::Uniform { piece, .. } => offset / (*piece).max(1),
            Self::Ends(ends) => to_u64(ends.partition_point(|&end| end <= offset)),
        }
    }
}

/// A blob with the number by which caches know it.
#[derive(Clone)]
pub struct BlobRef {
    id: u64,
    blob: Arc<dyn Blob>,
}

impl BlobRef {
    /// Gives `blob` a number of its own. Clones share it.
    pub fn new(blob: impl Blob + 'static) -> Self {
        Self::shared(Arc::new(blob))
    }

    /// As [`BlobRef::new`], for a blob that its container also holds on to.
    pub fn shared(blob: Arc<dyn Blob>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), blob }
    }

    /// The number: unique in this process, equal for clones.
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl std::ops::Deref for BlobRef {
    type Target = dyn Blob;

    fn deref(&self) -> &Self::Target {
        &*self.blob
    }
}

impl fmt::Debug for BlobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobRef({})", self.id)
    }
}

/// A decoded piece, shared by whoever reads it and the cache.
pub type Piece = Arc<Vec<u8>>;

/// Whoever can get decoded pieces: the cache, or a plain decoder in tests.
pub trait Fetch {
    /// Piece `piece` of `blob`, decoded now or before.
    ///
    /// # Errors
    /// As [`Blob::decode`].
    fn piece(&self, blob: &BlobRef, piece: u64) -> Result<Piece>;
}

/// Makes the bytes of a file whose content is computed, reading other content through `Fetch`.
pub type Generator = Arc<dyn Fn(&dyn Fetch) -> Result<Vec<u8>> + Send + Sync>;

/// A stretch of the container file, served as it is.
#[derive(Debug, Clone)]
pub struct FileExtent {
    /// The file.
    pub source: Arc<Source>,
    /// Where it starts.
    pub at: FileOffset,
    /// Its bytes.
    pub len: u64,
    /// What has to hold before a byte of it is served.
    pub gate: Option<ChecksumGate>,
}

/// What is inside a virtual file.
#[derive(Clone)]
pub enum Content {
    /// Bytes that are there.
    Bytes(Arc<[u8]>),
    /// Bytes that are computed when they are read, or, if `len` is not known, when it is asked for.
    Computed {
        /// Their number, where it is known beforehand.
        len: Option<u64>,
        /// Makes exactly these bytes, the same each time.
        make: Generator,
    },
    /// Content that is put together when the file is first looked at: names of many thousand files are
    /// listed without it.
    Deferred {
        /// Its bytes, where their number is known beforehand.
        len: Option<u64>,
        /// Puts it together, the same each time.
        make: Arc<dyn Fn() -> Result<Content> + Send + Sync>,
    },
    /// A stretch of the container.
    FileExtent(FileExtent),
    /// A blob, all of it.
    Blob(BlobRef),
    /// The n-dimensional array in a blob, in C order.
    Grid(Arc<Grid>),
    /// That many zero bytes.
    Zeros(u64),
    /// One after the other.
    Join(Arc<[Content]>),
    /// A part.
    Slice(Arc<Content>, Range<u64>),
}

impl Content {
    /// Bytes that are there.
    pub fn bytes(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self::Bytes(bytes.into())
    }

    /// A JSON document, laid out for people.
    pub fn json(value: &serde_json::Value) -> Self {
        Self::bytes((text::json(value) + "\n").into_bytes())
    }

    /// The bytes `range` of this content; the range has to lie inside.
    #[must_use]
    pub fn slice(self, range: Range<u64>) -> Self {
        Self::Slice(Arc::new(self), range)
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(b) => write!(f, "Bytes({})", b.len()),
            Self::Computed { len, .. } => write!(f, "Made({len:?})"),
            Self::Deferred { len, .. } => write!(f, "Late({len:?})"),
            Self::FileExtent(s) => write!(f, "Stored({:?}, {})", s.at, s.len),
            Self::Blob(b) => b.fmt(f),
            Self::Grid(g) => g.fmt(f),
            Self::Zeros(n) => write!(f, "Zeros({n})"),
            Self::Join(parts) => f.debug_list().entries(parts.iter()).finish(),
            Self::Slice(inner, range) => write!(f, "Slice({inner:?}, {range:?})"),
        }
    }
}

/// An n-dimensional array that a blob holds chunk by chunk, each chunk block by block.
///
/// The blob holds the chunks one after another in C order of their grid, `ceil(shape / chunk)` per
/// dimension. A chunk holds its blocks in C order of their grid, `ceil(chunk / block)` per dimension,
/// and a block holds its elements in C order. Blocks are always whole: what lies outside
/// the chunk or the array is padding.
#[derive(Debug, Clone)]
pub struct Grid {
    /// The blob that holds the chunks.
    pub blob: BlobRef,
    /// Bytes of an element.
    pub itemsize: u64,
    /// Elements of the array per dimension, slowest first.
    pub shape: Vec<u64>,
    /// Elements of a chunk per dimension; none is 0 unless the array is empty.
    pub chunk: Vec<u64>,
    /// Elements of a block per dimension; none is 0 unless the array is empty.
    pub block: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_finds_the_piece_of_every_byte() {
        let ends: Arc<[u64]> = Arc::from([4, 4, 9]);
        for layout in [Layout::Uniform { len: 9, piece: 4 }, Layout::Ends(ends)] {
            assert_eq!((layout.len(), layout.count()), (9, 3));
            for offset in 0..9 {
                assert!(layout.range(layout.locate(offset)).contains(&offset), "{layout:?} {offset}");
            }
            assert!(layout.range(3).is_empty() && layout.range(u64::MAX).is_empty());
        }
        assert_eq!(Layout::Uniform { len: 0, piece: 4 }.count(), 0);
    }
}
