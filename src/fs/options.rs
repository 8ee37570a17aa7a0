//! Mount options, from the parsed command line and `-o`.
//!
//! `default_permissions` has no field: the kernel always checks modes itself.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::format::Options;

/// Seconds that open files may stay in use after a termination signal.
const GRACE: u64 = 10;

/// The options of one mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The container.
    pub file: PathBuf,
    /// The directory to mount on.
    pub mountpoint: PathBuf,
    /// Options for the format and the views.
    pub options: Options,
    /// Cache size in bytes.
    pub cache: u64,
    /// Number of decoding threads.
    pub threads: usize,
    /// Users with access to the mount.
    pub access: Access,
    /// Owner and umask.
    pub owner: Owner,
    /// Whether no program can be run from the mount.
    pub noexec: bool,
    /// Whether the mount is removed even if the daemon is killed.
    pub auto_unmount: bool,
    /// The source shown by `mount` and `df`; by default the container's path.
    pub fsname: Option<OsString>,
    /// How long the mount may be idle before it is unmounted; `None` for any time.
    pub idle: Option<Duration>,
    /// Seconds that open files may stay in use after a termination signal.
    pub grace: u64,
}

impl MountOptions {
    /// The default mount of `file` on `mountpoint`, for its owner only.
    pub fn new(file: impl Into<PathBuf>, mountpoint: impl Into<PathBuf>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            file: file.into(),
            mountpoint: mountpoint.into(),
            options: Options::default(),
            cache: 256 << 20,
            threads: cores,
            access: Access::default(),
            owner: Owner::default(),
            noexec: false,
            auto_unmount: false,
            fsname: None,
            idle: None,
            grace: GRACE,
        }
    }
}

/// Users with access to a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Only the user who mounted.
    #[default]
    Owner,
    /// That user and root.
    OwnerAndRoot,
    /// All users.
    AllUsers,
}

/// Owner and modes of all files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Owner {
    /// The owner; by default the user who mounts.
    pub uid: Option<u32>,
    /// The group; by default that of the user who mounts.
    pub gid: Option<u32>,
    /// Permission bits removed from 0444 and 0555.
    pub umask: u16,
}
