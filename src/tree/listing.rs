//! Converts the entries of a format to the children of a directory: makes names safe and unique, creates directories
//! from names with `/`, and adds a `.npy` beside each typed `.raw`.
//!
//! Consecutive entries with one stem (`x.raw`, `x.npy`, `x.json`) belong together: if one of their names is taken, all
//! get the same suffix `~2`.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::format::{Array, Content, Directory, Entry, File, Node, npy};
use crate::view;

use super::attr;
use super::dir::{Dir, DirSource, Group, Items};
use super::name_table::Names;
use super::names::safe;

/// Maximum depth of directories made from names with `/`; deeper names keep their slashes as `%2F`. A path of more
/// than 4096 bytes cannot be opened anyway, and many programs walk a tree recursively.
const DEPTH: u32 = 256;

/// Marks an unknown size.
const UNKNOWN: u64 = u64::MAX;

/// The children of a directory, by index and by name.
#[derive(Default)]
pub(super) struct Listing {
    names: Names,
    children: Vec<Child>,
    pub(super) subdirs: u32,
    links: u32,
    /// Creates the files of [`ChildKind::Lazy`].
    files: Option<Arc<dyn Directory>>,
}

/// One entry of a directory.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) what: ChildKind,
    /// Size of a file, if known.
    size: AtomicU64,
    /// Bytes that a file occupies in the container.
    stored: u64,
}

/// The kind of an entry, with its content.
pub(super) enum ChildKind {
    /// A file of the format.
    File(Box<File>),
    /// A file that the directory creates on access, by its number there.
    Lazy(u64),
    /// The `.npy` of the `.raw` file with this index.
    Npy(u32),
    /// A symbolic link.
    Link(Box<str>),
    /// A directory.
    Dir(Arc<Dir>),
}

impl Child {
    fn new(what: ChildKind, size: Option<u64>, stored: u64) -> Self {
        Self { what, size: AtomicU64::new(size.unwrap_or(UNKNOWN)), stored }
    }

    /// The size of a file, if known.
    pub(super) fn size(&self) -> Option<u64> {
        Some(self.size.load(Ordering::Relaxed)).filter(|&size| size != UNKNOWN)
    }

    /// Keeps the size.
    pub(super) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }
}

impl Listing {
    pub(super) fn len(&self) -> u64 {
        to_u64(self.children.len())
    }

    /// About how many bytes of memory it takes.
    pub(super) fn weight(&self) -> u64 {
        let each = |child: &Child| match &child.what {
            ChildKind::File(_) => 300,
            ChildKind::Dir(dir) => dir.weight() + to_u64(size_of::<Child>()),
            ChildKind::Link(_) => 100,
            ChildKind::Lazy(_) | ChildKind::Npy(_) => to_u64(size_of::<Child>()),
        };
        self.children.iter().fold(400 + self.names.weight(), |sum, child| sum + each(child))
    }

    /// Whether all children are files.
    pub(super) fn has_only_files(&self) -> bool {
        self.subdirs == 0 && self.links == 0
    }

    pub(super) fn get(&self, index: u64) -> Option<&Child> {
        self.children.get(usize::try_from(index).ok()?)
    }

