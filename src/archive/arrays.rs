//! The names of the arrays of an archive.
#![forbid(unsafe_code)]

use super::{Archive, contained};
use crate::error::Result;
use crate::tree::{Ino, Kind, ROOT, Tree};

impl Archive {
    /// The arrays of the container and of nested ones: the name of each as the tree writes it, and the path of its
    /// `.raw` file. Arrays in broken parts are left out.
    ///
    /// # Errors
    /// As [`Archive::list`].
    #[doc(hidden)]
    pub fn arrays(&self) -> Result<Vec<(String, String)>> {
        // Directories of these names may also be groups of arrays, where the format names nothing else so.
        let (folder, again): (_, &[&str]) = match self.info()?.format {
            "ztensor" => ("tensors/", &["data.zarr", "stored"]),
            _ => ("", &["data.zarr"]),
        };
        let mut names = Vec::new();
        contained("directory", || {
            below(self.tree(), ROOT, "", again, &mut |stem| {
                names.push((stem.strip_prefix(folder).unwrap_or(stem).to_owned(), format!("{stem}.raw")));
            })
        })?;
        Ok(names)
    }
}

/// Passes the paths of the arrays below `dir`, without suffixes, to `each`; `again` are directories in it that show them
/// again.
fn below(tree: &Tree, dir: Ino, path: &str, again: &[&str], each: &mut dyn FnMut(&str)) -> Result<()> {
    let names = match tree.names(dir) {
        Err(error) if dir != ROOT && error.is_lasting() => return Ok(()),
        names => names?,
    };
    // Numbered files are parts of arrays.
    let Some(names) = names else { return Ok(()) };
    for entry in tree.entries(dir) {
        let entry = entry?;
        let whole = if path.is_empty() { entry.name } else { format!("{path}/{}", entry.name) };
        if entry.kind == Kind::Dir && !again.contains(&&*whole) {
            below(tree, entry.ino, &whole, &[], each)?;
        } else if names.is_array(entry.next - 1) {
            each(whole.strip_suffix(".npy").unwrap_or(&whole));
        }
    }
    Ok(())
}
