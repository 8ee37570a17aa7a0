//! A hash over the pieces of a stream, fed by the readers that decode them.
//!
//! Invariant: every piece is hashed once, in order. Pieces that readers decode shortly before it is their turn are
//! copied, as the account has room; others are decoded again by [`StreamHash::finish`].
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::account::Account;
use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::limits::Charge;

/// Pieces that are kept until their predecessors come. Readers decode ahead on several threads, out of order.
const AHEAD: u64 = 8;

/// A hash in progress; `H` is its state.
pub struct StreamHash<H> {
    account: Account,
    state: Mutex<HashState<H>>,
}

/// Copies of pieces.
type PiecesAhead = BTreeMap<u64, (Vec<u8>, Charge)>;

struct HashState<H> {
    /// `None` while a thread finishes, and afterwards.
    hasher: Option<H>,
    next: u64,
    ahead: PiecesAhead,
}

impl<H> StreamHash<H> {
    /// Starts before the first piece; copies are charged to `account`.
    pub fn new(hasher: H, account: &Account) -> Self {
        let state = HashState { hasher: Some(hasher), next: 0, ahead: PiecesAhead::new() };
        Self { account: account.clone(), state: Mutex::new(state) }
    }

    /// The first piece that was not added yet.
    pub fn next(&self) -> u64 {
        self.lock().next
    }

    /// Whether all of `count` pieces were added, but for a few at the end.
    pub fn is_almost(&self, count: u64) -> bool {
        count.saturating_sub(self.next()) <= AHEAD
    }

    /// Adds a decoded piece through `update`, if it is its turn or soon will be.
    pub fn feed(&self, piece: u64, bytes: &[u8], update: impl Fn(&mut H, &[u8])) {
        let mut guard = self.lock();
        let HashState { hasher, next, ahead } = &mut *guard;
        let Some(hasher) = hasher else { return };
        if piece != *next {
            if piece > *next && piece - *next <= AHEAD && !ahead.contains_key(&piece) {
                let charge = self.account.charge_spare(to_u64(bytes.len()), "piece to be hashed");
                ahead.extend(charge.map(|charge| (piece, (bytes.to_vec(), charge))));
            }
            return;
        }
        update(hasher, bytes);
        *next += 1;
        while let Some((bytes, _)) = ahead.remove(next) {
            update(hasher, &bytes);
            *next += 1;
        }
    }

    /// Adds the pieces up to `count` that are still missing, decoded by `decode` into a buffer, and returns the hash.
    ///
    /// # Errors
    /// Fails if `decode` fails; a later call continues there.
    pub fn finish(
        &self,
        count: u64,
        decode: impl Fn(u64, &mut Vec<u8>) -> Result<()>,
        update: impl Fn(&mut H, &[u8]),
    ) -> Result<H> {
        let mut state = self.lock();
        let (mut next, mut ahead) = (state.next, std::mem::take(&mut state.ahead));
        let ended = || Error::corrupt("it was verified before", "checksum");
        let mut hasher = state.hasher.take().ok_or_else(ended)?;
        drop(state);
        let mut buffer = Vec::new();
        while next < count {
            let done = match ahead.remove(&next) {
                Some((bytes, _)) => {
                    update(&mut hasher, &bytes);
                    Ok(())
                }
                None => decode(next, &mut buffer).map(|()| update(&mut hasher, &buffer)),
            };
            if let Err(error) = done {
                *self.lock() = HashState { hasher: Some(hasher), next, ahead };
                return Err(error);
            }
            next += 1;
        }
        Ok(hasher)
    }

    fn lock(&self) -> MutexGuard<'_, HashState<H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H> fmt::Debug for StreamHash<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamHash").field("next", &self.lock().next).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn push(all: &mut Vec<u8>, bytes: &[u8]) {
        all.extend(bytes);
    }

    #[test]
    fn pieces_that_readers_decode_in_order_are_not_decoded_again() {
        let hash = StreamHash::new(Vec::new(), &Account::new(8, 0));
        for piece in [0, 2, 3, 1, 1, 4, 6, 50] {
            hash.feed(piece, &[piece as u8], push);
        }
        let again = AtomicU64::new(0);
        let decode = |piece: u64, buffer: &mut Vec<u8>| {
            again.fetch_add(1, Ordering::Relaxed);
            buffer.clear();
            buffer.push(piece as u8);
            Ok(())
        };
        assert_eq!(hash.finish(8, decode, push).unwrap(), (0..8).collect::<Vec<u8>>());
        assert_eq!(again.load(Ordering::Relaxed), 2, "pieces 5 and 7");
        hash.feed(8, &[8], push);
    }

    #[test]
    fn copies_of_pieces_that_are_ahead_are_kept_and_no_others() {
        let account = Account::new(1 << 20, 0);
        let hash = StreamHash::new(Vec::new(), &account);
        (0..3).for_each(|piece| hash.feed(piece, &[piece as u8], push));
        for (piece, kept) in [(1, 0), (2, 0), (4, 1), (4, 1), (3 + AHEAD, 2), (4 + AHEAD, 2)] {
            hash.feed(piece, &[piece as u8], push);
            assert_eq!(account.memory().used(), kept, "{piece}");
        }
        assert!(hash.is_almost(0) && hash.is_almost(3) && hash.is_almost(3 + AHEAD) && !hash.is_almost(4 + AHEAD));
    }

    #[test]
    fn a_piece_that_the_account_has_no_room_for_is_decoded_again() {
        let account = Account::new(2, 0);
        let hash = StreamHash::new(Vec::new(), &account);
        (1..5).for_each(|piece| hash.feed(piece, &[piece as u8], push));
        assert_eq!(account.memory().used(), 2);
        hash.feed(0, &[0], push);
        assert_eq!((hash.next(), account.memory().used()), (3, 0));
    }

    #[test]
    fn a_hash_that_could_not_be_finished_continues_where_it_stopped() {
        let hash = StreamHash::new(Vec::new(), &Account::new(8, 0));
        hash.feed(0, &[0], push);
        let fails = |piece: u64, buffer: &mut Vec<u8>| {
            *buffer = vec![piece as u8];
            if piece == 2 { Err(Error::corrupt("no", "x")) } else { Ok(()) }
        };
        assert!(hash.finish(4, fails, push).is_err());
        hash.feed(2, &[2], push);
        let only = |piece: u64, buffer: &mut Vec<u8>| {
            assert_eq!(piece, 3);
            *buffer = vec![3];
            Ok(())
        };
        assert_eq!(hash.finish(4, only, push).unwrap(), [0, 1, 2, 3]);
    }
}
