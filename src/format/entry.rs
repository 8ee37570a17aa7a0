//! Entries of the virtual tree as a format describes them: names as the container has them.
//!
//! The tree makes names safe, resolves collisions, gives out inodes and adds `.npy` views.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::error::Result;

use super::content::Content;

/// Extended attributes: names without `user.fzmfs.`, values as text.
pub type Attrs = Vec<(&'static str, String)>;

/// One entry of a directory.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name as the container has it, without the suffix; any bytes.
    pub stem: Cow<'static, [u8]>,
    /// What our tree puts behind it: `.raw`, `.json`, or nothing.
    pub suffix: &'static str,
    /// Whether `/` in the stem makes directories (tensor names); otherwise it is escaped.
    pub nested: bool,
    /// What it is.
    pub node: Node,
}

impl Entry {
    /// An entry with a name of ours, suffix included: `data.raw`.
    pub fn own(name: &'static str, node: impl Into<Node>) -> Self {
        let dot = name.find('.').unwrap_or(name.len());
        let (stem, suffix) = name.split_at(dot);
        Self { stem: Cow::Borrowed(stem.as_bytes()), suffix, nested: false, node: node.into() }
    }

    /// The stem that the tree replaces by the container's file name without its last extension.
    pub const STEM: &[u8] = b"<stem>";

    /// A link to `to` called as the container without its last extension: `x.txt` for `x.txt.zxc`.
    /// The tree leaves it out where another entry has that name.
    pub fn stem_link(to: &'static str) -> Self {
        Self { stem: Cow::Borrowed(Self::STEM), suffix: "", nested: false, node: Node::Link(to.into()) }
    }

    /// An entry with a name from the container.
    pub fn named(stem: impl Into<Vec<u8>>, suffix: &'static str, node: impl Into<Node>) -> Self {
        Self { stem: Cow::Owned(stem.into()), suffix, nested: false, node: node.into() }
    }
}

/// What an entry is.
#[derive(Clone)]
pub enum Node {
    /// A file.
    File(File),
    /// A symbolic link to a name in the same directory.
    Link(String),
    /// A directory; asked for its entries once, when it is first looked into.
    Dir(Arc<dyn Directory>),
    /// A directory of `000000.raw`, `000001.raw`, ...; each made when it is looked at.
    IndexedDir(Arc<dyn IndexedDir>),
}

impl Node {
    /// A directory whose entries are known.
    pub fn dir(attrs: Attrs, entries: Vec<Entry>) -> Self {
        Self::Dir(Arc::new(Listed { attrs, entries }))
    }
}

impl From<File> for Node {
    fn from(file: File) -> Self {
        Self::File(file)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.fmt(f),
            Self::Link(to) => write!(f, "Link({to})"),
            Self::Dir(_) => f.write_str("Dir"),
            Self::IndexedDir(n) => write!(f, "Numbered({})", n.count()),
        }
    }
}

/// A directory whose entries may be made late.
pub trait Directory: Send + Sync {
    /// Its extended attributes.
    fn attrs(&self) -> Attrs {
        Attrs::new()
    }

    /// Its entries, in container order; always the same.
    ///
    /// # Errors
    /// Where structure is read lazily and turns out broken.
    fn entries(&self) -> Result<Vec<Entry>>;
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

/// A directory of numbered files: names are the index in decimal, at least 6 digits.
pub trait IndexedDir: Send + Sync {
    /// How many numbers there are.
    fn count(&self) -> u64;

    /// What follows the number: `.raw`, `.bin`.
    fn suffix(&self) -> &'static str;

    /// The first number from `index` on that has a file. A listing asks for every entry that it shows, so this must
    /// not look at each number of a gap again.
    ///
    /// # Errors
    /// Where that cannot be found out now.
    fn next(&self, index: u64) -> Result<Option<u64>> {
        Ok(Some(index).filter(|&index| index < self.count()))
    }

    /// The file of number `index`, which exists.
    ///
    /// # Errors
    /// Where its structure turns out broken.
    fn file(&self, index: u64) -> Result<File>;
}

/// A virtual file.
#[derive(Debug, Clone)]
pub struct File {
    /// Its bytes.
    pub content: Content,
    /// Its elements, where dtype and shape are known: then a `.raw` file gets an `.npy` beside it,
    /// of the first `shape` elements.
    pub array: Option<Array>,
    /// Bytes that it takes in the container.
    pub stored: u64,
    /// Its extended attributes.
    pub attrs: Attrs,
}

impl File {
    /// A file of `content` that takes nothing in the container.
    pub fn new(content: Content) -> Self {
        Self { content, array: None, stored: 0, attrs: Attrs::new() }
    }

    /// Says how many bytes of the container it takes.
    #[must_use]
    pub fn stored(mut self, stored: u64) -> Self {
        self.stored = stored;
        self
    }

    /// Gives its bytes a type and a shape.
    #[must_use]
    pub fn typed(mut self, array: Option<Array>) -> Self {
        self.array = array;
        self
    }

    /// Adds an extended attribute.
    #[must_use]
    pub fn attr(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.attrs.push((name, value.to_string()));
        self
    }
}

/// The element type and shape of an array, as NumPy names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// The value of `descr` in a `.npy` header, as Python writes it: `'<f4'`, with its quotes.
    pub descr: String,
    /// Bytes of an element.
    pub itemsize: u64,
    /// Elements per dimension, slowest first; empty for a scalar.
    pub shape: Vec<u64>,
}

impl Array {
    /// Bytes of all elements, or `None` beyond `u64`.
    pub fn byte_len(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.itemsize, |n, &d| n.checked_mul(d))
    }
}
