//! Shards: other files, in the same directory, that hold components.
//!
//! Reference: section 6.6.
//!
//! Checked: size and footer when a shard is opened; its digest before a component without its own is served.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use crate::account::Account;
use crate::bytes::FileOffset;
use crate::checksum::{ChecksumGate, FailedChecks};
use crate::error::{Error, Kind, Result};
use crate::format::{Input, Options};
use crate::source::{Files, Folder, Place, Source};

use super::covered::{Covered, gate};
use super::footer::Dialect;
use super::manifest::{self, Manifest};

/// An open shard.
#[derive(Clone)]
pub(super) struct OpenShard {
    pub(super) source: Arc<Source>,
    /// The digest over the whole shard: must pass before a component without its own digest is served.
    pub(super) gate: Option<ChecksumGate>,
}

/// The file name of shard `name` of the file at `root`.
fn shard_file(root: &Path, name: &str) -> OsString {
    let mut file = root.file_stem().unwrap_or_default().to_os_string();
    file.push(format!("-{name}.zt"));
    file
}

/// Pins the files of the shards, in the directory of the file itself; on a server, each when it is read.
///
/// # Errors
/// Fails if the system refuses to. A missing file is only an error when the shard is opened.
pub(super) fn pin_shards(input: &Input, manifest: &Manifest, account: &Account) -> Result<Option<Files>> {
    let dir = match input.dir.as_ref().filter(|_| manifest.shards() > 0) {
        Some(Place::Local(dir)) => dir,
        Some(Place::Remote(objects)) => return Ok(Some(Files::Remote(objects.clone()))),
        None => return Ok(None),
    };
    let file = |number| manifest.shard(number).map(|shard| shard_file(&input.path, &shard.name).into_encoded_bytes());
    Folder::pin(dir, (0..manifest.shards()).map(file), account).map(|folder| Some(Files::Local(folder)))
}

/// Opens a shard and compares its size and footer with the manifest; its digest is not computed here.
///
/// # Errors
/// Fails if the file is missing, a link, of another size, or not of dialect 2.
pub(super) fn open_shard(
    root: &Path,
    files: &Files,
    shard: &manifest::Shard<'_>,
    failed: &FailedChecks,
    options: &Options,
) -> Result<OpenShard> {
    let manifest::Shard { name, size, digest, described_at } = shard;
    let file = shard_file(root, name);
    let path = root.with_file_name(&file);
    let named = |e: Error| e.within(path.display());
    let source = files.source(&file).map_err(|e| match e.kind() {
        Kind::NotFound => named(Error::corrupt("the file is missing", "shard").at(FileOffset(0))),
        _ => named(e),
    })?;
    if source.len() != *size {
        let why = format!("not the {size} bytes recorded in the manifest");
        return Err(named(Error::corrupt(why, "shard size").at(FileOffset(0))));
    }
    let footer = super::footer::read(&source).map_err(named)?;
    if footer.dialect != Dialect::V2 {
        return Err(named(Error::corrupt("not a zTensor file of dialect 2", "shard").at(FileOffset(0))));
    }
    let all = Covered { source: &source, range: FileOffset(0)..FileOffset(*size), is_shard: true };
    let gate = gate(digest, *described_at, all, failed, options);
    Ok(OpenShard { source, gate })
}
