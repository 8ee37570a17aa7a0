//! A compressed file as what was compressed, with the layout `plain`: one file, or the directory of an archive.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::sync::Arc;

use super::Layout;
use super::reshaped::Reshaped;
use crate::error::Result;
use crate::format::{Container, Entry, File, Node};
use crate::platform::OsStrExt;

/// The compressed file `name` as a tree whose root holds what was compressed, under the name that it had. `None` if the
/// container is not a compressed file, or one of a container that is not an archive.
///
/// # Errors
/// As [`Container::entries`].
pub fn plain(container: &Arc<dyn Container>, name: &OsStr) -> Result<Option<Arc<dyn Container>>> {
    alone(container, &Layout::Plain.stem(name.as_bytes()))
}

/// As [`plain`], called `stem`.
pub(super) fn alone(container: &Arc<dyn Container>, stem: &[u8]) -> Result<Option<Arc<dyn Container>>> {
    if container.stream().is_none() {
        return Ok(None);
    }
    let (mut inner, mut data) = (None, None);
    for entry in container.entries()? {
        match entry.node {
            Node::Container(container) => inner = Some(container),
            Node::File(file) if file.is_principal && entry.suffix == ".raw" => data = Some(file),
            _ => {}
        }
    }
    let node = match (inner, data) {
        (Some(archive), _) if container.lists_by_decoding() => Node::Container(archive),
        // No array: it would have further files.
        (None, Some(data)) => Node::File(Box::new(File { is_principal: false, array: None, ..*data })),
        _ => return Ok(None),
    };
    let entry = Entry::named(stem, "", node);
    let (outer, described) = (container.clone(), container.clone());
    Ok(Some(Arc::new(Reshaped { outer, described, entries: vec![entry], archive: None })))
}
