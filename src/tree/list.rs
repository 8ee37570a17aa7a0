//! Lists a directory: requests its entries and makes children of them.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::sync::{Arc, PoisonError};

use crate::error::Result;
use crate::format::Entry;

use super::children::Children;
use super::dir::{Dir, DirSource, Items};
use super::listing::{Listing, ListingBuilder};

/// Maximum number of children of a directory of the format that is listed again when needed.
const FEW: u64 = 16;

/// Lists `dir`; `stem` is the name of the container without its extension. Returns whether the listing may be dropped
/// and made again: it holds no state but sizes, nor do its directories.
///
/// # Errors
/// As [`Directory::entries`](crate::format::Directory::entries); the next access lists it again.
pub(super) fn list(dir: &Dir, stem: &[u8]) -> Result<(Children, bool)> {
    Ok(match &dir.source {
        DirSource::Entries(entries) => {
            let mut builder = ListingBuilder::new(stem, dir.depth, 0, Some(Arc::clone(entries)));
            entries.for_each(&mut |entry| builder.push(entry))?;
            let listing = builder.finish()?;
            let again = listing.len() <= FEW && listing.has_only_files();
            (listing.into(), again)
        }
        DirSource::IndexedDir(files) => (Children::IndexedDir(Arc::clone(files)), false),
        DirSource::Items(items) => (list_items(items, stem, dir.depth)?.into(), true),
        DirSource::Group(group) => {
            let entries = group.entries.lock().unwrap_or_else(PoisonError::into_inner);
            let mut builder = ListingBuilder::new(stem, dir.depth, 0, group.files.clone());
            entries.iter().try_for_each(|entry| builder.push(entry.clone()))?;
            (builder.finish()?.into(), false)
        }
    })
}

fn list_items(items: &Items, stem: &[u8], depth: u32) -> Result<Listing> {
    let mut builder = ListingBuilder::new(stem, depth, items.skip, Some(Arc::clone(&items.dir)));
    let mut push = |entry: Entry| {
        let rest = entry.stem.get(items.skip..).unwrap_or_default().to_vec();
        builder.push(Entry { stem: Cow::Owned(rest), ..entry })
    };
    items.numbers.iter().try_for_each(|number| items.dir.item(*number, &mut push))?;
    builder.finish()
}
