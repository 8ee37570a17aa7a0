//! Directories made from names with `/`; the format creates their entries again on demand.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::sync::Arc;

use crate::account::Account;
use crate::error::{Error, Result};
use crate::format::Entry;

use super::children::{Children, InodeRange};
use super::listing::Listing;
use super::listing_builder::ListingBuilder;

/// The items of a directory whose names share their next component.
pub(super) struct Items {
    /// The listing of the parent, which has the chain of their numbers.
    pub(super) parent: Arc<InodeRange>,
    /// The first link of the chain.
    pub(super) first: u32,
}

impl Items {
    /// Lists them; `stem` is the name of the container without its extension.
    ///
    /// # Errors
    /// As [`Directory::item`](crate::format::Directory::item).
    pub(super) fn list(&self, stem: &[u8], account: &Account) -> Result<Listing> {
        let none = || Error::corrupt("its entries were created otherwise before", "directory");
        let Children::Listed(parent) = &self.parent.children else { return Err(none()) };
        let (format, depth) = (parent.format.as_ref().ok_or_else(none)?, parent.depth + 1);
        let mut builder = None;
        for number in parent.items(self.first) {
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
}
