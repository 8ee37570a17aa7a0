//! The entries of an archive.

use fzmfs::{Entry, EntryKind};

/// Path, kind (`file`, `directory`, `link`), and size in bytes where it is known without decoding.
pub(crate) type EntryRow = (String, &'static str, Option<u64>);

pub(crate) fn row(entry: &Entry) -> EntryRow {
    let kind = match entry.kind() {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link => "link",
    };
    (entry.path().to_owned(), kind, entry.size())
}
