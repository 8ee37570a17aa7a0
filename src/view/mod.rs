//! Maps byte ranges of a file to the pieces and stored bytes that its content consists of.
//!
//! A [`View`] is a flattened [`Content`]: a list of parts (bytes, a range of the container, a blob, a grid) with the
//! end of each, so that a binary search finds any range. The cost of a read is proportional to its length, whatever the
//! content consists of.
//!
//! Checked: every range against the part that contains it; every piece against the length from its layout.
//! Limits: nesting depth of contents; only the list of parts and the bytes of computed parts are kept.
#![forbid(unsafe_code)]

mod computed;
mod extent;
mod flatten;
mod fragments;
pub mod grid;
pub mod meta_image;
pub mod nrrd;
pub mod preview;
pub mod zarr;

use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::{BlobRef, Content, Fetch, Layout, Piece};
use crate::limits::zeroed;

pub use crate::format::npy;
pub use computed::Computed;
pub use extent::Extent;
use extent::{Leaf, subslice, whole};
pub use flatten::{Effort, effort, known_len};
pub use grid::GridReader;

/// The maximum length of a file: the system uses a signed number for its size.
const LONGEST: u64 = u64::MAX >> 1;

/// Returns a piece, or `None` if its bytes are not copied.
type Lookup<'a> = dyn Fn(&BlobRef, u64) -> Result<Option<Piece>> + 'a;

/// A flattened content, readable at any offset from any thread.
#[derive(Debug)]
pub struct View {
    parts: Vec<ViewPart>,
    len: u64,
    /// The same bytes read by fragments, created when first needed; `None` inside if no part has any.
    fragments: OnceLock<Option<Arc<View>>>,
}

/// A part of a view.
#[derive(Debug, Clone)]
struct ViewPart {
    /// Its end offset in the view.
    end: u64,
    /// Length in bytes.
    len: u64,
    /// Its start offset in the leaf.
    skip: u64,
    leaf: Leaf,
}

