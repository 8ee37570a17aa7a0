//! A prefix of S3 as a directory: its content is found by list requests, a page at a time.
//!
//! A key `a/b` is a file `b` in a directory `a`. If there are keys `a` and `a/b`, `a` is the file. Results are kept for
//! a second, as a command or the kernel asks several times for the same name.
//!
//! Limits: [`LATELY`] names are kept.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::address::Address;
use super::disk;
use super::listing::{self, Depth, PAGE, Page, Query};
use super::object::HEAD;
use super::objects::Objects;
use super::session::Session;
use crate::account::Account;
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::platform::os_error;
use crate::recent::Recent;
use crate::source::seen::{Seen, Versions};
use crate::source::{RemoteOptions, Source};

/// Part of the account's memory that one object may take.
const SHARE: u64 = 32;
/// Entries by which a name is found: itself, and the directory of that name.
const FEW: u32 = 2;
/// Number of names whose state is kept, and for how long.
const LATELY: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);
const SOON: Duration = Duration::from_secs(1);

/// A prefix of S3.
#[derive(Debug)]
pub struct Prefix {
    address: Address,
    /// Of the list requests; the objects share its connections.
    session: Arc<Session>,
    options: RemoteOptions,
    account: Account,
    lately: Recent<String, (Instant, Option<Seen>)>,
    /// The same of all objects below a directory.
    versions: Recent<String, (Instant, Versions)>,
    clock: Clock,
}

impl Prefix {
    /// Opens the prefix at `url`.
    ///
    /// # Errors
    /// [`Kind::Usage`] if it is not a URL, or if options are for single objects; [`Kind::Unsupported`] if its server has
    /// no lists; [`Kind::NotFound`] if there is nothing below it; [`Kind::Io`] if the server refuses.
    pub fn open(url: &str, options: &RemoteOptions, account: &Account) -> Result<Arc<Self>> {
        if options.expect.is_some() {
            let why = "expect= is for a single object, not for all below a prefix";
            return Err(Error::new(Kind::Usage(why.into()), "expect"));
        }
        if let Some(cache) = &options.cache {
            cache.hold().map_err(|e| disk::refused(cache, &e))?;
        }
        let (options, account) = (options.clone(), account.clone());
        let (session, lately, versions) = (Arc::default(), Recent::new(LATELY), Recent::new(LATELY));
        let (address, clock) = (Address::prefix(url)?, Clock::default());
        let prefix = Self { address, session, options, account, lately, versions, clock };
        let base = prefix.address.base();
        let page = prefix.list(&base, &base, None, FEW)?;
        if page.entries.is_empty() && page.next.is_none() && !base.is_empty() {
            let why = "no object has a key with this prefix";
            return Err(Error::io(std::io::Error::new(std::io::ErrorKind::NotFound, why), "prefix"));
        }
        Ok(Arc::new(prefix))
    }

    /// The URL, for messages.
    pub fn path(&self) -> &Path {
        self.address.shown()
    }

    /// The account that its cached names are charged to.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Passes the entries of a page of the directory `dir`, which is relative, to `each`: name and state. Returns the
    /// start of the next page.
    ///
    /// # Errors
    /// As [`Prefix::open`]; errors of `each`.
    pub fn page(
        &self,
        dir: &str,
        from: Option<&str>,
        mut each: impl FnMut(&str, Seen) -> Result<()>,
    ) -> Result<Option<String>> {
        let base = self.key(dir, "");
        let page = self.list(&base, &base, from, PAGE)?;
        for (name, object) in &page.entries {
            each(name, seen(object.as_ref()))?;
        }
        Ok(page.next)
    }

    /// State of the entry at `path`, which is relative.
    ///
    /// # Errors
    /// `ENOENT` if there is nothing; as [`Prefix::open`].
    pub fn stat(&self, path: &str) -> Result<Seen> {
        let missing = || Error::io(os_error(libc::ENOENT), "object");
        if let Some((since, found)) = self.lately.get(path)
            && self.is_recent(since)
        {
            return found.ok_or_else(missing);
        }
        let found = self.find(path)?;
        self.lately.put(path.to_owned(), (self.clock.now(), found.clone()));
        found.ok_or_else(missing)
    }

