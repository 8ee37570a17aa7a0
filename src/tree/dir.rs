//! Directories: where their children come from, and the inode numbers of the children once they are listed.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::format::{Attrs, Directory, Entry, IndexedDir};

use super::children::InodeRange;

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
    pub(super) files: Option<Arc<dyn Directory>>,
}

impl Group {
    /// The entries, unless they were dropped.
    pub(super) fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
            *group.entries() = entries;
        }
    }

    /// Its extended attributes.
    pub(super) fn attrs(&self) -> Attrs {
        match &self.source {
            DirSource::Entries(dir) => dir.attrs(),
            DirSource::IndexedDir(_) | DirSource::Group(_) => Attrs::new(),
        }
    }

    /// Drops what only [`list`](super::list::list) needs; called when its result is kept.
    pub(super) fn is_listed(&self) {
        self.fill(Vec::new());
    }
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
