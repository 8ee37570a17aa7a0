//! Objects under one prefix: the files of a sparse frame, or the shards next to a file.
//!
//! They are not listed (see `listed` for those that are): each is opened when it is read, and pinned as its container is.
//! An object newer than the time at which the container was opened belongs to another version of it, and one that was
//! read before must be the same when it is opened again. They share connections.
//!
//! Limits: servers give times in seconds, so that replacing an object in the second in which the container was opened
//! goes unnoticed.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use super::address::Address;
use super::listing;
use super::object::Object;
use super::session::Session;
use super::version;
use crate::account::Account;
use crate::error::{Error, Kind, Result};
use crate::recent::Recent;
use crate::source::seen::Seen;
use crate::source::{RemoteOptions, Source, Version};

/// Objects that stay open: more are opened again when they are read.
const OPEN: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);
/// Part of the account's memory that the main object may take.
const SHARE: u64 = 4;
/// The same of another one.
const SHARE_OF_OTHERS: u64 = 64;

/// Objects under one prefix.
#[derive(Debug)]
pub struct Objects {
    address: Address,
    /// Whether the others are below the address, or next to it.
    below: bool,
    session: Arc<Session>,
    options: RemoteOptions,
    account: Account,
    opened: Mutex<OpenedBucket>,
}

#[derive(Debug)]
struct OpenedBucket {
    /// When the container was opened, by the clock of its server.
    since: Option<i64>,
    /// By their names.
    open: Recent<String, Arc<Source>>,
    /// Hashes of the versions that were seen, by hashes of names.
    versions: HashMap<u64, u64>,
}

impl Objects {
    /// Opens the object at `url`; also returns its siblings.
    ///
    /// # Errors
    /// As [`Source::open_remote`].
    pub fn beside(url: &str, options: &RemoteOptions, account: &Account) -> Result<(Arc<Source>, Arc<Self>)> {
        let (address, session) = (Address::parse(url)?, Arc::new(Session::default()));
        Self::at(&address, session, options, account, account.memory().total() / SHARE, true)
    }

    /// The objects below `url`, which is a prefix. Makes no request.
    ///
    /// # Errors
    /// [`Kind::Usage`] if it is not a URL.
    pub fn below(url: &str, options: &RemoteOptions, account: &Account) -> Result<Arc<Self>> {
        Ok(Arc::new(Self::new(Address::parse(url)?, true, Arc::default(), options, account)))
    }

    /// The object at `address`, with a session, memory and siblings; `is_long` if it may be longer than its head.
    pub(super) fn at(
        address: &Address,
        session: Arc<Session>,
        options: &RemoteOptions,
        account: &Account,
        most: u64,
        is_long: bool,
    ) -> Result<(Arc<Source>, Arc<Self>)> {
        let path = address.shown().to_path_buf();
        let object = Object::open(address.clone(), &session, options, account, most, is_long)?;
        let objects = Self::new(address.clone(), false, session, options, account);
        objects.lock().since = object.since();
        Ok((Source::of(path, object), Arc::new(objects)))
    }

    pub(super) fn new(
        address: Address,
        below: bool,
        session: Arc<Session>,
        options: &RemoteOptions,
        account: &Account,
    ) -> Self {
        let opened = OpenedBucket { since: None, open: Recent::new(OPEN), versions: HashMap::new() };
        let (options, account) = (options.clone(), account.clone());
        Self { address, below, session, options, account, opened: Mutex::new(opened) }
    }

    /// The URL of the prefix, or of the object that they are next to, for messages.
    pub fn path(&self) -> &Path {
        self.address.shown()
    }

    /// The object `name`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is none; [`Kind::Changed`] if it is newer than the container, or was replaced since
    /// it was read; otherwise as [`Source::open_remote`].
    pub fn source(&self, name: &str) -> Result<Arc<Source>> {
        if let Some(source) = self.opened(name) {
            return Ok(source);
        }
        let (path, object, is_first) = self.open(self.address.with(name, self.below)?)?;
        let mut opened = self.lock();
        opened.check(name, object.version())?;
        if is_first && opened.since.is_none() {
            opened.since = object.since();
        }
        let source = Source::of(path, object);
        Ok(opened.open.get_or_put(name.to_owned(), || source))
    }

