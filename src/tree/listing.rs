//! The children of a directory, by index and by name.
//!
//! A child takes a record of 32 bytes and its name, charged to the account; only children that the format cannot create
//! again are kept as objects.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::account::{Account, Names, Records};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::{Content, Directory, File, Metadata, npy};
use crate::limits::Limits;
use crate::view;

use super::attr;
use super::child::{Chain, Child, NONE, What};
use super::dir::TreeDir;
use super::names::safe_target;
use super::root::InnerRoot;

/// Name of its lists in error messages.
const WHAT: &str = "directory";
/// The largest number of a link: the next one marks the end of a chain.
const LAST_LINK: u64 = 0xFFFF_FFFE;

/// The children of a directory.
pub(super) struct Listing {
    pub(super) names: Names,
    /// As [`Child`] encodes them.
    children: Records<4>,
    objects: Vec<Object>,
    /// The items of the groups, as chains: the number of an item in the lower half, the index of the next in the upper.
    chains: Records<1>,
    subdirs: u32,
    links: u32,
    /// Creates the files and directories that are not objects.
    pub(super) format: Option<Arc<dyn Directory>>,
    /// Depth below the root.
    pub(super) depth: u32,
    /// Bytes removed from the start of the names of items.
    pub(super) skip: usize,
}

/// A child that the format does not create again.
pub(super) enum Object {
    /// A file, and its size once that is known.
    File(Box<File>, AtomicU64),
    /// The target of a symbolic link.
    Link(Box<str>),
    /// A directory.
    Dir(Arc<TreeDir>),
}

/// A directory among the children.
pub(super) enum SubDir {
    /// It is an object.
    Kept(Arc<TreeDir>),
    /// It was created for this access.
    Lazy(Arc<dyn Directory>),
    /// It is made from the items of the chain that starts at this link.
    Group(u32),
}

impl Listing {
    /// An empty listing of a directory `depth` levels below the root; `format` creates its files.
    pub(super) fn new(account: &Account, depth: u32, skip: usize, format: Option<Arc<dyn Directory>>) -> Self {
        Self {
            names: Names::new(account),
            children: Records::new(account, WHAT),
            objects: Vec::new(),
            chains: Records::new(account, WHAT),
            subdirs: 0,
            links: 0,
            format,
            depth,
            skip,
        }
    }

    /// Adds a child called `name`, which is free.
    ///
    /// # Errors
    /// [`Kind::TooLarge`] beyond 4 billion; [`Kind::NoRoom`] if the account is exhausted.
    pub(super) fn push(&mut self, name: &str, what: What) -> Result<()> {
        self.names.insert(name)?;
        self.children.push(Child { what, next: 2 }.encode())?;
        let object = if let What::Object(number) = what { self.objects.get(number as usize) } else { None };
        let is_dir = matches!(what, What::LazyDir(_) | What::Group(..)) || matches!(object, Some(Object::Dir(_)));
        self.subdirs += u32::from(is_dir);
        let is_link = matches!(what, What::LazyLink(_)) || matches!(object, Some(Object::Link(_)));
        self.links += u32::from(is_link);
        Ok(())
    }

    /// Adds an object; returns the child to be added.
    pub(super) fn object(&mut self, object: Object) -> What {
        self.objects.push(object);
        What::Object(to_u64(self.objects.len() - 1))
    }

    /// Replaces child `index`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is none.
    pub(super) fn set(&mut self, index: u64, child: Child) -> Result<()> {
        self.children.set(to_usize(index, WHAT)?, child.encode())
    }

    /// Starts a chain with the item number `item`.
    ///
    /// # Errors
    /// As [`Records::push`].
    pub(super) fn chain(&mut self, item: u32) -> Result<Chain> {
        let link = Limits::check(to_u64(self.chains.len()), LAST_LINK, WHAT)? as u32;
        self.chains.push([u64::from(u32::MAX) << 32 | u64::from(item)])?;
        Ok(Chain { first: link, last: link })
    }

    /// Adds an item to a chain unless it is the last one there; returns the chain.
    ///
    /// # Errors
    /// As [`Records::push`].
    pub(super) fn extend(&mut self, chain: Chain, item: u32) -> Result<Chain> {
        let last = self.chains.get(chain.last as usize).map_or(0, |[link]| link as u32);
        if last == item {
            return Ok(chain);
        }
        let added = self.chain(item)?;
        self.chains.set(chain.last as usize, [u64::from(added.first) << 32 | u64::from(last)])?;
        Ok(Chain { last: added.last, ..chain })
    }

