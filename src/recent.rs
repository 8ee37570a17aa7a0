//! Values that are kept to be used again: those used most recently.
//!
//! Limits: a number of values, and for those that are charged a number of bytes, at most an eighth of the account's
//! memory, of which others may need the rest.
//!
//! Invariant: a value that goes is dropped without the lock, since that may close files.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::{Arc, PoisonError, Weak};

use crate::account::Account;
use crate::error::Result;
use crate::limits::Charge;
use crate::lru_list::LruList;
use crate::sync::{Mutex, MutexGuard};

/// The part of an account that charged values may take.
const SHARE: u64 = 8;

/// The values used most recently, by key.
pub struct Recent<K: Hash + Eq, V> {
    values: Mutex<Values<K, V>>,
    /// Bytes that charged values may take.
    most: u64,
}

/// Weighed in bytes if they are charged.
type Values<K, V> = LruList<K, RecentSlot<V>>;

struct RecentSlot<V> {
    value: V,
    _charge: Option<Charge>,
}

impl<K: Hash + Eq, V: Clone> Recent<K, V> {
    /// Keeps up to `count` values.
    pub fn new(count: NonZeroUsize) -> Self {
        Self::within(count, u64::MAX)
    }

    /// Keeps up to `count` values, and of charged ones up to `most` bytes, or one that is larger.
    pub fn within(count: NonZeroUsize, most: u64) -> Self {
        Self { values: Mutex::new(Values::bounded(count)), most }
    }

