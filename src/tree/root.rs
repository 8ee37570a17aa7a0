//! The root directory of a container: `info.json` and `data.zarr`, followed by its entries.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::account::Account;
use crate::error::Result;
use crate::format::{Attrs, Container, Content, Directory, Enclosed, Entry, File, Node};

use super::zarr;

/// The names of the attributes that the root of every container has, without their prefix.
pub const ATTRS_OF_ROOT: [&str; 3] = ["format", "format_version", "stored_size"];

/// The root directory.
pub(super) struct Root {
    container: Arc<dyn Container>,
    account: Account,
}

impl Root {
    /// The root of `container`; its own files are charged to `account`.
    pub(super) fn new(container: &Arc<dyn Container>, account: &Account) -> Self {
        Self { container: Arc::clone(container), account: account.clone() }
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
        let info = self.container.info();
        let json = File::new(Content::json(&info.to_json())).attr("format", info.format);
        let mut entries = Vec::new();
        if self.container.is_described() {
            entries.push(Entry::own("info.json", json));
        }
        if let Some(arrays) = self.container.arrays()? {
            let group = zarr::root(arrays, &info, &self.container.sources(), &self.account);
            entries.push(Entry::own(zarr::NAME, Node::Dir(group)));
        }
        entries.extend(self.container.entries()?);
        Ok(entries)
    }
}

/// The root directory of a container inside another one, which is opened when it is listed.
pub(super) struct InnerRoot {
    inner: Arc<dyn Enclosed>,
    account: Account,
}

impl InnerRoot {
    pub(super) fn new(inner: Arc<dyn Enclosed>, account: &Account) -> Self {
        Self { inner, account: account.clone() }
    }
}

impl Directory for InnerRoot {
    fn attrs(&self) -> Attrs {
        self.inner.known().map_or_else(Attrs::new, |container| Root::new(&container, &self.account).attrs())
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Root::new(&self.inner.open()?, &self.account).entries()
    }
}