    /// The item numbers of the chain that starts at the link `first`.
    pub(super) fn items(&self, first: u32) -> impl Iterator<Item = u32> {
        let mut at = first;
        std::iter::from_fn(move || {
            let [link] = self.chains.get(at as usize)?;
            at = (link >> 32) as u32;
            Some(link as u32)
        })
    }

    /// Marks it as complete.
    ///
    /// # Errors
    /// As [`Records::finish`].
    pub(super) fn finish(&mut self) -> Result<()> {
        self.names.finish()?;
        self.children.finish()?;
        self.chains.finish()?;
        self.objects.shrink_to_fit();
        Ok(())
    }

    pub(super) fn len(&self) -> u64 {
        to_u64(self.children.len())
    }

    pub(super) fn subdirs(&self) -> u32 {
        self.subdirs
    }

    /// About how many bytes it takes.
    pub(super) fn weight(&self) -> u64 {
        let each = |object: &Object| match object {
            Object::File(..) => 300,
            Object::Dir(_) => 200,
            Object::Link(_) => 100,
        };
        let records = 32 * self.len() + 8 * to_u64(self.chains.len());
        self.objects.iter().fold(800 + self.names.weight() + records, |sum, object| sum + each(object))
    }

    /// Whether all children are files.
    pub(super) fn has_only_files(&self) -> bool {
        self.subdirs == 0 && self.links == 0
    }

    /// Whether the format creates all children again.
    pub(super) fn has_no_objects(&self) -> bool {
        self.objects.is_empty()
    }

    pub(super) fn get(&self, index: u64) -> Option<Child> {
        self.children.get(usize::try_from(index).ok()?).map(Child::decode)
    }

    pub(super) fn name(&self, index: u64) -> Option<&str> {
        self.names.get(usize::try_from(index).ok()?)
    }

    pub(super) fn is_array(&self, index: u64) -> bool {
        self.get(index).is_some_and(|child| matches!(child.what, What::Npy(..)))
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<u64> {
        self.names.find(name).map(to_u64)
    }

    /// The object of child `index`, if it is one.
    fn object_of(&self, index: u64) -> Option<&Object> {
        match self.get(index)?.what {
            What::Object(number) => self.objects.get(usize::try_from(number).ok()?),
            _ => None,
        }
    }

    /// The type of child `index`.
    pub(super) fn kind(&self, index: u64) -> attr::Kind {
        match self.get(index).map(|child| child.what) {
            Some(What::LazyDir(_) | What::Group(..)) => attr::Kind::Dir,
            Some(What::LazyLink(_)) => attr::Kind::Link,
            Some(What::Object(_)) => match self.object_of(index) {
                Some(Object::Dir(_)) => attr::Kind::Dir,
                Some(Object::Link(_)) => attr::Kind::Link,
                Some(Object::File(..)) | None => attr::Kind::File,
            },
            Some(What::Lazy(..) | What::Npy(..)) | None => attr::Kind::File,
        }
    }

    /// The target of child `index`, if it is a link.
    pub(super) fn link(&self, index: u64) -> Option<Result<Cow<'_, str>>> {
        if let What::LazyLink(number) = self.get(index)?.what {
            let target = self.format().and_then(|format| format.link(number));
            return Some(target.map(|target| Cow::Owned(safe_target(&target))));
        }
        match self.object_of(index)? {
            Object::Link(to) => Some(Ok(Cow::Borrowed(to))),
            Object::File(..) | Object::Dir(_) => None,
        }
    }

    /// The metadata of child `index`, if the container records some.
    pub(super) fn metadata(&self, index: u64) -> Option<Metadata> {
        match self.get(index)?.what {
            What::Lazy(number, ..) | What::LazyDir(number) | What::LazyLink(number) => {
                self.format.as_ref()?.metadata(number)
            }
            What::Object(_) | What::Npy(..) | What::Group(..) => None,
        }
    }

