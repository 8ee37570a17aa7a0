//! Determines what a read lacks, and which thread may complete it.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ops::Range;

use crate::cache::Cache;
use crate::checksum::ChecksumGate;
use crate::error::Result;
use crate::format::{BlobRef, Piece, PieceKey};
use crate::fs::offload::On;
use crate::view::{Extent, View};

/// The missing part of a read.
#[derive(Debug)]
pub(super) enum Plan {
    /// A checksum gate; once it is decided, plan again.
    Shut(ChecksumGate),
    /// Pieces, after which the read can be completed.
    Pieces(Needed),
}

/// The pieces of a read.
#[derive(Debug)]
pub(super) struct Needed {
    /// Pieces found in the cache. Kept here, so that an eviction before the reply does not cause another decode.
    pub(super) have: HashMap<PieceKey, Piece>,
    pub(super) missing: Vec<(BlobRef, u64)>,
    /// Where to complete the read, if not on the thread that delivers the last piece.
    pub(super) on: Option<On>,
}

/// Minimum limit on the missing pieces of a plan: all of them are decoded at the same time, once for all requests.
const MISSING: usize = 64;

/// Plans the read of `range` of `view`, given the content of `cache`: at most `most` pieces present; beyond that,
/// cached pieces count as missing. At most `most` or [`MISSING`] are missing.
///
/// # Errors
/// As [`View::extents`].
pub(super) fn plan(view: &View, range: Range<u64>, cache: &Cache, most: usize) -> Result<Plan> {
    let needed = Needed { have: HashMap::new(), missing: Vec::new(), on: None };
    let mut needs = Needs { cache, most, last: None, shut: None, needed };
    view.extents(range, &mut |extent| {
        match extent {
            Extent::Piece { blob, piece, .. } => _ = needs.piece(blob, piece),
            Extent::Grid { grid, at, len } => {
                _ = grid.pieces(at, len, &mut |blob, piece, _| needs.piece(blob, piece))?;
            }
            Extent::FileExtent { stored, at, len } => {
                needs.shut = needs.shut.take().or_else(|| stored.shut(at, len));
                // The read may block on the disk.
                needs.needed.on.get_or_insert(On::Workers);
            }
            // Computing it may read any number of bytes.
            Extent::Computed { computed, .. } if !computed.is_ready() => needs.needed.on = Some(On::Checks),
            Extent::Computed { .. } | Extent::Bytes(_) | Extent::Zeros(_) => {}
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
    /// The last piece seen, since a range may return to it many times.
    last: Option<PieceKey>,
    shut: Option<ChecksumGate>,
    needed: Needed,
}

impl Needs<'_> {
    /// Adds a piece; returns whether to continue.
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
        if missing.len() < self.most.max(MISSING) {
            missing.push((blob.clone(), piece));
        } else {
            // Pieces over the limit are decoded one by one while the read is completed.
            on.get_or_insert(On::Workers);
        }
        self.shut.is_none()
    }
}
