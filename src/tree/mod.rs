//! The virtual tree of a container: names, directories, inode numbers and attributes.
//!
//! `ls`, `cat`, `extract` and the mount share it. A directory is listed on first access; its children then keep
//! consecutive inode numbers for the life of the tree. A listing that can be made again is dropped if it was not used
//! for long. The tree decodes only to find a size that the container does not record.
//!
//! Names: see `names` and `listing`. Order: that of the container.
//! Limits, in the account: 24 bytes for a listed directory and 8 for each child of one with subdirectories; while a
//! listing is kept, some 70 bytes and the name for each child; none per numbered file.
#![forbid(unsafe_code)]

mod ahead;
mod attr;
mod child;
mod children;
mod companions;
mod dir;
mod ino;
mod inodes;
mod items;
mod kept;
mod links;
mod list;
mod listing;
mod listing_builder;
mod names;
mod numbered;
mod open;
mod path;
mod ranges;
mod root;
mod stat;
mod zarr;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use crate::account::Account;
use crate::error::{Error, Kind as Cause, Result};
use crate::format::{Container, Directory};
use crate::platform::OsStrExt;
use crate::platform::os_error;
use crate::recent::Recent;

use children::{Children, InodeRange};
use dir::{DirSource, TreeDir};
use inodes::Inode;
use kept::KeptListings;
use ranges::{LARGEST, Ranges};
use root::{InnerRoot, Root};

pub use attr::{Attr, DirEntry, EntryRef, Kind, KnownAttr};
pub use ino::{Ino, ROOT};
pub(crate) use names::{is_safe, normalize};
pub use open::OpenFile;
pub use root::ATTRS_OF_ROOT;

/// The virtual tree of a container.
pub struct Tree {
    container: Arc<dyn Container>,
    /// The container's file name without its last extension; empty if it has no extension.
    stem: Vec<u8>,
    mtime: (i64, i64),
    root: Arc<TreeDir>,
    /// Charged for listings and inode numbers.
    account: Account,
    ranges: RwLock<Ranges>,
    kept: Mutex<KeptListings>,
    /// Held while a directory is listed.
    being_listed: Mutex<HashMap<Ino, Arc<Mutex<()>>>>,
    /// Files that are open.
    open: Mutex<HashMap<Ino, Weak<OpenFile>>>,
    /// Sizes of files that are not kept themselves, and the bytes that they occupy in the container.
    sizes: Recent<Ino, (u64, u64)>,
}

/// The inode numbers of a tree, which outlive it: a tree that is made again continues with them.
#[derive(Debug)]
pub struct Numbers(Ranges);

impl Numbers {
    /// No numbers yet, and none above `largest`.
    pub fn new(account: &Account, largest: u64) -> Self {
        Self(Ranges::new(account, largest))
    }
}

/// Bytes of the account of a tree that has its own.
const OWN: u64 = 1 << 30;
/// Maximum number of cached sizes.
const SIZES: std::num::NonZeroUsize = std::num::NonZeroUsize::MIN.saturating_add(0xFFFF);

/// The names of the entries of a directory; see [`Tree::names`].
#[derive(Debug)]
pub struct EntryNames(Arc<InodeRange>);

impl EntryNames {
    /// The name and the type of the entry at `position`.
    pub fn get(&self, position: u64) -> Option<(&str, Kind)> {
        match &self.0.children {
            Children::Listed(listing) => Some((listing.name(position)?, listing.kind(position))),
            Children::IndexedDir(_) | Children::Numbered(_) => None,
        }
    }

    /// Whether the entry at `position` is an array: the `.npy` that the tree adds to a file of known element type.
    pub fn is_array(&self, position: u64) -> bool {
        match &self.0.children {
            Children::Listed(listing) => listing.is_array(position),
            Children::IndexedDir(_) | Children::Numbered(_) => false,
        }
    }
}

/// An open directory; see [`Tree::open_dir`].
#[derive(Debug)]
pub struct OpenDir(Arc<InodeRange>);

impl OpenDir {
    /// The first entry at or after position `index`, as [`Tree::entry`].
    ///
    /// # Errors
    /// As [`Tree::entry`].
    pub fn entry(&self, index: u64) -> Result<Option<DirEntry>> {
        let mut found = None;
        self.visit(index, |EntryRef { ino, kind, name, next }| {
            found = Some(DirEntry { ino, kind, name: name.to_owned(), next });
            true
        })?;
        Ok(found)
    }

