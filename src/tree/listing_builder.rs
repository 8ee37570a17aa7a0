//! Converts the entries of a format to the children of a directory: makes names safe and unique, creates directories
//! from names with `/`, and adds a `.npy` beside each typed `.raw`, and more beside a principal one (`companions`).
//!
//! Consecutive entries with one stem (`x.raw`, `x.npy`, `x.json`) belong together: if one of their names is taken, all
//! get the same suffix `~2`.
//!
//! | entry | children |
//! |---|---|
//! | `x.raw`, typed | `x.raw`, `x.npy` |
//! | `x.json`, right after it | `x.json` |
//! | `a/b.raw`, typed | the directory `a`, with `b.raw` and `b.npy` |
//! | `x.raw` again | `x~2.raw`, `x~2.npy` |
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use crate::account::{Account, HashIndex};
use crate::error::{Error, Result};
use crate::format::{Array, Directory, Entry, Node};
use crate::view;

use super::child::{Chain, Child, NONE, What};
use super::companions;
use super::dir::{DirSource, Group, TreeDir};
use super::listing::{Listing, Object};
use super::names::safe;
use super::root::InnerRoot;

/// Maximum depth of directories made from names with `/`; deeper names keep their slashes as `%2F`. A path of more
/// than 4096 bytes cannot be opened anyway, and many programs walk a tree recursively.
const DEPTH: u32 = 256;
/// The chain of a group of entries without item numbers.
const NO_ITEMS: Chain = Chain { first: u32::MAX, last: u32::MAX };

/// Whether `entry` gets a `.npy`: it is raw, typed, and not known to be shorter than its array.
fn is_typed(entry: &Entry) -> bool {
    let (elements, len) = match &entry.node {
        Node::File(file) => (file.array.as_ref().and_then(Array::byte_len), view::known_len(&file.content)),
        Node::LazyFile(file) => (file.array, file.len),
        _ => return false,
    };
    entry.suffix == ".raw" && elements.is_some_and(|elements| len.is_none_or(|len| elements <= len))
}

/// The name of the tree for `stem`, which may be one already.
fn name_of(stem: &[u8], is_safe: bool) -> String {
    match std::str::from_utf8(stem) {
        Ok(name) if is_safe => name.to_owned(),
        _ => safe(stem).into_owned(),
    }
}

/// The name of `base` with `suffix`, which most files of an archive do not have.
fn with_suffix<'a>(base: &'a str, suffix: &str) -> Cow<'a, str> {
    if suffix.is_empty() { Cow::Borrowed(base) } else { Cow::Owned([base, suffix].concat()) }
}

/// A listing under construction.
pub(super) struct ListingBuilder<'a> {
    listing: Listing,
    /// Entries that share a stem, to be added together.
    together: Vec<Entry>,
    /// The directories made from names with `/` that had to be renamed, by the first component of those names.
    renamed: HashIndex,
    /// Keys of the hashes that identify first components.
    keys: [RandomState; 2],
    /// By child: the entries of such a directory that have no item numbers, without the first components of their
    /// names.
    entries: HashMap<u64, Vec<Entry>>,
    stem: &'a [u8],
    account: Account,
}

impl<'a> ListingBuilder<'a> {
    /// Starts the listing of a directory `depth` levels below the root; `format` creates its files. `stem` is the
    /// container's file name without its extension. The names of items lack their first `skip` bytes.
    pub(super) fn new(
        account: &Account,
        stem: &'a [u8],
        depth: u32,
        skip: usize,
        format: Option<Arc<dyn Directory>>,
    ) -> Self {
        Self {
            listing: Listing::new(account, depth, skip, format),
            together: Vec::new(),
            renamed: HashIndex::new(account),
            keys: Default::default(),
            entries: HashMap::new(),
            stem,
            account: account.clone(),
        }
    }

    /// Adds the next entry.
    ///
    /// # Errors
    /// [`Kind::TooLarge`](crate::error::Kind) beyond 4 billion names; `NoRoom` if the account is exhausted.
    pub(super) fn push(&mut self, entry: Entry) -> Result<()> {
        let goes_along = |e: &Entry| e.stem == entry.stem && e.nested == entry.nested;
        let is_new = || self.together.iter().all(|e| e.suffix != entry.suffix);
        if !(self.together.last().is_some_and(goes_along) && is_new()) {
            self.add_together()?;
        }
        self.together.push(entry);
        Ok(())
    }

