//! Directories, listed on first access, and the inode numbers of their children.
//!
//! The children of a directory get consecutive inode numbers (an [`InodeRange`]) when it is first listed. A directory
//! of a hundred million numbered files therefore takes no more memory than an empty one.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::Result;
use crate::format::{Attrs, Directory, Entry, File, IndexedDir};

use super::Ino;
use super::listing::Listing;

/// Minimum number of digits of an index name.
const DIGITS: usize = 6;

/// A directory.
pub(super) struct Dir {
    pub(super) inside: DirSource,
    /// Depth below the root.
    pub(super) depth: u32,
    /// Its children, once it was listed.
    pub(super) block: OnceLock<Arc<InodeRange>>,
    /// Serializes the first listing.
    pub(super) looking: Mutex<()>,
}

/// Where the children of a directory come from.
pub(super) enum DirSource {
    /// A directory of the format.
    Entries(Arc<dyn Directory>),
    /// A directory of numbered files.
    IndexedDir(Arc<dyn IndexedDir>),
    /// A directory created from names with `/`; its entries are moved out when it is listed.
    Group(Mutex<Vec<Entry>>),
}

impl DirSource {
    /// An empty group, to be filled by [`Dir::fill`].
    pub(super) fn later() -> Self {
        Self::Group(Mutex::default())
    }
}

impl Dir {
    pub(super) fn new(inside: DirSource, depth: u32) -> Self {
        Self { inside, depth, block: OnceLock::new(), looking: Mutex::default() }
    }

    /// Sets the entries of a group.
    pub(super) fn fill(&self, entries: Vec<Entry>) {
        if let DirSource::Group(group) = &self.inside {
            *group.lock().unwrap_or_else(PoisonError::into_inner) = entries;
        }
    }

    /// Its extended attributes.
    pub(super) fn attrs(&self) -> Attrs {
        match &self.inside {
            DirSource::Entries(dir) => dir.attrs(),
            DirSource::IndexedDir(_) | DirSource::Group(_) => Attrs::new(),
        }
    }

    /// Lists the directory.
    ///
    /// # Errors
    /// As [`Directory::entries`]; the next access lists it again.
    pub(super) fn list(&self, stem: &[u8]) -> Result<Children> {
        let entries = match &self.inside {
            DirSource::Entries(dir) => dir.entries()?,
            DirSource::IndexedDir(files) => return Ok(Children::IndexedDir(files.clone())),
            DirSource::Group(group) => std::mem::take(&mut *group.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        Listing::new(entries, stem, self.depth).map(Children::Listed)
    }
}

/// The children of a directory and their inode numbers.
#[derive(Debug)]
pub(super) struct InodeRange {
    /// The directory.
    pub(super) dir: Ino,
    /// The inode number of child 0; the others follow consecutively.
    pub(super) first: Ino,
    pub(super) children: Children,
}

/// Children of a directory.
pub(super) enum Children {
    /// All children are in memory.
    Listed(Listing),
    /// Children are created on access.
    IndexedDir(Arc<dyn IndexedDir>),
}

impl Children {
    /// The number of children; for numbered files the size of the index range, which may have gaps.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Listed(listing) => listing.len(),
            Self::IndexedDir(files) => files.count(),
        }
    }

    /// The index of the child called `name`.
    pub(super) fn find(&self, name: &[u8]) -> Result<Option<u64>> {
        match self {
            Self::Listed(listing) => Ok(listing.find(name)),
            Self::IndexedDir(files) => match name.strip_suffix(files.suffix().as_bytes()).and_then(number) {
                Some(index) if has(&**files, index)? => Ok(Some(index)),
                _ => Ok(None),
            },
        }
    }

    /// The first existing child at or after `index`.
    pub(super) fn next(&self, index: u64) -> Result<Option<u64>> {
        match self {
            Self::Listed(listing) => Ok(Some(index).filter(|&index| index < listing.len())),
            Self::IndexedDir(files) => files.next(index).map(|next| next.filter(|&index| index < files.count())),
        }
    }

    /// The name of child `index`.
    pub(super) fn name(&self, index: u64) -> String {
        match self {
            Self::Listed(listing) => listing.name(index).unwrap_or_default().to_owned(),
            Self::IndexedDir(files) => format!("{index:0DIGITS$}{}", files.suffix()),
        }
    }

    /// The file of child `index`; `None` if it is not a file.
    pub(super) fn file(&self, index: u64) -> Result<Option<File>> {
        match self {
            Self::Listed(listing) => Ok(listing.file(index)),
            Self::IndexedDir(files) if has(&**files, index)? => files.file(index).map(Some),
            Self::IndexedDir(_) => Ok(None),
        }
    }

    /// The number of subdirectories.
    pub(super) fn subdirs(&self) -> u32 {
        match self {
            Self::Listed(listing) => listing.subdirs,
            Self::IndexedDir(_) => 0,
        }
    }
}

/// Whether index `index` has a file.
fn has(files: &dyn IndexedDir, index: u64) -> Result<bool> {
    Ok(index < files.count() && files.next(index)? == Some(index))
}

/// Parses `digits` as an index name; `None` unless it is padded as [`Children::name`] pads it.
fn number(digits: &[u8]) -> Option<u64> {
    let padded = digits.len() == DIGITS || (digits.len() > DIGITS && digits.first() != Some(&b'0'));
    if !padded || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inside = match &self.inside {
            DirSource::Entries(_) => "entries",
            DirSource::IndexedDir(_) => "numbered files",
            DirSource::Group(_) => "entries with a common first segment",
        };
        write!(f, "Dir of {inside}, depth {}", self.depth)
    }
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed(listing) => listing.fmt(f),
            Self::IndexedDir(files) => write!(f, "Numbered({})", files.count()),
        }
    }
}
