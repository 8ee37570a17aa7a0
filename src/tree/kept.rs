//! The listings in memory: those that hold state for ever, and the most recently used of those that can be made again.
//!
//! A container may have a hundred thousand directories of one file each. Of a visited one that is not in use, the tree
//! keeps only the inode numbers.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;

use super::Ino;
use super::children::{Children, InodeRange};
use crate::lru_list::LruList;

/// Limit on the bytes of small listings that can be made again, and of large ones. In any case the last [`LAST`] in use
/// of either kind are kept, so that a walk makes no large listing again for each of its subdirectories.
const SMALL_LIMIT: u64 = 8 << 20;
const LARGE_LIMIT: u64 = 32 << 20;
const LAST: usize = 2;
/// About how many bytes a directory of numbered entries, or of files created on access, takes.
const NUMBERED: u64 = 300;
/// Bytes of a large listing.
const LARGE: u64 = 256 << 10;

/// Listings by the inode number of the directory.
pub(super) struct KeptListings {
    for_ever: HashMap<Ino, Arc<InodeRange>>,
    pub(super) small: Listings,
    large: Listings,
    pub(super) small_limit: u64,
}

type Listings = LruList<Ino, Arc<InodeRange>>;

impl Default for KeptListings {
    fn default() -> Self {
        let (small, large) = (Listings::unbounded(), Listings::unbounded());
        Self { for_ever: HashMap::new(), small, large, small_limit: SMALL_LIMIT }
    }
}

impl KeptListings {
    /// The listing of `dir`, which becomes the last one in use.
    pub(super) fn get(&mut self, dir: Ino) -> Option<Arc<InodeRange>> {
        let Self { for_ever, small, large, .. } = self;
        for_ever.get(&dir).or_else(|| small.get(&dir)).or_else(|| large.get(&dir)).cloned()
    }

    /// Keeps a listing unless there is one already; returns the one that is kept, and the evicted ones.
    pub(super) fn put(&mut self, range: InodeRange) -> (Arc<InodeRange>, Vec<Arc<InodeRange>>) {
        let dir = range.dir;
        if let Some(range) = self.get(dir) {
            return (range, Vec::new());
        }
        let range = Arc::new(range);
        if !range.again {
            self.for_ever.insert(dir, Arc::clone(&range));
            return (range, Vec::new());
        }
        let weight = weight(&range);
        let (recent, limit) =
            if weight > LARGE { (&mut self.large, LARGE_LIMIT) } else { (&mut self.small, self.small_limit) };
        recent.push(dir, Arc::clone(&range), weight);
        let is_over = |recent: &Listings| recent.weight() > limit && recent.len() > LAST;
        let evicted = std::iter::from_fn(|| is_over(recent).then(|| recent.pop()).flatten());
        let evicted = evicted.map(|(_, range)| range).collect();
        (range, evicted)
    }
}

fn weight(range: &InodeRange) -> u64 {
    match &range.children {
        Children::Listed(listing) => listing.weight(),
        Children::IndexedDir(_) | Children::Numbered(_) => NUMBERED,
    }
}
