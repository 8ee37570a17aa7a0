//! Directories of containers: which sources are one, and the containers and directories in it.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FileType;

use super::{Rules, is_candidate};
use crate::account::Account;
use crate::error::Result;
use crate::format::{self, Input};
use crate::source::{Location, Prefix, RemoteOptions, Top};

/// The directory at `source`, unless that is a file or a container that is a directory. On a server: a bucket, or a URL
/// of S3 that ends with `/`.
///
/// # Errors
/// From open(2); as [`Prefix::open`].
pub fn open_directory(source: &Path, remote: &RemoteOptions, account: &Account) -> Result<Option<Arc<Top>>> {
    if let Location::Remote(url) = Location::of(source)? {
        let rest = url.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("s3://")).and_then(|_| url.get(5..));
        if !rest.is_some_and(|rest| rest.ends_with('/') || !rest.contains('/')) {
            return Ok(None);
        }
        let prefix = Prefix::open(url, remote, account)?;
        let is_container = prefix.stat(format::INDEX).is_ok_and(|seen| seen.kind == FileType::RegularFile);
        return Ok((!is_container).then(|| Top::far(prefix)));
    }
    let is_container = || Input::open(source).and_then(|input| format::detect(&input, None)).is_ok();
    if !source.is_dir() || is_container() { Ok(None) } else { Top::open(source).map(Some) }
}

/// The names of the containers and the directories in `top`, sorted, each with whether it is a container: those of the
/// usual extensions.
///
/// # Errors
/// Fails if it cannot be listed.
pub fn list_directory(top: &Top) -> Result<Vec<(OsString, bool)>> {
    let below = top.below(Path::new(""))?;
    let mut names = Vec::new();
    below.names(|name, _| names.push(name.to_vec()))?;
    names.sort_unstable();
    let rules = Rules::default();
    let mut listed = Vec::new();
    for name in names {
        let shown = OsStr::from_bytes(&name);
        // Removed meanwhile.
        let Ok(seen) = below.stat(shown) else { continue };
        let is_container = rules.is_container(&name) && is_candidate(&below, shown, seen.kind);
        if is_container || seen.kind == FileType::Directory {
            listed.push((OsString::from_vec(name), is_container));
        }
    }
    Ok(listed)
}