impl View {
    /// Flattens `content`. Decodes only if the length of a part is not known otherwise.
    ///
    /// # Errors
    /// Fails if a length cannot be determined or the content contradicts itself.
    pub fn new(content: &Content, fetch: &dyn Fetch) -> Result<Self> {
        flatten::flatten(content, fetch)
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The bytes that are computed for it and kept as long as it is.
    pub fn computed_len(&self) -> u64 {
        self.parts.iter().filter(|part| matches!(part.leaf, Leaf::Computed(_))).map(|part| part.len).sum()
    }

    /// Fills `dst` with the bytes at `at`.
    ///
    /// # Errors
    /// [`crate::error::Kind::Truncated`] past the end; otherwise the error of a part in the range. After an error `dst`
    /// holds unspecified bytes.
    pub fn read(&self, at: u64, dst: &mut [u8], fetch: &dyn Fetch) -> Result<()> {
        self.copy(at, dst, &|blob, piece| fetch.piece(blob, piece).map(Some), Some(fetch))
    }

    /// Copies the bytes of the pieces that `pieces` returns to `dst`, which stands for the bytes at `at`; leaves the
    /// others.
    ///
    /// # Errors
    /// As [`View::read`].
    pub fn read_pieces(&self, at: u64, dst: &mut [u8], pieces: &dyn Fn(&BlobRef, u64) -> Option<Piece>) -> Result<()> {
        self.copy(at, dst, &|blob, piece| Ok(pieces(blob, piece)), None)
    }

    /// Fills `dst` with the bytes at `at`, except the pieces in `done`, which it leaves as they are.
    ///
    /// # Errors
    /// As [`View::read`].
    pub fn read_rest(
        &self,
        at: u64,
        dst: &mut [u8],
        done: &dyn Fn(&BlobRef, u64) -> bool,
        fetch: &dyn Fetch,
    ) -> Result<()> {
        let lookup = |blob: &BlobRef, piece| {
            if done(blob, piece) { Ok(None) } else { fetch.piece(blob, piece).map(Some) }
        };
        self.copy(at, dst, &lookup, Some(fetch))
    }

    fn copy(&self, at: u64, dst: &mut [u8], lookup: &Lookup, fetch: Option<&dyn Fetch>) -> Result<()> {
        let mut rest = dst;
        let range = at..at.saturating_add(to_u64(rest.len()));
        self.extents(range, &mut |extent| {
            let len = to_usize(extent.len(), "extent")?;
            let Some((head, tail)) = std::mem::take(&mut rest).split_at_mut_checked(len) else {
                return Err(Error::corrupt("longer than the requested range", "extent"));
            };
            rest = tail;
            extent.read(head, lookup, fetch)
        })
    }

    /// Returns the bytes of `range`, without copying if one piece contains them.
    ///
    /// # Errors
    /// As [`View::read`].
    pub fn get(&self, range: Range<u64>, fetch: &dyn Fetch) -> Result<Bytes> {
        if let Some(SinglePiece { blob, piece, size, start, len }) = self.single_piece(&range) {
            let bytes = whole(fetch.piece(blob, piece)?, size)?;
            return Bytes::part(bytes, start, len);
        }
        // Checked before the allocation: the range comes from the caller.
        self.inside(&range)?;
        let mut bytes = zeroed(range.end.saturating_sub(range.start), "range")?;
        self.read(range.start, &mut bytes, fetch)?;
        Ok(Bytes::Owned(bytes))
    }

    /// Returns the bytes of `range` if one piece contains them and `peek` has that piece, so that nothing is decoded or
    /// waited for.
    pub fn ready_piece(&self, range: &Range<u64>, peek: &dyn Fn(&BlobRef, u64) -> Option<Piece>) -> Option<Bytes> {
        let SinglePiece { blob, piece, size, start, len } = self.single_piece(range)?;
        Bytes::part(whole(peek(blob, piece)?, size).ok()?, start, len).ok()
    }

    /// Fills `dst` with the bytes at `at` if that requires no decoding, computing, waiting or reading of the container.
    /// After `false` it holds unspecified bytes.
    pub fn fill_ready(&self, at: u64, dst: &mut [u8], peek: &dyn Fn(&BlobRef, u64) -> Option<Piece>) -> bool {
        let at_once = |extent: Extent| match extent {
            Extent::FileExtent { .. } => Err(computed::absent()),
            Extent::Computed { computed, .. } if !computed.is_ready() => Err(computed::absent()),
            _ => Ok(()),
        };
        let range = at..at.saturating_add(to_u64(dst.len()));
        self.extents(range, &mut { at_once }).is_ok() && self.read(at, dst, &Peeking(peek)).is_ok()
    }

    /// Calls `each` for the extents of `range`, in order; none of them is empty.
    ///
    /// # Errors
    /// [`crate::error::Kind::Truncated`] for a range past the end; otherwise the error of `each`.
    pub fn extents<'a>(&'a self, range: Range<u64>, each: &mut dyn FnMut(Extent<'a>) -> Result<()>) -> Result<()> {
        self.inside(&range)?;
        let mut at = range.start;
        let first = self.parts.partition_point(|part| part.end <= at);
        for part in self.parts.get(first..).unwrap_or_default() {
            if at >= range.end {
                break;
            }
            let start = part.end.saturating_sub(part.len);
            let end = part.end.min(range.end);
            part.leaf.extents(part.skip + (at - start), end - at, each)?;
            at = end;
        }
        Ok(())
    }

    /// Calls `each` with the pieces needed for `range` and their sizes, in the order in which they are read; a piece
    /// may be repeated. `each` returns whether to continue.
    ///
    /// # Errors
    /// [`crate::error::Kind::Truncated`] for a range past the end.
    pub fn pieces(&self, range: Range<u64>, each: &mut dyn FnMut(&BlobRef, u64, u64) -> bool) -> Result<()> {
        let mut go_on = true;
        self.extents(range, &mut |extent| {
            match extent {
                Extent::Piece { blob, piece, size, .. } if go_on => go_on = each(blob, piece, size),
                Extent::Grid { grid, at, len } if go_on => go_on = grid.pieces(at, len, each)?,
                _ => {}
            }
            Ok(())
        })
    }

    /// Bytes of the largest piece among the first parts, which is the unit of readahead, and of the largest batch that
    /// is decoded at once.
    pub fn piece_and_batch(&self) -> (u64, u64) {
        let of = |part: &ViewPart| match &part.leaf {
            Leaf::Blob(blob, layout) => (layout.range(layout.locate(part.skip)), blob.batch()),
            Leaf::Grid(grid) => grid.first_piece(),
            _ => (0..0, 0),
        };
        let sizes = self.parts.iter().take(8).map(of).map(|(range, batch)| {
            let piece = range.end.saturating_sub(range.start);
            (piece, piece.saturating_mul(batch))
        });
        sizes.fold((0, 0), |(piece, batch), (p, b)| (piece.max(p), batch.max(b)))
    }

    /// Whether pieces of the first parts are far.
    pub fn is_far(&self) -> bool {
        self.parts.iter().take(8).any(|part| match &part.leaf {
            Leaf::Blob(blob, _) => blob.is_far(),
            Leaf::Grid(grid) => grid.is_far(),
            _ => false,
        })
    }

    /// The blob, its layout and the range of it that the view consists of, if the view is a range of one blob.
    pub fn single_blob(&self) -> Option<(&BlobRef, &Layout, Range<u64>)> {
        let [ViewPart { skip, len, leaf: Leaf::Blob(blob, layout), .. }] = self.parts.as_slice() else { return None };
        Some((blob, layout, *skip..skip + len))
    }

    /// Whether one piece contains `range`, so that [`View::get`] copies nothing.
    pub fn is_piece(&self, range: &Range<u64>) -> bool {
        self.single_piece(range).is_some()
    }

    /// The piece that contains all of `range`, if there is one.
    fn single_piece(&self, range: &Range<u64>) -> Option<SinglePiece<'_>> {
        let part = self.parts.get(self.parts.partition_point(|part| part.end <= range.start))?;
        let Leaf::Blob(blob, layout) = &part.leaf else { return None };
        if range.is_empty() || range.end > part.end {
            return None;
        }
        let at = part.skip + (range.start - (part.end - part.len));
        let len = range.end - range.start;
        let piece = layout.locate(at);
        let bounds = layout.range(piece);
        let fits = bounds.start <= at && at.checked_add(len)? <= bounds.end;
        let (size, start) = (bounds.end - bounds.start, at.checked_sub(bounds.start)?);
        fits.then_some(SinglePiece { blob, piece, size, start, len })
    }

