//! The other files of a container: in a directory of this machine, or under one prefix of a server.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::{Dir, Folder, ListedObjects, Objects, Source};
use crate::account::Account;
use crate::error::{Error, Kind, Result};
use crate::platform::OsStrExt;

/// Where the files of a container are.
#[derive(Debug, Clone)]
pub enum Place {
    /// In a directory.
    Local(Arc<Dir>),
    /// Under one prefix of a server, which may have no lists.
    Remote(Arc<Objects>),
}

impl Place {
    /// The file `name`, held open.
    ///
    /// # Errors
    /// As [`Source::open`] and [`Source::open_remote`].
    pub fn source(&self, name: &str) -> Result<Arc<Source>> {
        match self {
            Self::Local(dir) => dir.source(name),
            Self::Remote(objects) => objects.source(name),
        }
    }

    /// Pins all files below it.
    ///
    /// # Errors
    /// As [`Folder::pin_below`] and [`ListedObjects::pin`].
    pub fn pin_below(&self, account: &Account) -> Result<PinnedFiles> {
        match self {
            Self::Local(dir) => Folder::pin_below(dir, account).map(PinnedFiles::Local),
            Self::Remote(objects) => ListedObjects::pin(objects, account).map(PinnedFiles::Remote),
        }
    }
}

/// All files below a place, which were pinned when the container was opened.
#[derive(Debug, Clone)]
pub enum PinnedFiles {
    /// In a directory, which is among them: the names of directories end with `/`.
    Local(Arc<Folder>),
    /// On a server.
    Remote(Arc<ListedObjects>),
}

impl PinnedFiles {
    /// The number of files.
    pub fn len(&self) -> usize {
        match self {
            Self::Local(folder) => folder.len(),
            Self::Remote(objects) => objects.len(),
        }
    }

    /// The path of file `index` below the place.
    pub fn name(&self, index: usize) -> &[u8] {
        match self {
            Self::Local(folder) => folder.name(index),
            Self::Remote(objects) => objects.name(index).as_bytes(),
        }
    }

    /// The file at `path`, opened when it is read.
    ///
    /// # Errors
    /// As [`Folder::source`] and [`ListedObjects::source`].
    pub fn source(&self, path: &[u8]) -> Result<Arc<Source>> {
        match self {
            Self::Local(folder) => folder.source(OsStr::from_bytes(path)),
            Self::Remote(objects) => {
                objects.source(std::str::from_utf8(path).map_err(|_| Error::new(Kind::NotFound, "file"))?)
            }
        }
    }

    /// Tells what was pinned from other versions of it, as far as names, sizes and times do, and the tags of a server.
    pub fn state(&self) -> u64 {
        let of = |index| {
            let mut hash = Xxh3::new();
            match self {
                // Copies of a directory differ in the sizes and times of directories.
                Self::Local(folder) if folder.name(index).ends_with(b"/") => return 0,
                Self::Local(folder) => (folder.name(index), folder.size(index), folder.mtime(index)).hash(&mut hash),
                Self::Remote(objects) => (objects.name(index), objects.version(index)).hash(&mut hash),
            }
            hash.finish()
        };
        // Names are in any order.
        (0..self.len()).map(of).fold(0, u64::wrapping_add)
    }

    /// The folder, for watching it.
    pub fn folder(&self) -> Option<Arc<Folder>> {
        match self {
            Self::Local(folder) => Some(folder.clone()),
            Self::Remote(_) => None,
        }
    }
}

/// The files of a container that are opened when they are read.
#[derive(Debug, Clone)]
pub enum Files {
    /// All were pinned when the container was opened.
    Local(Arc<Folder>),
    /// Each is pinned when it is read first.
    Remote(Arc<Objects>),
}

impl Files {
    /// The file `name`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the file is missing; [`Kind::Changed`] if it is newer than the container.
    pub fn source(&self, name: &OsStr) -> Result<Arc<Source>> {
        match self {
            Self::Local(folder) => folder.source(name),
            Self::Remote(objects) => objects.source(name.to_str().ok_or_else(|| Error::new(Kind::NotFound, "file"))?),
        }
    }

    /// The folder, for watching it.
    pub fn folder(&self) -> Option<Arc<Folder>> {
        match self {
            Self::Local(folder) => Some(folder.clone()),
            Self::Remote(_) => None,
        }
    }
}
