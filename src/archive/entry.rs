//! Entries of an archive: names, kinds and sizes, per directory or recursively.
#![forbid(unsafe_code)]

use std::fmt;

use super::{Archive, File, contained};
use crate::error::{Error, Result};
use crate::tree::{DirEntry, Ino, Kind, normalize};

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link to a path in the archive.
    Link,
}

impl From<Kind> for EntryKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::File => Self::File,
            Kind::Dir => Self::Directory,
            Kind::Link => Self::Link,
        }
    }
}

/// A file, directory or link of an archive.
#[derive(Clone)]
pub struct Entry {
    archive: Archive,
    path: String,
    ino: Ino,
    kind: EntryKind,
}

impl Entry {
    /// Looks up `path` in `archive`.
    pub(super) fn at(archive: &Archive, path: &str) -> Result<Self> {
        let tree = archive.tree();
        let ino = tree.resolve(path)?;
        let kind = tree.kind(ino)?.into();
        Ok(Self { archive: archive.clone(), path: normalize(path), ino, kind })
    }

    fn child(&self, entry: DirEntry) -> Self {
        let path = if self.path.is_empty() { entry.name } else { format!("{}/{}", self.path, entry.name) };
        Self { archive: self.archive.clone(), path, ino: entry.ino, kind: entry.kind.into() }
    }

    /// The path from the root, for example `chunks/000007.raw`; empty for the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The last component of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    #[cfg(feature = "cli")]
    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }

    /// The kind of the entry.
    pub fn kind(&self) -> EntryKind {
        self.kind
    }

    /// The size of a file in bytes, if known without decoding, or of a link's target; `None` for a directory. For the
    /// size of any file, open it and call [`File::len`].
    pub fn size(&self) -> Option<u64> {
        if self.kind == EntryKind::Directory {
            return None;
        }
        contained("size", || Ok(self.archive.tree().cheap_attr(self.ino))).ok()?.map(|attr| attr.size)
    }

    /// Its attributes: the extended attributes `user.fzmfs.*` of a mounted file, without that prefix.
    ///
    /// # Errors
    /// The fault of the container.
    #[cfg(feature = "serve")]
    pub(crate) fn attributes(&self) -> Result<Vec<(String, String)>> {
        let all = contained("attributes", || self.archive.tree().xattrs(self.ino))?;
        let own =
            |(name, value): (String, String)| (name.strip_prefix("user.fzmfs.").unwrap_or(&name).to_owned(), value);
        Ok(all.into_iter().map(own).collect())
    }

    /// The target of a link: a path in the archive, relative to its directory. `None` if it leads out of the archive.
    pub fn target(&self) -> Option<String> {
        if self.kind == EntryKind::Link { self.archive.tree().link(self.ino).ok() } else { None }
    }

    /// The entry that a link leads to, under the path of the link; another entry itself.
    ///
    /// # Errors
    /// [`Kind::NotFound`](crate::ErrorKind::NotFound) if there is none.
    #[cfg(feature = "serve")]
    pub(crate) fn followed(self) -> Result<Self> {
        let tree = self.archive.tree();
        let (ino, kind) = contained("path", || {
            let ino = tree.follow(self.ino)?;
            Ok((ino, tree.kind(ino)?.into()))
        })?;
        Ok(Self { ino, kind, ..self })
    }

    /// The modification time of a file, in seconds since 1970, if it is known without decoding.
    #[cfg(feature = "serve")]
    pub(crate) fn modified(&self) -> Option<i64> {
        contained("time", || Ok(self.archive.tree().cheap_attr(self.ino))).ok()?.map(|attr| attr.mtime.0)
    }

    /// Opens the file for reading; follows a link.
    ///
    /// # Errors
    /// As [`Archive::file`].
    pub fn open(&self) -> Result<File> {
        contained("path", || File::open(&self.archive, self.ino, &self.path))
    }

    /// Lists this directory, as [`Archive::list`].
    ///
    /// # Errors
    /// As [`Archive::list`].
    pub fn list(&self) -> Result<Entries> {
        self.entries(false)
    }

    /// Walks the tree below this directory, as [`Archive::walk`].
    ///
    /// # Errors
    /// As [`Archive::list`].
    pub fn walk(&self) -> Result<Entries> {
        self.entries(true)
    }

    fn entries(&self, below: bool) -> Result<Entries> {
        // Report a non-directory or a broken directory now, not with the first item.
        contained("path", || self.archive.tree().entry(self.ino, 0))?;
        Ok(Entries { open: vec![(self.clone(), 0)], below })
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("path", &self.path).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Iterator over the entries of an archive, in container order. Keeps one position per open directory.
#[derive(Debug, Clone)]
pub struct Entries {
    /// The open directories, each with the position of its next entry.
    open: Vec<(Entry, u64)>,
    below: bool,
}

impl Entries {
    /// Skips the rest of the directory of the last entry; if the last entry is a directory that [`Archive::walk`] would
    /// descend into, skips its content instead.
    pub fn skip_directory(&mut self) {
        self.open.pop();
    }
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    /// An error ends its directory; a walk continues after it.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (dir, position) = self.open.last_mut()?;
            match contained("directory", || dir.archive.tree().entry(dir.ino, *position)) {
                Ok(Some(found)) => {
                    *position = found.next;
                    let entry = dir.child(found);
                    if self.below && entry.kind == EntryKind::Directory {
                        self.open.push((entry.clone(), 0));
                    }
                    return Some(Ok(entry));
                }
                Ok(None) => _ = self.open.pop(),
                Err(error) => {
                    let error = named(error, &dir.path);
                    self.open.pop();
                    return Some(Err(error));
                }
            }
        }
    }
}

/// Adds the directory `path` to `error`.
fn named(error: Error, path: &str) -> Error {
    if path.is_empty() { error } else { error.within(path) }
}
