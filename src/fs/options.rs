//! What a mount is asked to be: the command line and `-o`, already parsed.
//!
//! There is no word for `default_permissions`: the kernel always checks modes itself.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;

use crate::format::Options;

/// Seconds that open files have to finish in after a signal asked the mount to end.
const GRACE: u64 = 10;

/// One mount, as asked for.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The container.
    pub file: PathBuf,
    /// The directory to mount on.
    pub mountpoint: PathBuf,
    /// What the format and the views want to know.
    pub options: Options,
    /// Decoded bytes that the daemon keeps.
    pub cache: u64,
    /// Decoding threads.
    pub threads: usize,
    /// Who may look into the mount.
    pub access: Access,
    /// Owner and modes that differ from the usual.
    pub owner: Owner,
    /// Whether the mount goes away when the daemon dies, however it dies.
    pub auto_unmount: bool,
    /// The source that `mount` and `df` show; the container's path if none.
    pub fsname: Option<OsString>,
    /// Whether to stay in the foreground.
    pub foreground: bool,
    /// Seconds that open files have after SIGTERM.
    pub grace: u64,
}

impl MountOptions {
    /// The usual mount of `file` on `mountpoint`: in the background, for its owner only.
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
            auto_unmount: false,
            fsname: None,
            foreground: false,
            grace: GRACE,
        }
    }
}

/// Who may look into a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Only the user who mounted.
    #[default]
    Owner,
    /// That user, and root.
    OwnerAndRoot,
    /// Everybody.
    Everybody,
}

/// Owner and modes that every file shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Owner {
    /// The owner, if not the user who mounts.
    pub uid: Option<u32>,
    /// The group, if not that of the user who mounts.
    pub gid: Option<u32>,
    /// Permission bits that are taken away from 0444 and 0555.
    pub umask: u16,
}
