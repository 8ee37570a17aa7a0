//! Entries of the virtual tree as a format describes them, with the container's own names.
//!
//! The tree makes names safe, resolves collisions, assigns inode numbers and adds `.npy` files.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Kind, Result};

use super::File;
use super::nested::Enclosed;

/// Extended attributes: names without the prefix `user.fzmfs.`, values as text.
pub type Attrs = Vec<(&'static str, String)>;

/// One entry of a directory.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name in the container, without the suffix; any bytes.
    pub stem: Cow<'static, [u8]>,
    /// The suffix that the tree appends: `.raw`, `.json`, or nothing.
    pub suffix: &'static str,
    /// Whether `/` in the stem creates directories (tensor names); otherwise it is escaped.
    pub nested: bool,
    /// Whether the stem is a name of the tree already, and is not escaped.
    pub is_safe: bool,
    /// The number by which [`Directory::item`] makes this entry again. In a directory, all entries with `/` in their
    /// names have one, or none does.
    pub item: Option<u32>,
    /// The file, link or directory.
    pub node: Node,
}

impl Entry {
    /// An entry with a fixed name, suffix included: `data.raw`.
    pub fn own(name: &'static str, node: impl Into<Node>) -> Self {
        let dot = name.find('.').unwrap_or(name.len());
        let (stem, suffix) = name.split_at(dot);
        Self {
            stem: Cow::Borrowed(stem.as_bytes()),
            suffix,
            nested: false,
            is_safe: false,
            item: None,
            node: node.into(),
        }
    }

    /// A link to `to`, named after the container without its last extension: `x.txt` for `x.txt.zxc`.
    /// The tree omits it if another entry has that name, and if the container has no extension.
    pub fn stem_link(to: &'static str) -> Self {
        Self {
            stem: Cow::Borrowed(b""),
            suffix: "",
            nested: false,
            is_safe: false,
            item: None,
            node: Node::StemLink(to),
        }
    }

    /// An entry with a name from the container.
    pub fn named(stem: impl Into<Vec<u8>>, suffix: &'static str, node: impl Into<Node>) -> Self {
        Self { stem: Cow::Owned(stem.into()), suffix, nested: false, is_safe: false, item: None, node: node.into() }
    }
}

/// The kind of an entry, with its content.
#[derive(Clone)]
pub enum Node {
    /// A file.
    File(Box<File>),
    /// A file that [`Directory::file`] creates on access.
    LazyFile(LazyFile),
    /// A symbolic link to a name in the same directory.
    Link(String),
    /// Likewise; the tree names it after the container.
    StemLink(&'static str),
    /// A symbolic link with a target that [`Directory::link`] gives, by its number there.
    LazyLink(u64),
    /// A directory; its entries are requested once, when it is first listed.
    Dir(Arc<dyn Directory>),
    /// A directory that [`Directory::dir`] creates on access, by its number there. Its entries may be requested again.
    LazyDir(u64),
    /// A directory of `000000.raw`, `000001.raw`, ...; each file is created on access.
    IndexedDir(Arc<dyn IndexedDir>),
    /// A nested container: a directory with the tree that it would have by itself.
    Container(Arc<dyn Enclosed>),
}

impl Node {
    /// A directory with known entries.
    pub fn dir(attrs: Attrs, entries: Vec<Entry>) -> Self {
        Self::Dir(Arc::new(Listed { attrs, entries }))
    }
}

impl From<File> for Node {
    fn from(file: File) -> Self {
        Self::File(Box::new(file))
    }
}

/// A listing's record of a file that is created on access: a directory of a hundred thousand files keeps this, not the
/// files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LazyFile {
    /// Identifies the file in its directory; passed to [`Directory::file`].
    pub number: u64,
    /// Its length in bytes, if known without decoding.
    pub len: Option<u64>,
    /// Bytes that it occupies in the container: [`File::stored`].
    pub stored: u64,
    /// Bytes of its array, if it has one: [`File::array`].
    pub array: Option<u64>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.fmt(f),
            Self::LazyFile(file) => file.fmt(f),
            Self::Link(to) => write!(f, "Link({to})"),
            Self::StemLink(to) => write!(f, "StemLink({to})"),
            Self::LazyLink(number) => write!(f, "LazyLink({number})"),
            Self::Dir(_) => f.write_str("Dir"),
            Self::LazyDir(number) => write!(f, "LazyDir({number})"),
            Self::IndexedDir(n) => write!(f, "IndexedDir({})", n.count()),
            Self::Container(_) => f.write_str("Container"),
        }
    }
}

/// Permissions and modification time that the container records of a file or directory that is created on access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Permissions of the owner, the group and others.
    pub mode: Option<u16>,
    /// Modification time: seconds and nanoseconds since 1970.
    pub mtime: Option<(i64, i64)>,
}

