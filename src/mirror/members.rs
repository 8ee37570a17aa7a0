//! A compressed archive as its members alone, as the layout `plain` shows it.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::Result;
use crate::format::{Arrays, BlobRef, Check, Container, Enclosed, Entry, Info, Node};
use crate::source::Source;

/// `container`; with an archive in its stream, the members of that.
///
/// # Errors
/// As [`Container::entries`], if that may be transient.
pub(super) fn members(container: Arc<dyn Container>) -> Result<Arc<dyn Container>> {
    if !container.lists_by_decoding() {
        return Ok(container);
    }
    let entries = match container.entries() {
        // One that cannot be listed is shown as it is.
        Err(e) if e.is_lasting() => Vec::new(),
        entries => entries?,
    };
    let archive = entries.into_iter().find_map(|entry| match entry.node {
        Node::Container(inner) => Some(inner),
        _ => None,
    });
    Ok(match archive {
        Some(archive) => Arc::new(Members { outer: container, archive }),
        None => container,
    })
}

/// The archive in the stream of a container.
struct Members {
    outer: Arc<dyn Container>,
    archive: Arc<dyn Enclosed>,
}

impl Container for Members {
    fn wrapped(&self) -> Option<&Arc<dyn Container>> {
        Some(&self.outer)
    }

    fn shown(&self) -> Option<Arc<dyn Enclosed>> {
        Some(self.archive.clone())
    }

    fn info(&self) -> Info {
        self.outer.info()
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(Vec::new())
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
