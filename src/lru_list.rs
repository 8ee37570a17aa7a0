//! Values in the order of their last use, each with a weight: the one LRU list behind every cache here.
//!
//! It knows the sum of the weights and evicts nothing for it: each cache has its own rule of what may go.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::num::NonZeroUsize;

use lru::LruCache;

/// Values by key, in the order of their last use.
pub struct LruList<K: Hash + Eq, V> {
    by_key: LruCache<K, (V, u64)>,
    weight: u64,
}

impl<K: Hash + Eq, V> LruList<K, V> {
    /// For any number of values.
    pub fn unbounded() -> Self {
        Self { by_key: LruCache::unbounded(), weight: 0 }
    }

    /// For up to `count` values: each further one replaces the oldest.
    pub fn bounded(count: NonZeroUsize) -> Self {
        Self { by_key: LruCache::sparse(count), weight: 0 }
    }

    /// The sum of the weights.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether there is a value for `key`.
    pub fn contains(&self, key: &K) -> bool {
        self.by_key.contains(key)
    }

    /// The value for `key`, which becomes the one used last.
    pub fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.by_key.get(key).map(|(value, _)| value)
    }

    /// The value for `key`, which keeps its place.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.by_key.peek(key).map(|(value, _)| value)
    }

    /// The value for `key`, to be changed; it keeps its place.
    pub fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        self.by_key.peek_mut(key).map(|(value, _)| value)
    }

    /// Adds a value, as the one used last; returns the one with the same key, or the one that it replaces.
    pub fn push(&mut self, key: K, value: V, weight: u64) -> Option<(K, V)> {
        self.weight = self.weight.saturating_add(weight);
        let (key, gone) = self.by_key.push(key, (value, weight))?;
        Some((key, self.released(gone)))
    }

    /// Takes the value for `key`.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let gone = self.by_key.pop(key)?;
        Some(self.released(gone))
    }

    /// Takes the value used longest ago.
    pub fn pop(&mut self) -> Option<(K, V)> {
        let (key, gone) = self.by_key.pop_lru()?;
        Some((key, self.released(gone)))
    }

    /// The value used longest ago.
    pub fn oldest(&self) -> Option<(&K, &V)> {
        self.by_key.peek_lru().map(|(key, (value, _))| (key, value))
    }

    /// All values, the one used last first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.by_key.iter().map(|(key, (value, _))| (key, value))
    }

    fn released(&mut self, (value, weight): (V, u64)) -> V {
        self.weight = self.weight.saturating_sub(weight);
        value
    }
}

impl<K: Hash + Eq, V> fmt::Debug for LruList<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LruList").field("len", &self.len()).field("weight", &self.weight).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_is_that_of_the_values_that_are_there() {
        let mut lru = LruList::bounded(NonZeroUsize::new(3).unwrap());
        for (key, value, weight, replaced, sum) in [
            (1, 'a', 10, None, 10),
            (2, 'b', 20, None, 30),
            (3, 'c', 30, None, 60),
            (2, 'd', 5, Some((2, 'b')), 45),
            (4, 'e', 0, Some((1, 'a')), 35),
        ] {
            assert_eq!((lru.push(key, value, weight), lru.weight()), (replaced, sum));
        }
        assert_eq!((lru.remove(&2), lru.weight(), lru.remove(&2)), (Some('d'), 30, None));
        assert_eq!((lru.pop(), lru.weight(), lru.len()), (Some((3, 'c')), 0, 1));
        assert_eq!((lru.pop(), lru.pop(), lru.is_empty()), (Some((4, 'e')), None, true));
    }

    #[test]
    fn what_is_used_stays_longer_and_what_is_only_looked_at_does_not() {
        let mut lru = LruList::unbounded();
        (1..5).for_each(|key| _ = lru.push(key, key * 10, 1));
        assert_eq!(
            (lru.get(&1).copied(), lru.peek(&2).copied(), lru.peek_mut(&3).copied(), lru.contains(&4)),
            (Some(10), Some(20), Some(30), true)
        );
        assert_eq!((lru.get(&7).copied(), lru.oldest()), (None, Some((&2, &20))));
        assert_eq!(lru.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [1, 4, 3, 2]);
        assert_eq!(std::iter::from_fn(|| lru.pop()).map(|(key, _)| key).collect::<Vec<_>>(), [2, 3, 4, 1]);
    }
}
