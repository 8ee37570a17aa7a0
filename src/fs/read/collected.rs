//! The pieces of a waiting request so far: whole, while there is memory for them, or only the bytes that it needs.
//!
//! Nothing that was decoded for a waiting request is decoded for it again, however little the cache keeps.
#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::{Piece, PieceKey};
use crate::limits::zeroed;
use crate::view::View;

/// Limit on the bytes that waiting requests hold, beyond which they copy the bytes they need out of their pieces.
pub(super) const HELD: u64 = 32 << 20;

/// Bytes that all waiting requests hold.
#[derive(Debug, Default)]
pub(super) struct HeldBytes(AtomicU64);

impl HeldBytes {
    /// Counts `bytes` if they fit.
    fn reserve(&self, bytes: u64) -> bool {
        let fits = |held: u64| held.checked_add(bytes).filter(|&sum| sum <= HELD);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The pieces and bytes of one request.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) pieces: HashMap<PieceKey, Piece>,
    pub(super) copied: Option<Copied>,
    /// Bytes counted in [`HeldBytes`].
    held: u64,
}

/// The bytes of a request, as far as they are there.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) bytes: Vec<u8>,
    /// The pieces whose bytes were copied.
    pub(super) pieces: HashSet<PieceKey>,
}

impl Collected {
    /// Adds a piece, which counts in `held` if given. If it does not fit there, the bytes of `range` of `view` are
    /// copied from it and from the pieces that came before, which are dropped.
    ///
    /// # Errors
    /// Fails if memory is short, or if a piece has a wrong length.
    pub(super) fn add(
        &mut self,
        key: PieceKey,
        piece: Piece,
        view: &View,
        range: &Range<u64>,
        held: Option<&HeldBytes>,
    ) -> Result<()> {
        let bytes = to_u64(piece.len());
        self.pieces.insert(key, piece);
        match held {
            None => Ok(()),
            Some(held) if held.reserve(bytes) => {
                self.held = self.held.saturating_add(bytes);
                Ok(())
            }
            Some(held) => self.copy(view, range, held),
        }
    }

    /// Copies the bytes of `range` out of the pieces, and drops them.
    fn copy(&mut self, view: &View, range: &Range<u64>, held: &HeldBytes) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        let copied = match &mut self.copied {
            Some(copied) => copied,
            None => self.copied.insert(Copied { bytes: zeroed(len, "answer")?, pieces: HashSet::new() }),
        };
        let pieces = mem::take(&mut self.pieces);
        view.read_pieces(range.start, &mut copied.bytes, &|blob, piece| pieces.get(&(blob.id(), piece)).cloned())?;
        copied.pieces.extend(pieces.into_keys());
        // The copy is no longer than a request; less memory is not possible.
        let before = mem::replace(&mut self.held, len);
        held.0.fetch_add(len, Ordering::Relaxed);
        held.0.fetch_sub(before, Ordering::Relaxed);
        Ok(())
    }

    /// Stops counting its bytes.
    pub(super) fn release(&mut self, held: &HeldBytes) {
        held.0.fetch_sub(mem::take(&mut self.held), Ordering::Relaxed);
    }
}
