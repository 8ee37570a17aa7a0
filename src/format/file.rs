//! A virtual file as a format describes it: content, element type, metadata.
#![forbid(unsafe_code)]

use std::fmt;

use crate::error::Result;

use super::about::{About, Attributes};
use super::content::Content;
use super::entry::Attrs;
use super::space::Space;

/// A virtual file.
#[derive(Debug, Clone)]
pub struct File {
    /// Its bytes.
    pub content: Content,
    /// Its elements, if dtype and shape are known: a `.raw` file then gets a `.npy` file, with the first
    /// elements that fill `shape`.
    pub array: Option<Array>,
    /// The container's metadata of the array.
    pub about: Option<About>,
    /// Where the elements of the array are, if that is known.
    pub space: Option<Space>,
    /// Bytes that it occupies in the container.
    pub stored: u64,
    /// Its extended attributes.
    pub attrs: Attrs,
    /// Whether it is the subject of its directory: if it is typed, it then also gets a picture, and headers for
    /// programs that do not read `.npy`.
    pub is_principal: bool,
    /// Whether its readers read all of it at once and have a cache of their own, as readers of Zarr chunks do.
    pub is_read_whole: bool,
    /// The same bytes as a part of a larger content with pieces that span several files: they are read there if the
    /// pieces are in memory.
    pub part_of: Option<Content>,
}

impl File {
    /// A file of `content` that occupies no bytes in the container.
    pub fn new(content: Content) -> Self {
        Self {
            content,
            array: None,
            about: None,
            space: None,
            stored: 0,
            attrs: Attrs::new(),
            is_principal: false,
            is_read_whole: false,
            part_of: None,
        }
    }

    /// Sets the bytes that it occupies in the container.
    #[must_use]
    pub fn stored(mut self, stored: u64) -> Self {
        self.stored = stored;
        self
    }

    /// Sets the element type and shape.
    #[must_use]
    pub fn typed(mut self, array: Option<Array>) -> Self {
        self.array = array;
        self
    }

    /// Sets the container's metadata of the array, made on demand.
    #[must_use]
    pub fn about(mut self, attributes: impl Fn() -> Result<Attributes> + Send + Sync + 'static) -> Self {
        self.about = Some(About::new(attributes));
        self
    }

    /// The attributes of its array.
    ///
    /// # Errors
    /// As [`About::attributes`].
    pub fn attributes(&self) -> Result<Attributes> {
        self.about.as_ref().map_or_else(|| Ok(Attributes::new()), About::attributes)
    }

    /// Marks it as the subject of its directory.
    #[must_use]
    pub fn principal(mut self) -> Self {
        self.is_principal = true;
        self
    }

    /// Marks it as a file that readers read all at once.
    #[must_use]
    pub fn read_whole(mut self) -> Self {
        self.is_read_whole = true;
        self
    }

    /// Sets the part of a larger content that has the same bytes; no length in it may need decoding.
    #[must_use]
    pub fn part_of(mut self, content: Content) -> Self {
        self.part_of = Some(content);
        self
    }

    /// Adds an extended attribute.
    #[must_use]
    pub fn attr(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.attrs.push((name, value.to_string()));
        self
    }
}

/// The element type and shape of an array, in NumPy's terms.
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
    /// Bytes of all elements; `None` on overflow.
    pub fn byte_len(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.itemsize, |n, &d| n.checked_mul(d))
    }
}
