//! The virtual tree of a container: names, directories, inode numbers and attributes.
//!
//! `ls`, `cat`, `extract` and the mount share it. A directory is listed once, on first access; its children then keep
//! consecutive inode numbers for the life of the tree. The tree decodes only to find a size that the container does
//! not record.
//!
//! Names: see `names` and `listing`. Order: that of the container.
//! Limits: memory per child of a listed directory; none per numbered file.
#![forbid(unsafe_code)]

mod attr;
mod dir;
mod listing;
mod name_table;
mod names;
mod open;
mod root;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use crate::error::{Error, Kind as Cause, Result};
use crate::format::{Container, Fetch};
use crate::text::escaped;
use crate::view;

use dir::{Children, Dir, DirSource, InodeRange};
use listing::ChildKind;
use root::Root;

pub use attr::{Attr, DirEntry, Kind};
pub(crate) use names::normalize;
pub use open::OpenFile;

/// An inode number, valid for the life of a tree.
pub type Ino = u64;

/// The root directory.
pub const ROOT: Ino = 1;

/// Maximum number of names listed in an error.
const SHOWN: u64 = 8;

/// The virtual tree of a container.
pub struct Tree {
    container: Arc<dyn Container>,
    /// The container's file name without its last extension; empty if it has no extension.
    stem: Vec<u8>,
    mtime: (i64, i64),
    root: Arc<Dir>,
    /// The listed directories, by ascending inode numbers, and the next free number.
    blocks: RwLock<(Vec<Arc<InodeRange>>, Ino)>,
    /// Files that are open.
    open: Mutex<HashMap<Ino, Weak<OpenFile>>>,
    /// Sizes of numbered files, and the bytes that they occupy in the container.
    sizes: Mutex<lru::LruCache<Ino, (u64, u64)>>,
}

/// Maximum number of cached sizes of numbered files.
const SIZES: std::num::NonZeroUsize = std::num::NonZeroUsize::MIN.saturating_add(0xFFFF);

/// What an inode number refers to.
enum Place {
    /// A directory: the root, or a child.
    Dir(Arc<Dir>),
    /// A file or link, as a child index of its directory.
    Child(Arc<InodeRange>, u64),
}

impl Tree {
    /// Creates the tree of `container`, whose file is called `name`.
    ///
    /// # Errors
    /// Currently none: nothing is listed yet.
    pub fn new(container: Arc<dyn Container>, name: &OsStr) -> Result<Self> {
        let mtime = container.sources().first().map_or((0, 0), |source| source.mtime());
        let name = name.as_bytes();
        let stem = match name.iter().rposition(|&b| b == b'.') {
            Some(dot) => name.get(..dot).unwrap_or_default().to_vec(),
            None => Vec::new(),
        };
        let root = Dir::new(DirSource::Entries(Arc::new(Root(container.clone()))), 0);
        Ok(Self {
            container,
            stem,
            mtime,
            root: Arc::new(root),
            blocks: RwLock::new((Vec::new(), ROOT + 1)),
            open: Mutex::default(),
            sizes: Mutex::new(lru::LruCache::new(SIZES)),
        })
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
        let block = self.block(dir)?;
        Ok(block.children.find(name)?.map(|index| block.first + index))
    }

    /// Like [`Tree::lookup`], from memory only; `None` unless the directory was listed before and its names are in
    /// memory.
    pub fn known_child(&self, dir: Ino, name: &[u8]) -> Option<Result<Option<Ino>>> {
        let block = self.known_listing(dir)?;
        Some(block.children.find(name).map(|found| found.map(|index| block.first + index)))
    }

    /// Whether `dir` was listed before and its names are in memory, so that [`Tree::entry`] does no I/O.
    pub fn is_known(&self, dir: Ino) -> bool {
        self.known_listing(dir).is_some()
    }

    /// Whether `dir` was listed, so that its children have inode numbers.
    pub fn is_visited(&self, dir: Ino) -> bool {
        matches!(self.place(dir), Ok(Place::Dir(dir)) if dir.block.get().is_some())
    }

