//! Lists a directory: requests its entries and makes children of them.
#![forbid(unsafe_code)]

use std::sync::{Arc, PoisonError};

use crate::account::Account;
use crate::error::Result;
use crate::platform;

use super::children::Children;
use super::dir::{DirSource, TreeDir};
use super::listing_builder::ListingBuilder;
use super::numbered::Level;

/// Maximum number of files of a directory of the format that are created again when needed.
const FEW: u64 = 16;

/// With more children, the memory used to make them is returned to the system.
const MANY: u64 = 10_000;

/// Lists `dir`; `stem` is the name of the container without its extension. Returns whether the listing may be dropped
/// and made again: it holds no state but sizes, nor do its directories.
///
/// # Errors
/// As [`Directory::entries`](crate::format::Directory::entries); the next access lists it again.
pub(super) fn list(dir: &TreeDir, stem: &[u8], account: &Account) -> Result<(Children, bool)> {
    Ok(match &dir.source {
        DirSource::Entries(entries) => {
            if let Some(files) = entries.numbered()? {
                return Ok((Children::Numbered(Level::first(files)), true));
            }
            let mut builder = ListingBuilder::new(account, stem, dir.depth, 0, Some(Arc::clone(entries)));
            entries.for_each(&mut |entry| builder.push(entry))?;
            let listing = builder.finish()?;
            if listing.len() > MANY {
                platform::trim_heap();
            }
            let is_small = listing.len() <= FEW && listing.has_only_files();
            let again = entries.is_made_again() || is_small || listing.has_no_objects();
            (listing.into(), again)
        }
        // Its source stays in the listing of its parent.
        DirSource::IndexedDir(files) => (Children::IndexedDir(Arc::clone(files)), true),
        DirSource::Group(group) => {
            let entries = group.entries.lock().unwrap_or_else(PoisonError::into_inner);
            let mut builder = ListingBuilder::new(account, stem, dir.depth, 0, group.format.clone());
            entries.iter().try_for_each(|entry| builder.push(entry.clone()))?;
            (builder.finish()?.into(), false)
        }
        DirSource::Numbered(level) => (Children::Numbered(level.clone()), true),
    })
}
