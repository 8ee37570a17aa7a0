//! Small directories of files: the listings of the last ones in use are kept, others are listed again when needed.
//!
//! A container may have a hundred thousand directories of one file each. Of one that was visited, the tree keeps its
//! inode numbers and how to list it.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use crate::error::{Error, Result};
use crate::format::Directory;

use super::Ino;
use super::listing::Listing;

/// Maximum number of children.
const CHILDREN: u64 = 16;
/// Maximum number of listings that are kept.
const RECENT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);

/// The listings of the small directories that were used last, by inode number.
pub(super) struct RecentListings(Mutex<LruCache<Ino, Arc<Listing>>>);

impl RecentListings {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(LruCache::new(RECENT))))
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Ino, Arc<Listing>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The children of a small directory that has only files.
pub(super) struct Leaf {
    ino: Ino,
    len: u64,
    dir: Arc<dyn Directory>,
    depth: u32,
    recent: Arc<RecentListings>,
}

impl Leaf {
    /// Whether `listing` may be dropped and made again: it holds no state but sizes.
    pub(super) fn fits(listing: &Listing) -> bool {
        listing.len() <= CHILDREN && listing.has_only_files()
    }

    pub(super) fn new(
        ino: Ino,
        dir: &Arc<dyn Directory>,
        depth: u32,
        listing: Listing,
        recent: &Arc<RecentListings>,
    ) -> Self {
        let len = listing.len();
        recent.lock().put(ino, Arc::new(listing));
        Self { ino, len, dir: Arc::clone(dir), depth, recent: Arc::clone(recent) }
    }

    /// The number of children.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The listing, if it is kept.
    pub(super) fn kept(&self) -> Option<Arc<Listing>> {
        self.recent.lock().get(&self.ino).cloned()
    }

    /// The listing, made again if it is not kept.
    ///
    /// # Errors
    /// As [`Directory::entries`].
    pub(super) fn listing(&self) -> Result<Arc<Listing>> {
        if let Some(listing) = self.kept() {
            return Ok(listing);
        }
        // There are no links, so the container's name is not needed.
        let listing = Listing::of(&self.dir, b"", self.depth)?;
        if listing.len() != self.len {
            return Err(Error::corrupt("it does not have the entries that it had before", "directory"));
        }
        let listing = Arc::new(listing);
        self.recent.lock().put(self.ino, Arc::clone(&listing));
        Ok(listing)
    }
}
