//! Directories, listed on first access; some are listed again when needed.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::format::{Attrs, Directory, Entry, IndexedDir, Subdirs};

use super::numbered::Level;

/// A directory.
pub(super) struct TreeDir {
    pub(super) source: DirSource,
    /// Depth below the root.
    pub(super) depth: u32,
}

/// Where the children of a directory come from.
pub(super) enum DirSource {
    /// A directory of the format.
    Entries(Arc<dyn Directory>),
    /// A directory of numbered files.
    IndexedDir(Arc<dyn IndexedDir>),
    /// A directory made from names with `/`.
    Group(Group),
    /// A directory of numbered directories or files.
    Numbered(Level),
}

/// The entries whose names share their first component.
#[derive(Default)]
pub(super) struct Group {
    /// Dropped when they are listed.
    pub(super) entries: Mutex<Vec<Entry>>,
    /// Creates their files.
    pub(super) format: Option<Arc<dyn Directory>>,
}

impl TreeDir {
    pub(super) fn new(source: DirSource, depth: u32) -> Self {
        Self { source, depth }
    }

    /// Its extended attributes.
    pub(super) fn attrs(&self) -> Attrs {
        match &self.source {
            DirSource::Entries(dir) => dir.attrs(),
            DirSource::IndexedDir(_) | DirSource::Group(_) | DirSource::Numbered(_) => Attrs::new(),
        }
    }

    /// How the number of its subdirectories is found.
    pub(super) fn subdirs(&self) -> Subdirs {
        match &self.source {
            DirSource::Entries(dir) => dir.subdirs(),
            DirSource::IndexedDir(_) | DirSource::Group(_) | DirSource::Numbered(_) => Subdirs::Listed,
        }
    }

    /// Drops state that only [`list`](super::list::list) needs; called when its result is kept for ever.
    pub(super) fn is_listed(&self) {
        if let DirSource::Group(group) = &self.source {
            *group.entries.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
        }
    }
}

impl fmt::Debug for TreeDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.source {
            DirSource::Entries(_) => "entries",
            DirSource::IndexedDir(_) => "numbered files",
            DirSource::Group(_) => "entries with a common first component",
            DirSource::Numbered(_) => "numbered entries",
        };
        write!(f, "TreeDir of {source}, depth {}", self.depth)
    }
}
