//! A directory, looked into when somebody looks into it, and the inode numbers of what is inside.
//!
//! The children of a directory have consecutive inode numbers, given out when it is first
//! looked into: a [`InodeRange`]. So a directory of a hundred million numbered files takes no more memory
//! than an empty one.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::Result;
use crate::format::{Attrs, Directory, Entry, File, IndexedDir};

use super::Ino;
use super::listing::Listing;

/// Digits of an index name, at least.
const DIGITS: usize = 6;

/// A directory.
pub(super) struct Dir {
    pub(super) inside: DirSource,
    /// How many directories it is below the root.
    pub(super) depth: u32,
    /// Its children, once looked into.
    pub(super) block: OnceLock<Arc<InodeRange>>,
    /// Held by whoever looks into it first.
    pub(super) looking: Mutex<()>,
}

/// Where the children of a directory come from.
pub(super) enum DirSource {
    /// A directory of the format.
    Entries(Arc<dyn Directory>),
    /// A directory of numbered files.
    IndexedDir(Arc<dyn IndexedDir>),
    /// A directory that names with `/` make; taken out when it is looked into.
    Group(Mutex<Vec<Entry>>),
}

impl DirSource {
    /// A directory out of names, to be filled.
    pub(super) fn later() -> Self {
        Self::Group(Mutex::default())
    }
}

impl Dir {
    pub(super) fn new(inside: DirSource, depth: u32) -> Self {
        Self { inside, depth, block: OnceLock::new(), looking: Mutex::default() }
    }

    /// Puts `entries` into a directory out of names.
    pub(super) fn fill(&self, entries: Vec<Entry>) {
        if let DirSource::Group(group) = &self.inside {
            *group.lock().unwrap_or_else(PoisonError::into_inner) = entries;
        }
    }

    /// What is known of it.
    pub(super) fn attrs(&self) -> Attrs {
        match &self.inside {
            DirSource::Entries(dir) => dir.attrs(),
            DirSource::IndexedDir(_) | DirSource::Group(_) => Attrs::new(),
        }
    }

    /// Looks into it.
    ///
    /// # Errors
    /// As [`Directory::entries`]; it is looked into again next time then.
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
    /// The inode number of child 0; the others follow.
    pub(super) first: Ino,
    pub(super) children: Children,
}

/// Children of a directory.
pub(super) enum Children {
    /// Each is known.
    Listed(Listing),
    /// Each is made when it is looked at.
    IndexedDir(Arc<dyn IndexedDir>),
}

impl Children {
    /// How many there are; some of the numbered ones may be missing.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Listed(listing) => listing.len(),
            Self::IndexedDir(files) => files.count(),
        }
    }

    /// The number of the child called `name`.
    pub(super) fn find(&self, name: &[u8]) -> Result<Option<u64>> {
        match self {
            Self::Listed(listing) => Ok(listing.find(name)),
            Self::IndexedDir(files) => match name.strip_suffix(files.suffix().as_bytes()).and_then(number) {
                Some(index) if has(&**files, index)? => Ok(Some(index)),
                _ => Ok(None),
            },
        }
    }

    /// The first child from number `index` on that exists.
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

    /// File number `index`; `None` if that is no file.
    pub(super) fn file(&self, index: u64) -> Result<Option<File>> {
        match self {
            Self::Listed(listing) => Ok(listing.file(index)),
            Self::IndexedDir(files) if has(&**files, index)? => files.file(index).map(Some),
            Self::IndexedDir(_) => Ok(None),
        }
    }

    /// How many of them are directories.
    pub(super) fn subdirs(&self) -> u32 {
        match self {
            Self::Listed(listing) => listing.subdirs,
            Self::IndexedDir(_) => 0,
        }
    }
}

/// Whether number `index` has a file.
fn has(files: &dyn IndexedDir, index: u64) -> Result<bool> {
    Ok(index < files.count() && files.next(index)? == Some(index))
}

/// The number that `digits` say, written as index names are.
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
