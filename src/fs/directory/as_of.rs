//! Age of a directory listing, and whether the directory is still the same.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant, SystemTime};

use super::outer::SOON;
use crate::fs::inode_attr::time;
use crate::source::{Seen, Version};

/// Time and version of a directory listing.
#[derive(Debug, Clone, Copy)]
pub(super) struct AsOf {
    version: Version,
    at: Instant,
    /// Whether any later change gives it another version.
    is_settled: bool,
}

impl AsOf {
    /// For a directory that was `seen` and is about to be listed; on a server, versions of a directory cannot be
    /// distinguished.
    pub(super) fn new(seen: &Seen, is_far: bool) -> Self {
        let age = SystemTime::now().duration_since(time(seen.mtime)).unwrap_or_default();
        Self { version: seen.version(), at: Instant::now(), is_settled: !is_far && age > SOON }
    }

    /// Whether a directory that is `seen` has the names that it had then, or had them `within` this time.
    pub(super) fn is_same(&self, seen: &Seen, within: Duration) -> bool {
        self.version == seen.version() && (self.is_settled || self.age() < within)
    }

    /// The time since then.
    pub(super) fn age(&self) -> Duration {
        self.at.elapsed()
    }
}
