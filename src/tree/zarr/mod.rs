//! `data.zarr`: the arrays of a container as one Zarr group, with chunks that are views over the cached pieces.
//!
//! A program opens the group by its `zarr.json`, which contains the documents of all arrays and groups below, and then
//! reads chunks by their names; no directory is listed for it. Metadata is made when it is read. All of it follows from
//! the container, so that mounts of the same file show the same bytes.
//!
//! Limits, charged to the account: 8 bytes for each array, some 130 for each group, and the documents of a group while
//! they are open; chunks and their directories take none.
#![forbid(unsafe_code)]

mod array_dir;
mod dimensions;
mod documents;
mod names;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::account::Account;
use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::format::about::Attributes;
use crate::format::{Arrays, Content, Directory, Entry, File, Found, Info, LazyFile, NamedArray, Node, collected};
use crate::once::Once;
use crate::source::Source;
use crate::view::{self, zarr::Chunks};

use array_dir::ArrayDir;
use names::{NamesBuilder, ZarrNames};

/// The name of the group.
pub(super) const NAME: &str = "data.zarr";
/// The stem and the suffix of the name of a document.
const DOCUMENT: (&str, &str) = ("zarr", ".json");
/// The document of a group of at most this many arrays is made when its directory is listed, for its length.
const FEW: u64 = 16;
/// The number of the document of the root group.
const ROOT_DOCUMENT: u64 = u64::MAX;

/// The arrays of a container, and their names in the group.
struct Zarr {
    arrays: Arc<dyn Arrays>,
    /// Distinguishes versions of the container; with its attributes whose names are reserved.
    identity: Value,
    /// The other attributes of the container.
    attributes: Attributes,
    account: Account,
    names: Once<ZarrNames>,
}

/// An array of the group, or why it is left out, by its name.
enum GroupMember {
    Array(Box<(NamedArray, Chunks)>),
    LeftOut(Vec<u8>, String),
}

/// The group of `arrays`, in the container that `info` and `sources` describe.
pub(super) fn root(
    arrays: Arc<dyn Arrays>,
    info: &Info,
    sources: &[Arc<Source>],
    account: &Account,
) -> Arc<dyn Directory> {
    let attributes = info.details.get("attributes").and_then(Value::as_object).cloned().unwrap_or_default();
    let (reserved, attributes): (Attributes, Attributes) =
        attributes.into_iter().partition(|(name, _)| documents::RESERVED.contains(&&**name));
    let modified = sources.first().map(|source| source.mtime()).map(|(s, ns)| format!("{s}.{ns:09}"));
    let mut identity = json!({
        "format": info.format,
        "format_version": info.format_version,
        "file_size": info.file_size,
        "modified": modified,
    });
    if let (Some(identity), Some(etag)) = (identity.as_object_mut(), sources.first().and_then(|source| source.etag())) {
        identity.insert("etag".to_owned(), etag.into());
    }
    if let Some(identity) = identity.as_object_mut().filter(|_| !reserved.is_empty()) {
        identity.insert("attributes".to_owned(), reserved.into());
    }
    Arc::new(Group(Arc::new(Zarr { arrays, identity, attributes, account: account.clone(), names: Once::new() })))
}

impl Zarr {
    /// Array `index`; `None` if it is not an array.
    ///
    /// # Errors
    /// Fails if that cannot be determined now; a broken array is left out.
    fn member(&self, index: u64) -> Result<Option<GroupMember>> {
        let found = match self.arrays.find(index) {
            Err(e) if e.is_lasting() => Found::LeftOut(format!("{index}").into(), e.to_string().into()),
            found => found?,
        };
        Ok(match found {
            Found::Nothing => None,
            Found::LeftOut(name, why) => Some(GroupMember::LeftOut(name, why.into_owned())),
            Found::Array(named) => Some(match Chunks::new(&named) {
                Ok(chunks) => GroupMember::Array(Box::new((named, chunks))),
                Err(why) => GroupMember::LeftOut(named.name, why),
            }),
        })
    }