    /// The versions of the objects below the directory `path`, which is relative.
    ///
    /// # Errors
    /// As [`Prefix::open`].
    pub(in crate::source) fn versions_below(&self, path: &str) -> Result<Versions> {
        if let Some((since, versions)) = self.versions.get(path)
            && self.is_recent(since)
        {
            return Ok(versions);
        }
        let (address, mut versions) = (self.address(path)?, Versions::default());
        listing::all_below((&address, &self.session), self.options.timeout, &mut |name, object| {
            versions.add(name.as_bytes(), || Ok(object.seen().version()))
        })?;
        self.versions.put(path.to_owned(), (self.clock.now(), versions));
        Ok(versions)
    }

    fn is_recent(&self, since: Instant) -> bool {
        self.clock.now().saturating_duration_since(since) < SOON
    }

    fn find(&self, path: &str) -> Result<Option<Seen>> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let base = self.key(dir, "");
        let Page { entries, next } = self.list(&base, &format!("{base}{name}"), None, FEW)?;
        let all = || entries.iter().filter(|(found, _)| found == name).map(|(_, object)| object.as_ref());
        if let Some(object) = all().flatten().next() {
            return Ok(Some(seen(Some(object))));
        }
        if all().next().is_some() {
            return Ok(Some(Seen::far_dir()));
        }
        if next.is_none() {
            return Ok(None);
        }
        // Other names with the same beginning come first.
        let base = self.key(path, "");
        let Page { entries, next } = self.list(&base, &base, None, 1)?;
        Ok((!entries.is_empty() || next.is_some()).then(Seen::far_dir))
    }

    /// Drops the cached state of `path`.
    pub fn forget(&self, path: &str) {
        self.lately.remove(path);
        self.versions.remove(path);
    }

    /// The object at `path`, and its siblings; it must be the one that was `seen`.
    ///
    /// # Errors
    /// [`Kind::Changed`] if it is another version; as [`Source::open_remote`].
    pub fn source(&self, path: &str, seen: &Seen) -> Result<(Arc<Source>, Arc<Objects>)> {
        let most = self.account.memory().total() / SHARE;
        let session = Arc::new(Session::sharing(&self.session));
        let is_long = seen.size > HEAD;
        let opened = Objects::at(&self.address(path)?, session, &self.options, &self.account, most, is_long);
        let (source, objects) = opened.inspect_err(|_| self.forget(path))?;
        if !Seen::of_far(&source).is_same(seen) {
            self.forget(path);
            return Err(Error::new(Kind::Changed, "object"));
        }
        Ok((source, objects))
    }

    /// The objects in the directory `path`; an empty path is the prefix itself.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if no object can have such a key.
    pub fn objects(&self, path: &str) -> Result<Arc<Objects>> {
        let session = Arc::new(Session::sharing(&self.session));
        Ok(Arc::new(Objects::new(self.address(path)?, true, session, &self.options, &self.account)))
    }

    fn address(&self, path: &str) -> Result<Address> {
        if path.is_empty() { Ok(self.address.clone()) } else { self.address.below(path) }
    }

    /// The key of `name` in `dir`.
    fn key(&self, dir: &str, name: &str) -> String {
        let slash = if dir.is_empty() { "" } else { "/" };
        format!("{}{dir}{slash}{name}", self.address.base())
    }

    fn list(&self, base: &str, prefix: &str, from: Option<&str>, most: u32) -> Result<Page> {
        let asked = Query { base, prefix, depth: Depth::One, most };
        listing::page((&self.address, &self.session), self.options.timeout, asked, from)
    }
}

fn seen(object: Option<&listing::ObjectEntry>) -> Seen {
    object.map_or_else(Seen::far_dir, listing::ObjectEntry::seen)
}

#[cfg(test)]
#[path = "tests/prefix.rs"]
mod tests;
