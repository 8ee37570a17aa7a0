//! What can be a container in a directory: a file, or a directory with the index of a sparse frame.
//!
//! A container that is a directory has the version, the owner and the mode of its index, which is written whenever it
//! changes.
#![forbid(unsafe_code)]

use std::ffi::OsStr;

use rustix::fs::FileType;

use crate::error::Result;
use crate::format;
use crate::source::{Below, Seen};

/// Whether `name`, of type `kind`, can be a container.
pub fn is_candidate(dir: &Below, name: &OsStr, kind: FileType) -> bool {
    match kind {
        FileType::RegularFile => true,
        FileType::Directory => index(dir, name).is_ok_and(|seen| seen.kind == FileType::RegularFile),
        _ => false,
    }
}

/// What the container `name` is: its file, or its index.
///
/// # Errors
/// From stat(2).
pub fn stat_container(dir: &Below, name: &OsStr) -> Result<Seen> {
    let seen = dir.stat(name)?;
    if seen.kind == FileType::Directory { index(dir, name) } else { Ok(seen) }
}

fn index(dir: &Below, name: &OsStr) -> Result<Seen> {
    dir.below(name)?.stat(OsStr::new(format::INDEX))
}
