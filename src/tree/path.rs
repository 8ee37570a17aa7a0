//! Paths in the tree, as users write them.
#![forbid(unsafe_code)]

use crate::error::{Error, Kind as Cause, Result};

use super::inodes::Inode;
use super::{Ino, ROOT, Tree};

/// Maximum number of names listed in an error.
const SHOWN: usize = 8;

impl Tree {
    /// The inode number of `path`, such as `buffers/output.raw`. Links are followed, but for one in the last component.
    ///
    /// # Errors
    /// [`Cause::NotFound`] with the missing component and the names that exist instead.
    pub fn resolve(&self, path: &str) -> Result<Ino> {
        let (mut at, mut walked) = (ROOT, String::new());
        for component in path.split('/').filter(|component| !matches!(*component, "" | ".")) {
            at = self.follow(at)?;
            at = match (component, self.inode(at)?) {
                (_, Inode::Child(..)) => {
                    return Err(Error::new(Cause::NotFound, format!("{path}: {walked} is not a directory")));
                }
                ("..", _) => self.parent(at),
                _ => match self.lookup(at, component.as_bytes())? {
                    Some(child) => child,
                    None => return Err(self.absent(path, component, at, &walked)),
                },
            };
            if !walked.is_empty() {
                walked.push('/');
            }
            walked.push_str(component);
        }
        Ok(at)
    }

    /// The path of `ino`, as [`Tree::resolve`] takes it; `None` if a directory on the way cannot be listed.
    pub fn path(&self, mut ino: Ino) -> Option<String> {
        let mut names = Vec::new();
        while let Some((dir, at)) = self.place(ino) {
            names.push(self.entry(dir, at).ok()??.name);
            ino = dir;
        }
        names.reverse();
        Some(names.join("/"))
    }

    /// The error for a missing `component` of `path` in the directory `at`; lists the names that exist.
    fn absent(&self, path: &str, component: &str, at: Ino, walked: &str) -> Error {
        let mut names: Vec<String> = Vec::new();
        for entry in self.entries(at).map_while(Result::ok) {
            if names.len() == SHOWN {
                names.push("...".to_owned());
                break;
            }
            names.push(entry.name);
        }
        let place = if walked.is_empty() { "the root" } else { walked };
        let there = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
        Error::new(Cause::NotFound, format!("{path}: no {component} in {place}, which contains {there}"))
    }
}
