//! The decoded pieces of outer containers that were read last, of all containers that share an account.
//!
//! Limits: [`MOST`] bytes, and a quarter of the account's memory, to which they are charged.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Mutex, PoisonError};

use lru::LruCache;

use crate::account::Account;
use crate::bytes::to_u64;
use crate::format::Piece;
use crate::limits::Charge;

/// Maximum bytes of all pieces; one may be larger.
const MOST: u64 = 64 << 20;

/// The id of a blob, and the number of a piece.
type Key = (u64, u64);

/// Decoded pieces.
pub struct OuterPieces(Mutex<Kept>);

struct Kept {
    pieces: LruCache<Key, (Piece, Charge)>,
    bytes: u64,
}

impl Default for OuterPieces {
    fn default() -> Self {
        Self(Mutex::new(Kept { pieces: LruCache::unbounded(), bytes: 0 }))
    }
}

impl OuterPieces {
    pub(super) fn get(&self, key: Key) -> Option<Piece> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pieces.get(&key).map(|(piece, _)| piece.clone())
    }

    /// Keeps a piece if `account` has room for it, and drops the least recently read ones.
    pub(super) fn put(&self, key: Key, piece: &Piece, account: &Account) {
        let most = MOST.min(account.memory().total() / 4);
        let Ok(charge) = account.charge(to_u64(piece.len()), "piece") else { return };
        let mut gone = Vec::new();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += to_u64(piece.len());
        gone.extend(kept.pieces.push(key, (piece.clone(), charge)).map(|(_, gone)| gone));
        let mut freed: u64 = gone.iter().map(|(piece, _)| to_u64(piece.len())).sum();
        while kept.bytes - freed > most && kept.pieces.len() > 1 {
            let Some((_, oldest)) = kept.pieces.pop_lru() else { break };
            freed += to_u64(oldest.0.len());
            gone.push(oldest);
        }
        kept.bytes -= freed;
        drop(kept);
        drop(gone);
    }

    /// Drops the pieces of a blob.
    pub(super) fn forget(&self, blob: u64) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let its: Vec<Key> = kept.pieces.iter().map(|(key, _)| *key).filter(|key| key.0 == blob).collect();
        let gone: Vec<_> = its.iter().filter_map(|key| kept.pieces.pop(key)).collect();
        kept.bytes -= gone.iter().map(|(piece, _)| to_u64(piece.len())).sum::<u64>();
        drop(kept);
        drop(gone);
    }
}

impl fmt::Debug for OuterPieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OuterPieces")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_pieces_read_last_are_kept_within_the_limit() {
        let (pieces, account) = (OuterPieces::default(), Account::new(1 << 30, 0));
        for number in 0..70 {
            pieces.put((number % 2, number), &Arc::new(vec![0; 1 << 20]), &account);
            assert!(pieces.get((0, 0)).is_some(), "it is read all the time");
        }
        assert!(pieces.get((1, 1)).is_none() && pieces.get((1, 69)).is_some());
        assert_eq!(account.memory().used(), MOST);
        pieces.forget(1);
        assert!(pieces.get((1, 69)).is_none() && pieces.get((0, 68)).is_some());
        pieces.forget(0);
        assert_eq!(account.memory().used(), 0);
    }
}
