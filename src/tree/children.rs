//! The children of a directory and their inode numbers.
//!
//! The children of a directory get consecutive inode numbers (an [`InodeRange`]) when it is first listed. A directory
//! of a hundred million numbered files therefore takes no more memory than an empty one.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::Arc;

use crate::error::Result;
use crate::format::{File, IndexedDir, Metadata};
use crate::view;

use super::child::{NONE, What};
use super::listing::Listing;
use super::numbered::Level;
use super::{Ino, Kind};

/// Minimum number of digits of an index name.
const DIGITS: usize = 6;

/// The children of a directory and their inode numbers.
#[derive(Debug)]
pub(super) struct InodeRange {
    /// The directory.
    pub(super) dir: Ino,
    /// The inode number of child 0; the others follow consecutively.
    pub(super) first: Ino,
    pub(super) children: Children,
    /// Whether the children may be dropped and listed again.
    pub(super) again: bool,
}

/// Children of a directory.
pub(super) enum Children {
    /// All children are in memory.
    Listed(Box<Listing>),
    /// Children are created on access.
    IndexedDir(Arc<dyn IndexedDir>),
    /// Children are numbered directories or files, created on access.
    Numbered(Level),
}

impl From<Listing> for Children {
    fn from(listing: Listing) -> Self {
        Self::Listed(Box::new(listing))
    }
}

impl Children {
    /// The number of children; for numbered files the size of the index range, which may have gaps.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Listed(listing) => listing.len(),
            Self::IndexedDir(files) => files.count(),
            Self::Numbered(level) => level.len(),
        }
    }

    /// The index of the child called `name`.
    pub(super) fn find(&self, name: &[u8]) -> Result<Option<u64>> {
        match self {
            Self::Listed(listing) => Ok(listing.find(name)),
            Self::IndexedDir(files) => match self.numbered(name) {
                Some(index) if has(&**files, index)? => Ok(Some(index)),
                _ => Ok(None),
            },
            Self::Numbered(level) => Ok(level.find(name)),
        }
    }

    /// The index in `name`, if there is such a numbered file and its attributes do not follow from its index.
    pub(super) fn numbered(&self, name: &[u8]) -> Option<u64> {
        match self {
            Self::Listed(_) | Self::Numbered(_) => None,
            Self::IndexedDir(files) => {
                let index = name.strip_suffix(files.suffix().as_bytes()).and_then(number)?;
                Some(index).filter(|&index| index < files.count())
            }
        }
    }

    /// The first existing child at or after `index`.
    pub(super) fn next(&self, index: u64) -> Result<Option<u64>> {
        match self {
            Self::Listed(_) | Self::Numbered(_) => Ok(Some(index).filter(|&index| index < self.len())),
            Self::IndexedDir(files) => files.next(index).map(|next| next.filter(|&index| index < files.count())),
        }
    }

    /// The name of child `index`, which may be written to `made`.
    pub(super) fn name<'a>(&'a self, index: u64, made: &'a mut String) -> &'a str {
        match self {
            Self::Listed(listing) => listing.name(index).unwrap_or_default(),
            Self::IndexedDir(files) => {
                made.clear();
                // Writing to a String cannot fail.
                let _ = write!(made, "{index:0DIGITS$}{}", files.suffix());
                made
            }
            Self::Numbered(_) => {
                made.clear();
                let _ = write!(made, "{index}");
                made
            }
        }
    }

    /// The type of child `index`.
    pub(super) fn kind(&self, index: u64) -> Kind {
        match self {
            Self::Listed(listing) => listing.kind(index),
            Self::IndexedDir(_) => Kind::File,
            Self::Numbered(level) => level.kind(),
        }
    }

    /// The target of child `index`, if it is a link.
    pub(super) fn link(&self, index: u64) -> Option<Result<Cow<'_, str>>> {
        match self {
            Self::Listed(listing) => listing.link(index),
            Self::IndexedDir(_) | Self::Numbered(_) => None,
        }
    }

    /// The metadata of child `index`, if the container records some.
    pub(super) fn metadata(&self, index: u64) -> Option<Metadata> {
        match self {
            Self::Listed(listing) => listing.metadata(index),
            Self::IndexedDir(_) | Self::Numbered(_) => None,
        }
    }

    /// The file of child `index`; `None` if it is not a file.
    pub(super) fn file(&self, index: u64) -> Result<Option<File>> {
        match self {
            Self::Listed(listing) => listing.file(index),
            Self::IndexedDir(files) if has(&**files, index)? => files.file(index).map(Some),
            Self::IndexedDir(_) => Ok(None),
            Self::Numbered(level) => level.file(index),
        }
    }

    /// The size of file `index` and the bytes that it occupies in the container, if the listing keeps them.
    pub(super) fn kept_size(&self, index: u64) -> Option<(u64, u64)> {
        match self {
            Self::Listed(listing) => listing.kept_size(index),
            Self::IndexedDir(_) => None,
            Self::Numbered(level) => level.size(),
        }
    }

    /// Whether file `index` has a size that is known only by decoding, from memory.
    pub(super) fn needs_decoding(&self, index: u64) -> bool {
        match self {
            Self::Listed(listing) => matches!(listing.get(index).map(|child| child.what), Some(What::Lazy(_, NONE, _))),
            Self::IndexedDir(_) | Self::Numbered(_) => false,
        }
    }

    /// The size of child `index`, if known without decoding, and the bytes that it occupies in the container. `None` if
    /// it is not a file.
    pub(super) fn known_size(&self, index: u64) -> Result<Option<(Option<u64>, u64)>> {
        match self {
            Self::Listed(listing) => listing.known_size(index),
            Self::Numbered(level) => Ok(level.size().map(|(len, stored)| (Some(len), stored))),
            Self::IndexedDir(_) => Ok(self.file(index)?.map(|file| (view::known_len(&file.content), file.stored))),
        }
    }

    /// Whether the children are in memory, with their sizes, or follow from their numbers.
    pub(super) fn are_kept(&self) -> bool {
        match self {
            Self::Listed(_) | Self::Numbered(_) => true,
            Self::IndexedDir(_) => false,
        }
    }

    /// The number of subdirectories.
    pub(super) fn subdirs(&self) -> u32 {
        match self {
            Self::Listed(listing) => listing.subdirs(),
            Self::Numbered(level) => level.subdirs(),
            Self::IndexedDir(_) => 0,
        }
    }
}

/// Whether index `index`, which is below the count, has a file.
fn has(files: &dyn IndexedDir, index: u64) -> Result<bool> {
    Ok(files.next(index)? == Some(index))
}

/// Parses `digits` as an index name; `None` unless it is padded as [`Children::name`] pads it.
fn number(digits: &[u8]) -> Option<u64> {
    let is_padded = digits.len() == DIGITS || digits.first() != Some(&b'0');
    if digits.len() < DIGITS || !is_padded || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed(listing) => listing.fmt(f),
            Self::IndexedDir(files) => write!(f, "IndexedDir({})", files.count()),
            Self::Numbered(level) => level.fmt(f),
        }
    }
}
