//! Streams of decoded bytes, which the cache keeps piece by piece.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Fragments, Layout, OnDevice};
use crate::checksum::{ChecksumGate, Verified};
use crate::error::Result;
use crate::source::Need;

/// A stream of decoded bytes, decoded piece by piece in any order and from any thread.
///
/// Most streams are that and no more. The last five methods say what else a stream is; each of its users asks for the
/// one that concerns it, most by the methods of `dyn Blob`, which answer for streams that are nothing of the kind.
pub trait Blob: Send + Sync {
    /// How the decoded bytes divide into pieces of about 1 MiB. Always returns the same layout.
    ///
    /// Cheap, unless the length is to be [`Measured`]: then the first call may decode to find it. Listing a directory
    /// does not call this.
    ///
    /// # Errors
    /// Fails if the length cannot be determined because the stream is broken.
    fn layout(&self) -> Result<Layout>;

    /// The gate that must be open before piece `piece` is decoded or served, if it is not. A caller that must not block
    /// queues a continuation there ([`ChecksumGate::when_open`]) and then calls this again. Does not block.
    fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        let _ = piece;
        None
    }

    /// Decodes piece `piece` into `dst`, which has exactly the length of the piece, after verifying every checksum that
    /// covers it. After an error `dst` holds unspecified bytes.
    ///
    /// Takes well under a second if [`Blob::gate`] returns `None`; otherwise it waits for the gate, or runs its check
    /// on the calling thread if no other thread does. Does not wait for another piece, unless this one continues from
    /// it ([`InOrder::is_run`]) and another thread is decoding it: then for that thread, which waits for no piece.
    ///
    /// # Errors
    /// Fails if the piece is broken; the error names the field and the offset.
    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()>;

    /// The state of the checksums that cover the decoded bytes in `range`. Does not block.
    fn verified(&self, range: Range<u64>) -> Verified {
        let _ = range;
        Verified::No
    }

    /// The length is not in the container: how it is found.
    fn measured(&self) -> Option<&dyn Measured> {
        None
    }

    /// Each decode waits for a server, unless its bytes were announced. Cheap.
    fn far(&self) -> Option<&dyn Far> {
        None
    }

    /// Parts of a piece can be decoded at the cost of their own bytes.
    fn fragmented(&self) -> Option<&dyn Fragmented> {
        None
    }

    /// A device can decode it, in batches of pieces.
    fn batched(&self) -> Option<&dyn Batched> {
        None
    }

    /// Pieces continue each other, or are decoded ahead of a reader in order.
    fn in_order(&self) -> Option<&dyn InOrder> {
        None
    }
}

/// A stream of a length that the container does not record, or not where it is opened.
pub trait Measured {
    /// The number of decoded bytes, if it is known without decoding; used when a directory is listed. `None` while
    /// [`Blob::layout`] may decode.
    fn known_len(&self) -> Option<u64>;

    /// While the length is not known: the layout of the longest content that it can be, if pieces can be decoded before
    /// it is. A piece that is longer than what is left cannot be, but [`Blob::layout`] is cheap from then on.
    fn longest(&self) -> Option<Layout> {
        None
    }

    /// The gate of the work that [`Blob::layout`] needs first, if that decodes a whole stream; several blobs may share
    /// it. `None` if there is none or it is done. May read structure; decodes nothing.
    fn sizing(&self) -> Option<ChecksumGate> {
        None
    }
}

/// A stream whose stored bytes come from a server.
pub trait Far {
    /// The decoded bytes in `ranges` will be needed soon: begins to fetch their stored bytes, with few requests. May
    /// wait for the structure that locates them; a failure is reported by the decode.
    fn announce(&self, ranges: &[Range<u64>], need: Need);
}

/// A stream of which a part of a piece can be decoded by itself.
pub trait Fragmented {
    /// How the decoded bytes divide into fragments; none crosses the end of a piece. `None` if there are only whole
    /// pieces. Cheap if [`Blob::layout`] was called; always returns the same then.
    fn fragments(&self) -> Option<Layout>;

    /// Decodes the fragment that starts at byte `at` of piece `piece` into `dst`, which has exactly its length;
    /// otherwise as [`Blob::decode`]. Only called if [`Fragmented::fragments`] returns a layout.
    ///
    /// # Errors
    /// Fails if the fragment is broken, regardless of the rest of the piece.
    fn decode_fragment(&self, piece: u64, at: u64, dst: &mut [u8]) -> Result<()>;
}

/// A stream that a device can decode, in batches of pieces.
pub trait Batched {
    /// The device stream of the bytes of this blob, or, if it is shown as a grid without padding, of that array in C
    /// order; `None` if only the host gets its pieces.
    fn on_device(&self) -> Option<OnDevice>;

    /// How many consecutive pieces one [`Batched::decode_many`] should decode; at least one. Cheap. Called before each
    /// batch, so the answer may change. All pieces of a batch are in memory at once, for each thread that decodes one.
    fn batch(&self) -> u64;

