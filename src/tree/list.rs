//! Lists a directory: requests its entries and makes children of them.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::Result;

use super::Ino;
use super::children::Children;
use super::dir::{Dir, DirSource};
use super::leaf::{Leaf, RecentListings};
use super::listing::{Listing, ListingBuilder};

/// Lists `dir`, whose inode number is `ino`.
///
/// # Errors
/// As [`Directory::entries`](crate::format::Directory::entries); the next access lists it again.
pub(super) fn list(dir: &Dir, ino: Ino, stem: &[u8], recent: &Arc<RecentListings>) -> Result<Children> {
    match &dir.source {
        DirSource::Entries(entries) => {
            let listing = Listing::of(entries, stem, dir.depth)?;
            let fits = Leaf::fits(&listing);
            Ok(if fits { Children::Leaf(Leaf::new(ino, entries, dir.depth, listing, recent)) } else { listing.into() })
        }
        DirSource::IndexedDir(files) => Ok(Children::IndexedDir(Arc::clone(files))),
        DirSource::Group(group) => {
            let entries = group.entries();
            let mut builder = ListingBuilder::new(stem, dir.depth, group.files.clone());
            entries.iter().try_for_each(|entry| builder.push(entry.clone()))?;
            builder.finish().map(Children::from)
        }
    }
}
