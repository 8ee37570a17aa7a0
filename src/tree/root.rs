//! The root directory: `info.json`, followed by the entries of the container.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::Result;
use crate::format::{Attrs, Container, Content, Directory, Entry, File};

/// The root directory: `info.json`, followed by the entries of the container.
pub(super) struct Root(pub(super) Arc<dyn Container>);

impl Directory for Root {
    fn attrs(&self) -> Attrs {
        let info = self.0.info();
        let mut attrs = vec![("format", info.format.to_owned()), ("format_version", info.format_version)];
        attrs.push(("stored_size", info.file_size.to_string()));
        attrs.extend(info.decoded_size.map(|size| ("decoded_size", size.to_string())));
        attrs
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let info = self.0.info();
        let json = File::new(Content::json(&info.to_json())).attr("format", info.format);
        let mut entries = vec![Entry::own("info.json", json)];
        entries.extend(self.0.entries()?);
        Ok(entries)
    }
}