    pub(super) fn name(&self, index: u64) -> Option<&str> {
        self.names.get(usize::try_from(index).ok()?)
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<u64> {
        self.names.find(name).map(to_u64)
    }

    /// The type of child `index`.
    pub(super) fn kind(&self, index: u64) -> attr::Kind {
        match self.get(index).map(|child| &child.what) {
            Some(ChildKind::Dir(_)) => attr::Kind::Dir,
            Some(ChildKind::Link(_)) => attr::Kind::Link,
            _ => attr::Kind::File,
        }
    }

    /// The target of child `index`, if it is a link.
    pub(super) fn link(&self, index: u64) -> Option<&str> {
        match &self.get(index)?.what {
            ChildKind::Link(to) => Some(to),
            _ => None,
        }
    }

    /// The file of child `index`; for a `.npy`, including its header. `None` if it is not a file.
    ///
    /// # Errors
    /// As [`Directory::file`].
    pub(super) fn file(&self, index: u64) -> Result<Option<File>> {
        match self.get(index).map(|child| &child.what) {
            Some(ChildKind::File(file)) => Ok(Some(File::clone(file))),
            Some(ChildKind::Lazy(number)) => {
                let files = self.files.as_ref().ok_or_else(|| Error::new(Kind::NotFound, "file"))?;
                files.file(*number).map(Some)
            }
            Some(ChildKind::Npy(raw)) => Ok(self.file(u64::from(*raw))?.as_ref().and_then(npy_of)),
            Some(ChildKind::Link(_) | ChildKind::Dir(_)) | None => Ok(None),
        }
    }

    /// The size of file `index` and the bytes that it occupies in the container, only from memory.
    pub(super) fn kept_size(&self, index: u64) -> Option<(u64, u64)> {
        let child = self.get(index)?;
        Some((child.size()?, child.stored))
    }

    /// The size of file `index`, if known without decoding, and the bytes that it occupies in the container. `None` if
    /// it is not a file.
    ///
    /// # Errors
    /// As [`Listing::file`].
    pub(super) fn known_size(&self, index: u64) -> Result<Option<(Option<u64>, u64)>> {
        let Some(child) = self.get(index) else { return Ok(None) };
        let size = match (&child.what, child.size()) {
            (ChildKind::Link(_) | ChildKind::Dir(_), _) => return Ok(None),
            (_, Some(size)) => return Ok(Some((Some(size), child.stored))),
            (ChildKind::File(file), None) => view::known_len(&file.content),
            (ChildKind::Lazy(_), None) => self.file(index)?.and_then(|file| view::known_len(&file.content)),
            (ChildKind::Npy(raw), None) => {
                self.file(u64::from(*raw))?.and_then(|file| file.array.as_ref().and_then(npy::file_len))
            }
        };
        if let Some(size) = size {
            child.set_size(size);
        }
        Ok(Some((size, child.stored)))
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.children).finish()
    }
}

/// The `.npy` of a typed file: header, then elements.
fn npy_of(file: &File) -> Option<File> {
    let array = file.array.as_ref()?;
    let elements = file.content.clone().slice(0..array.byte_len()?);
    let content = Content::Join(Arc::from([Content::bytes(npy::header(array)), elements]));
    Some(File { content, ..file.clone() })
}

/// Whether `entry` gets a `.npy`: it is raw, typed, and not known to be shorter than its array.
fn is_typed(entry: &Entry) -> bool {
    let (elements, len) = match &entry.node {
        Node::File(file) => (file.array.as_ref().and_then(Array::byte_len), view::known_len(&file.content)),
        Node::LazyFile(file) => (file.array, file.len),
        _ => return false,
    };
    entry.suffix == ".raw" && elements.is_some_and(|elements| len.is_none_or(|len| elements <= len))
}

/// A listing under construction.
pub(super) struct ListingBuilder<'a> {
    listing: Listing,
    /// Entries that share a stem, to be added together.
    together: Vec<Entry>,
    /// By first path component: the directories created from names with `/`.
    groups: HashMap<Vec<u8>, Members>,
    /// By name and first suffix: the next number to try after a collision.
    counters: HashMap<(String, &'static str), u64>,
    stem: &'a [u8],
    depth: u32,
    /// Bytes removed from the start of the names of items.
    skip: usize,
}

/// The entries of a directory created from names with `/`.
#[derive(Default)]
struct Members {
    /// Its index in the listing.
    index: usize,
    /// The numbers of entries that can be made again.
    items: Vec<u32>,
    /// The other entries, without the first component of their names.
    entries: Vec<Entry>,
}

