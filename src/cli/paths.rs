//! Paths in the virtual tree: lookup of paths given by users, and recursive listing.
#![forbid(unsafe_code)]

use std::ffi::OsStr;

use crate::error::{Error, Result};
use crate::tree::{Ino, Kind, Tree, normalize};

/// Maximum number of entries listed at once: they are sorted in memory, and a file of a few bytes may claim hundreds of
/// millions.
const MOST: usize = 1 << 21;

/// An entry of the tree, with its path from the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TreePath {
    /// Components separated by `/`; empty for the root.
    pub(super) path: String,
    pub(super) ino: Ino,
    pub(super) kind: Kind,
}

impl TreePath {
    /// Looks up `path`.
    ///
    /// # Errors
    /// As [`Tree::resolve`].
    pub(super) fn at(tree: &Tree, path: &OsStr) -> Result<Self> {
        // Names in the tree are UTF-8, so a path that is not cannot match.
        let path = path.to_string_lossy();
        let ino = tree.resolve(&path)?;
        let kind = match (tree.entry(ino, 0), tree.link(ino)) {
            (_, Ok(_)) => Kind::Link,
            (Err(e), _) if e.errno() == libc::ENOTDIR => Kind::File,
            _ => Kind::Dir,
        };
        Ok(Self { path: normalize(&path), ino, kind })
    }

    /// The entries of this directory, in container order.
    ///
    /// # Errors
    /// As [`Tree::entries`]; also fails if there are more than [`MOST`].
    pub(super) fn children(&self, tree: &Tree) -> Result<Vec<Self>> {
        let child = |name: &str| if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) };
        let entries = tree.entries(self.ino).take(MOST + 1);
        let found: Vec<_> = entries
            .map(|e| e.map(|e| Self { path: child(&e.name), ino: e.ino, kind: e.kind }))
            .collect::<Result<_>>()?;
        self.not_too_many(found.len())?;
        Ok(found)
    }

    fn not_too_many(&self, found: usize) -> Result<()> {
        if found <= MOST {
            return Ok(());
        }
        let name = if self.path.is_empty() { "the root" } else { &self.path };
        Err(Error::unsupported(format!("more than {MOST} entries at once; name the files to process"), name.to_owned()))
    }

    /// Everything below this directory, each directory before its content; leaves out paths for which `skip` returns
    /// true.
    ///
    /// # Errors
    /// As [`TreePath::children`].
    pub(super) fn below(&self, tree: &Tree, skip: &dyn Fn(&str) -> bool) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        let mut left = self.children(tree)?;
        left.reverse();
        while let Some(found) = left.pop() {
            if skip(&found.path) {
                continue;
            }
            if found.kind == Kind::Dir {
                left.extend(found.children(tree)?.into_iter().rev());
                self.not_too_many(all.len() + left.len())?;
            }
            all.push(found);
        }
        Ok(all)
    }
}