    /// The directory of child `index`, if it is one. Does no I/O.
    ///
    /// # Errors
    /// As [`Directory::dir`].
    pub(super) fn dir(&self, index: u64) -> Result<Option<SubDir>> {
        Ok(match self.get(index).map(|child| child.what) {
            Some(What::LazyDir(number)) => {
                let dir = self.format()?.dir(number)?;
                Some(SubDir::Lazy(match dir.container() {
                    Some(inner) => Arc::new(InnerRoot::on_access(inner, self.names.account())),
                    None => dir,
                }))
            }
            Some(What::Group(chain, _)) => Some(SubDir::Group(chain.first)),
            Some(What::Object(_)) => match self.object_of(index) {
                Some(Object::Dir(dir)) => Some(SubDir::Kept(Arc::clone(dir))),
                _ => None,
            },
            _ => None,
        })
    }

    /// The file of child `index`; for a `.npy`, including its header. `None` if it is not a file.
    ///
    /// # Errors
    /// As [`Directory::file`].
    pub(super) fn file(&self, index: u64) -> Result<Option<File>> {
        match self.get(index).map(|child| child.what) {
            Some(What::Object(_)) => Ok(match self.object_of(index) {
                Some(Object::File(file, _)) => Some(File::clone(file)),
                _ => None,
            }),
            Some(What::Lazy(number, ..)) => self.format()?.file(number).map(Some),
            Some(What::Npy(raw, _)) => Ok(self.file(raw.into())?.as_ref().and_then(npy_of)),
            Some(What::LazyDir(_) | What::LazyLink(_) | What::Group(..)) | None => Ok(None),
        }
    }

    /// The size of file `index` and the bytes that it occupies in the container, only from memory.
    pub(super) fn kept_size(&self, index: u64) -> Option<(u64, u64)> {
        let (size, stored) = match self.get(index)?.what {
            What::Lazy(_, size, stored) => (size, stored),
            What::Object(_) => match self.object_of(index)? {
                Object::File(file, size) => (size.load(Ordering::Relaxed), file.stored),
                Object::Link(_) | Object::Dir(_) => return None,
            },
            What::Npy(..) | What::LazyDir(_) | What::LazyLink(_) | What::Group(..) => return None,
        };
        Some((size, stored)).filter(|&(size, _)| size != NONE)
    }

    /// Keeps the size of file `index` if it is an object; returns whether it is.
    pub(super) fn keep_size(&self, index: u64, size: u64) -> bool {
        match self.object_of(index) {
            Some(Object::File(_, kept)) => {
                kept.store(size, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }

    /// The size of file `index`, if known without decoding, and the bytes that it occupies in the container. `None` if
    /// it is not a file.
    ///
    /// # Errors
    /// As [`Listing::file`].
    pub(super) fn known_size(&self, index: u64) -> Result<Option<(Option<u64>, u64)>> {
        if let Some((size, stored)) = self.kept_size(index) {
            return Ok(Some((Some(size), stored)));
        }
        let Some(child) = self.get(index) else { return Ok(None) };
        let (size, stored) = match child.what {
            What::LazyDir(_) | What::LazyLink(_) | What::Group(..) => return Ok(None),
            What::Object(_) => match self.object_of(index) {
                Some(Object::File(file, _)) => (view::known_len(&file.content), file.stored),
                _ => return Ok(None),
            },
            // Its entry has the length if it is known without decoding.
            What::Lazy(.., stored) => (None, stored),
            What::Npy(raw, stored) => {
                let raw = self.file(raw.into())?;
                (raw.and_then(|file| file.array.as_ref().and_then(npy::file_len)), stored)
            }
        };
        Ok(Some((size, stored)))
    }

    fn format(&self) -> Result<&Arc<dyn Directory>> {
        self.format.as_ref().ok_or_else(|| Error::new(Kind::NotFound, "file"))
    }
}

/// The `.npy` of a typed file: header, then elements.
fn npy_of(file: &File) -> Option<File> {
    let array = file.array.as_ref()?;
    let elements = file.content.clone().slice(0..array.byte_len()?);
    let content = Content::Join(Arc::from([Content::bytes(npy::header(array)), elements]));
    Some(File { content, part_of: None, ..file.clone() })
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.len()).map(|index| (self.name(index), self.get(index)))).finish()
    }
}

impl fmt::Debug for SubDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(dir) => dir.fmt(f),
            Self::Lazy(_) => f.write_str("Lazy"),
            Self::Group(first) => write!(f, "Group({first})"),
        }
    }
}
