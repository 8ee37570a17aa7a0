//! Directories, listed on first access; some are listed again when needed.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::bytes::to_u64;
use crate::format::{Attrs, Directory, Entry, IndexedDir};

/// A directory.
pub(super) struct Dir {
    pub(super) source: DirSource,
    /// Depth below the root.
    pub(super) depth: u32,
    /// Serializes the first listing.
    pub(super) listing: Mutex<()>,
}

/// Where the children of a directory come from.
pub(super) enum DirSource {
    /// A directory of the format.
    Entries(Arc<dyn Directory>),
    /// A directory of numbered files.
    IndexedDir(Arc<dyn IndexedDir>),
    /// A directory created from names with `/`, whose entries can be made again.
    Items(Items),
    /// A directory created from names with `/`.
    Group(Box<Group>),
}

/// The entries of a directory whose names start with the same components, by their item numbers.
pub(super) struct Items {
    pub(super) dir: Arc<dyn Directory>,
    pub(super) numbers: Box<[u32]>,
    /// Bytes of the common components, with a slash after each.
    pub(super) skip: usize,
}

/// The entries whose names start with the same component.
#[derive(Default)]
pub(super) struct Group {
    /// Dropped when they are listed.
    pub(super) entries: Mutex<Vec<Entry>>,
    /// Creates their files.
    pub(super) files: Option<Arc<dyn Directory>>,
}

impl Dir {
    pub(super) fn new(source: DirSource, depth: u32) -> Self {
        Self { source, depth, listing: Mutex::default() }
    }

    /// Its extended attributes.
    pub(super) fn attrs(&self) -> Attrs {
        match &self.source {
            DirSource::Entries(dir) => dir.attrs(),
            DirSource::IndexedDir(_) | DirSource::Items(_) | DirSource::Group(_) => Attrs::new(),
        }
    }

    /// About how many bytes of memory it takes, without its listing.
    pub(super) fn weight(&self) -> u64 {
        let items = if let DirSource::Items(items) = &self.source { items.numbers.len() } else { 0 };
        128 + 4 * to_u64(items)
    }

    /// Drops what only [`list`](super::list::list) needs; called when its result is kept for ever.
    pub(super) fn is_listed(&self) {
        if let DirSource::Group(group) = &self.source {
            *group.entries.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
        }
    }
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.source {
            DirSource::Entries(_) => "entries",
            DirSource::IndexedDir(_) => "numbered files",
            DirSource::Items(_) | DirSource::Group(_) => "entries with a common first component",
        };
        write!(f, "Dir of {source}, depth {}", self.depth)
    }
}
