//! Candidates for containers in a directory: a file, or a directory with the index of a sparse frame or of a store.
//!
//! A sparse frame has the version of its index, which is written on every change; a store that of all its files. Their
//! readers are the users who may read all of their files.
#![forbid(unsafe_code)]

use std::ffi::OsStr;

use crate::error::Result;
use crate::format::{self, Container};
use crate::platform::FileType;
use crate::source::{Below, Rights, Seen};

/// Whether `name`, of type `kind`, can be a container.
pub fn is_candidate(dir: &Below, name: &OsStr, kind: FileType) -> bool {
    match kind {
        FileType::RegularFile => true,
        FileType::Directory => dir.below(name).is_ok_and(|dir| {
            let is_file = |index| dir.stat(OsStr::new(index)).map(|seen| seen.kind == FileType::RegularFile);
            is_file(format::INDEX).or_else(|_| is_file(format::STORE)).unwrap_or(false)
        }),
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
    let index = match dir.stat(OsStr::new(format::INDEX)) {
        Err(e) if e.errno() == libc::ENOENT => dir.stat_of_all(OsStr::new(format::STORE))?,
        index => index?,
    };
    Ok(index.within(&dir.stat_itself()?))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Top;
    use std::fs;

    #[test]
    fn a_store_has_another_version_when_any_of_its_files_has() {
        let tmp = tempfile::tempdir().unwrap();
        let store = tmp.path().join("x.b2d");
        fs::create_dir_all(store.join("a")).unwrap();
        fs::write(store.join(format::STORE), b"index").unwrap();
        fs::write(store.join("a/leaf"), b"leaf").unwrap();
        let top = Top::open(tmp.path()).unwrap();
        let (around, name) = top.around("x.b2d".as_ref()).unwrap();
        let version = || stat_container(&around, name).unwrap().version();
        assert!(is_candidate(&around, name, FileType::Directory));
        let first = version();
        assert_eq!(version(), first);
        fs::write(store.join("a/leaf"), b"other").unwrap();
        let second = version();
        fs::write(store.join("a/new"), b"").unwrap();
        assert!(first != second && version() != second && version() != first);
    }
}
