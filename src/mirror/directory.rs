//! Which sources are directories of containers.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use crate::account::Account;
use crate::error::Result;
use crate::format::{self, Input};
use crate::platform::FileType;
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
        let has = |name| prefix.stat(name).is_ok_and(|seen| seen.kind == FileType::RegularFile);
        let is_container = has(format::INDEX) || has(format::STORE) && is_container(&Input::below(prefix.objects("")?));
        return Ok((!is_container).then(|| Top::far(prefix)));
    }
    let is_one = || Input::open(source).is_ok_and(|input| is_container(&input));
    if !source.is_dir() || is_one() { Ok(None) } else { Top::open(source).map(Some) }
}

fn is_container(input: &Input) -> bool {
    format::detect(input, None).is_ok()
}