    /// The value for `key`, if it is kept; it is used now.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.lock().get(key).map(|kept| kept.value.clone())
    }

    /// Whether there is a value for `key`.
    pub fn contains(&self, key: &K) -> bool {
        self.lock().contains(key)
    }

    /// Keeps `value` for `key` instead of any other.
    pub fn put(&self, key: K, value: V) {
        let mut values = self.lock();
        let gone = values.push(key, RecentSlot { value, _charge: None }, 0);
        drop(values);
        drop(gone);
    }

    /// The value for `key`, which `make` makes, without waiting for anything, unless it is kept.
    pub fn get_or_put(&self, key: K, make: impl FnOnce() -> V) -> V {
        let mut values = self.lock();
        if let Some(kept) = values.get(&key) {
            return kept.value.clone();
        }
        let value = make();
        let gone = values.push(key, RecentSlot { value: value.clone(), _charge: None }, 0);
        drop(values);
        drop(gone);
        value
    }

    /// The value for `key`, which `open` makes unless it is kept: without the lock, so that several threads may; they all
    /// get the one that was there first.
    ///
    /// # Errors
    /// From `open`.
    pub fn get_or_open<E>(&self, key: K, open: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        if let Some(value) = self.get(&key) {
            return Ok(value);
        }
        let value = open()?;
        Ok(self.get_or_put(key, || value))
    }

    /// Bytes that charged values may take.
    pub fn room(&self, account: &Account) -> u64 {
        self.most.min(account.memory().total() / SHARE)
    }

    /// Charges `bytes` for a value to be kept; `free` gets the values that go for it.
    ///
    /// # Errors
    /// [`Kind::NoRoom`](crate::error::Kind::NoRoom) if `account` has no room, even without the other values.
    pub fn reserve(&self, bytes: u64, account: &Account, free: impl FnMut(V)) -> Result<Charge> {
        let most = self.room(account);
        let mut gone = Vec::new();
        let mut values = self.lock();
        while values.weight().saturating_add(bytes) > most {
            let Some((_, oldest)) = values.pop() else { break };
            gone.push(oldest.value);
        }
        let charge = loop {
            match (account.charge(bytes, "kept value"), values.is_empty()) {
                (Err(_), false) => gone.extend(values.pop().map(|(_, oldest)| oldest.value)),
                (charge, _) => break charge,
            }
        };
        drop(values);
        gone.into_iter().for_each(free);
        charge
    }

    /// Keeps `value` for `key`, with what was reserved for its `bytes` bytes, and returns it; or returns the one that
    /// another thread kept before.
    pub fn keep(&self, key: K, value: V, bytes: u64, reserved: Charge) -> V {
        let mut values = self.lock();
        if let Some(kept) = values.get(&key) {
            return kept.value.clone();
        }
        let gone = values.push(key, RecentSlot { value: value.clone(), _charge: Some(reserved) }, bytes);
        drop(values);
        drop(gone);
        value
    }

    /// Keeps `value`, of `bytes` bytes, for `key` if `account` has room, and returns it; or returns the one that another
    /// thread kept before.
    pub fn charge(&self, key: K, value: V, bytes: u64, account: &Account) -> V {
        if let Some(kept) = self.get(&key) {
            return kept;
        }
        match self.reserve(bytes, account, drop) {
            Ok(reserved) => self.keep(key, value, bytes, reserved),
            Err(_) => value,
        }
    }

    /// Takes the value for `key`.
    pub fn take<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let gone = self.lock().remove(key)?;
        Some(gone.value)
    }

    /// Drops the value for `key`.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        drop(self.take(key));
    }

    /// Drops the values whose keys are `gone`.
    pub fn remove_all(&self, is_gone: impl Fn(&K) -> bool)
    where
        K: Clone,
    {
        let keys: Vec<K> = self.lock().iter().map(|(key, _)| key).filter(|key| is_gone(key)).cloned().collect();
        for key in &keys {
            self.remove(key);
        }
    }

    /// Drops all values.
    pub fn clear(&self) {
        let mut values = self.lock();
        let gone: Vec<_> = std::iter::from_fn(|| values.pop()).collect();
        drop(values);
        drop(gone);
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Values<K, V>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq, T> Recent<K, Weak<T>> {
    /// The object for `key`, if it is still in use.
    pub fn in_use<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Arc<T>>
    where
        K: Borrow<Q>,
    {
        self.get(key)?.upgrade()
    }
}

impl<K: Hash + Eq, V> fmt::Debug for Recent<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recent")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn count(most: usize) -> NonZeroUsize {
        NonZeroUsize::new(most).unwrap()
    }

    #[test]
    fn the_values_used_last_are_kept() {
        let recent = Recent::new(count(3));
        for key in 0..10 {
            recent.put(key, 'x');
            assert_eq!(recent.get(&0), Some('x'), "it is used all the time");
        }
        assert_eq!((recent.len(), recent.get(&7), recent.get(&8), recent.contains(&9)), (3, None, Some('x'), true));
        assert_eq!((recent.get_or_put(8, || 'y'), recent.get_or_put(1, || 'z')), ('x', 'z'));
        recent.put(8, 'y');
        assert_eq!(recent.get_or_open(8, || Err(())), Ok('y'));
        assert_eq!((recent.get_or_open(5, || Err(())), recent.get(&5)), (Err(()), None));
        recent.remove_all(|key| *key > 1);
        assert_eq!((recent.len(), recent.get(&1)), (2, Some('z')));
    }

    #[test]
    fn charged_values_take_an_eighth_of_the_account_and_no_more_than_their_limit() {
        let account = Account::new(1 << 20, 0);
        for (most, want) in [(u64::MAX, 128 * KIB), (100 * KIB, 100 * KIB)] {
            let recent = Recent::within(count(1000), most);
            assert_eq!((recent.charge(0, 'a', KIB, &account), recent.charge(0, 'b', KIB, &account)), ('a', 'a'));
            for key in 1..1000 {
                recent.charge(key, 'x', KIB, &account);
                assert_eq!(recent.get(&0), Some('a'));
            }
            assert_eq!(account.memory().used(), want);
            // One that is larger replaces them all.
            recent.charge(1000, 'y', 300 * KIB, &account);
            assert_eq!((recent.len(), account.memory().used()), (1, 300 * KIB));
            recent.remove(&1000);
            assert_eq!(account.memory().used(), 0);
        }
    }

    #[test]
    fn without_room_the_oldest_value_goes_and_with_none_at_all_nothing_is_kept() {
        let account = Account::new(1 << 20, 0);
        let recent = Recent::new(count(1000));
        let others = account.charge((1 << 20) - 2 * KIB, "others").unwrap();
        (0..10).for_each(|key| _ = recent.charge(key, 'x', KIB, &account));
        assert_eq!([7, 8, 9].map(|key| recent.get(&key).is_some()), [false, true, true]);
        drop((others, recent));
        let (none, recent) = (Account::new(0, 0), Recent::new(count(1000)));
        assert_eq!((recent.charge(1, 'x', 1, &none), recent.get(&1)), ('x', None));
    }

    #[test]
    fn what_is_in_use_is_found_until_it_is_dropped() {
        let recent = Recent::new(count(8));
        let open = Arc::new(7);
        recent.put((1000, 'a'), Arc::downgrade(&open));
        assert!(recent.in_use(&(1000, 'a')).is_some_and(|again| Arc::ptr_eq(&again, &open)));
        assert!(recent.in_use(&(1001, 'a')).is_none(), "another user's");
        drop(open);
        assert!(recent.in_use(&(1000, 'a')).is_none());
    }

    #[test]
    fn a_value_may_use_the_cache_when_it_is_dropped() {
        struct Uses(Weak<Recent<u8, Arc<Uses>>>);
        impl Drop for Uses {
            fn drop(&mut self) {
                if let Some(recent) = self.0.upgrade() {
                    recent.len();
                }
            }
        }
        let recent = Arc::new(Recent::new(count(1)));
        let value = || Arc::new(Uses(Arc::downgrade(&recent)));
        recent.put(0, value());
        recent.put(1, value());
        recent.get_or_put(2, value);
        recent.remove(&2);
        assert!(recent.is_empty());
    }
}
