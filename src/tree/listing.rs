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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::{Array, Content, Entry, File, Node, npy};
use crate::view;

use super::dir::{Dir, DirSource};
use super::name_table::Names;
use super::names::safe;

/// Maximum depth of directories made from names with `/`; deeper names keep their slashes as `%2F`. A path of more
/// than 4096 bytes cannot be opened anyway, and many programs walk a tree recursively.
const DEPTH: u32 = 256;

/// Marks an unknown size.
const UNKNOWN: u64 = u64::MAX;

/// The children of a directory, by index and by name.
#[derive(Debug, Default)]
pub(super) struct Listing {
    names: Names,
    children: Vec<Child>,
    pub(super) subdirs: u32,
}

/// One entry of a directory.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) what: ChildKind,
    /// Cached size of a file, if it had to be decoded or summed up.
    size: AtomicU64,
}

/// The kind of an entry, with its content.
pub(super) enum ChildKind {
    /// A file of the format.
    File(Box<File>),
    /// The `.npy` of the `.raw` file with this index.
    Npy(u32),
    /// A symbolic link.
    Link(Box<str>),
    /// A directory.
    Dir(Arc<Dir>),
}

impl Child {
    fn new(what: ChildKind) -> Self {
        Self { what, size: AtomicU64::new(UNKNOWN) }
    }

    /// The cached size.
    pub(super) fn size(&self) -> Option<u64> {
        Some(self.size.load(Ordering::Relaxed)).filter(|&size| size != UNKNOWN)
    }

    /// Caches the size.
    pub(super) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }
}

impl Listing {
    /// Creates the children for `entries`, in a directory `depth` levels below the root; `stem` is the container's file
    /// name without its extension.
    pub(super) fn new(entries: Vec<Entry>, stem: &[u8], depth: u32) -> Result<Self> {
        let mut maker =
            ListingBuilder { listing: Self::default(), groups: HashMap::new(), counters: HashMap::new(), stem, depth };
        let mut together: Vec<Entry> = Vec::new();
        for entry in entries {
            let goes_along = |e: &Entry| e.stem == entry.stem && e.nested == entry.nested;
            let is_new = together.iter().all(|e| e.suffix != entry.suffix);
            if !(is_new && together.last().is_some_and(goes_along)) {
                maker.add(mem::take(&mut together))?;
            }
            together.push(entry);
        }
        maker.add(together)?;
        Ok(maker.finish())
    }

    pub(super) fn len(&self) -> u64 {
        to_u64(self.children.len())
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

    /// The file of child `index`; for a `.npy`, including its header. `None` if it is not a file.
    pub(super) fn file(&self, index: u64) -> Option<File> {
        match &self.get(index)?.what {
            ChildKind::File(file) => Some(File::clone(file)),
            ChildKind::Npy(raw) => match &self.get(u64::from(*raw))?.what {
                ChildKind::File(file) => npy_of(file),
                _ => None,
            },
            ChildKind::Link(_) | ChildKind::Dir(_) => None,
        }
    }

    /// The bytes that file `index` occupies in the container.
    pub(super) fn stored(&self, index: u64) -> Option<u64> {
        match &self.get(index)?.what {
            ChildKind::File(file) => Some(file.stored),
            ChildKind::Npy(raw) => self.stored(u64::from(*raw)),
            ChildKind::Link(_) | ChildKind::Dir(_) => None,
        }
    }

    /// The size of file `index`, if known without decoding, and the bytes that it occupies in the container.
    pub(super) fn known_size(&self, index: u64) -> Option<(Option<u64>, u64)> {
        let child = self.get(index)?;
        let (size, stored) = match &child.what {
            ChildKind::File(file) => (child.size().or_else(|| view::known_len(&file.content)), file.stored),
            ChildKind::Npy(raw) => match &self.get(u64::from(*raw))?.what {
                ChildKind::File(file) => {
                    (child.size().or_else(|| file.array.as_ref().and_then(npy::file_len)), file.stored)
                }
                _ => return None,
            },
            ChildKind::Link(_) | ChildKind::Dir(_) => return None,
        };
        if let Some(size) = size {
            child.set_size(size);
        }
        Some((size, stored))
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
    let Node::File(file) = &entry.node else { return false };
    let Some(elements) = file.array.as_ref().and_then(Array::byte_len) else { return false };
    entry.suffix == ".raw" && view::known_len(&file.content).is_none_or(|len| elements <= len)
}

/// A listing under construction.
struct ListingBuilder<'a> {
    listing: Listing,
    /// By first path segment: the index of a directory created from names with `/`, and its entries.
    groups: HashMap<Vec<u8>, (usize, Vec<Entry>)>,
    /// By name and first suffix: the next number to try after a collision.
    counters: HashMap<(String, &'static str), u64>,
    stem: &'a [u8],
    depth: u32,
}

impl ListingBuilder<'_> {
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
        let link = matches!(first.node, Node::Link(_));
        let stem = if link && *first.stem == *Entry::STEM { self.stem } else { &first.stem };
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
            self.push(&name, entry.node)?;
            if let (true, Ok(raw)) = (derived, number) {
                self.listing.names.insert(&format!("{base}.npy"))?;
                self.listing.children.push(Child::new(ChildKind::Npy(raw)));
            }
        }
        Ok(())
    }

    /// Adds entries to the directory of the path segment `head`.
    fn add_below(&mut self, head: Vec<u8>, rest: &[u8], entries: Vec<Entry>) -> Result<()> {
        let below = entries.into_iter().map(|entry| Entry { stem: Cow::Owned(rest.to_vec()), ..entry });
        if let Some((_, group)) = self.groups.get_mut(&head) {
            group.extend(below);
            return Ok(());
        }
        let name = self.distinct(safe(&head).into_owned(), &[""]);
        self.groups.insert(head, (self.listing.children.len(), below.collect()));
        self.listing.names.insert(&name)?;
        self.listing.children.push(Child::new(ChildKind::Dir(Arc::new(Dir::new(DirSource::later(), self.depth + 1)))));
        self.listing.subdirs += 1;
        Ok(())
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

    /// Adds a child whose name is free.
    fn push(&mut self, name: &str, node: Node) -> Result<()> {
        let what = match node {
            Node::File(file) => ChildKind::File(Box::new(file)),
            Node::Link(to) => ChildKind::Link(to.into()),
            Node::Dir(dir) => ChildKind::Dir(Arc::new(Dir::new(DirSource::Entries(dir), self.depth + 1))),
            Node::IndexedDir(files) => ChildKind::Dir(Arc::new(Dir::new(DirSource::IndexedDir(files), self.depth + 1))),
        };
        self.listing.subdirs += u32::from(matches!(what, ChildKind::Dir(_)));
        self.listing.names.insert(name)?;
        self.listing.children.push(Child::new(what));
        Ok(())
    }

    /// Moves the collected entries into the directories created from names.
    fn finish(mut self) -> Listing {
        for (index, entries) in mem::take(&mut self.groups).into_values() {
            if let Some(Child { what: ChildKind::Dir(dir), .. }) = self.listing.children.get(index) {
                dir.fill(entries);
            }
        }
        self.listing.names.shrink();
        self.listing.children.shrink_to_fit();
        self.listing
    }
}

impl fmt::Debug for ChildKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.fmt(f),
            Self::Npy(raw) => write!(f, "Npy of {raw}"),
            Self::Link(to) => write!(f, "Link({to})"),
            Self::Dir(dir) => dir.fmt(f),
        }
    }
}
