//! Fetched bytes of one object, on disk, for later mounts and other processes: `remote_cache=DIR[:SIZE]`.
//!
//! DIR has a directory for each object, named by the SHA-256 of its URL; it contains the version seen last (`version`),
//! and a file for each span, named by version and range. A file is written under another name and renamed when
//! complete, and its header and bytes have a CRC-32C: a file that a killed process or a crash left incomplete is
//! fetched again. So any number of processes may share DIR.
//!
//! Only versions with a strong `ETag` are kept: nothing less identifies bytes across mounts.
//!
//! Invariants: returned bytes are of the requested version; only files that this module has named are removed; a
//! failure is never worse than a request to the server.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_64;

use super::span::Span;
use super::stored_name::{name, parse};
use super::version::Version;
use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result, os_message};
use crate::limits::zeroed;
use crate::source::{CacheDir, DirRoom};

/// Begins every file.
const MAGIC: [u8; 16] = *b"fzmfs remote  1\n";
/// Magic, key of the object, version, start and end, and the CRC-32C of the rest.
const HEADER: usize = 16 + 32 + 3 * 8 + 4;
/// The file with the version.
const VERSION: &str = "version";
/// Longest such file.
const MOST_VERSION: u64 = 4096;
/// Spans that are written at a time; further ones are not kept.
const WRITING: usize = 8;

/// The files of one object.
#[derive(Debug)]
pub(super) struct Disk {
    settings: CacheDir,
    key: [u8; 32],
    /// The name of its directory.
    dir: String,
    /// The directory for the open version; none before one is open.
    open: Mutex<OpenSpan>,
    writing: AtomicUsize,
    room: DirRoom,
}

#[derive(Debug, Default)]
struct OpenSpan {
    /// Identifies the version in the names of files.
    version: Option<u64>,
    /// The ranges on disk: ends by starts.
    ranges: BTreeMap<u64, u64>,
}

impl Disk {
    /// The files of the object `identity`: the URL without the parts that vary between signatures.
    ///
    /// # Errors
    /// [`Kind::Usage`] if the directory cannot be made, or others can write to it.
    pub(super) fn new(settings: &CacheDir, identity: &str) -> Result<Self> {
        let key: [u8; 32] = Sha256::digest(identity).into();
        let mut dir = String::new();
        for byte in key {
            let _ = write!(dir, "{byte:02x}");
        }
        settings.make(&dir).map_err(|e| refused(settings, &e))?;
        let (writing, room) = (AtomicUsize::new(0), DirRoom::default());
        Ok(Self { settings: settings.clone(), key, dir, open: Mutex::default(), writing, room })
    }

    /// The version that was open last, if its first bytes are on disk.
    pub(super) fn known(&self) -> Option<Version> {
        let mut text = String::new();
        self.file(VERSION)?.take(MOST_VERSION).read_to_string(&mut text).ok()?;
        let (sum, text) = text.split_once('\n')?;
        let mut lines = text.lines();
        let [etag, modified, size] = [lines.next()?, lines.next()?, lines.next()?];
        if sum.parse() != Ok(crc32c::crc32c(text.as_bytes())) || lines.next().is_some() {
            return None;
        }
        let modified = Some(modified.to_owned()).filter(|modified| !modified.is_empty());
        let version = Version { etag: Some(etag.to_owned()), modified, size: size.parse().ok()? };
        let first = self.listed(number(&version)?, |_| {}).first_key_value().map(|(start, _)| *start);
        (first == Some(0)).then_some(version)
    }

    /// From now on, serves `version` and stores its bytes; removes those of other versions.
    pub(super) fn pin(&self, version: &Version) {
        let Some(wanted) = number(version) else { return };
        if self.known().as_ref() != Some(version) {
            self.write_version(version).unwrap_or_else(|e| self.unusable(&e));
        }
        let ranges = self.listed(wanted, |name| self.remove(name));
        *self.lock() = OpenSpan { version: Some(wanted), ranges };
    }

    fn write_version(&self, version: &Version) -> io::Result<()> {
        let (etag, modified) = (version.etag.as_deref(), version.modified.as_deref());
        let text = format!("{}\n{}\n{}\n", etag.unwrap_or_default(), modified.unwrap_or_default(), version.size);
        let text = format!("{}\n{text}", crc32c::crc32c(text.as_bytes()));
        self.settings.write(&self.dir, VERSION, &[text.as_bytes()])
    }

    /// The ranges on disk of the version `wanted`; passes the names of files of other versions to `other`.
    fn listed(&self, wanted: u64, other: impl Fn(&str)) -> BTreeMap<u64, u64> {
        let mut ranges = BTreeMap::new();
        for name in self.settings.names(&self.dir) {
            let Some((version, range)) = parse(&name) else { continue };
            if version == wanted {
                let end = ranges.entry(range.start).or_insert(range.end);
                *end = range.end.max(*end);
            } else {
                other(&name);
            }
        }
        ranges
    }

