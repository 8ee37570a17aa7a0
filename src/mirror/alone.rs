//! A compressed file as what was compressed, with the layout `plain`: one file, or the directory of an archive.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::Layout;
use crate::error::Result;
use crate::format::{Arrays, BlobRef, Check, Container, Entry, File, Info, Node};
use crate::source::Source;

/// The compressed file `name` as a tree whose root holds what was compressed, under the name that it had. `None` if the
/// container is no compressed file, or one of a container that is no archive.
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
    Ok(Some(Arc::new(Alone { outer: container.clone(), entry })))
}

/// A container as its only entry.
struct Alone {
    outer: Arc<dyn Container>,
    entry: Entry,
}

impl Container for Alone {
    fn wrapped(&self) -> Option<&Arc<dyn Container>> {
        Some(&self.outer)
    }

    fn info(&self) -> Info {
        self.outer.info()
    }

    fn is_described(&self) -> bool {
        false
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(vec![self.entry.clone()])
    }

    fn stream(&self) -> Option<BlobRef> {
        None
    }

    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        Ok(None)
    }

    fn checks(&self) -> Vec<Check> {
        self.outer.checks()
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        self.outer.sources()
    }
}
