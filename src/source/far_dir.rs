//! A directory on a server, with the part of its list that was read so far.
//!
//! Limits: the names, and about 100 bytes for each, charged to the account.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pages::Pages;
use super::seen::Seen;
use super::{Prefix, Source};
use crate::account::{Account, Names};
use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::limits::Charge;
use crate::platform::FileType;
use crate::platform::os_error;

/// A directory below a prefix.
#[derive(Debug)]
pub struct FarDir {
    prefix: Arc<Prefix>,
    /// Below the prefix; empty for the prefix itself.
    dir: String,
    listed: Mutex<ListedPages>,
}

/// Passes the entries of the page that begins at a token, or of the first one, to a function; returns where the next
/// page begins.
type ReadPage<'a> = dyn FnMut(Option<&str>, &mut dyn FnMut(&str, Seen) -> Result<()>) -> Result<Option<String>> + 'a;

/// The pages of the list that were read.
#[derive(Debug)]
struct ListedPages {
    names: Names,
    /// By the numbers of the names.
    entries: Vec<Seen>,
    charges: Vec<Charge>,
    pages: Pages,
}

impl FarDir {
    /// The directory `dir` below `prefix`. Makes no request.
    pub(super) fn new(prefix: &Arc<Prefix>, dir: String) -> Self {
        Self { prefix: prefix.clone(), dir, listed: Mutex::new(ListedPages::new(prefix.account())) }
    }

    /// The path of `name` in it.
    pub(super) fn path(&self, name: &str) -> String {
        if self.dir.is_empty() { name.to_owned() } else { format!("{}/{name}", self.dir) }
    }

    /// The directory `name` in it. Makes no request.
    pub(super) fn below(&self, name: &str) -> Self {
        Self::new(&self.prefix, self.path(name))
    }

    /// State of `name`: from the list, as far as it was read, or from the server.
    ///
    /// # Errors
    /// As [`Prefix::stat`].
    pub(super) fn stat(&self, name: &str) -> Result<Seen> {
        let listed = self.lock();
        if let Some(seen) = listed.names.find(name.as_bytes()).and_then(|number| listed.entries.get(number)) {
            return Ok(seen.clone());
        }
        if listed.pages.is_end() {
            return Err(Error::io(os_error(libc::ENOENT), "object"));
        }
        drop(listed);
        self.prefix.stat(&self.path(name))
    }

    /// As [`super::Below::stat_of_all`].
    ///
    /// # Errors
    /// As [`Prefix::stat`].
    pub(super) fn stat_of_all(&self, name: &str) -> Result<Seen> {
        Ok(self.stat(name)?.with_all(self.prefix.versions_below(&self.dir)?))
    }

    /// Opens the object `name`, which must be the one that was found there last.
    ///
    /// # Errors
    /// As [`Prefix::stat`] and [`Prefix::source`].
    pub(super) fn source(&self, name: &str) -> Result<Arc<Source>> {
        let path = self.path(name);
        Ok(self.prefix.source(&path, &self.prefix.stat(&path)?)?.0)
    }

    /// Passes the entries from number `at` on to `each`: all known ones, or else the next page. Returns the number of
    /// the next one, if there may be more.
    ///
    /// # Errors
    /// As [`Prefix::page`].
    pub(super) fn names_from(&self, at: usize, each: &mut dyn FnMut(&[u8], FileType)) -> Result<Option<usize>> {
        let mut listed = self.lock();
        listed.reach(at, &mut |from, each| self.prefix.page(&self.dir, from, each))?;
        let entries = listed.entries.iter().enumerate().skip(at);
        let name = |number| listed.names.bytes(number).unwrap_or_default().to_vec();
        let found: Vec<(Vec<u8>, FileType)> = entries.map(|(number, seen)| (name(number), seen.kind)).collect();
        let next = (!listed.pages.is_end()).then_some(listed.entries.len());
        // Unlocked first: `each` may ask for the state of a name.
        drop(listed);
        for (name, kind) in &found {
            each(name, *kind);
        }
        Ok(next)
    }

    fn lock(&self) -> MutexGuard<'_, ListedPages> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ListedPages {
    fn new(account: &Account) -> Self {
        Self { names: Names::new(account), entries: Vec::new(), charges: Vec::new(), pages: Pages::default() }
    }

    /// Reads pages until entry `at` is there, if there are so many.
    fn reach(&mut self, at: usize, page: &mut ReadPage<'_>) -> Result<()> {
        while self.entries.len() <= at && !self.pages.is_end() {
            self.more(page)?;
        }
        Ok(())
    }

    /// Reads the next page.
    fn more(&mut self, page: &mut ReadPage<'_>) -> Result<()> {
        let before = self.entries.len();
        let next = page(self.pages.from(), &mut |name, seen| {
            // Objects come before the directories of their names.
            if self.names.insert(name)? {
                self.entries.push(seen);
            }
            Ok(())
        })?;
        let found = self.entries.len() - before;
        self.pages.read(found, next)?;
        let bytes = to_u64(found * size_of::<Seen>());
        self.charges.push(self.names.account().charge_list(bytes, "directory")?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_far_as_it_is_asked_for_and_charged() {
        const PAGE: usize = 1000;
        let (account, alone) = (Account::new(16 << 20, 0), Account::new(16 << 20, 0));
        let (mut listed, mut asked) = (ListedPages::new(&account), Vec::new());
        let name = |number: usize| format!("{number:05}");
        let mut reach = |at| {
            let page = &mut |from: Option<&str>, each: &mut dyn FnMut(&str, Seen) -> Result<()>| {
                let first = from.map_or(0_usize, |token| token.parse().unwrap());
                asked.push(first);
                // Each begins with a name that the page before it had.
                (first.saturating_sub(1)..first + PAGE).try_for_each(|number| each(&name(number), Seen::far_dir()))?;
                Ok((first < 2 * PAGE).then(|| (first + PAGE).to_string()))
            };
            listed.reach(at, page).unwrap();
            (listed.entries.len(), asked.clone())
        };
        assert_eq!(reach(0), (PAGE, vec![0]));
        assert_eq!(reach(PAGE - 1), (PAGE, vec![0]));
        assert_eq!(reach(PAGE), (2 * PAGE, vec![0, PAGE]));
        for _ in 0..2 {
            assert_eq!(reach(10 * PAGE), (3 * PAGE, vec![0, PAGE, 2 * PAGE]));
        }
        let mut names = Names::new(&alone);
        (0..3 * PAGE).for_each(|number| assert!(names.insert(name(number)).unwrap()));
        let entries = to_u64(3 * PAGE * size_of::<Seen>());
        assert_eq!(account.memory().used(), alone.memory().used() + entries);
    }
}
