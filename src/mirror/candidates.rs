//! Candidates for containers in a directory: a file, or a directory with the index of a sparse frame.
//!
//! A container that is a directory has the version of its index, which is written on every change; its readers are the
//! users who may read all of its files.
#![forbid(unsafe_code)]

use std::ffi::OsStr;

use rustix::fs::FileType;

use crate::error::Result;
use crate::format::{self, Container};
use crate::source::{Below, Rights, Seen};

/// Whether `name`, of type `kind`, can be a container.
pub fn is_candidate(dir: &Below, name: &OsStr, kind: FileType) -> bool {
    match kind {
        FileType::RegularFile => true,
        FileType::Directory => index(dir, name).is_ok_and(|seen| seen.kind == FileType::RegularFile),
        _ => false,
    }
}

/// State of the container `name`: of its file, or its index.
///
/// # Errors
/// From stat(2).
pub fn stat_container(dir: &Below, name: &OsStr) -> Result<Seen> {
    let seen = dir.stat(name)?;
    if seen.kind == FileType::Directory { index(dir, name) } else { Ok(seen) }
}

fn index(dir: &Below, name: &OsStr) -> Result<Seen> {
    index_in(&dir.below(name)?)
}

/// Looks at the container that is the directory `dir`.
pub(super) fn index_in(dir: &Below) -> Result<Seen> {
    Ok(dir.stat(OsStr::new(format::INDEX))?.within(&dir.stat_itself()?))
}

/// The users who may read an open container: all its files, including the state it was `found` with.
///
/// # Errors
/// That a file has changed; from stat(2).
pub fn who_may_read(container: &dyn Container, found: &Seen) -> Result<Rights> {
    let and = |rights: Rights, other: Option<Rights>| other.map_or(rights, |other| rights.and(other));
    let sources = container.sources();
    let rights = sources.iter().try_fold(found.rights, |rights, source| Ok(and(rights, source.rights()?)))?;
    container.folder().map_or(Ok(rights), |folder| folder.rights(rights))
}
