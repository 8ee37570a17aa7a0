//! Attributes of inodes: those known without decoding, and sizes found by decoding, which are then kept.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::sync::Arc;

use crate::checksum::Verified;
use crate::error::Result;
use crate::format::{Fetch, Metadata, Subdirs};
use crate::text::escaped;
use crate::view;

use super::attr::{self, Attr, Kind, KnownAttr};
use super::children::{Children, InodeRange};
use super::inodes::{Inode, child};
use super::{Ino, OpenDir, Tree, missing};

/// The number of links of a directory.
fn nlink(subdirs: u32) -> u32 {
    subdirs.saturating_add(2)
}

/// `attr` of child `index`, with what the container records of it.
fn recorded(attr: Attr, range: &InodeRange, index: u64) -> Attr {
    match range.children.metadata(index) {
        Some(Metadata { mode, mtime }) => {
            Attr { mode: mode.map(|mode| mode & 0o555), mtime: mtime.unwrap_or(attr.mtime), ..attr }
        }
        None => attr,
    }
}

impl Tree {
    /// The attributes of `ino`. Decodes once if the container does not record the length of the file.
    ///
    /// # Errors
    /// [`Cause::NotFound`] for an unknown inode number; otherwise the reason why the size cannot be determined.
    pub fn attr(&self, ino: Ino, fetch: &dyn Fetch) -> Result<Attr> {
        match self.attr_or_stored(ino)? {
            (Some(attr), _) => Ok(attr),
            (None, stored) => {
                let size = view::len(&self.file(ino)?.file.content, fetch)?;
                if let Inode::Child(range, index) = self.inode(ino)? {
                    self.keep_size(&range, index, size, stored);
                }
                Ok(self.file_attr(ino, size, stored))
            }
        }
    }

    /// Like [`Tree::attr`], but `None` if that requires decoding.
    pub fn cheap_attr(&self, ino: Ino) -> Option<Attr> {
        self.attr_or_stored(ino).ok()?.0
    }

    /// Like [`Tree::attr`], but only from memory.
    pub fn known_attr(&self, ino: Ino) -> Option<Attr> {
        let Some(inode) = self.known_inode(ino) else {
            // Its directory is not in memory; only files have a size there.
            return self.kept_size(ino).map(|(size, stored)| self.file_attr(ino, size, stored));
        };
        match inode {
            dir @ (Inode::Dir(_) | Inode::Items(_)) => {
                let nlink = self.known_nlink(ino, &dir)?;
                let attr = self.dir_attr(ino, nlink);
                let Some((above, index)) = self.place(ino) else { return Some(attr) };
                let range = self.kept().get(above)?;
                Some(recorded(attr, &range, index))
            }
            Inode::Child(range, index) => {
                if let Some(to) = range.children.link(index) {
                    return Some(recorded(self.link_attr(ino, to), &range, index));
                }
                let (size, stored) = range.children.kept_size(index).or_else(|| self.kept_size(ino))?;
                Some(recorded(self.file_attr(ino, size, stored), &range, index))
            }
        }
    }

    /// The known attributes of an entry of the directory `open`; only from memory.
    pub fn known_entry_attr(&self, open: &OpenDir, ino: Ino) -> Option<KnownAttr> {
        let range = &*open.0;
        let index = ino.0.checked_sub(range.first.0)?;
        let attr = match range.children.kind(index) {
            Kind::Link => self.link_attr(ino, range.children.link(index)?),
            Kind::Dir => {
                let nlink = self.known_nlink(ino, &child(Arc::clone(&open.0), index).ok()?)?;
                self.dir_attr(ino, nlink)
            }
            Kind::File => match range.children.kept_size(index).or_else(|| self.kept_size(ino)) {
                Some((size, stored)) => self.file_attr(ino, size, stored),
                None => return range.children.needs_decoding(index).then_some(KnownAttr::NoSize),
            },
        };
        Some(KnownAttr::All(recorded(attr, range, index)))
    }

    /// As [`Tree::known_entry_attr`]; lists a subdirectory or reads structure if necessary.
    pub fn entry_attr(&self, open: &OpenDir, ino: Ino) -> KnownAttr {
        let known = self.known_entry_attr(open, ino);
        known.unwrap_or_else(|| self.cheap_attr(ino).map_or(KnownAttr::NoSize, KnownAttr::All))
    }

