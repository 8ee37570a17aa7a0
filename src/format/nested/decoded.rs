//! The decoded bytes of a container as the source of the containers in it.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::OuterPieces;
use crate::account::{Account, decode_budget};
use crate::bytes::{FileOffset, to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::{BlobRef, Layout, Options, Piece};
use crate::limits::zeroed;
use crate::source::{Origin, Source, combined};

/// How many pieces are decoded at a time.
const AT_ONCE: usize = 8;

/// The stream of a container.
pub(in crate::format) struct Decoded {
    /// The files of the container.
    outer: Vec<Arc<Source>>,
    stream: BlobRef,
    layout: Layout,
    pieces: Arc<OuterPieces>,
    account: Account,
    /// Whether the content depends on nothing but the files of the container.
    is_own: bool,
    /// Held while a piece is decoded, by its number: others wait for it. Locks are taken from inner to outer
    /// containers, so that no cycle can deadlock.
    decoding: [Mutex<()>; AT_ONCE],
}

impl Decoded {
    /// Decodes only if the container does not record the length.
    ///
    /// # Errors
    /// As [`crate::format::Blob::layout`].
    pub(in crate::format) fn new(outer: Vec<Arc<Source>>, stream: BlobRef, options: &Options) -> Result<Self> {
        let layout = decode_budget::once(|| stream.layout())?;
        let (pieces, account) = (options.outer_pieces.clone(), options.account.clone());
        let is_own = options.dicts.is_empty() && options.dtype.is_none();
        Ok(Self { outer, stream, layout, pieces, account, is_own, decoding: Default::default() })
    }

    /// Piece `piece`, of `len` bytes; verified.
    fn piece(&self, piece: u64, len: u64) -> Result<Piece> {
        let key = (self.stream.id(), piece);
        let kept = || self.pieces.get(&key).or_else(|| self.stream.ready(piece));
        let found = kept().map_or_else(|| self.decode(piece, len, kept), Ok)?;
        // A checksum that covers more may have failed since.
        self.stream.gate(piece).map_or(Ok(()), |gate| gate.wait())?;
        Ok(found)
    }

    fn decode(&self, piece: u64, len: u64, kept: impl Fn() -> Option<Piece>) -> Result<Piece> {
        let turn = to_usize(piece.checked_rem(to_u64(AT_ONCE)).unwrap_or(0), "piece")?;
        let _turn = self.decoding.get(turn).map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(found) = kept() {
            return Ok(found);
        }
        decode_budget::charge_opening(len)?;
        let mut bytes = zeroed(len, "piece")?;
        decode_budget::once(|| self.stream.decode(piece, &mut bytes))?;
        let key = (self.stream.id(), piece);
        Ok(self.pieces.charge(key, Arc::new(bytes), len, &self.account, "piece"))
    }
}

impl Origin for Decoded {
    fn len(&self) -> u64 {
        self.layout.len()
    }

    fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
        let (mut at, mut rest) = (at.0, dst);
        while !rest.is_empty() {
            let piece = self.layout.locate(at);
            let range = self.layout.range(piece);
            let found = self.piece(piece, range.end.saturating_sub(range.start))?;
            let skip = to_usize(at.saturating_sub(range.start), what)?;
            let part = found.get(skip..).unwrap_or_default();
            let len = part.len().min(rest.len());
            if len == 0 {
                return Err(Error::corrupt("shorter than its layout says", "piece").at(FileOffset(at)));
            }
            let (head, tail) = rest.split_at_mut(len);
            head.copy_from_slice(part.get(..len).unwrap_or_default());
            at = at.saturating_add(to_u64(len));
            rest = tail;
        }
        Ok(())
    }

    fn mtime(&self) -> (i64, i64) {
        self.outer.first().map_or((0, 0), |source| source.mtime())
    }

    fn fingerprint(&self) -> Option<[u8; 32]> {
        let [outer] = &*self.outer else { return None };
        let outer = outer.fingerprint().filter(|_| self.is_own)?;
        Some(combined("stream", &[&outer, &self.layout.len().to_le_bytes()]))
    }

    fn is_same_in_memory(&self) -> bool {
        self.outer.iter().all(|source| source.is_same_in_memory())
    }

    fn check(&self) -> Result<()> {
        self.outer.iter().try_for_each(|source| source.check())
    }

    fn set_changed(&self) {
        self.outer.iter().for_each(|source| source.set_changed());
    }
}

impl Drop for Decoded {
    fn drop(&mut self) {
        self.pieces.remove_all(|(blob, _)| *blob == self.stream.id());
    }
}

impl fmt::Debug for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decoded({:?}, {})", self.stream, self.layout.len())
    }
}