impl Members {
    fn add(&mut self, entries: Vec<Entry>, rest: &[u8]) {
        for entry in entries {
            match entry.item {
                Some(item) if self.items.last() == Some(&item) => {}
                Some(item) => self.items.push(item),
                None => self.entries.push(Entry { stem: Cow::Owned(rest.to_vec()), ..entry }),
            }
        }
    }
}

impl<'a> ListingBuilder<'a> {
    /// Starts the listing of a directory `depth` levels below the root, whose files `files` creates; `stem` is the
    /// container's file name without its extension. The names of items lack their first `skip` bytes.
    pub(super) fn new(stem: &'a [u8], depth: u32, skip: usize, files: Option<Arc<dyn Directory>>) -> Self {
        let listing = Listing { files, ..Listing::default() };
        Self { listing, together: Vec::new(), groups: HashMap::new(), counters: HashMap::new(), stem, depth, skip }
    }

    /// Adds the next entry.
    ///
    /// # Errors
    /// [`Kind::TooLarge`] beyond 4 GiB of names.
    pub(super) fn push(&mut self, entry: Entry) -> Result<()> {
        let goes_along = |e: &Entry| e.stem == entry.stem && e.nested == entry.nested;
        let is_new = self.together.iter().all(|e| e.suffix != entry.suffix);
        if !(is_new && self.together.last().is_some_and(goes_along)) {
            let together = mem::take(&mut self.together);
            self.add(together)?;
        }
        self.together.push(entry);
        Ok(())
    }

    /// Adds entries that share a stem.
    fn add(&mut self, entries: Vec<Entry>) -> Result<()> {
        let Some(first) = entries.first() else { return Ok(()) };
        if first.nested && self.depth < DEPTH {
            let slash = first.stem.iter().position(|&b| b == b'/');
            if let Some((head, rest)) = slash.and_then(|at| first.stem.split_at_checked(at)) {
                let (head, rest) = (head.to_vec(), rest.get(1..).unwrap_or_default().to_vec());
                return self.add_below(head, &rest, entries);
            }
        }
        let link = matches!(first.node, Node::Link(_) | Node::StemLink(_));
        let stem = if let Node::StemLink(_) = first.node { self.stem } else { &first.stem };
        if link && stem.is_empty() {
            return Ok(());
        }
        let base = safe(stem).into_owned();

        let explicit = entries.iter().any(|entry| entry.suffix == ".npy");
        let derived: Vec<bool> = entries.iter().map(|entry| !explicit && is_typed(entry)).collect();
        let mut suffixes: Vec<&'static str> = entries.iter().map(|entry| entry.suffix).collect();
        if derived.contains(&true) {
            suffixes.push(".npy");
        }
        let taken = |name: &str| self.listing.names.find(name.as_bytes()).is_some();
        if link && suffixes.iter().any(|suffix| taken(&format!("{base}{suffix}"))) {
            return Ok(());
        }
        let base = self.distinct(base, &suffixes);
        for (entry, derived) in entries.into_iter().zip(derived) {
            let name = format!("{base}{}", entry.suffix);
            let number = u32::try_from(self.listing.children.len());
            let stored = self.child(&name, entry.node)?;
            if let (true, Ok(raw)) = (derived, number) {
                self.listing.names.insert(&format!("{base}.npy"))?;
                self.listing.children.push(Child::new(ChildKind::Npy(raw), None, stored));
            }
        }
        Ok(())
    }

    /// Adds entries to the directory of the path component `head`.
    fn add_below(&mut self, head: Vec<u8>, rest: &[u8], entries: Vec<Entry>) -> Result<()> {
        if let Some(members) = self.groups.get_mut(&head) {
            members.add(entries, rest);
            return Ok(());
        }
        let name = self.distinct(safe(&head).into_owned(), &[""]);
        let mut members = Members { index: self.listing.children.len(), ..Members::default() };
        members.add(entries, rest);
        self.groups.insert(head, members);
        self.listing.names.insert(&name)?;
        // Replaced when all of its entries are known.
        let dir = self.group(0, Members::default())?;
        self.listing.children.push(Child::new(dir, None, 0));
        self.listing.subdirs += 1;
        Ok(())
    }