    /// Adds the entries that were pushed last.
    fn add_together(&mut self) -> Result<()> {
        let mut together = mem::take(&mut self.together);
        self.add(&mut together)?;
        // Its memory is for the next ones: there may be millions.
        together.clear();
        self.together = together;
        Ok(())
    }

    /// Adds entries that share a stem. What it leaves in the vector is not shown.
    fn add(&mut self, entries: &mut Vec<Entry>) -> Result<()> {
        let Some(first) = entries.first() else { return Ok(()) };
        if first.nested && self.listing.depth < DEPTH {
            let slash = first.stem.iter().position(|&b| b == b'/');
            if let Some((head, rest)) = slash.and_then(|at| first.stem.split_at_checked(at)) {
                let (head, rest) = (head.to_vec(), rest.get(1..).unwrap_or_default().to_vec());
                return self.add_below(&head, &rest, entries);
            }
        }
        let link = matches!(first.node, Node::Link(_) | Node::StemLink(_));
        let stem = if let Node::StemLink(_) = first.node { self.stem } else { &first.stem };
        if link && stem.is_empty() {
            return Ok(());
        }
        let base = name_of(stem, first.is_safe);

        let explicit = entries.iter().any(|entry| entry.suffix == ".npy");
        let has_npy = |entry: &Entry| !explicit && is_typed(entry);
        let mut suffixes: Vec<&'static str> = entries.iter().map(|entry| entry.suffix).collect();
        let mut array = None;
        for entry in entries.iter().filter(|entry| has_npy(entry)) {
            suffixes.push(".npy");
            if let Node::File(file) = &entry.node {
                suffixes.extend(companions::headers(file, "").iter().map(|(suffix, _)| suffix));
                array = Some(file.clone());
            }
        }
        if link && self.taken(&base, &suffixes).is_some() {
            return Ok(());
        }
        let base = self.distinct(base, &suffixes)?;
        for entry in entries.drain(..) {
            let (number, has_npy) = (u32::try_from(self.listing.len()), has_npy(&entry));
            let stored = self.child(&with_suffix(&base, entry.suffix), entry.node)?;
            if let (true, Ok(raw)) = (has_npy, number) {
                self.listing.push(&format!("{base}.npy"), What::Npy(raw, stored))?;
            }
        }
        let Some(array) = array else { return Ok(()) };
        for (suffix, header) in companions::headers(&array, &base) {
            self.child(&format!("{base}{suffix}"), Node::from(header))?;
        }
        companions::picture(&array, &self.account).map_or(Ok(()), |picture| self.add(&mut vec![picture]))
    }

    /// Adds entries to the directory of the path component `head`.
    fn add_below(&mut self, head: &[u8], rest: &[u8], entries: &mut Vec<Entry>) -> Result<()> {
        let base = name_of(head, entries.first().is_some_and(|entry| entry.is_safe));
        let key = [0, 1].map(|i: usize| self.keys.get(i).map_or(0, |key| key.hash_one(head)));
        let hash = self.renamed.hash(head);
        let listing = &self.listing;
        let is_its = |child: Child| matches!(child.what, What::Group(_, other) if other == key);
        let named = listing.find(base.as_bytes()).filter(|&index| listing.get(index).is_some_and(is_its));
        let renamed = || self.renamed.find(hash, |index| listing.get(index.into()).is_some_and(is_its));
        let index = match named.map_or_else(|| renamed().map(u64::from), Some) {
            Some(index) => index,
            None => self.group(&base, entries, hash, key)?,
        };
        entries.drain(..).try_for_each(|entry| self.add_to(index, entry, rest))
    }

