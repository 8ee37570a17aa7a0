//! Inode numbers: what they refer to, and the listing of a directory, which assigns those of its children.
#![forbid(unsafe_code)]

use std::sync::{Arc, PoisonError};

use crate::error::{Error, Kind as Cause, Result};

use super::children::{Children, InodeRange};
use super::dir::Dir;
use super::list::list;
use super::listing::ChildKind;
use super::{Ino, ROOT, Tree, missing, system};

/// What an inode number refers to.
pub(super) enum Inode {
    /// A directory: the root, or a child.
    Dir(Arc<Dir>),
    /// A file or link, as a child index of its directory.
    Child(Arc<InodeRange>, u64),
}

impl Tree {
    /// The children of the directory `ino`.
    pub(super) fn block(&self, ino: Ino) -> Result<Arc<InodeRange>> {
        match self.inode(ino)? {
            Inode::Dir(dir) => self.populate(ino, &dir),
            Inode::Child(..) => Err(system(libc::ENOTDIR, "directory")),
        }
    }

    /// The children of `dir`, whose inode number is `ino`; lists it if necessary.
    pub(super) fn populate(&self, ino: Ino, dir: &Dir) -> Result<Arc<InodeRange>> {
        if let Some(block) = dir.block.get() {
            return Ok(block.clone());
        }
        let _first = dir.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = dir.block.get() {
            return Ok(block.clone());
        }
        let children = list(dir, ino, &self.stem, &self.recent)?;
        let mut blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        let first = blocks.1;
        let limit = u64::MAX >> 1;
        let next = first.checked_add(children.len()).filter(|&next| next <= limit);
        blocks.1 = next.ok_or_else(|| Error::new(Cause::TooLarge { value: children.len(), limit }, "directory"))?;
        let block = Arc::new(InodeRange { dir: ino, first, children });
        blocks.0.push(block.clone());
        drop(blocks);
        dir.is_listed();
        Ok(dir.block.get_or_init(|| block).clone())
    }

    /// Resolves an inode number.
    pub(super) fn inode(&self, ino: Ino) -> Result<Inode> {
        if ino == ROOT {
            return Ok(Inode::Dir(self.root.clone()));
        }
        let (block, index) = self.holder(ino).ok_or_else(missing)?;
        if let Children::Listed(listing) = &block.children
            && let Some(ChildKind::Dir(dir)) = listing.get(index).map(|child| &child.what)
        {
            return Ok(Inode::Dir(dir.clone()));
        }
        Ok(Inode::Child(block, index))
    }

    /// The directory that contains `ino`, and its index there.
    pub(super) fn holder(&self, ino: Ino) -> Option<(Arc<InodeRange>, u64)> {
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        let after = blocks.0.partition_point(|block| block.first <= ino);
        let block = blocks.0.get(after.checked_sub(1)?)?;
        let index = ino.checked_sub(block.first)?;
        (index < block.children.len()).then(|| (block.clone(), index))
    }
}