    /// Passes the entries at and after position `index` to `each`, until it returns true.
    ///
    /// # Errors
    /// As [`Tree::entry`].
    pub fn visit(&self, mut index: u64, mut each: impl FnMut(EntryRef<'_>) -> bool) -> Result<()> {
        let InodeRange { first, children, .. } = &*self.0;
        let mut made = String::new();
        while let Some(found) = children.next(index)? {
            let name = children.name(found, &mut made);
            index = found + 1;
            if each(EntryRef { ino: first.child(found), kind: children.kind(found), name, next: index }) {
                break;
            }
        }
        Ok(())
    }
}

impl Tree {
    /// Creates the tree of `container`, from a file called `name`, with its own account.
    ///
    /// # Errors
    /// Currently none: nothing is listed yet.
    pub fn new(container: Arc<dyn Container>, name: &OsStr) -> Result<Self> {
        Self::charging(container, name, &Account::new(OWN, 0))
    }

    /// Like [`Tree::new`]; listings and inode numbers are charged to `account`.
    ///
    /// # Errors
    /// As [`Tree::new`].
    pub fn charging(container: Arc<dyn Container>, name: &OsStr, account: &Account) -> Result<Self> {
        let mtime = container.sources().first().map_or((0, 0), |source| source.mtime());
        let name = name.as_bytes();
        let stem = match name.iter().rposition(|&b| b == b'.') {
            Some(dot) => name.get(..dot).unwrap_or_default().to_vec(),
            None => Vec::new(),
        };
        let root: Arc<dyn Directory> = match container.shown() {
            Some(inner) => Arc::new(InnerRoot::new(inner, account)),
            None => Arc::new(Root::new(&container, account)),
        };
        let root = TreeDir::new(DirSource::Entries(root), 0);
        Ok(Self {
            container,
            stem,
            mtime,
            root: Arc::new(root),
            account: account.clone(),
            ranges: RwLock::new(Ranges::new(account, LARGEST)),
            kept: Mutex::default(),
            being_listed: Mutex::default(),
            open: Mutex::default(),
            sizes: Recent::new(SIZES),
        })
    }

    /// Continues with the inode numbers of an earlier tree of the same container.
    #[must_use]
    pub fn continuing(self, numbers: Numbers) -> Self {
        Self { ranges: RwLock::new(numbers.0), ..self }
    }

    /// The inode numbers that were assigned; the tree must not be used any more.
    pub fn take_numbers(&self) -> Numbers {
        let mut ranges = self.ranges.write().unwrap_or_else(PoisonError::into_inner);
        Numbers(std::mem::replace(&mut *ranges, Ranges::new(&self.account, LARGEST)))
    }

    /// The container.
    pub fn container(&self) -> &Arc<dyn Container> {
        &self.container
    }

    /// Looks up `name` in `dir`.
    ///
    /// # Errors
    /// Fails if `dir` cannot be listed or is not a directory.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let range = self.inode_range(dir)?;
        Ok(range.children.find(name)?.map(|index| range.first.child(index)))
    }

    /// Like [`Tree::lookup`], from memory only; `None` unless the directory was listed before and its names are in
    /// memory. In a directory of numbered files, finds only those whose attributes are in memory.
    pub fn known_child(&self, dir: Ino, name: &[u8]) -> Option<Result<Option<Ino>>> {
        let range = self.kept().get(dir)?;
        match range.children.numbered(name) {
            Some(index) => Some(range.first.child(index)).filter(|&ino| self.has_size(ino)).map(|ino| Ok(Some(ino))),
            None if !range.children.are_kept() => None,
            None => Some(range.children.find(name).map(|found| found.map(|index| range.first.child(index)))),
        }
    }

    /// Like [`Tree::open_dir`], from memory only; `None` unless `dir` was listed before and its names are in memory.
    pub fn known_dir(&self, dir: Ino) -> Option<OpenDir> {
        self.known_listing(dir).map(OpenDir)
    }

    /// Whether `dir` was listed, so that its children have inode numbers.
    pub fn is_visited(&self, dir: Ino) -> bool {
        self.ranges.read().unwrap_or_else(PoisonError::into_inner).children(dir).is_some()
    }

    fn known_listing(&self, dir: Ino) -> Option<Arc<InodeRange>> {
        self.kept().get(dir).filter(|range| range.children.are_kept())
    }

