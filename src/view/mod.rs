//! From the description of a file's content to its bytes.
//!
//! A [`View`] is a [`Content`] laid flat: a list of parts (bytes, a stretch of the container, a blob,
//! a grid) with the end of each, so that any range is found by one binary search. Reading a range
//! costs in proportion to the range, whatever the content is made of.
//!
//! Checked: every range against the part that it falls into; every piece against its promised length.
//! Limits: nesting of contents; nothing is kept but the flat list and the bytes of computed parts.
#![forbid(unsafe_code)]

mod computed;
mod flatten;
pub mod grid;
mod segment;

use std::ops::{Deref, Range};

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::{BlobRef, Content, Fetch, Layout, Piece};
use crate::limits::zeroed;

pub use crate::format::npy;
pub use computed::Computed;
pub use flatten::{Effort, effort, known_len};
pub use grid::GridReader;
pub use segment::Segment;
use segment::{Leaf, subslice, whole};

/// The longest that a file can be: its size is a signed number to the system.
const LONGEST: u64 = u64::MAX >> 1;

/// A content laid flat, ready to be read at any place from any thread.
#[derive(Debug)]
pub struct View {
    parts: Vec<Part>,
    len: u64,
}

/// A stretch of a view.
#[derive(Debug, Clone)]
struct Part {
    /// Where it ends in the view.
    end: u64,
    /// Its bytes.
    len: u64,
    /// Bytes of the leaf before it.
    skip: u64,
    leaf: Leaf,
}

impl View {
    /// Lays `content` flat. Decodes only where the length of a part cannot be said otherwise.
    ///
    /// # Errors
    /// Where a length cannot be found out, or the content contradicts itself.
    pub fn new(content: &Content, fetch: &dyn Fetch) -> Result<Self> {
        flatten::flatten(content, fetch)
    }

    /// All its bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills `dst` with the bytes from `at` on.
    ///
    /// # Errors
    /// [`crate::error::Kind::Truncated`] past the end; else what is broken in a part that was needed. After an error
    /// `dst` holds unspecified bytes.
    pub fn read(&self, at: u64, dst: &mut [u8], fetch: &dyn Fetch) -> Result<()> {
        let mut rest = dst;
        let range = at..at.saturating_add(to_u64(rest.len()));
        self.segments(range, &mut |segment| {
            let len = to_usize(segment.len(), "segment")?;
            let Some((head, tail)) = std::mem::take(&mut rest).split_at_mut_checked(len) else {
                return Err(Error::corrupt("longer than the range asked for", "segment"));
            };
            rest = tail;
            segment.read(head, fetch)
        })
    }

    /// The bytes `range`, without a copy where they lie in one piece.
    ///
    /// # Errors
    /// As [`View::read`].
    pub fn get(&self, range: Range<u64>, fetch: &dyn Fetch) -> Result<Bytes> {
        if let Some((blob, piece, size, start, len)) = self.single_piece(&range) {
            let bytes = whole(fetch.piece(blob, piece)?, size)?;
            return Bytes::part(bytes, start, len);
        }
        // Before the allocation: the range comes from a caller.
        self.inside(&range)?;
        let mut bytes = zeroed(range.end.saturating_sub(range.start), "range")?;
        self.read(range.start, &mut bytes, fetch)?;
        Ok(Bytes::Owned(bytes))
    }

    /// The bytes `range`, where they lie in one piece and that takes no decoding or waiting: `peek` gives the pieces
    /// that are there.
    pub fn ready_piece(&self, range: &Range<u64>, peek: &dyn Fn(&BlobRef, u64) -> Option<Piece>) -> Option<Bytes> {
        let (blob, piece, size, start, len) = self.single_piece(range)?;
        Bytes::part(whole(peek(blob, piece)?, size).ok()?, start, len).ok()
    }

    /// Fills `dst` with the bytes from `at` on, if that takes no decoding, computing, waiting or reading of the container;
    /// after `false` it holds unspecified bytes.
    pub fn fill_ready(&self, at: u64, dst: &mut [u8], peek: &dyn Fn(&BlobRef, u64) -> Option<Piece>) -> bool {
        let at_once = |segment: Segment| match segment {
            Segment::FileExtent { .. } => Err(computed::absent()),
            Segment::Computed { made, .. } if !made.is_made() => Err(computed::absent()),
            _ => Ok(()),
        };
        let range = at..at.saturating_add(to_u64(dst.len()));
        self.segments(range, &mut { at_once }).is_ok() && self.read(at, dst, &Peeking(peek)).is_ok()
    }

