//! Directories, listed on first access.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::Result;
use crate::format::{Attrs, Directory, Entry, IndexedDir};

use super::Ino;
use super::children::{Children, InodeRange};
use super::leaf::{Leaf, RecentListings};
use super::listing::{Listing, ListingBuilder};

/// A directory.
pub(super) struct Dir {
    pub(super) source: DirSource,
    /// Depth below the root.
    pub(super) depth: u32,
    /// Its children, once it was listed.
    pub(super) block: OnceLock<Arc<InodeRange>>,
    /// Serializes the first listing.
    pub(super) listing: Mutex<()>,
}

/// Where the children of a directory come from.
pub(super) enum DirSource {
    /// A directory of the format.
    Entries(Arc<dyn Directory>),
    /// A directory of numbered files.
    IndexedDir(Arc<dyn IndexedDir>),
    /// A directory created from names with `/`.
    Group(Box<Group>),
}

/// The entries whose names start with the same component.
#[derive(Default)]
pub(super) struct Group {
    /// Dropped when they are listed.
    entries: Mutex<Vec<Entry>>,
    /// Creates their files.
    files: Option<Arc<dyn Directory>>,
}

impl DirSource {
    /// An empty group, to be filled by [`Dir::fill`]; `files` creates its files.
    pub(super) fn group(files: Option<Arc<dyn Directory>>) -> Self {
        Self::Group(Box::new(Group { files, ..Group::default() }))
    }
}

impl Dir {
    pub(super) fn new(source: DirSource, depth: u32) -> Self {
        Self { source, depth, block: OnceLock::new(), listing: Mutex::default() }
    }

    /// Sets the entries of a group.
    pub(super) fn fill(&self, mut entries: Vec<Entry>) {
        if let DirSource::Group(group) = &self.source {
            entries.shrink_to_fit();
            *group.entries.lock().unwrap_or_else(PoisonError::into_inner) = entries;
        }
    }

    /// Its extended attributes.
    pub(super) fn attrs(&self) -> Attrs {
        match &self.source {
            DirSource::Entries(dir) => dir.attrs(),
            DirSource::IndexedDir(_) | DirSource::Group(_) => Attrs::new(),
        }
    }

    /// Lists the directory, whose inode number is `ino`.
    ///
    /// # Errors
    /// As [`Directory::entries`]; the next access lists it again.
    pub(super) fn list(&self, ino: Ino, stem: &[u8], recent: &Arc<RecentListings>) -> Result<Children> {
        match &self.source {
            DirSource::Entries(dir) => {
                let listing = list_entries(dir, stem, self.depth)?;
                let fits = Leaf::fits(&listing);
                Ok(if fits { Children::Leaf(Leaf::new(ino, dir, self.depth, listing, recent)) } else { listing.into() })
            }
            DirSource::IndexedDir(files) => Ok(Children::IndexedDir(Arc::clone(files))),
            DirSource::Group(group) => {
                let entries = group.entries.lock().unwrap_or_else(PoisonError::into_inner);
                let mut builder = ListingBuilder::new(stem, self.depth, group.files.clone());
                entries.iter().try_for_each(|entry| builder.push(entry.clone()))?;
                builder.finish().map(Children::from)
            }
        }
    }

    /// Drops what only [`Dir::list`] needs; called when its result is kept.
    pub(super) fn is_listed(&self) {
        self.fill(Vec::new());
    }
}

/// Lists a directory of the format.
///
/// # Errors
/// As [`Directory::entries`].
pub(super) fn list_entries(dir: &Arc<dyn Directory>, stem: &[u8], depth: u32) -> Result<Listing> {
    let mut builder = ListingBuilder::new(stem, depth, Some(Arc::clone(dir)));
    dir.for_each(&mut |entry| builder.push(entry))?;
    builder.finish()
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.source {
            DirSource::Entries(_) => "entries",
            DirSource::IndexedDir(_) => "numbered files",
            DirSource::Group(_) => "entries with a common first component",
        };
        write!(f, "Dir of {source}, depth {}", self.depth)
    }
}
