//! What a read still needs, and which thread may put its answer together.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ops::Range;

use crate::cache::Cache;
use crate::checksum::ChecksumGate;
use crate::error::Result;
use crate::format::{BlobRef, Piece};
use crate::view::{Segment, View};

use super::offload::On;

/// What a read still needs.
#[derive(Debug)]
pub(super) enum Plan {
    /// First this gate has to be decided; then there is another plan.
    Shut(ChecksumGate),
    /// Pieces; then the answer is put together.
    Pieces(Needed),
}

/// The pieces that a read is put together from.
#[derive(Debug)]
pub(super) struct Needed {
    /// Those that are there. Kept, so that none has to be decoded after all by whoever puts the answer together.
    pub(super) have: HashMap<Key, Piece>,
    pub(super) missing: Vec<(BlobRef, u64)>,
    /// Where the answer is put together, if not on the thread that brings the last piece.
    pub(super) on: Option<On>,
}

/// A blob's number and a piece of it.
pub(super) type Key = (u64, u64);

/// What `range` of `view` needs beside what `cache` holds: at most `most` pieces together.
///
/// # Errors
/// As [`View::segments`].
pub(super) fn plan(view: &View, range: Range<u64>, cache: &Cache, most: usize) -> Result<Plan> {
    let needed = Needed { have: HashMap::new(), missing: Vec::new(), on: None };
    let mut needs = Needs { cache, most, last: None, shut: None, needed };
    view.segments(range, &mut |segment| {
        match segment {
            Segment::Piece { blob, piece, .. } => _ = needs.piece(blob, piece),
            Segment::Grid { grid, at, len } => {
                _ = grid.pieces(at, len, &mut |blob, piece, _| needs.piece(blob, piece))?;
            }
            Segment::FileExtent { stored, .. } => {
                needs.shut = needs.shut.take().or_else(|| ChecksumGate::shut(stored.gate.as_ref()));
                // It may have to come from a disk.
                needs.needed.on.get_or_insert(On::Workers);
            }
            // What it is made of may be any number of bytes.
            Segment::Computed { made, .. } if !made.is_made() => needs.needed.on = Some(On::Checks),
            Segment::Computed { .. } | Segment::Bytes(_) | Segment::Zeros(_) => {}
        }
        Ok(())
    })?;
    Ok(match needs.shut {
        Some(gate) => Plan::Shut(gate),
        None => Plan::Pieces(needs.needed),
    })
}

struct Needs<'a> {
    cache: &'a Cache,
    most: usize,
    /// The piece looked at last: a range may come back to it many times.
    last: Option<Key>,
    shut: Option<ChecksumGate>,
    needed: Needed,
}

impl Needs<'_> {
    /// Looks at a piece; says whether to go on.
    fn piece(&mut self, blob: &BlobRef, piece: u64) -> bool {
        let key = (blob.id(), piece);
        let Needed { have, missing, on } = &mut self.needed;
        if self.last.replace(key) == Some(key) || have.contains_key(&key) {
            return true;
        }
        if have.len() < self.most
            && let Some(piece) = self.cache.peek(blob, piece)
        {
            have.insert(key, piece);
            return true;
        }
        self.shut = self.shut.take().or_else(|| blob.gate(piece));
        if missing.iter().any(|(b, p)| (b.id(), *p) == key) {
            return true;
        }
        if missing.len() < self.most {
            missing.push((blob.clone(), piece));
        } else {
            // What would not fit beside them is decoded one by one while the answer is put together.
            on.get_or_insert(On::Workers);
        }
        self.shut.is_none()
    }
}
