//! Lists a directory: requests its entries and makes children of them.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::sync::{Arc, PoisonError};

use crate::account::Account;
use crate::error::{Error, Result};
use crate::format::Entry;

use super::children::Children;
use super::dir::{Dir, DirSource, Items};
use super::listing::Listing;
use super::listing_builder::ListingBuilder;

/// Maximum number of files of a directory of the format that are created again when needed.
const FEW: u64 = 16;

/// Lists `dir`; `stem` is the name of the container without its extension. Returns whether the listing may be dropped
/// and made again: it holds no state but sizes, nor do its directories.
///
/// # Errors
/// As [`Directory::entries`](crate::format::Directory::entries); the next access lists it again.
pub(super) fn list(dir: &Dir, stem: &[u8], account: &Account) -> Result<(Children, bool)> {
    Ok(match &dir.source {
        DirSource::Entries(entries) => {
            let mut builder = ListingBuilder::new(account, stem, dir.depth, 0, Some(Arc::clone(entries)));
            entries.for_each(&mut |entry| builder.push(entry))?;
            let listing = builder.finish()?;
            let again = (listing.len() <= FEW && listing.has_only_files()) || listing.has_no_objects();
            (listing.into(), again)
        }
        DirSource::IndexedDir(files) => (Children::IndexedDir(Arc::clone(files)), false),
        DirSource::Items(items) => (list_items(items, stem, dir.depth, account)?.into(), true),
        DirSource::Group(group) => {
            let entries = group.entries.lock().unwrap_or_else(PoisonError::into_inner);
            let mut builder = ListingBuilder::new(account, stem, dir.depth, 0, group.format.clone());
            entries.iter().try_for_each(|entry| builder.push(entry.clone()))?;
            (builder.finish()?.into(), false)
        }
    })
}

fn list_items(items: &Items, stem: &[u8], depth: u32, account: &Account) -> Result<Listing> {
    let none = || Error::corrupt("its entries were created otherwise before", "directory");
    let Children::Listed(parent) = &items.parent.children else { return Err(none()) };
    let format = parent.format.as_ref().ok_or_else(none)?;
    let mut builder = None;
    for number in parent.items(items.first) {
        format.item(number, &mut |entry: Entry| {
            let below = |skip| entry.stem.get(skip..).unwrap_or_default();
            if builder.is_none() {
                // All names have the first component of the first one.
                let slash = below(parent.skip).iter().position(|&b| b == b'/').ok_or_else(none)?;
                let skip = parent.skip + slash + 1;
                builder = Some((skip, ListingBuilder::new(account, stem, depth, skip, Some(Arc::clone(format)))));
            }
            let (skip, builder) = builder.as_mut().ok_or_else(none)?;
            let rest = below(*skip).to_vec();
            builder.push(Entry { stem: Cow::Owned(rest), ..entry })
        })?;
    }
    builder.ok_or_else(none)?.1.finish()
}
