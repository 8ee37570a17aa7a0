//! How files are opened, looked at and renamed.
#![forbid(unsafe_code)]

use std::ops::BitOr;

use windows_sys::Win32::Storage::FileSystem::{
    FILE_GENERIC_READ, FILE_GENERIC_WRITE, FILE_LIST_DIRECTORY, FILE_READ_ATTRIBUTES, FILE_TRAVERSE,
};

/// How a directory is opened in which only names are looked up.
pub const SEARCH: OFlags = OFlags(OFlags::LOOK_UP);

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OFlags(u32);

impl OFlags {
    /// To read.
    pub const RDONLY: Self = Self(0);
    /// To write.
    pub const WRONLY: Self = Self(1);
    /// Make it if it does not exist.
    pub const CREATE: Self = Self(2);
    /// Only if it does not exist.
    pub const EXCL: Self = Self(4);
    /// A directory.
    pub const DIRECTORY: Self = Self(8);
    /// Not through a link.
    pub const NOFOLLOW: Self = Self(16);
    /// Handles are never inherited.
    pub const CLOEXEC: Self = Self(0);
    /// Nothing blocks.
    pub const NONBLOCK: Self = Self(0);
    /// There are no terminals.
    pub const NOCTTY: Self = Self(0);
    const LOOK_UP: u32 = 32;

    /// No flags.
    pub const fn empty() -> Self {
        Self(0)
    }

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The rights that the handle needs.
    pub(super) fn access(self) -> u32 {
        match self {
            _ if self.0 & Self::LOOK_UP != 0 => FILE_TRAVERSE | FILE_READ_ATTRIBUTES,
            _ if self.has(Self::DIRECTORY) => FILE_LIST_DIRECTORY | FILE_TRAVERSE | FILE_READ_ATTRIBUTES,
            _ if self.has(Self::WRONLY) => FILE_GENERIC_WRITE,
            _ => FILE_GENERIC_READ,
        }
    }
}

impl BitOr for OFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The rights of a new file: those that its directory passes on, whatever is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Mode;

impl Mode {
    /// For its owner.
    pub const RWXU: Self = Self;
    /// For its owner.
    pub const RUSR: Self = Self;
    /// For its owner.
    pub const WUSR: Self = Self;

    /// None.
    pub const fn empty() -> Self {
        Self
    }

    /// From a number.
    pub const fn from_raw_mode(_: u32) -> Self {
        Self
    }
}

impl BitOr for Mode {
    type Output = Self;

    fn bitor(self, _: Self) -> Self {
        self
    }
}

/// How a name is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtFlags(u32);

impl AtFlags {
    /// The link, not what it leads to.
    pub const SYMLINK_NOFOLLOW: Self = Self(1);
    /// A directory is removed.
    pub const REMOVEDIR: Self = Self(2);

    /// No flags.
    pub const fn empty() -> Self {
        Self(0)
    }
}

/// How a file is renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenameFlags(u32);

impl RenameFlags {
    /// Fail if the name exists.
    pub const NOREPLACE: Self = Self(1);
}
