//! The other files of a container: in a directory of this machine, or under one prefix of a server.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::sync::Arc;

use super::{Dir, Folder, Objects, Source};
use crate::error::{Error, Kind, Result};

/// Where the files of a container are.
#[derive(Debug, Clone)]
pub enum Place {
    /// In a directory.
    Local(Arc<Dir>),
    /// Under one prefix of a server: there are no lists there, only names.
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