    fn known_listing(&self, dir: Ino) -> Option<Arc<InodeRange>> {
        let Ok(Place::Dir(dir)) = self.place(dir) else { return None };
        dir.block.get().filter(|block| matches!(block.children, Children::Listed(_))).cloned()
    }

    /// The first entry of `dir` at or after position `index`; positions start at 0. The result contains the position of
    /// the next entry.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    pub fn entry(&self, dir: Ino, index: u64) -> Result<Option<DirEntry>> {
        let block = self.block(dir)?;
        Ok(block.children.next(index)?.map(|index| DirEntry {
            ino: block.first + index,
            kind: kind(&block, index),
            name: block.children.name(index),
            next: index + 1,
        }))
    }

    /// All entries of `dir`, in container order.
    ///
    /// # Errors
    /// An error is the last item.
    pub fn entries(&self, dir: Ino) -> impl Iterator<Item = Result<DirEntry>> {
        let mut at = Some(0);
        std::iter::from_fn(move || match self.entry(dir, at?) {
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

    /// The attributes of `ino`. Decodes once if the container does not record the length of the file.
    ///
    /// # Errors
    /// [`Cause::NotFound`] for an unknown inode number; otherwise the reason why the size cannot be determined.
    pub fn attr(&self, ino: Ino, fetch: &dyn Fetch) -> Result<Attr> {
        match self.attr_or_stored(ino)? {
            (Some(attr), _) => Ok(attr),
            (None, stored) => {
                let size = view::len(&self.file(ino)?.file.content, fetch)?;
                self.set_size(ino, size, stored)?;
                Ok(self.file_attr(ino, size, stored))
            }
        }
    }

    /// Like [`Tree::attr`], but `None` if that requires decoding.
    pub fn cheap_attr(&self, ino: Ino) -> Option<Attr> {
        self.attr_or_stored(ino).ok()?.0
    }

    /// Like [`Tree::attr`], but only from memory.
    pub fn known_attr(&self, ino: Ino) -> Option<Attr> {
        match self.place(ino).ok()? {
            Place::Dir(dir) => Some(self.dir_attr(ino, dir.block.get()?.children.subdirs())),
            Place::Child(block, index) => match &block.children {
                Children::Listed(listing) => {
                    let child = listing.get(index)?;
                    if let ChildKind::Link(to) = &child.what {
                        return Some(self.link_attr(ino, to));
                    }
                    Some(self.file_attr(ino, child.size()?, listing.stored(index)?))
                }
                Children::IndexedDir(_) => {
                    let (size, stored) = *self.sizes().get(&ino)?;
                    Some(self.file_attr(ino, size, stored))
                }
            },
        }
    }

    /// The file `ino`, if it is open and its view exists; only from memory.
    pub fn known_file(&self, ino: Ino) -> Option<Arc<OpenFile>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let file = open.get(&ino).and_then(Weak::upgrade);
        drop(open);
        file.filter(|file| file.known_view().is_some())
    }

    /// The parent directory of `ino`; the root is its own parent.
    pub fn parent(&self, ino: Ino) -> Ino {
        self.holder(ino).map_or(ROOT, |(block, _)| block.dir)
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
        let Place::Child(block, index) = self.place(ino)? else { return Err(system(libc::EISDIR, "directory")) };
        let Some(file) = block.children.file(index)? else { return Err(missing()) };
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

    /// The target of a link, or `ino` itself.
    ///
    /// # Errors
    /// [`Cause::NotFound`] if the target does not exist or is a link.
    pub fn follow(&self, ino: Ino) -> Result<Ino> {
        match self.place(ino)? {
            Place::Child(block, index) if kind(&block, index) == Kind::Link => {
                let to = self.lookup(block.dir, self.link(ino)?.as_bytes())?.ok_or_else(missing)?;
                if matches!(self.place(to)?, Place::Child(block, index) if kind(&block, index) == Kind::Link) {
                    return Err(missing());
                }
                Ok(to)
            }
            _ => Ok(ino),
        }
    }

    /// The target path of the link `ino`.
    ///
    /// # Errors
    /// `EINVAL` if `ino` is not a link.
    pub fn link(&self, ino: Ino) -> Result<String> {
        let Place::Child(block, index) = self.place(ino)? else { return Err(system(libc::EINVAL, "link")) };
        match &block.children {
            Children::Listed(listing) => match listing.get(index).map(|child| &child.what) {
                Some(ChildKind::Link(to)) => Ok(to.to_string()),
                _ => Err(system(libc::EINVAL, "link")),
            },
            Children::IndexedDir(_) => Err(system(libc::EINVAL, "link")),
        }
    }

    /// The extended attributes of `ino`, with full names.
    ///
    /// # Errors
    /// As [`Tree::file`].
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<(String, String)>> {
        let attrs = match self.place(ino)? {
            Place::Dir(dir) => dir.attrs(),
            Place::Child(block, index) => block.children.file(index)?.map(attr::known).unwrap_or_default(),
        };
        // Values may be text from the container.
        let shown = |value: String| escaped(&value).into_owned();
        Ok(attrs.into_iter().map(|(name, value)| (format!("user.fzmfs.{name}"), shown(value))).collect())
    }

    /// The inode number of `path`, such as `buffers/output.raw`. The last segment may be a link, which is not followed.
    ///
    /// # Errors
    /// [`Cause::NotFound`] with the missing segment and the names that exist instead.
    pub fn resolve(&self, path: &str) -> Result<Ino> {
        let (mut at, mut walked) = (ROOT, String::new());
        for segment in path.split('/').filter(|segment| !matches!(*segment, "" | ".")) {
            at = match (segment, self.place(at)?) {
                (_, Place::Child(..)) => {
                    return Err(Error::new(Cause::NotFound, format!("{path}: {walked} is no directory")));
                }
                ("..", _) => self.parent(at),
                _ => match self.lookup(at, segment.as_bytes())? {
                    Some(child) => child,
                    None => return Err(self.absent(path, segment, at, &walked)),
                },
            };
            if !walked.is_empty() {
                walked.push('/');
            }
            walked.push_str(segment);
        }
        Ok(at)
    }

    /// The error for a missing `segment` of `path` in the directory `at`; lists the names that exist.
    fn absent(&self, path: &str, segment: &str, at: Ino, walked: &str) -> Error {
        let mut names: Vec<String> = Vec::new();
        for entry in self.entries(at).map_while(Result::ok) {
            if names.len() as u64 == SHOWN {
                names.push("...".to_owned());
                break;
            }
            names.push(entry.name);
        }
        let place = if walked.is_empty() { "the root" } else { walked };
        let there = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
        Error::new(Cause::NotFound, format!("{path}: no {segment} in {place}, which holds {there}"))
    }

    /// The attributes if they are known without decoding, and the bytes that a file occupies in the container.
    fn attr_or_stored(&self, ino: Ino) -> Result<(Option<Attr>, u64)> {
        let (block, index) = match self.place(ino)? {
            Place::Dir(dir) => {
                // A directory that cannot be listed still has a name and attributes.
                let subdirs = self.populate(ino, &dir).map_or(0, |block| block.children.subdirs());
                return Ok((Some(self.dir_attr(ino, subdirs)), 0));
            }
            Place::Child(block, index) => (block, index),
        };
        let (size, stored) = match &block.children {
            Children::Listed(listing) => {
                if let Some(ChildKind::Link(to)) = listing.get(index).map(|child| &child.what) {
                    return Ok((Some(self.link_attr(ino, to)), 0));
                }
                listing.known_size(index).ok_or_else(missing)?
            }
            Children::IndexedDir(_) => {
                let file = block.children.file(index)?.ok_or_else(missing)?;
                let noted = || self.sizes().get(&ino).map(|(size, _)| *size);
                let size = view::known_len(&file.content).or_else(noted);
                if let Some(size) = size {
                    self.sizes().put(ino, (size, file.stored));
                }
                (size, file.stored)
            }
        };
        Ok((size.map(|size| self.file_attr(ino, size, stored)), stored))
    }

    fn file_attr(&self, ino: Ino, size: u64, stored: u64) -> Attr {
        Attr { ino, kind: Kind::File, size, blocks: stored.div_ceil(512), nlink: 1, mtime: self.mtime }
    }

    fn dir_attr(&self, ino: Ino, subdirs: u32) -> Attr {
        let nlink = subdirs.saturating_add(2);
        Attr { ino, kind: Kind::Dir, size: 0, blocks: 0, nlink, mtime: self.mtime }
    }

    fn link_attr(&self, ino: Ino, to: &str) -> Attr {
        Attr { kind: Kind::Link, ..self.file_attr(ino, to.len() as u64, 0) }
    }

    fn sizes(&self) -> MutexGuard<'_, lru::LruCache<Ino, (u64, u64)>> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Caches a size that required decoding.
    fn set_size(&self, ino: Ino, size: u64, stored: u64) -> Result<()> {
        if let Place::Child(block, index) = self.place(ino)? {
            match &block.children {
                Children::Listed(listing) => listing.get(index).into_iter().for_each(|child| child.set_size(size)),
                Children::IndexedDir(_) => {
                    self.sizes().put(ino, (size, stored));
                }
            }
        }
        Ok(())
    }

    /// The children of the directory `ino`.
    fn block(&self, ino: Ino) -> Result<Arc<InodeRange>> {
        match self.place(ino)? {
            Place::Dir(dir) => self.populate(ino, &dir),
            Place::Child(..) => Err(system(libc::ENOTDIR, "directory")),
        }
    }

    /// The children of `dir`, whose inode number is `ino`; lists it if necessary.
    fn populate(&self, ino: Ino, dir: &Dir) -> Result<Arc<InodeRange>> {
        if let Some(block) = dir.block.get() {
            return Ok(block.clone());
        }
        let _first = dir.looking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = dir.block.get() {
            return Ok(block.clone());
        }
        let children = dir.list(&self.stem)?;
        let mut blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        let first = blocks.1;
        let limit = u64::MAX >> 1;
        let next = first.checked_add(children.len()).filter(|&next| next <= limit);
        blocks.1 = next.ok_or_else(|| Error::new(Cause::TooLarge { value: children.len(), limit }, "directory"))?;
        let block = Arc::new(InodeRange { dir: ino, first, children });
        blocks.0.push(block.clone());
        drop(blocks);
        Ok(dir.block.get_or_init(|| block).clone())
    }

    /// Resolves an inode number.
    fn place(&self, ino: Ino) -> Result<Place> {
        if ino == ROOT {
            return Ok(Place::Dir(self.root.clone()));
        }
        let (block, index) = self.holder(ino).ok_or_else(missing)?;
        if let Children::Listed(listing) = &block.children
            && let Some(ChildKind::Dir(dir)) = listing.get(index).map(|child| &child.what)
        {
            return Ok(Place::Dir(dir.clone()));
        }
        Ok(Place::Child(block, index))
    }

    /// The directory that contains `ino`, and its index there.
    fn holder(&self, ino: Ino) -> Option<(Arc<InodeRange>, u64)> {
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        let after = blocks.0.partition_point(|block| block.first <= ino);
        let block = blocks.0.get(after.checked_sub(1)?)?;
        let index = ino.checked_sub(block.first)?;
        (index < block.children.len()).then(|| (block.clone(), index))
    }
}

/// The type of child `index` of `block`.
fn kind(block: &InodeRange, index: u64) -> Kind {
    let Children::Listed(listing) = &block.children else { return Kind::File };
    match listing.get(index).map(|child| &child.what) {
        Some(ChildKind::Dir(_)) => Kind::Dir,
        Some(ChildKind::Link(_)) => Kind::Link,
        _ => Kind::File,
    }
}

fn missing() -> Error {
    Error::new(Cause::NotFound, "inode")
}

fn system(errno: i32, what: &'static str) -> Error {
    Error::io(io::Error::from_raw_os_error(errno), what)
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("mtime", &self.mtime).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
