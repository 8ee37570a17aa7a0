//! All objects below a prefix: pinned by a list when the container was opened, opened only when they are read.
//!
//! The counterpart of [`crate::source::Folder`]: one changed object makes all of them changed, permanently. An object
//! that was added is not noticed.
//!
//! Limits: [`MOST`] objects, [`DEPTH`] directories in each other; names and versions are lists of the account.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::objects::Objects;
use crate::account::{Account, Names, Records};
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;
use crate::source::dir::DEPTH;
use crate::source::origin::{Need, Origin, Part};
use crate::source::pinned_names::MOST;
use crate::source::{Source, Version};

/// The objects below a prefix.
#[derive(Debug)]
pub struct ListedObjects {
    objects: Arc<Objects>,
    names: Names,
    versions: Records<4>,
    /// The first object found changed.
    changed: OnceLock<usize>,
}

impl ListedObjects {
    /// Pins all of `objects` as they are now.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if the server has no lists; [`Kind::TooLarge`] if there are too many objects, or nested
    /// too deeply; [`Kind::NoRoom`] if neither memory nor disk space is left for their names; [`Kind::Io`] if the server
    /// refuses.
    pub fn pin(objects: &Arc<Objects>, account: &Account) -> Result<Arc<Self>> {
        let (mut names, mut versions) = (Names::new(account), Records::new(account, "objects of a directory"));
        objects.list(|path, version| {
            Limits::check(to_u64(names.len()).saturating_add(1), MOST, "number of objects")?;
            Limits::check(to_u64(path.matches('/').count()), DEPTH, "depth of directories")?;
            if names.insert(path)? { versions.push(version) } else { Ok(()) }
        })?;
        names.finish()?;
        versions.finish()?;
        Ok(Arc::new(Self { objects: objects.clone(), names, versions, changed: OnceLock::new() }))
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// The path of object `index` below the prefix.
    pub fn name(&self, index: usize) -> &str {
        self.names.get(index).unwrap_or_default()
    }

    /// The object at `path`, opened when it is read.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if it was not listed.
    pub fn source(self: &Arc<Self>, path: &str) -> Result<Arc<Source>> {
        let index = self.names.find(path.as_bytes()).ok_or_else(|| Error::new(Kind::NotFound, "file"))?;
        Ok(Source::of(self.shown(index), ListedObject { all: self.clone(), index }))
    }

    /// Fails if a change was detected before. Makes no request.
    ///
    /// # Errors
    /// [`Kind::Changed`].
    fn unchanged(&self) -> Result<()> {
        if self.changed.get().is_some() { Err(Error::new(Kind::Changed, "object")) } else { Ok(()) }
    }

    /// The version of object `index`.
    pub(in crate::source) fn version(&self, index: usize) -> Version {
        self.versions.get(index).unwrap_or_default()
    }

    fn shown(&self, index: usize) -> PathBuf {
        self.objects.path().join(self.name(index))
    }

    /// Runs `work` with object `index`; notes a change.
    fn with<T>(&self, index: usize, work: impl FnOnce(&Source) -> Result<T>) -> Result<T> {
        self.unchanged()?;
        let done = self.objects.listed(self.name(index), self.version(index)).and_then(|source| work(&source));
        done.inspect_err(|e| {
            if matches!(e.kind(), Kind::Changed) {
                self.set_changed(index);
            }
        })
    }

    fn set_changed(&self, index: usize) {
        // The first one is kept.
        _ = self.changed.set(index);
    }
}

/// One of the objects, as a source.
#[derive(Debug)]
struct ListedObject {
    all: Arc<ListedObjects>,
    index: usize,
}

impl ListedObject {
    /// The object, if it is open.
    fn opened(&self) -> Option<Arc<Source>> {
        self.all.objects.opened(self.all.name(self.index))
    }
}

impl Origin for ListedObject {
    fn len(&self) -> u64 {
        let [_, size, ..] = self.all.version(self.index);
        size
    }

    fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
        self.all.with(self.index, |source| source.read(at, dst, what))
    }

    fn read_parts(&self, parts: &mut [Part<'_>], what: &'static str) -> Result<()> {
        self.all.with(self.index, |source| source.read_parts(parts, what))
    }

    fn announce(&self, ranges: &[Range<u64>], need: Need) {
        // To open it would be to wait.
        if let Some(source) = self.opened() {
            source.announce(ranges, need);
        }
    }

    fn mtime(&self) -> (i64, i64) {
        let [_, _, seconds, _] = self.all.version(self.index);
        (seconds.cast_signed(), 0)
    }

    fn is_same_in_memory(&self) -> bool {
        self.all.unchanged().is_ok() && self.opened().is_none_or(|source| source.is_same_in_memory())
    }

    fn check(&self) -> Result<()> {
        self.all.unchanged()?;
        self.opened().map_or(Ok(()), |source| source.check()).inspect_err(|_| self.set_changed())
    }

    fn set_changed(&self) {
        self.all.set_changed(self.index);
    }

    fn is_far(&self) -> bool {
        true
    }

    fn is_near(&self, range: Range<u64>) -> bool {
        let len = range.end.saturating_sub(range.start);
        self.opened().is_some_and(|source| source.is_near(FileOffset(range.start), len))
    }

    fn cancel(&self) {
        if let Some(source) = self.opened() {
            source.cancel();
        }
    }
}

#[cfg(test)]
#[path = "tests/listed.rs"]
mod tests;