    /// Adds a directory called `base` for a path component with the hash `hash`; returns its index.
    fn group(&mut self, base: &str, entries: &[Entry], hash: u32, key: [u64; 2]) -> Result<u64> {
        let name = self.distinct(base.to_owned(), &[""])?;
        let chain = match entries.first().and_then(|entry| entry.item) {
            Some(item) => self.listing.chain(item)?,
            None => NO_ITEMS,
        };
        let index = self.listing.len();
        self.listing.push(&name, What::Group(chain, key))?;
        if name != base {
            // The listing has no more than 2^32 names.
            self.renamed.insert(hash, index as u32)?;
        }
        Ok(index)
    }

    /// Adds an entry to the directory `index`; `rest` is the rest of its name.
    fn add_to(&mut self, index: u64, entry: Entry, rest: &[u8]) -> Result<()> {
        let child = self.listing.get(index);
        let Some(child @ Child { what: What::Group(chain, key), .. }) = child else { return Ok(()) };
        match entry.item {
            Some(item) if chain != NO_ITEMS => {
                let longer = self.listing.extend(chain, item)?;
                if longer != chain {
                    self.listing.set(index, Child { what: What::Group(longer, key), ..child })?;
                }
            }
            None if chain == NO_ITEMS => {
                let entries = self.entries.entry(index).or_default();
                entries.push(Entry { stem: Cow::Owned(rest.to_vec()), ..entry });
            }
            _ => return Err(Error::corrupt("only some of its entries have item numbers", "directory")),
        }
        Ok(())
    }

    /// The first child with the name `base` and one of `suffixes`.
    fn taken(&self, base: &str, suffixes: &[&'static str]) -> Option<u64> {
        suffixes.iter().find_map(|suffix| self.listing.find(with_suffix(base, suffix).as_bytes()))
    }

    /// `base`, or `base~2`, `base~3`, ...: the first name that is free with each of `suffixes`.
    fn distinct(&mut self, base: String, suffixes: &[&'static str]) -> Result<String> {
        let Some(taken) = self.taken(&base, suffixes) else { return Ok(base) };
        let Some(mut child) = self.listing.get(taken) else { return Ok(base) };
        loop {
            let name = format!("{base}~{}", child.next);
            child.next += 1;
            if self.taken(&name, suffixes).is_none() {
                self.listing.set(taken, child)?;
                return Ok(name);
            }
        }
    }

    /// Adds a child with a name that is free; returns the bytes that it occupies in the container.
    fn child(&mut self, name: &str, node: Node) -> Result<u64> {
        let depth = self.listing.depth + 1;
        let dir = |source| Object::Dir(Arc::new(TreeDir::new(source, depth)));
        let mut stored = 0;
        let object = match node {
            Node::LazyFile(file) => {
                self.listing.push(name, What::Lazy(file.number, file.len.unwrap_or(NONE), file.stored))?;
                return Ok(file.stored);
            }
            Node::LazyDir(number) => return self.listing.push(name, What::LazyDir(number)).map(|()| 0),
            Node::LazyLink(number) => return self.listing.push(name, What::LazyLink(number)).map(|()| 0),
            Node::File(file) => {
                stored = file.stored;
                Object::File(file, AtomicU64::new(NONE))
            }
            Node::Link(to) => Object::Link(to.into()),
            Node::StemLink(to) => Object::Link(to.into()),
            Node::Dir(entries) => dir(DirSource::Entries(entries)),
            Node::IndexedDir(files) => dir(DirSource::IndexedDir(files)),
            Node::Container(inner) => dir(DirSource::Entries(Arc::new(InnerRoot::new(inner, &self.account)))),
        };
        let what = self.listing.object(object);
        self.listing.push(name, what)?;
        Ok(stored)
    }

    /// Adds the last entries, and moves those without item numbers into the directories made from names.
    ///
    /// # Errors
    /// As [`ListingBuilder::push`].
    pub(super) fn finish(mut self) -> Result<Listing> {
        self.add_together()?;
        let mut listing = self.listing;
        for (index, mut entries) in self.entries {
            entries.shrink_to_fit();
            let source = DirSource::Group(Group { entries: Mutex::new(entries), format: listing.format.clone() });
            let what = listing.object(Object::Dir(Arc::new(TreeDir::new(source, listing.depth + 1))));
            if let Some(child) = listing.get(index) {
                listing.set(index, Child { what, ..child })?;
            }
        }
        listing.finish()?;
        Ok(listing)
    }
}