    /// Array `index` of the group.
    ///
    /// # Errors
    /// As [`Zarr::member`]; [`Kind::Corrupt`] if it is not in the group any more.
    fn array(&self, index: u64) -> Result<(NamedArray, Chunks)> {
        match self.member(index)? {
            Some(GroupMember::Array(array)) => Ok(*array),
            // Not `NotFound`: to a reader, a chunk that does not exist consists of zeros.
            _ => Err(Error::corrupt("it is not there any more", "array")),
        }
    }

    /// The attributes of array `index`.
    ///
    /// # Errors
    /// Fails if they are broken, or cannot be read now.
    fn attributes(&self, index: u64) -> Result<Attributes> {
        self.arrays.file(index)?.attributes()
    }

    fn names(&self) -> Result<&ZarrNames> {
        self.names.get(|| {
            let mut builder = NamesBuilder::new(&self.account, self.arrays.count())?;
            for index in 0..self.arrays.count() {
                if let Some(GroupMember::Array(array)) = self.member(index)? {
                    builder.add(index, &array.0)?;
                }
            }
            Ok(builder.finish())
        })
    }
}

/// The directory of the group; the directories below it are made of names.
struct Group(Arc<Zarr>);

impl Group {
    /// The length of the document of a group with few arrays.
    fn known_len(&self, group: Option<u64>) -> Result<Option<u64>> {
        if self.0.arrays.count() > FEW { Ok(None) } else { Ok(view::known_len(&self.0.document(group)?)) }
    }

    /// The entry of array `number`, or, after them, the document of a group.
    fn member(&self, number: u64, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        let names = self.0.names()?;
        let too_large = |_| Error::new(Kind::TooLarge { value: number, limit: u32::MAX.into() }, NAME);
        let item = Some(u32::try_from(number).map_err(too_large)?);
        let named = |stem: String, suffix, node| Entry {
            nested: true,
            is_safe: true,
            item,
            ..Entry::named(stem, suffix, node)
        };
        if let Some(group) = number.checked_sub(self.0.arrays.count()) {
            let path = names.group(&self.0, group)?;
            let stem = format!("{path}/{}", DOCUMENT.0);
            let file = LazyFile { number, len: self.known_len(Some(group))?, stored: 0, array: None };
            return each(named(stem, DOCUMENT.1, Node::LazyFile(file)));
        }
        match self.0.member(number)? {
            Some(GroupMember::Array(array)) => each(named(names.path(number, &array.0), "", Node::LazyDir(number))),
            _ => Ok(()),
        }
    }
}

impl Directory for Group {
    fn entries(&self) -> Result<Vec<Entry>> {
        collected(self)
    }

    fn for_each(&self, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        let document = LazyFile { number: ROOT_DOCUMENT, len: self.known_len(None)?, stored: 0, array: None };
        let (stem, suffix) = DOCUMENT;
        each(Entry::named(stem, suffix, Node::LazyFile(document)))?;
        let groups = to_u64(self.0.names()?.groups());
        (0..self.0.arrays.count() + groups).try_for_each(|number| self.member(number, each))
    }

    fn item(&self, number: u32, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.member(number.into(), each)
    }

    fn file(&self, number: u64) -> Result<File> {
        let zarr = Arc::clone(&self.0);
        let make = move || {
            let group = match number.checked_sub(zarr.arrays.count()) {
                Some(group) if number != ROOT_DOCUMENT => Some(group),
                _ => None,
            };
            zarr.document(group)
        };
        Ok(File::new(Content::Deferred { len: None, make: Arc::new(make) }))
    }

    fn dir(&self, number: u64) -> Result<Arc<dyn Directory>> {
        Ok(Arc::new(ArrayDir { zarr: Arc::clone(&self.0), index: number }))
    }
}