    /// The range on disk from `at` on, if any; else the start of the next one.
    pub(super) fn there(&self, at: u64) -> std::result::Result<Range<u64>, Option<u64>> {
        let open = self.lock();
        match open.ranges.range(..=at).next_back() {
            Some((_, end)) if *end > at => Ok(at..*end),
            _ => Err(open.ranges.range(at..).next().map(|(start, _)| *start)),
        }
    }

    /// Whether all of `range` is there.
    pub(super) fn has(&self, range: &Range<u64>) -> bool {
        let mut at = range.start;
        while at < range.end {
            match self.there(at) {
                Ok(there) => at = there.end,
                Err(_) => return false,
            }
        }
        true
    }

    /// Fills `span` from the file that has all of it; returns whether there was one.
    pub(super) fn load(&self, span: &Span) -> bool {
        let wanted = span.range();
        let open = self.lock();
        let file = open.ranges.range(..=wanted.start).next_back().filter(|(_, end)| **end >= wanted.end);
        let Some((version, file)) = open.version.zip(file.map(|(start, end)| *start..*end)) else { return false };
        drop(open);
        let done = self.read(version, &file).and_then(|bytes| {
            let skip = usize::try_from(wanted.start.saturating_sub(file.start)).ok()?;
            let len = usize::try_from(span.len()).ok()?;
            span.push(bytes.get(HEADER.checked_add(skip)?..)?.get(..len)?).ok()
        });
        if done.is_none() {
            tracing::debug!("{}: a span of remote_cache is gone or broken; fetched again", self.path().display());
            self.lock().ranges.remove(&file.start);
            self.remove(&name(version, &file));
        }
        done.is_some()
    }

    /// The file of `range`, if it is whole.
    fn read(&self, version: u64, range: &Range<u64>) -> Option<Vec<u8>> {
        let mut file = self.file(&name(version, range))?;
        let len = range.end.checked_sub(range.start)?;
        let all = len.checked_add(to_u64(HEADER))?;
        if file.metadata().ok()?.len() != all {
            return None;
        }
        let mut bytes = zeroed(all, "remote_cache").ok()?;
        file.read_exact(&mut bytes).ok()?;
        let (header, data) = bytes.split_at_checked(HEADER)?;
        if *header != self.header(version, range, data) {
            return None;
        }
        // Marks it as just used: eviction takes the oldest first.
        file.set_modified(SystemTime::now()).ok();
        Some(bytes)
    }

    fn header(&self, version: u64, range: &Range<u64>, data: &[u8]) -> Vec<u8> {
        let mut header = [&MAGIC[..], &self.key].concat();
        for number in [version, range.start, range.end] {
            header.extend(number.to_le_bytes());
        }
        let sum = crc32c::crc32c_append(crc32c::crc32c(&header), data);
        header.extend(sum.to_le_bytes());
        header
    }

    /// Keeps `span`, which is whole, if there is room.
    pub(super) fn store(&self, span: &Span) {
        let range = span.range();
        let Some(version) = self.lock().version else { return };
        if self.has(&range) {
            return;
        }
        if self.writing.fetch_add(1, Ordering::AcqRel) < WRITING {
            let write = |data: &[u8]| {
                let parts = [&self.header(version, &range, data), data];
                self.settings.write(&self.dir, &name(version, &range), &parts)
            };
            let is_own = |name: &str| parse(name).is_some();
            match self.room.with(&self.settings, span.len(), is_own, || span.with(write)) {
                None => {}
                Some(Ok(())) => {
                    let mut open = self.lock();
                    let end = open.ranges.entry(range.start).or_insert(range.end);
                    *end = (*end).max(range.end);
                }
                Some(Err(e)) => self.unusable(&e),
            }
        }
        self.writing.fetch_sub(1, Ordering::AcqRel);
    }

    /// The file `name`, if it is a regular one.
    fn file(&self, name: &str) -> Option<File> {
        self.settings.file(&self.dir, name)
    }

    fn remove(&self, name: &str) {
        self.settings.remove(&self.dir, name);
    }

    /// For messages.
    fn path(&self) -> PathBuf {
        self.settings.dir.join(&self.dir)
    }

    fn unusable(&self, e: &io::Error) {
        let why = crate::error::os_message(e);
        tracing::warn!("{}: nothing is kept in remote_cache: {why}", self.path().display());
    }

    fn lock(&self) -> MutexGuard<'_, OpenSpan> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error for a directory that cannot be used.
pub(super) fn refused(settings: &CacheDir, error: &io::Error) -> Error {
    let why = format!("{}: {}", settings.dir.display(), os_message(error));
    Error::new(Kind::Usage(why.into()), "remote_cache")
}

/// The number by which files name `version`; `None` if it has no strong `ETag`.
fn number(version: &Version) -> Option<u64> {
    let etag = version.strong_etag().filter(|etag| !etag.contains('\n'))?;
    Some(xxh3_64(format!("{etag}\n{}", version.size).as_bytes()))
}

#[cfg(test)]
#[path = "tests/disk.rs"]
mod tests;
