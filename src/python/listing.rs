//! What is in an archive: its entries, and the names of its arrays.

use fzmfs::{Archive, Entry, EntryKind, Result};

/// Path, kind (`file`, `directory`, `link`), and size in bytes where it is known without decoding.
pub(crate) type Row = (String, &'static str, Option<u64>);

/// Directories at the root whose files show parts of arrays, or arrays again.
const PARTS: &[&str] = &["chunks", "data.zarr", "metalayers", "skippable", "stages", "stored", "vlmetalayers"];

pub(crate) fn row(entry: &Entry) -> Row {
    let kind = match entry.kind() {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link => "link",
    };
    (entry.path().to_owned(), kind, entry.size())
}

/// The names of the arrays, each with the path of its `.raw` file: those that have a `.npy` file.
pub(crate) fn arrays(archive: &Archive) -> Result<Vec<(String, String)>> {
    let mut names = Vec::new();
    let mut entries = archive.walk("")?;
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let path = entry.path();
        if entry.kind() == EntryKind::Directory && PARTS.contains(&path) {
            entries.skip_directory();
        } else if let Some(stem) = path.strip_suffix(".npy").filter(|_| entry.kind() == EntryKind::File) {
            let name = stem.strip_prefix("tensors/").unwrap_or(stem);
            names.push((name.to_owned(), format!("{stem}.raw")));
        }
    }
    Ok(names)
}
