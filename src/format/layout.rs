//! How the decoded bytes of a blob divide into pieces.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use crate::bytes::to_u64;
use crate::codec::zstd::Division;

/// How the bytes of a blob divide into pieces.
#[derive(Debug, Clone)]
pub enum Layout {
    /// Pieces of `piece` bytes (at least one); the last one may be shorter.
    Uniform {
        /// Total decoded bytes.
        len: u64,
        /// Bytes of a piece.
        piece: u64,
    },
    /// The end offset of every piece, ascending; piece 0 starts at 0.
    Ends(Arc<[u64]>),
    /// Fragments as pieces: each range of `piece` bytes divides into ranges of `fragment` bytes; the last may be
    /// shorter. Neither is 0.
    Fragments {
        /// Total decoded bytes.
        len: u64,
        /// Bytes of a whole that the fragments divide.
        piece: u64,
        /// Bytes of a fragment.
        fragment: u64,
    },
}

impl From<Division> for Layout {
    fn from(division: Division) -> Self {
        match division {
            Division::Uniform { len, piece } => Self::Uniform { len, piece },
            Division::Ends(ends) => Self::Ends(ends),
        }
    }
}

impl Layout {
    /// Total decoded bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Uniform { len, .. } | Self::Fragments { len, .. } => *len,
            Self::Ends(ends) => ends.last().copied().unwrap_or(0),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of pieces.
    pub fn count(&self) -> u64 {
        match self {
            Self::Uniform { len, piece } => len.div_ceil((*piece).max(1)),
            Self::Ends(ends) => to_u64(ends.len()),
            Self::Fragments { len, piece, fragment } => {
                let last = (len % piece).div_ceil(*fragment);
                (len / piece).saturating_mul(piece.div_ceil(*fragment)).saturating_add(last)
            }
        }
    }

    /// Pieces of one size divided into fragments of `fragment` bytes; `None` if these are more than half a piece, or if
    /// the pieces have several sizes.
    pub fn divided(&self, fragment: u64) -> Option<Self> {
        let &Self::Uniform { len, piece } = self else { return None };
        let fragment = fragment.max(1);
        (fragment <= piece.min(len) / 2).then_some(Self::Fragments { len, piece, fragment })
    }

    /// The decoded byte range of piece `index`; empty past the last one.
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
            Self::Fragments { len, piece, fragment } => {
                let per_piece = piece.div_ceil(*fragment);
                let first = (index / per_piece).saturating_mul(*piece).min(*len);
                let end = first.saturating_add(*piece).min(*len);
                let start = first.saturating_add((index % per_piece).saturating_mul(*fragment)).min(end);
                start..start.saturating_add(*fragment).min(end)
            }
        }
    }

    /// The piece that contains decoded byte `offset`, which must be before the end.
    pub fn locate(&self, offset: u64) -> u64 {
        match self {
            Self::Uniform { piece, .. } => offset / (*piece).max(1),
            Self::Ends(ends) => to_u64(ends.partition_point(|&end| end <= offset)),
            Self::Fragments { piece, fragment, .. } => {
                (offset / piece).saturating_mul(piece.div_ceil(*fragment)).saturating_add(offset % piece / fragment)
            }
        }
    }
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

    #[test]
    fn fragments_divide_every_piece_and_cross_none() {
        for (len, piece, fragment) in
            (0..30).flat_map(|len| (1..9).flat_map(move |p| (1..=p).map(move |f| (len, p, f))))
        {
            let layout = Layout::Fragments { len, piece, fragment };
            let mut end = 0;
            for i in 0..layout.count() {
                let range = layout.range(i);
                assert!(range.start == end && range.end > end, "{layout:?} {i} {range:?}");
                assert!(range.end - range.start <= fragment && range.start / piece == (range.end - 1) / piece);
                assert!(range.clone().all(|offset| layout.locate(offset) == i), "{layout:?} {i}");
                end = range.end;
            }
            assert_eq!(end, len);
            assert!(layout.range(layout.count()).is_empty() && layout.range(u64::MAX).is_empty());
        }
    }
}