    /// What `range` is made of, in order.
    ///
    /// # Errors
    /// [`crate::error::Kind::Truncated`] for a range past the end; else what `each` gives.
    pub fn segments<'a>(&'a self, range: Range<u64>, each: &mut dyn FnMut(Segment<'a>) -> Result<()>) -> Result<()> {
        self.inside(&range)?;
        let mut at = range.start;
        let first = self.parts.partition_point(|part| part.end <= at);
        for part in self.parts.get(first..).unwrap_or_default() {
            if at >= range.end {
                break;
            }
            let start = part.end.saturating_sub(part.len);
            let end = part.end.min(range.end);
            part.leaf.segments(part.skip + (at - start), end - at, each)?;
            at = end;
        }
        Ok(())
    }

    /// The pieces that `range` is decoded from, in the order in which they are read, and their
    /// sizes; a piece may come several times. `each` says whether to go on.
    ///
    /// # Errors
    /// [`crate::error::Kind::Truncated`] for a range past the end.
    pub fn pieces(&self, range: Range<u64>, each: &mut dyn FnMut(&BlobRef, u64, u64) -> bool) -> Result<()> {
        let mut go_on = true;
        self.segments(range, &mut |segment| {
            match segment {
                Segment::Piece { blob, piece, size, .. } if go_on => go_on = each(blob, piece, size),
                Segment::Grid { grid, at, len } if go_on => go_on = grid.pieces(at, len, each)?,
                _ => {}
            }
            Ok(())
        })
    }

    /// Bytes of the largest piece among its first parts, the unit in which reading ahead counts, and of the
    /// most pieces that are decoded in one go.
    pub fn piece_and_batch(&self) -> (u64, u64) {
        let of = |part: &Part| match &part.leaf {
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

    /// The blob that all of it lies in, in order, how that divides into pieces, and where it lies.
    pub fn single_blob(&self) -> Option<(&BlobRef, &Layout, Range<u64>)> {
        let [Part { skip, len, leaf: Leaf::Blob(blob, layout), .. }] = self.parts.as_slice() else { return None };
        Some((blob, layout, *skip..skip + len))
    }

    /// Whether the bytes `range` lie in one piece, so that [`View::get`] copies nothing.
    pub fn is_piece(&self, range: &Range<u64>) -> bool {
        self.single_piece(range).is_some()
    }

    /// The blob, piece, size of the piece, first byte and number of bytes where `range` lies in one piece.
    fn single_piece(&self, range: &Range<u64>) -> Option<(&BlobRef, u64, u64, u64, u64)> {
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
        fits.then(|| (blob, piece, bounds.end - bounds.start, at - bounds.start, len))
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

/// Bytes of a view: shared with the cache, or copied together.
#[derive(Debug, Clone)]
pub enum Bytes {
    /// A part of a decoded piece.
    Shared(Piece, Range<usize>),
    /// Bytes of their own.
    Owned(Vec<u8>),
}

impl Bytes {
    fn part(piece: Piece, start: u64, len: u64) -> Result<Self> {
        let len = to_usize(len, "segment")?;
        subslice(&piece, start, len)?;
        let start = to_usize(start, "segment")?;
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

/// Gives what is there and nothing else.
struct Peeking<'a>(&'a dyn Fn(&BlobRef, u64) -> Option<Piece>);

impl Fetch for Peeking<'_> {
    fn piece(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        (self.0)(blob, piece).ok_or_else(computed::absent)
    }
}

/// The bytes of `content`, exactly; decodes only where they cannot be counted otherwise.
///
/// # Errors
/// As [`View::new`].
pub fn len(content: &Content, fetch: &dyn Fetch) -> Result<u64> {
    known_len(content).map_or_else(|| View::new(content, fetch).map(|view| view.len()), Ok)
}

#[cfg(test)]
mod tests;