    fn inside(&self, range: &Range<u64>) -> Result<()> {
        if range.start <= range.end && range.end <= self.len {
            return Ok(());
        }
        let need = range.end.saturating_sub(range.start);
        let have = self.len.saturating_sub(range.start);
        Err(Error::new(crate::error::Kind::Truncated { need, have }, "range of a file"))
    }
}

/// Bytes of a view: shared with the cache, or copied.
#[derive(Debug, Clone)]
pub enum Bytes {
    /// A range of a decoded piece.
    Shared(Piece, Range<usize>),
    /// A copy.
    Owned(Vec<u8>),
}

impl Bytes {
    fn part(piece: Piece, start: u64, len: u64) -> Result<Self> {
        let len = to_usize(len, "extent")?;
        subslice(&piece, start, len)?;
        let start = to_usize(start, "extent")?;
        Ok(Self::Shared(piece, start..start + len))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Shared(piece, range) => piece.get(range.clone()).unwrap_or_default(),
            Self::Owned(bytes) => bytes,
        }
    }
}

/// A piece that contains all of a range.
struct SinglePiece<'a> {
    blob: &'a BlobRef,
    piece: u64,
    /// Size of the piece.
    size: u64,
    /// Offset of the range in the piece, and its length.
    start: u64,
    len: u64,
}

/// Returns only pieces that are available without decoding.
struct Peeking<'a>(&'a dyn Fn(&BlobRef, u64) -> Option<Piece>);

impl Fetch for Peeking<'_> {
    fn piece(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        (self.0)(blob, piece).ok_or_else(computed::absent)
    }
}

/// The exact length of `content`; decodes only if it is not known otherwise.
///
/// # Errors
/// As [`View::new`].
pub fn len(content: &Content, fetch: &dyn Fetch) -> Result<u64> {
    match (known_len(content), content) {
        (Some(len), _) => Ok(len),
        // The parts of the content may be known by their lengths, and need not be created for it.
        (None, Content::Deferred { make, .. }) => {
            let computed = make()?;
            known_len(&computed).map_or_else(|| View::new(&computed, fetch).map(|view| view.len()), Ok)
        }
        (None, _) => View::new(content, fetch).map(|view| view.len()),
    }
}

#[cfg(test)]
mod tests;