    /// Decodes consecutive pieces starting at `first` into `pieces`, which have the exact lengths. Each is verified as
    /// by [`Blob::decode`].
    ///
    /// # Errors
    /// Fails if any of them is broken; all then hold unspecified bytes, and the caller can decode the intact ones
    /// one by one.
    fn decode_many(&self, first: u64, pieces: &mut [&mut [u8]]) -> Result<()>;
}

/// A stream that is best decoded in order, and that keeps what it decodes ahead of a reader. None of these methods
/// blocks but those that decode or wait.
pub trait InOrder: Blob {
    /// Whether decoding piece `piece` continues the one before it: one thread then decodes pieces in order, and another
    /// one only delivers them. Cheap.
    fn is_run(&self, piece: u64) -> bool;

    /// As [`Blob::decode`], but may leave checksums that cover more than the piece to [`InOrder::confirm`]: for a caller
    /// that decodes all pieces once, about in order, and uses none of them before.
    ///
    /// # Errors
    /// As [`Blob::decode`].
    fn decode_unconfirmed(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        self.decode(piece, dst)
    }

    /// Verifies pieces that [`InOrder::decode_unconfirmed`] did not.
    ///
    /// # Errors
    /// That of a checksum.
    fn confirm(&self) -> Result<()> {
        Ok(())
    }

    /// A reader has requested piece `piece`: a stream that decodes ahead of sequential readers itself starts to.
    fn note_read(&self, piece: u64) {
        let _ = piece;
    }

    /// Piece `piece`, if the stream itself keeps it decoded and verified, so that it is neither copied nor kept twice.
    fn ready(&self, piece: u64) -> Option<Piece> {
        let _ = piece;
        None
    }

    /// Whether the stream itself keeps piece `piece`, or is decoding it ahead: a prefetch of it is pointless.
    fn is_coming(&self, piece: u64) -> bool {
        self.ready(piece).is_some()
    }

    /// As [`InOrder::ready`], but waits for a piece that the stream is decoding ahead, well under a second.
    fn ready_soon(&self, piece: u64) -> Option<Piece> {
        self.ready(piece)
    }
}

impl dyn Blob {
    /// The number of decoded bytes, if it is known without decoding.
    pub fn known_len(&self) -> Option<u64> {
        match self.measured() {
            Some(measured) => measured.known_len(),
            None => self.layout().ok().map(|layout| layout.len()),
        }
    }

    /// Whether decoding a few pieces waits for a server each time, unless they were announced.
    pub fn is_far(&self) -> bool {
        self.far().is_some()
    }

    /// As [`InOrder::is_run`].
    pub fn is_run(&self, piece: u64) -> bool {
        self.in_order().is_some_and(|blob| blob.is_run(piece))
    }

    /// As [`Batched::batch`].
    pub fn batch(&self) -> u64 {
        self.batched().map_or(1, Batched::batch)
    }

    /// As [`Batched::decode_many`]: in one batch, or one by one.
    ///
    /// # Errors
    /// As [`Batched::decode_many`].
    pub fn decode_many(&self, first: u64, pieces: &mut [&mut [u8]]) -> Result<()> {
        match self.batched() {
            Some(batched) => batched.decode_many(first, pieces),
            None => (first..).zip(pieces).try_for_each(|(piece, dst)| self.decode(piece, dst)),
        }
    }
}

/// Marks the ids of blobs of fragments; no process creates so many blobs that their ids reach it.
const FRAGMENTS: u64 = 1 << 63;

/// A blob with a unique id, which caches use as a key.
#[derive(Clone)]
pub struct BlobRef {
    id: u64,
    blob: Arc<dyn Blob>,
}

impl BlobRef {
    /// Assigns a new id to `blob`. Clones share it.
    pub fn new(blob: impl Blob + 'static) -> Self {
        Self::shared(Arc::new(blob))
    }

    /// Like [`BlobRef::new`], for a blob that its container also keeps.
    pub fn shared(blob: Arc<dyn Blob>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), blob }
    }

    /// The id: unique in this process, equal for clones.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The same bytes with the fragments of this blob as pieces, if it has any. Equal ids for equal blobs.
    pub fn fragments(&self) -> Option<Self> {
        let fragments = Fragments::of(&self.blob)?;
        Some(Self { id: self.id | FRAGMENTS, blob: Arc::new(fragments) })
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

/// A blob's id, and the number of a piece.
pub type PieceKey = (u64, u64);

/// A decoded piece, shared by its readers and the cache.
pub type Piece = Arc<Vec<u8>>;

/// A source of decoded pieces: the cache, or a plain decoder in tests.
pub trait Fetch {
    /// Returns piece `piece` of `blob`, decoding it if necessary.
    ///
    /// # Errors
    /// As [`Blob::decode`].
    fn piece(&self, blob: &BlobRef, piece: u64) -> Result<Piece>;
}
