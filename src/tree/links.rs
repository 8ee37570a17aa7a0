//! Symbolic links: followed within the tree.
#![forbid(unsafe_code)]

use std::borrow::Cow;

use crate::error::{Error, Kind as Cause, Result};

use super::inodes::Inode;
use super::{Ino, Tree, missing, system};

/// Maximum number of links on the way to a file, as in the kernel.
const MOST: u32 = 40;

impl Tree {
    /// The target path of the link `ino`.
    ///
    /// # Errors
    /// `EINVAL` if `ino` is not a link; `EACCES` if it would lead out of its container.
    pub fn link(&self, ino: Ino) -> Result<String> {
        let link = match self.inode(ino)? {
            Inode::Child(range, index) => range.children.link(index).map(|to| to.map(Cow::into_owned)),
            Inode::Dir(_) | Inode::Items(_) => None,
        };
        link.ok_or_else(|| system(libc::EINVAL, "link"))?
    }

    /// The file or directory to which `ino` leads, which may be a link.
    ///
    /// # Errors
    /// [`Cause::NotFound`] if it does not exist; `ELOOP` if there are too many links on the way; otherwise as
    /// [`Tree::link`].
    pub fn follow(&self, ino: Ino) -> Result<Ino> {
        self.follow_within(ino, &mut MOST.clone())
    }

    fn follow_within(&self, ino: Ino, left: &mut u32) -> Result<Ino> {
        let (dir, to) = match self.inode(ino)? {
            Inode::Child(range, index) => match range.children.link(index) {
                Some(to) => (range.dir, to?.into_owned()),
                None => return Ok(ino),
            },
            Inode::Dir(_) | Inode::Items(_) => return Ok(ino),
        };
        *left = left.checked_sub(1).ok_or_else(|| system(libc::ELOOP, "link"))?;
        let mut at = dir;
        for component in to.split('/').filter(|component| !matches!(*component, "" | ".")) {
            at = match component {
                ".." => self.parent(at),
                name => match self.lookup(at, name.as_bytes()) {
                    Err(e) if e.errno() == libc::ENOTDIR => return Err(Error::new(Cause::NotFound, "link")),
                    found => self.follow_within(found?.ok_or_else(missing)?, left)?,
                },
            };
        }
        Ok(at)
    }
}
