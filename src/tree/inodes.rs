//! Inode numbers: their meaning, and the listing of a directory, which numbers its children.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

use super::children::{Children, InodeRange};
use super::dir::{DirSource, TreeDir};
use super::items::Items;
use super::kept::KeptListings;
use super::list::list;
use super::listing::SubDir;
use super::{Ino, ROOT, Tree, missing, system};

/// Meaning of an inode number.
pub(super) enum Inode {
    /// A directory: the root, or a child.
    Dir(Arc<TreeDir>),
    /// A directory made of items of its parent.
    Items(Items),
    /// A file or link, as a child index of its directory.
    Child(Arc<InodeRange>, u64),
}

impl Tree {
    /// The children of the directory `ino`.
    pub(super) fn inode_range(&self, ino: Ino) -> Result<Arc<InodeRange>> {
        if let Some(range) = self.kept().get(ino) {
            return Ok(range);
        }
        self.populate(ino, &self.inode(ino)?)
    }

    /// The children of the directory `dir`, with inode number `ino`; lists it if necessary.
    ///
    /// # Errors
    /// `ENOTDIR` if it is not a directory; otherwise the reason why it cannot be listed.
    pub(super) fn populate(&self, ino: Ino, dir: &Inode) -> Result<Arc<InodeRange>> {
        if let Some(range) = self.kept().get(ino) {
            return Ok(range);
        }
        // One thread lists; the others wait for it.
        let mutex = Arc::clone(self.being_listed().entry(ino).or_default());
        let only = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = self.kept().get(ino);
        let range = kept.map_or_else(|| self.list(ino, dir), Ok);
        self.being_listed().remove(&ino);
        drop(only);
        range
    }

    /// Lists `dir` and keeps the listing.
    fn list(&self, ino: Ino, dir: &Inode) -> Result<Arc<InodeRange>> {
        let (children, again) = match dir {
            Inode::Dir(dir) => list(dir, &self.stem, &self.account)?,
            Inode::Items(items) => (items.list(&self.stem, &self.account)?.into(), true),
            Inode::Child(..) => return Err(system(libc::ENOTDIR, "directory")),
        };
        let mut ranges = self.ranges.write().unwrap_or_else(PoisonError::into_inner);
        let first = match ranges.children(ino) {
            Some((first, len)) if len == children.len() => first,
            Some(_) => return Err(Error::corrupt("it does not have the entries that it had before", "directory")),
            None => match &children {
                Children::Numbered(level) => ranges.add_numbered(ino, level.sides())?,
                _ => ranges.add(ino, children.len(), children.subdirs() > 0)?,
            },
        };
        drop(ranges);
        let (range, evicted) = self.kept().put(InodeRange { dir: ino, first, children, again });
        drop(evicted);
        if let Inode::Dir(dir) = dir {
            dir.is_listed();
        }
        Ok(range)
    }

    fn being_listed(&self) -> MutexGuard<'_, HashMap<Ino, Arc<Mutex<()>>>> {
        self.being_listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves an inode number.
    pub(super) fn inode(&self, ino: Ino) -> Result<Inode> {
        if ino == ROOT {
            return Ok(Inode::Dir(self.root.clone()));
        }
        let (dir, index) = self.place(ino).ok_or_else(missing)?;
        // Above a directory there are few: names make at most 256 of them.
        child(self.inode_range(dir)?, index)
    }

    /// Like [`Tree::inode`], only from memory.
    pub(super) fn known_inode(&self, ino: Ino) -> Option<Inode> {
        if ino == ROOT {
            return Some(Inode::Dir(self.root.clone()));
        }
        let (dir, index) = self.place(ino)?;
        child(self.kept().get(dir)?, index).ok()
    }

    /// The directory that contains `ino`, and its index there.
    pub(super) fn place(&self, ino: Ino) -> Option<(Ino, u64)> {
        self.ranges.read().unwrap_or_else(PoisonError::into_inner).parent(ino)
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, KeptListings> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Child `index` of a directory.
pub(super) fn child(range: Arc<InodeRange>, index: u64) -> Result<Inode> {
    let listing = match &range.children {
        Children::Listed(listing) => listing,
        Children::Numbered(level) => {
            return Ok(match level.below(index) {
                // The depth only matters for names with `/`.
                Some(level) => Inode::Dir(Arc::new(TreeDir::new(DirSource::Numbered(level), 0))),
                None => Inode::Child(range, index),
            });
        }
        Children::IndexedDir(_) => return Ok(Inode::Child(range, index)),
    };
    let depth = listing.depth + 1;
    Ok(match listing.dir(index)? {
        None => Inode::Child(range, index),
        Some(SubDir::Kept(dir)) => Inode::Dir(dir),
        Some(SubDir::Lazy(dir)) => Inode::Dir(Arc::new(TreeDir::new(DirSource::Entries(dir), depth))),
        Some(SubDir::Group(first)) => Inode::Items(Items { parent: range, first }),
    })
}
