//! What `stat`, `readdir` and `getxattr` show.
#![forbid(unsafe_code)]

use crate::format::{Attrs, Content, File};

use super::Ino;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
}

/// What `stat` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The inode number.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// Bytes of a file, exactly, and of a link's target; 0 for a directory.
    pub size: u64,
    /// What it takes in the container, in units of 512 bytes.
    pub blocks: u64,
    /// 1; for a directory 2 and one for each directory in it.
    pub nlink: u32,
    /// The container's: seconds and nanoseconds since 1970.
    pub mtime: (i64, i64),
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The inode number.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// The name.
    pub name: String,
    /// The position that the next entry is asked for with.
    pub next: u64,
}

/// What is known of `file`: what the format says, and what its description shows.
pub(super) fn known(file: File) -> Attrs {
    let mut attrs = file.attrs;
    let mut add = |name: &'static str, value: String| {
        if attrs.iter().all(|(there, _)| *there != name) {
            attrs.push((name, value));
        }
    };
    if let Some(array) = &file.array {
        add("dtype", array.descr.trim_matches('\'').to_owned());
        add("shape", array.shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x"));
    }
    if let Content::FileExtent(stored) = &file.content {
        add("offset", stored.at.0.to_string());
        add("stored_size", stored.len.to_string());
    }
    if file.stored > 0 {
        add("stored_size", file.stored.to_string());
    }
    attrs
}
