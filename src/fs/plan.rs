//! What a read still needs, and which thread may put its answer together.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::cache::Cache;
use crate::checksum::Gate;
use crate::error::Result;
use crate::format::BlobRef;
use crate::view::{Segment, View};

use super::offload::On;

/// What a read still needs.
#[derive(Debug)]
pub(super) enum Plan {
    /// First this gate has to be decided; then there is another plan.
    Shut(Gate),
    /// These pieces; then the answer is put together on the thread that brings the last one, or there.
    Pieces(Vec<(BlobRef, u64)>, Option<On>),
}

/// What `range` of `view` needs beside what `cache` holds: at most `most` pieces together.
///
/// # Errors
/// As [`View::segments`].
pub(super) fn plan(view: &View, range: Range<u64>, cache: &Cache, most: usize) -> Result<Plan> {
    let mut needs = Needs { cache, most, last: None, shut: None, missing: Vec::new(), on: None };
    view.segments(range, &mut |segment| {
        match segment {
            Segment::Piece { blob, piece, .. } => _ = needs.piece(blob, piece),
            Segment::Grid { grid, at, len } => {
                _ = grid.pieces(at, len, &mut |blob, piece, _| needs.piece(blob, piece))?;
            }
            Segment::Stored { stored, .. } => {
                needs.shut = needs.shut.take().or_else(|| Gate::shut(stored.gate.as_ref()));
                // It may have to come from a disk.
                needs.on.get_or_insert(On::Workers);
            }
            // What it is made of may be any number of bytes.
            Segment::Made { made, .. } if !made.is_made() => needs.on = Some(On::Checks),
            Segment::Made { .. } | Segment::Bytes(_) | Segment::Zeros(_) => {}
        }
        Ok(())
    })?;
    Ok(match needs.shut {
        Some(gate) => Plan::Shut(gate),
        None => Plan::Pieces(needs.missing, needs.on),
    })
}

struct Needs<'a> {
    cache: &'a Cache,
    most: usize,
    /// The piece looked at last: a range may come back to it many times.
    last: Option<(u64, u64)>,
    shut: Option<Gate>,
    missing: Vec<(BlobRef, u64)>,
    on: Option<On>,
}

impl Needs<'_> {
    /// Looks at a piece; says whether to go on.
    fn piece(&mut self, blob: &BlobRef, piece: u64) -> bool {
        let key = (blob.id(), piece);
        if self.last.replace(key) == Some(key) || self.cache.holds(blob, piece) {
            return true;
        }
        self.shut = self.shut.take().or_else(|| blob.gate(piece));
        if self.missing.iter().any(|(b, p)| (b.id(), *p) == key) {
            return true;
        }
        if self.missing.len() < self.most {
            self.missing.push((blob.clone(), piece));
        } else {
            // What would not fit beside them is decoded one by one while the answer is put together.
            self.on.get_or_insert(On::Workers);
        }
        self.shut.is_none()
    }
}