    /// The first entry of `dir` at or after position `index`; positions start at 0. The result contains the position of
    /// the next entry.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    pub fn entry(&self, dir: Ino, index: u64) -> Result<Option<DirEntry>> {
        self.open_dir(dir)?.entry(index)
    }

    /// The entries of `dir`; its listing stays in memory meanwhile.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    pub fn open_dir(&self, dir: Ino) -> Result<OpenDir> {
        self.inode_range(dir).map(OpenDir)
    }

    /// The names of the entries of `dir` by position, if they are in memory.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    pub fn names(&self, dir: Ino) -> Result<Option<EntryNames>> {
        let range = self.inode_range(dir)?;
        Ok(matches!(range.children, Children::Listed(_)).then_some(EntryNames(range)))
    }

    /// The number of entries of `dir`, if their names are their positions in decimal.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    pub fn count_numbered(&self, dir: Ino) -> Result<Option<u64>> {
        match &self.inode_range(dir)?.children {
            Children::Numbered(level) => Ok(Some(level.len())),
            Children::Listed(_) | Children::IndexedDir(_) => Ok(None),
        }
    }

    /// Whether the entry of `dir` at `position` is a directory.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    pub fn is_dir_at(&self, dir: Ino, position: u64) -> Result<bool> {
        Ok(self.inode_range(dir)?.children.kind(position) == Kind::Dir)
    }

    /// All entries of `dir`, in container order.
    ///
    /// # Errors
    /// An error is the last item.
    pub fn entries(&self, dir: Ino) -> impl Iterator<Item = Result<DirEntry>> {
        let (mut at, mut open) = (Some(0), None);
        std::iter::from_fn(move || match self.next_entry(dir, &mut open, at?) {
            Ok(entry) => {
                at = entry.as_ref().map(|entry| entry.next);
                entry.map(Ok)
            }
            Err(e) => {
                at = None;
                Some(Err(e))
            }
        })
    }

    /// The entry at or after `index`, of `open`, which is opened first.
    fn next_entry(&self, dir: Ino, open: &mut Option<OpenDir>, index: u64) -> Result<Option<DirEntry>> {
        match open {
            Some(open) => open.entry(index),
            None => open.insert(self.open_dir(dir)?).entry(index),
        }
    }

    /// The file `ino`, if it is open and its view exists; only from memory.
    pub fn known_file(&self, ino: Ino) -> Option<Arc<OpenFile>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let file = open.get(&ino).and_then(Weak::upgrade);
        drop(open);
        file.filter(|file| file.known_view().is_some())
    }

    /// The directory that contains `ino`, and its position there; `None` for the root.
    pub fn position(&self, ino: Ino) -> Option<(Ino, u64)> {
        self.place(ino)
    }

    /// The parent directory of `ino`; the root is its own parent.
    pub fn parent(&self, ino: Ino) -> Ino {
        self.place(ino).map_or(ROOT, |(dir, _)| dir)
    }

    /// Opens the file `ino`, or the file that the link `ino` points to.
    ///
    /// # Errors
    /// `EISDIR` for a directory; otherwise the reason why its structure cannot be read.
    pub fn file(&self, ino: Ino) -> Result<Arc<OpenFile>> {
        let ino = self.follow(ino)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(&ino).and_then(Weak::upgrade) {
            return Ok(file);
        }
        drop(open);
        let Inode::Child(range, index) = self.inode(ino)? else { return Err(system(libc::EISDIR, "directory")) };
        let Some(file) = range.children.file(index)? else { return Err(missing()) };
        let file = Arc::new(OpenFile::new(ino, file));
        open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // If another thread was faster, share its file: its view may exist already.
        if let Some(file) = open.get(&ino).and_then(Weak::upgrade) {
            return Ok(file);
        }
        if open.len() >= open.capacity() {
            open.retain(|_, file| file.strong_count() > 0);
        }
        open.insert(ino, Arc::downgrade(&file));
        Ok(file)
    }

    /// The type of `ino`.
    ///
    /// # Errors
    /// [`Cause::NotFound`] if there is no such inode.
    pub fn kind(&self, ino: Ino) -> Result<Kind> {
        Ok(match self.inode(ino)? {
            Inode::Child(range, index) => range.children.kind(index),
            Inode::Dir(_) | Inode::Items(_) => Kind::Dir,
        })
    }
}

fn missing() -> Error {
    Error::new(Cause::NotFound, "inode")
}

fn system(errno: i32, what: &'static str) -> Error {
    Error::io(os_error(errno), what)
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("mtime", &self.mtime).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