    /// The object at `path` below the prefix, which was listed with the version `pinned`.
    ///
    /// # Errors
    /// [`Kind::Changed`] if it is another one, or none any more; otherwise as [`Source::open_remote`].
    pub(super) fn listed(&self, path: &str, pinned: Version) -> Result<Arc<Source>> {
        let changed = || Error::new(Kind::Changed, "object");
        let source = match self.opened(path) {
            Some(source) => source,
            None => match self.open(self.address.below(path)?) {
                Err(e) if matches!(e.kind(), Kind::NotFound) => return Err(changed()),
                opened => {
                    let (shown, object, _) = opened?;
                    self.lock().open.get_or_put(path.to_owned(), || Source::of(shown, object))
                }
            },
        };
        if Seen::of_far(&source).is_same_version(pinned) { Ok(source) } else { Err(changed()) }
    }

    /// The object `name`, if it is open.
    pub(super) fn opened(&self, name: &str) -> Option<Arc<Source>> {
        self.lock().open.get(name)
    }

    /// Passes the path and the version of each object below the prefix to `each`.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if the server has no lists; [`Kind::Io`] if it refuses; errors of `each`.
    pub(super) fn list(&self, mut each: impl FnMut(&str, Version) -> Result<()>) -> Result<()> {
        listing::all_below((&self.address, &self.session), self.options.timeout, &mut |path, object| {
            each(path, object.seen().version()).map(|()| true)
        })
    }

    /// Opens the object at `address`; also returns its path, and whether it is the first one below the prefix.
    fn open(&self, address: Address) -> Result<(PathBuf, Object, bool)> {
        let path = address.shown().to_path_buf();
        let is_first = self.below && self.lock().since.is_none();
        // Only the first object has a version that the user expects.
        let expect = self.options.expect.clone().filter(|_| is_first);
        let options = RemoteOptions { expect, ..self.options.clone() };
        let memory = self.account.memory().total();
        let most = if is_first { memory / SHARE } else { memory / SHARE_OF_OTHERS };
        let object =
            Object::open(address, &self.session, &options, &self.account, most, false).map_err(|e| match e.kind() {
                Kind::Io(io) if io.kind() == std::io::ErrorKind::NotFound => Error::new(Kind::NotFound, "file"),
                _ => e,
            })?;
        Ok((path, object, is_first))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OpenedBucket> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenedBucket {
    /// Fails if the object `name` of version `version` is newer than the container, or another one than before.
    fn check(&mut self, name: &str, version: &version::Version) -> Result<()> {
        let is_newer = self.since.is_some_and(|since| version.mtime().0 > since);
        let hash = xxh3_64(format!("{version:?}").as_bytes());
        let seen = self.versions.entry(xxh3_64(name.as_bytes())).or_insert(hash);
        if is_newer || *seen != hash { Err(Error::new(Kind::Changed, "object")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_others_keep_what_belongs_to_the_server() {
        let at = |url: &str, below| Address::parse(url).unwrap().with("a b#?", below).unwrap().shown().to_path_buf();
        assert_eq!(at("http://me:pass@h/dir/x.zt?token=1", false), Path::new("http://h/dir/a b#?"));
        assert_eq!(at("http://h/dir/", true), Path::new("http://h/dir/a b#?"));
        assert_eq!(at("s3://bucket/dir", true), Path::new("s3://bucket/dir/a b#?"));
        assert_eq!(at("s3://bucket/x", false), Path::new("s3://bucket/a b#?"));
        for name in ["", ".", "..", "a/b"] {
            assert!(Address::parse("http://h/x").unwrap().with(name, true).is_err());
        }
    }

    #[test]
    fn an_object_that_is_newer_than_the_container_or_was_replaced_is_changed() {
        let dated = |etag: &str, modified: &str| version::Version {
            etag: Some(etag.to_owned()),
            modified: Some(modified.to_owned()),
            size: 1,
        };
        let mut opened = OpenedBucket { since: Some(784_111_777), open: Recent::new(OPEN), versions: HashMap::new() };
        let then = dated("a", "Sun, 06 Nov 1994 08:49:37 GMT");
        opened.check("x", &then).unwrap();
        opened.check("x", &then).unwrap();
        assert!(opened.check("x", &dated("b", "Sun, 06 Nov 1994 08:49:37 GMT")).is_err());
        assert!(opened.check("y", &dated("a", "Sun, 06 Nov 1994 08:49:38 GMT")).is_err());
    }
}