    /// The extended attributes of `ino`, with full names.
    ///
    /// # Errors
    /// As [`Tree::file`].
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<(String, String)>> {
        let attrs = match self.inode(ino)? {
            Inode::Dir(dir) => dir.attrs(),
            Inode::Items(_) => Vec::default(),
            Inode::Child(range, index) => match range.children.file(index)? {
                Some(file) => {
                    let verified = file.content.verified()?.unwrap_or(Verified::No);
                    attr::known(file).into_iter().chain([("verified", verified.word().into())]).collect()
                }
                None => Vec::default(),
            },
        };
        // Values may be text from the container.
        let shown = |value: String| escaped(&value).into_owned();
        Ok(attrs.into_iter().map(|(name, value)| (format!("user.fzmfs.{name}"), shown(value))).collect())
    }

    /// The attributes if they are known without decoding, and the bytes that a file occupies in the container.
    fn attr_or_stored(&self, ino: Ino) -> Result<(Option<Attr>, u64)> {
        let (range, index) = match self.inode(ino)? {
            dir @ (Inode::Dir(_) | Inode::Items(_)) => {
                let nlink = self.known_nlink(ino, &dir).unwrap_or_else(|| {
                    // A directory that cannot be listed still has a name and attributes.
                    nlink(self.populate(ino, &dir).map_or(0, |range| range.children.subdirs()))
                });
                let attr = self.dir_attr(ino, nlink);
                let Some((above, index)) = self.place(ino) else { return Ok((Some(attr), 0)) };
                return Ok((Some(recorded(attr, &*self.inode_range(above)?, index)), 0));
            }
            Inode::Child(range, index) => (range, index),
        };
        if let Some(to) = range.children.link(index) {
            return Ok((Some(recorded(self.link_attr(ino, to), &range, index)), 0));
        }
        if let Some((size, stored)) = range.children.kept_size(index).or_else(|| self.kept_size(ino)) {
            return Ok((Some(recorded(self.file_attr(ino, size, stored), &range, index)), stored));
        }
        let (size, stored) = range.children.known_size(index)?.ok_or_else(missing)?;
        if let Some(size) = size {
            self.keep_size(&range, index, size, stored);
        }
        Ok((size.map(|size| recorded(self.file_attr(ino, size, stored), &range, index)), stored))
    }

    fn file_attr(&self, ino: Ino, size: u64, stored: u64) -> Attr {
        Attr { ino, kind: Kind::File, size, blocks: stored.div_ceil(512), nlink: 1, mtime: self.mtime, mode: None }
    }

    fn dir_attr(&self, ino: Ino, nlink: u32) -> Attr {
        Attr { kind: Kind::Dir, nlink, ..self.file_attr(ino, 0, 0) }
    }

    /// The attributes of a link; it has no size if its target is not told.
    fn link_attr(&self, ino: Ino, to: Result<Cow<'_, str>>) -> Attr {
        Attr { kind: Kind::Link, ..self.file_attr(ino, to.map_or(0, |to| to.len() as u64), 0) }
    }

    /// The number of links of the directory `dir`, with inode number `ino`; only from memory.
    fn known_nlink(&self, ino: Ino, dir: &Inode) -> Option<u32> {
        let subdirs = if let Inode::Dir(dir) = dir { dir.subdirs() } else { Subdirs::Listed };
        let listed = || self.kept().get(ino).map(|range| nlink(range.children.subdirs()));
        match subdirs {
            Subdirs::Known(subdirs) => Some(nlink(subdirs)),
            Subdirs::Listed => listed(),
            Subdirs::Unknown => Some(listed().unwrap_or(1)),
        }
    }

    fn kept_size(&self, ino: Ino) -> Option<(u64, u64)> {
        self.sizes.get(&ino)
    }

    /// Whether the size of `ino`, which the listing does not keep, is in memory.
    pub(super) fn has_size(&self, ino: Ino) -> bool {
        self.sizes.contains(&ino)
    }

    /// Keeps the size of child `index`, which is known now.
    pub(super) fn keep_size(&self, range: &InodeRange, index: u64, size: u64, stored: u64) {
        let kept = match &range.children {
            Children::Listed(listing) if listing.keep_size(index, size) => !range.again,
            children => children.kept_size(index).is_some(),
        };
        if !kept {
            self.sizes.put(range.first.child(index), (size, stored));
        }
    }
}
