//! What was opened last, so that a user who opens the same again shares it: a file its descriptor, a directory its
//! names. Users share nothing with each other: what one of them keeps open is charged to nobody else.
#![forbid(unsafe_code)]

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use lru::LruCache;

use super::outer::SOON;
use crate::fs::inode_attr::time;
use crate::source::{Seen, Version};

/// How many are remembered.
const MOST: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// What was opened last.
pub(super) struct Recent<K, T>(Mutex<LruCache<K, Weak<T>>>);

impl<K: Hash + Eq, T> Default for Recent<K, T> {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MOST)))
    }
}

impl<K: Hash + Eq, T> Recent<K, T> {
    /// What is open under `key`.
    pub(super) fn get(&self, key: &K) -> Option<Arc<T>> {
        self.lock().get(key)?.upgrade()
    }

    /// Remembers what was opened, as long as it is open.
    pub(super) fn put(&self, key: K, opened: &Arc<T>) {
        self.lock().put(key, Arc::downgrade(opened));
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<K, Weak<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a directory was listed, and as which version.
#[derive(Debug, Clone, Copy)]
pub(super) struct AsOf {
    version: Version,
    at: Instant,
    /// Whether any later change gives it another version.
    is_settled: bool,
}

impl AsOf {
    /// For a directory that was `seen` and is about to be listed; nothing tells the versions of one on a server apart.
    pub(super) fn new(seen: &Seen, is_far: bool) -> Self {
        let age = SystemTime::now().duration_since(time(seen.mtime)).unwrap_or_default();
        Self { version: seen.version(), at: Instant::now(), is_settled: !is_far && age > SOON }
    }

    /// Whether a directory that is `seen` has the names that it had then, or had them `within` this time.
    pub(super) fn is_same(&self, seen: &Seen, within: Duration) -> bool {
        self.version == seen.version() && (self.is_settled || self.age() < within)
    }

    /// The time since then.
    pub(super) fn age(&self) -> Duration {
        self.at.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_shared_until_it_is_closed() {
        let recent = Recent::default();
        let open = Arc::new(7);
        recent.put((1000, 'a'), &open);
        assert!(recent.get(&(1000, 'a')).is_some_and(|again| Arc::ptr_eq(&again, &open)));
        assert!(recent.get(&(1001, 'a')).is_none(), "another user's");
        drop(open);
        assert!(recent.get(&(1000, 'a')).is_none());
    }
}