/// How the number of the subdirectories of a directory is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subdirs {
    /// By listing it, which costs little.
    Listed,
    /// It is known.
    Known(u32),
    /// Only once it was listed, which may decode much.
    Unknown,
}

/// The entries that `dir` passes on, for directories that implement [`Directory::for_each`].
///
/// # Errors
/// As [`Directory::for_each`].
pub fn collected(dir: &dyn Directory) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    dir.for_each(&mut |entry| {
        entries.push(entry);
        Ok(())
    })?;
    Ok(entries)
}

/// A directory that may create its entries lazily.
pub trait Directory: Send + Sync {
    /// Its extended attributes.
    fn attrs(&self) -> Attrs {
        Attrs::new()
    }

    /// Whether all its entries, directories included, are stateless and can be made again on demand. Otherwise it has
    /// only a few files, and those that the format creates on access.
    fn is_made_again(&self) -> bool {
        false
    }

    /// Its entries, in container order; always the same.
    ///
    /// # Errors
    /// Fails if structure is read lazily and is broken.
    fn entries(&self) -> Result<Vec<Entry>>;

    /// Passes its entries to `each`, in container order. A directory of very many entries implements this without
    /// collecting them.
    ///
    /// # Errors
    /// As [`Directory::entries`]; the error of `each`.
    fn for_each(&self, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.entries()?.into_iter().try_for_each(each)
    }

    /// Passes the entries with this item number to `each` again. They have the same name, and follow each other.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there are none; otherwise as [`Directory::for_each`].
    fn item(&self, number: u32, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        let _ = (number, each);
        Err(Error::new(Kind::NotFound, "entry"))
    }

    /// Creates the file of an entry of this directory that is a [`LazyFile`] with this number.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is none.
    fn file(&self, number: u64) -> Result<File> {
        let _ = number;
        Err(Error::new(Kind::NotFound, "file"))
    }

    /// The target of an entry that is a [`Node::LazyLink`] with this number: a path in the container, relative to this
    /// directory, that does not lead out of the container.
    ///
    /// # Errors
    /// `EACCES` if it would lead out.
    fn link(&self, number: u64) -> Result<Vec<u8>> {
        let _ = number;
        Err(Error::new(Kind::NotFound, "link"))
    }

    /// The metadata of the entry with this number: a [`LazyFile`], [`Node::LazyLink`] or [`Node::LazyDir`]. From memory.
    fn metadata(&self, number: u64) -> Option<Metadata> {
        let _ = number;
        None
    }

    /// How the number of its subdirectories is found. Does no I/O.
    fn subdirs(&self) -> Subdirs {
        Subdirs::Listed
    }

    /// The container whose tree this directory is, if it is one that was created on access.
    fn container(&self) -> Option<Arc<dyn Enclosed>> {
        None
    }

    /// Its content, if that is not entries with names but directories and files with numbers.
    ///
    /// # Errors
    /// As [`Directory::entries`].
    fn numbered(&self) -> Result<Option<Arc<dyn NumberedFiles>>> {
        Ok(None)
    }

    /// Creates the directory of an entry that is a [`Node::LazyDir`] with this number. Does no I/O.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is none.
    fn dir(&self, number: u64) -> Result<Arc<dyn Directory>> {
        let _ = number;
        Err(Error::new(Kind::NotFound, "directory"))
    }
}

struct Listed {
    attrs: Attrs,
    entries: Vec<Entry>,
}

impl Directory for Listed {
    fn attrs(&self) -> Attrs {
        self.attrs.clone()
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(self.entries.clone())
    }
}

/// A directory of numbered files: each name is the index in decimal, with at least 6 digits.
pub trait IndexedDir: Send + Sync {
    /// The size of the index range; the range may have gaps.
    fn count(&self) -> u64;

    /// The suffix after the number: `.raw`, `.bin`.
    fn suffix(&self) -> &'static str;

    /// The first index from `index` on that has a file. A listing calls this for every entry that it shows, so a gap
    /// must not be scanned again each time.
    ///
    /// # Errors
    /// Fails if that cannot be determined now.
    fn next(&self, index: u64) -> Result<Option<u64>> {
        Ok(Some(index).filter(|&index| index < self.count()))
    }

    /// The file of index `index`, which must exist.
    ///
    /// # Errors
    /// Fails if its structure is broken.
    fn file(&self, index: u64) -> Result<File>;
}

/// Files of one size by several numbers, one for each level of directories: `0/0`, `0/1`, `1/0`, `1/1`. Each name is a
/// number in decimal; there are no gaps.
pub trait NumberedFiles: Send + Sync {
    /// How many names each level has: at least one level.
    fn sides(&self) -> &[u64];

    /// The length of each file in bytes, and the bytes that it occupies in the container.
    fn size(&self) -> (u64, u64);

    /// The file `number`, counted in the order of their names as numbers; it must exist.
    ///
    /// # Errors
    /// Fails if its structure is broken.
    fn file(&self, number: u64) -> Result<File>;
}