    /// The directory of `members`, whose first component has `head` bytes with its slash.
    fn group(&self, head: usize, members: Members) -> Result<ChildKind> {
        let Members { items, mut entries, .. } = members;
        let source = match (&self.listing.files, items.is_empty(), entries.is_empty()) {
            (Some(dir), false, true) => {
                let (dir, numbers, skip) = (Arc::clone(dir), items.into_boxed_slice(), self.skip + head);
                DirSource::Items(Items { dir, numbers, skip })
            }
            (files, true, _) => {
                entries.shrink_to_fit();
                DirSource::Group(Box::new(Group { entries: Mutex::new(entries), files: files.clone() }))
            }
            _ => return Err(Error::corrupt("only some of its entries have item numbers", "directory")),
        };
        Ok(ChildKind::Dir(Arc::new(Dir::new(source, self.depth + 1))))
    }

    /// `base`, or `base~2`, `base~3`, ...: the first name that is free with each of `suffixes`.
    fn distinct(&mut self, base: String, suffixes: &[&'static str]) -> String {
        let names = &self.listing.names;
        let free =
            |base: &str| suffixes.iter().all(|suffix| names.find(format!("{base}{suffix}").as_bytes()).is_none());
        if free(&base) {
            return base;
        }
        let first = suffixes.first().copied().unwrap_or_default();
        let next = self.counters.entry((base.clone(), first)).or_insert(2);
        loop {
            let name = format!("{base}~{next}");
            *next += 1;
            if free(&name) {
                return name;
            }
        }
    }

    /// Adds a child whose name is free; returns the bytes that it occupies in the container.
    fn child(&mut self, name: &str, node: Node) -> Result<u64> {
        let dir = |source| ChildKind::Dir(Arc::new(Dir::new(source, self.depth + 1)));
        let (what, size, stored) = match node {
            Node::File(file) => {
                let stored = file.stored;
                (ChildKind::File(file), None, stored)
            }
            Node::LazyFile(file) => (ChildKind::Lazy(file.number), file.len, file.stored),
            Node::Link(to) => (ChildKind::Link(to.into()), None, 0),
            Node::StemLink(to) => (ChildKind::Link(to.into()), None, 0),
            Node::Dir(entries) => (dir(DirSource::Entries(entries)), None, 0),
            Node::IndexedDir(files) => (dir(DirSource::IndexedDir(files)), None, 0),
        };
        self.listing.subdirs += u32::from(matches!(what, ChildKind::Dir(_)));
        self.listing.links += u32::from(matches!(what, ChildKind::Link(_)));
        self.listing.names.insert(name)?;
        self.listing.children.push(Child::new(what, size, stored));
        Ok(stored)
    }

    /// Adds the last entries, and moves the collected ones into the directories created from names.
    ///
    /// # Errors
    /// As [`ListingBuilder::push`].
    pub(super) fn finish(mut self) -> Result<Listing> {
        let together = mem::take(&mut self.together);
        self.add(together)?;
        for (head, members) in mem::take(&mut self.groups) {
            let index = members.index;
            let dir = self.group(head.len() + 1, members)?;
            if let Some(child) = self.listing.children.get_mut(index) {
                child.what = dir;
            }
        }
        self.listing.names.shrink();
        self.listing.children.shrink_to_fit();
        Ok(self.listing)
    }
}

impl fmt::Debug for ChildKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.fmt(f),
            Self::Lazy(number) => write!(f, "Lazy({number})"),
            Self::Npy(raw) => write!(f, "Npy of {raw}"),
            Self::Link(to) => write!(f, "Link({to})"),
            Self::Dir(dir) => dir.fmt(f),
        }
    }
}
