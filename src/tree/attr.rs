//! The attributes that `stat`, `readdir` and `getxattr` return.
#![forbid(unsafe_code)]

use crate::format::{Attrs, Content, File};
use crate::text;

use super::Ino;

/// The type of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
}

/// The attributes of an inode, as for stat(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The inode number.
    pub ino: Ino,
    /// The type.
    pub kind: Kind,
    /// Exact size of a file, length of a link's target, or 0 for a directory, in bytes.
    pub size: u64,
    /// Bytes occupied in the container, in units of 512.
    pub blocks: u64,
    /// 1; for a directory 2 plus the number of its subdirectories, or 1 as long as that is not known.
    pub nlink: u32,
    /// Modification time: seconds and nanoseconds since 1970; that of the container, unless it records another one.
    pub mtime: (i64, i64),
    /// The permissions that the container records; none to write.
    pub mode: Option<u16>,
}

/// Attributes of an entry that are known without decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownAttr {
    /// All of them.
    All(Attr),
    /// All but the size of this file.
    NoSize,
}

/// A directory entry, as for readdir(3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The inode number.
    pub ino: Ino,
    /// The type.
    pub kind: Kind,
    /// The name.
    pub name: String,
    /// The position of the next entry.
    pub next: u64,
}

/// A [`DirEntry`] with a borrowed name.
#[derive(Debug, Clone, Copy)]
pub struct EntryRef<'a> {
    /// The inode number.
    pub ino: Ino,
    /// The type.
    pub kind: Kind,
    /// The name.
    pub name: &'a str,
    /// The position of the next entry.
    pub next: u64,
}

/// The extended attributes of `file`: those of the format, then those derived from its description.
pub(super) fn known(file: File) -> Attrs {
    let mut attrs = file.attrs;
    let mut add = |name: &'static str, value: String| {
        if attrs.iter().all(|(there, _)| *there != name) {
            attrs.push((name, value));
        }
    };
    if let Some(array) = &file.array {
        add("dtype", array.descr.trim_matches('\'').to_owned());
        add("shape", text::shape(&array.shape));
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
