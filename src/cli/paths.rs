//! Paths in the virtual tree: lookup of paths given by users, and recursive listing.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::ffi::OsStr;

use crate::error::{Error, Result};
use crate::tree::{Ino, Kind, Tree, normalize};

/// Maximum number of entries listed or extracted at once: a file of a few bytes may claim hundreds of millions.
pub(super) const MOST: usize = 1 << 21;

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
        Ok(Self { path: normalize(&path), ino, kind: tree.kind(ino)? })
    }

    /// The entries of this directory sorted by path (numbered files by number), with `recursive` everything below it;
    /// or this entry itself if it is not a directory. Keeps only the names in the directories on the way to the last
    /// entry.
    ///
    /// An error is the last item: as [`Tree::entries`], or that there are more than [`MOST`] entries.
    pub(super) fn sorted<'a>(&self, tree: &'a Tree, recursive: bool) -> Sorted<'a> {
        let mut sorted = Sorted { tree, recursive, count: 0, only: None, error: None, open: Vec::new() };
        if self.kind == Kind::Dir {
            let path = if self.path.is_empty() { String::new() } else { format!("{}/", self.path) };
            sorted.error = sorted.enter(path, self.ino).err();
        } else {
            sorted.only = Some(self.clone());
        }
        sorted
    }
}

/// Iterator over entries sorted by path; see [`TreePath::sorted`].
pub(super) struct Sorted<'a> {
    tree: &'a Tree,
    recursive: bool,
    /// Entries so far.
    count: usize,
    /// An entry that is not a directory, to be the only one.
    only: Option<TreePath>,
    /// The error of the first directory.
    error: Option<Error>,
    open: Vec<OpenDir>,
}

/// An open directory.
struct OpenDir {
    ino: Ino,
    /// Its path, with a final `/`; empty for the root.
    path: String,
    rest: EntriesLeft,
}

impl OpenDir {
    /// The entry at `position`; its path has room for a `/`.
    fn entry(&self, tree: &Tree, position: u64) -> Result<Option<TreePath>> {
        let mut found = None;
        tree.open_dir(self.ino)?.visit(position, |entry| {
            let mut path = String::with_capacity(self.path.len() + entry.name.len() + 1);
            path.extend([&self.path, entry.name]);
            found = Some(TreePath { path, ino: entry.ino, kind: entry.kind });
            true
        })?;
        Ok(found)
    }
}

/// The entries of an open directory that are left.
enum EntriesLeft {
    /// A directory with its names in memory.
    Sorted(std::vec::IntoIter<PathStep>),
    /// A directory of numbered files, in the order of their numbers, from this position on.
    Numbered(u64),
    /// A directory of this many entries named by their positions: the next step.
    Decimal(u64, Option<PathStep>),
}

/// The successor of `number` below `count`, in the order of decimal digits: 0, 1, 10, 100, 101, 11, 2.
fn next_by_digits(number: u64, count: u64) -> Option<u64> {
    let longer = number.checked_mul(10).filter(|&longer| number > 0 && longer < count);
    longer.or_else(|| {
        let mut number = number;
        while number % 10 == 9 || number + 1 >= count {
            number /= 10;
            if number == 0 {
                return None;
            }
        }
        Some(number + 1)
    })
}

/// An entry of a directory by its position, or the content of that subdirectory, which is sorted separately from the
/// subdirectory itself: `a`, `a.raw`, `a/b`.
#[derive(Debug, Clone, Copy)]
struct PathStep {
    position: u64,
    content: bool,
}

impl PathStep {
    /// Compares the names of two steps, which `name` gives, each with a final `/` if it stands for content.
    fn cmp<'a>(&self, other: &Self, name: impl Fn(&Self) -> &'a str) -> Ordering {
        let (one, two) = (name(self).as_bytes(), name(other).as_bytes());
        let len = one.len().min(two.len());
        let end = |name: &[u8], step: &Self| name.get(len).copied().or(step.content.then_some(b'/'));
        // No name has a slash, so the ends of two names differ.
        one[..len].cmp(&two[..len]).then_with(|| end(one, self).cmp(&end(two, other)))
    }
}

impl Sorted<'_> {
    /// Opens the directory `ino` at `path`.
    fn enter(&mut self, path: String, ino: Ino) -> Result<()> {
        let Some(names) = self.tree.names(ino)? else {
            let first = Some(PathStep { position: 0, content: false });
            let decimal = |count| EntriesLeft::Decimal(count, first.filter(|_| count > 0));
            let rest = self.tree.count_numbered(ino)?.map_or(EntriesLeft::Numbered(0), decimal);
            self.open.push(OpenDir { ino, path, rest });
            return Ok(());
        };
        let mut steps = Vec::new();
        let mut add = |position: u64, kind: Kind| {
            self.count += 1;
            not_too_many(self.count, path.trim_end_matches('/'))?;
            steps.push(PathStep { position, content: false });
            if self.recursive && kind == Kind::Dir {
                steps.push(PathStep { position, content: true });
            }
            Ok(())
        };
        let kinds = (0..).map_while(|position| names.get(position).map(|(_, kind)| (position, kind)));
        { kinds }.try_for_each(|(position, kind)| add(position, kind))?;
        steps.sort_unstable_by(|a, b| a.cmp(b, |step| names.get(step.position).map_or("", |(name, _)| name)));
        self.open.push(OpenDir { ino, path, rest: EntriesLeft::Sorted(steps.into_iter()) });
        Ok(())
    }

    fn advance(&mut self) -> Result<Option<TreePath>> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        while let Some(dir) = self.open.last_mut() {
            let step = match &mut dir.rest {
                EntriesLeft::Sorted(steps) => steps.next(),
                EntriesLeft::Numbered(position) => {
                    if let Some(entry) = self.tree.entry(dir.ino, *position)? {
                        *position = entry.next;
                        self.count += 1;
                        not_too_many(self.count, dir.path.trim_end_matches('/'))?;
                        let path = format!("{}{}", dir.path, entry.name);
                        return Ok(Some(TreePath { path, ino: entry.ino, kind: entry.kind }));
                    }
                    None
                }
                EntriesLeft::Decimal(count, next) => {
                    let step = next.take();
                    if let Some(PathStep { position, content }) = step {
                        if !content {
                            self.count += 1;
                            not_too_many(self.count, dir.path.trim_end_matches('/'))?;
                        }
                        let below = self.recursive && !content && self.tree.is_dir_at(dir.ino, position)?;
                        let after = || next_by_digits(position, *count);
                        let at = if below { Some(position) } else { after() };
                        *next = at.map(|position| PathStep { position, content: below });
                    }
                    step
                }
            };
            let Some(step) = step else {
                self.open.pop();
                continue;
            };
            let Some(mut entry) = dir.entry(self.tree, step.position)? else { continue };
            if !step.content {
                return Ok(Some(entry));
            }
            entry.path.push('/');
            self.enter(entry.path, entry.ino)?;
        }
        Ok(self.only.take())
    }
}

impl Iterator for Sorted<'_> {
    type Item = Result<TreePath>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        if next.is_err() {
            self.open.clear();
        }
        next.transpose()
    }
}

/// Refuses more than [`MOST`] entries; the directory at `path` has the last of them.
pub(super) fn not_too_many(found: usize, path: &str) -> Result<()> {
    if found <= MOST {
        return Ok(());
    }
    let name = if path.is_empty() { "the root" } else { path };
    Err(Error::unsupported(format!("more than {MOST} entries at once; name the files to process"), name.to_owned()))
}
