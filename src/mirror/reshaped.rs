//! A container with other entries in its root, as a layout shows it: the same bytes and checks, and no arrays.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::Result;
use crate::format::{Arrays, BlobRef, Check, Container, Enclosed, Entry, Info};
use crate::source::Source;

/// A container that shows as `entries`, or as `archive`, which is in it.
pub(super) struct Reshaped {
    pub(super) outer: Arc<dyn Container>,
    /// The container that it is described as.
    pub(super) described: Arc<dyn Container>,
    pub(super) entries: Vec<Entry>,
    pub(super) archive: Option<Arc<dyn Enclosed>>,
}

impl Container for Reshaped {
    fn wrapped(&self) -> Option<&Arc<dyn Container>> {
        Some(&self.outer)
    }

    fn shown(&self) -> Option<Arc<dyn Enclosed>> {
        self.archive.clone()
    }

    fn info(&self) -> Info {
        self.described.info()
    }

    fn is_described(&self) -> bool {
        self.archive.is_some() && self.outer.is_described()
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(self.entries.clone())
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
