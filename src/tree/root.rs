//! The root directory of a container: `info.json` and `data.zarr`, followed by its entries.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::account::Account;
use crate::error::{Error, Kind, Result};
use crate::format::{Attrs, Container, Content, Directory, Enclosed, Entry, File, Metadata, Node, Subdirs};

use super::zarr;

/// The names of the attributes that the root of every container has, without their prefix.
pub const ATTRS_OF_ROOT: [&str; 3] = ["format", "format_version", "stored_size"];

/// The root directory.
pub(super) struct Root {
    container: Arc<dyn Container>,
    account: Account,
    /// The rest of its entries.
    more: Option<Arc<dyn Directory>>,
}

impl Root {
    /// The root of `container`; its own files are charged to `account`.
    pub(super) fn new(container: &Arc<dyn Container>, account: &Account) -> Self {
        Self { container: Arc::clone(container), account: account.clone(), more: container.directory() }
    }
}

impl Root {
    fn more(&self) -> Result<&Arc<dyn Directory>> {
        self.more.as_ref().ok_or_else(|| Error::new(Kind::NotFound, "entry"))
    }
}

impl Directory for Root {
    fn attrs(&self) -> Attrs {
        let info = self.container.info();
        let values = [info.format.to_owned(), info.format_version, info.file_size.to_string()];
        let mut attrs: Attrs = ATTRS_OF_ROOT.into_iter().zip(values).collect();
        attrs.extend(info.decoded_size.map(|size| ("decoded_size", size.to_string())));
        attrs
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        if self.container.is_described() {
            let info = self.container.info();
            let json = File::new(Content::json(&info.to_json())).attr("format", info.format);
            entries.push(Entry::own("info.json", json));
        }
        if let Some(arrays) = self.container.arrays()? {
            let group = zarr::root(arrays, &self.container.info(), &self.container.sources(), &self.account);
            entries.push(Entry::own(zarr::NAME, Node::Dir(group)));
        }
        entries.extend(self.container.entries()?);
        Ok(entries)
    }

    fn for_each(&self, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.entries()?.into_iter().try_for_each(&mut *each)?;
        self.more.as_ref().map_or(Ok(()), |more| more.for_each(each))
    }

    fn file(&self, number: u64) -> Result<File> {
        self.more()?.file(number)
    }

    fn dir(&self, number: u64) -> Result<Arc<dyn Directory>> {
        self.more()?.dir(number)
    }

    fn link(&self, number: u64) -> Result<Vec<u8>> {
        self.more()?.link(number)
    }

    fn metadata(&self, number: u64) -> Option<Metadata> {
        self.more.as_ref()?.metadata(number)
    }

    fn subdirs(&self) -> Subdirs {
        self.more.as_ref().map_or(Subdirs::Listed, |more| more.subdirs())
    }
}

/// The root directory of a container inside another one, which is opened when it is listed.
pub(super) struct InnerRoot {
    inner: Arc<dyn Enclosed>,
    account: Account,
    /// Whether it is one of many, which are created on access and kept by the format.
    is_one_of_many: bool,
}

impl InnerRoot {
    pub(super) fn new(inner: Arc<dyn Enclosed>, account: &Account) -> Self {
        Self { inner, account: account.clone(), is_one_of_many: false }
    }

    /// The same of one of many containers.
    pub(super) fn on_access(inner: Arc<dyn Enclosed>, account: &Account) -> Self {
        Self { is_one_of_many: true, ..Self::new(inner, account) }
    }

    fn root(&self) -> Result<Root> {
        Ok(Root::new(&self.inner.open()?, &self.account))
    }

    /// The same, if the container was opened before.
    fn known_root(&self) -> Option<Root> {
        self.inner.known().map(|container| Root::new(&container, &self.account))
    }
}

impl Directory for InnerRoot {
    fn attrs(&self) -> Attrs {
        self.known_root().map_or_else(Attrs::new, |root| root.attrs())
    }

    fn is_made_again(&self) -> bool {
        self.is_one_of_many
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        self.root()?.entries()
    }

    fn for_each(&self, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.root()?.for_each(each)
    }

    fn file(&self, number: u64) -> Result<File> {
        self.root()?.file(number)
    }

    fn dir(&self, number: u64) -> Result<Arc<dyn Directory>> {
        self.root()?.dir(number)
    }

    fn link(&self, number: u64) -> Result<Vec<u8>> {
        self.root()?.link(number)
    }

    fn metadata(&self, number: u64) -> Option<Metadata> {
        self.known_root()?.metadata(number)
    }

    fn subdirs(&self) -> Subdirs {
        let is_unknown = self.is_one_of_many || self.inner.lists_by_decoding();
        if is_unknown { Subdirs::Unknown } else { Subdirs::Listed }
    }
}
