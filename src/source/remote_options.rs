//! The user's options for objects on servers.
#![forbid(unsafe_code)]

use std::time::Duration;

use super::CacheDir;

/// Options for objects on servers. Local files ignore them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteOptions {
    /// How long a failing server is asked again before a read fails.
    pub timeout: Duration,
    /// The `ETag` that the object must have.
    pub expect: Option<String>,
    /// Whether an object without `ETag` and time of change may be read: its changes are not noticed.
    pub unpinned: bool,
    /// Where fetched bytes are kept across mounts.
    pub cache: Option<CacheDir>,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), expect: None, unpinned: false, cache: None }
    }
}
