//! A compressed archive as its members alone, as the layout `plain` shows it.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::reshaped::Reshaped;
use crate::error::Result;
use crate::format::{Container, Node};

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
        Some(archive) => {
            let (outer, described) = (container.clone(), container);
            Arc::new(Reshaped { outer, described, entries: Vec::new(), archive: Some(archive) })
        }
        None => container,
    })
}
