//! The user's options for objects on servers.
#![forbid(unsafe_code)]

#[cfg(feature = "remote")]
use std::os::fd::OwnedFd;
use std::path::PathBuf;
#[cfg(feature = "remote")]
use std::sync::{Arc, OnceLock};
use std::time::Duration;

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

/// A directory in which compressed bytes are kept.
#[derive(Debug, Clone)]
pub struct CacheDir {
    /// The directory, absolute.
    pub dir: PathBuf,
    /// Most bytes in it; `None` if only the free space of the disk counts.
    pub size: Option<u64>,
    /// The directory itself, from its first use on: its path may later lead elsewhere.
    #[cfg(feature = "remote")]
    pub(super) held: Arc<OnceLock<OwnedFd>>,
}

impl CacheDir {
    /// The directory `dir`, with at most `size` bytes. Opens nothing.
    pub fn new(dir: PathBuf, size: Option<u64>) -> Self {
        Self {
            dir,
            size,
            #[cfg(feature = "remote")]
            held: Arc::default(),
        }
    }
}

impl PartialEq for CacheDir {
    fn eq(&self, other: &Self) -> bool {
        self.dir == other.dir && self.size == other.size
    }
}

impl Eq for CacheDir {}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), expect: None, unpinned: false, cache: None }
    }
}
