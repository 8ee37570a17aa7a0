//! Results that are kept to be shared: the ones used last, charged to the account.
//!
//! Limits: an eighth of the account's memory, and [`MOST`] results.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use crate::account::Account;
use crate::limits::Charge;

/// Maximum number of results.
const MOST: u64 = 1 << 16;
/// Number of results that may be kept however little memory the account has.
const LEAST: u64 = 16;

/// Results by key.
pub(super) struct ResultCache<K: Hash + Eq, V> {
    account: Account,
    /// Bytes charged for a result.
    cost: u64,
    what: &'static str,
    results: Mutex<LruCache<K, (V, Charge)>>,
}

impl<K: Hash + Eq, V: Clone> ResultCache<K, V> {
    /// Keeps results that take about `cost` bytes each, with their keys; `what` names them in errors.
    pub(super) fn new(account: &Account, cost: u64, what: &'static str) -> Self {
        let fits = account.memory().total().checked_div(cost.saturating_mul(8)).unwrap_or(0).clamp(LEAST, MOST);
        let fits = usize::try_from(fits).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN);
        Self { account: account.clone(), cost, what, results: Mutex::new(LruCache::new(fits)) }
    }

    /// The result for `key`, if it is kept.
    pub(super) fn find(&self, key: &K) -> Option<V> {
        self.lock().get(key).map(|(result, _)| result.clone())
    }

    /// Keeps `result` for `key` if the account has room, and returns it; or returns the one that another thread kept
    /// before.
    pub(super) fn keep(&self, key: K, result: V) -> V {
        // Dropped without the lock: that may close a file.
        let mut gone = Vec::new();
        let mut results = self.lock();
        if let Some((result, _)) = results.get(&key) {
            return result.clone();
        }
        let charge = loop {
            match self.account.charge(self.cost, self.what) {
                Ok(charge) => break charge,
                Err(_) => match results.pop_lru() {
                    Some((_, (oldest, _))) => gone.push(oldest),
                    None => return result,
                },
            }
        };
        gone.extend(results.push(key, (result.clone(), charge)).map(|(_, (oldest, _))| oldest));
        drop(results);
        result
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<K, (V, Charge)>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_charged_and_the_ones_used_last_are_kept() {
        let account = Account::new(1 << 20, 0);
        let kept = ResultCache::new(&account, 1 << 10, "results");
        assert_eq!((kept.keep(0, 'a'), kept.keep(0, 'b')), ('a', 'a'));
        for key in 1..1000 {
            kept.keep(key, 'x');
            assert_eq!(kept.find(&0), Some('a'));
        }
        // An eighth of a mebibyte.
        assert_eq!(account.memory().used(), 128 << 10);
        assert_eq!((kept.find(&872), kept.find(&873)), (None, Some('x')));
        drop(kept);
        assert_eq!(account.memory().used(), 0);
    }

    #[test]
    fn without_room_the_oldest_result_is_dropped_and_with_none_at_all_nothing_is_kept() {
        let account = Account::new(1 << 20, 0);
        let kept = ResultCache::new(&account, 1 << 10, "results");
        let others = account.charge((1 << 20) - (2 << 10), "others").unwrap();
        (0..10).for_each(|key| _ = kept.keep(key, 'x'));
        assert_eq!([7, 8, 9].map(|key| kept.find(&key).is_some()), [false, true, true]);
        drop((others, kept));
        let none = Account::new(0, 0);
        let kept = ResultCache::new(&none, 1, "results");
        assert_eq!((kept.keep(1, 'x'), kept.find(&1)), ('x', None));
    }
}
