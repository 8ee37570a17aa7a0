//! Reads by fragments: the same bytes from parts of pieces, for a reader that needs little of each piece.
//!
//! A view by fragments has the parts of its view, with each blob replaced by its fragments. So the cache decodes,
//! shares and keeps fragments as it does pieces, and arrays are gathered from them likewise.
//!
//! Limits: a view with fragments keeps its list of parts twice once it was read by fragments.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::format::BlobRef;

use super::{Leaf, View, ViewPart};

/// Longer ranges are read by pieces.
const LONGEST: u64 = 256 << 10;
/// Fragments are read if they have at most this part of the bytes of the pieces.
const SAVING: u64 = 2;

impl View {
    /// The view by fragments, if it decodes less for `range` than this one does. `is_known` says whether a piece is
    /// decoded or being decoded: if all are, reading them is cheaper.
    pub fn by_fragments(&self, range: &Range<u64>, is_known: &dyn Fn(&BlobRef, u64) -> bool) -> Option<&Arc<Self>> {
        if range.end.saturating_sub(range.start) > LONGEST {
            return None;
        }
        let fragments = self.fragments()?;
        let (mut all, mut most) = (true, 0_u64);
        let counted = self.pieces(range.clone(), &mut |blob, piece, size| {
            all = all && is_known(blob, piece);
            most = most.saturating_add(size);
            true
        });
        counted.ok().filter(|()| !all)?;
        let mut least = 0_u64;
        let counted = fragments.pieces(range.clone(), &mut |_, _, size| {
            least = least.saturating_add(size);
            least.saturating_mul(SAVING) <= most
        });
        counted.ok().filter(|()| least.saturating_mul(SAVING) <= most)?;
        Some(fragments)
    }

    /// The view by fragments, if any part has some.
    pub(super) fn fragments(&self) -> Option<&Arc<Self>> {
        let create = || {
            let mut parts = self.parts.iter().enumerate().filter_map(|(i, part)| Some((i, part.leaf.by_fragments()?)));
            let first = parts.next()?;
            let mut own = self.parts.clone();
            for (part, leaf) in std::iter::once(first).chain(parts) {
                if let Some(ViewPart { leaf: own, .. }) = own.get_mut(part) {
                    *own = leaf;
                }
            }
            Some(Arc::new(Self { parts: own, len: self.len, fragments: OnceLock::from(None) }))
        };
        self.fragments.get_or_init(create).as_ref()
    }
}

impl Leaf {
    /// The same bytes, from the fragments of its blob; `None` if it has none.
    fn by_fragments(&self) -> Option<Self> {
        match self {
            Self::Blob(blob, _) => {
                let fragments = blob.fragments()?;
                let layout = fragments.layout().ok()?;
                Some(Self::Blob(fragments, layout))
            }
            Self::Grid(grid) => grid.by_fragments().map(|grid| Self::Grid(Arc::new(grid))),
            Self::Bytes(_) | Self::Computed(_) | Self::FileExtent(_) | Self::Zeros => None,
        }
    }
}
