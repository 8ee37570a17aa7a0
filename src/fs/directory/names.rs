//! The names in a mirrored directory, as they were when it was opened: positions in it do not change meanwhile.
//!
//! Limits: [`MOST`] bytes of names, plus 12 for each entry, charged to the user who opened the directory.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::FileType;

use crate::account::{Holding, Share};
use crate::bytes::to_u64;
use crate::error::Result;
use crate::limits::Limits;
use crate::mirror::{FlatNames, Rules, is_candidate};
use crate::source::Below;

/// Bytes by which the share grows.
const STEP: u64 = 4 << 10;
/// Maximum bytes of all names.
const MOST: u64 = u32::MAX as u64;

/// The entries of a directory.
#[derive(Debug)]
pub(super) struct DirNames {
    bytes: Vec<u8>,
    entries: Vec<NameEntry>,
    /// Their charge.
    share: Share,
    /// Where in the directory the other names begin; `None` if all are here.
    next: Option<usize>,
    /// The containers whose files are listed as entries.
    pub(super) flat: Option<Arc<FlatNames>>,
}

#[derive(Debug, Clone, Copy)]
struct NameEntry {
    start: u32,
    len: u16,
    kind: NameKind,
    /// Bytes by which the name is longer than that of the underlying file.
    added: u8,
}

/// The kind of an entry, as far as it is known without `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKind {
    /// A directory.
    Dir,
    /// A file.
    File,
    /// A link, or something else.
    Other(FileType),
    /// The tree of a container.
    Tree,
    /// The tree of a compressed archive, named as the archive.
    Archive,
    /// A file that stands for a container, and its inode in the tree of that.
    Flat(u8),
}

/// An entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListedName<'a> {
    pub(super) name: &'a [u8],
    /// Name of the underlying file: of the entry itself, or of the container whose tree it is.
    pub(super) file: &'a [u8],
    pub(super) kind: NameKind,
}

/// The kind of an entry that is not a container.
pub(super) fn plain(kind: FileType) -> NameKind {
    match kind {
        FileType::Directory => NameKind::Dir,
        FileType::RegularFile => NameKind::File,
        other => NameKind::Other(other),
    }
}

/// Passes the entries of `dir` to `each` until that fails.
pub(super) fn each(dir: &Below, mut each: impl FnMut(&[u8], FileType) -> Result<()>) -> Result<()> {
    let mut next = Some(0);
    while let Some(at) = next {
        next = some(dir, at, &mut each)?;
    }
    Ok(())
}

/// As [`each`], but on a server only some of them, from number `at` on; returns where the others begin.
fn some(dir: &Below, at: usize, each: &mut impl FnMut(&[u8], FileType) -> Result<()>) -> Result<Option<usize>> {
    let mut done = Ok(());
    let next = dir.names_from(at, &mut |name, kind| {
        if done.is_ok() {
            let stat = || dir.stat(OsStr::from_bytes(name)).map_or(FileType::Unknown, |seen| seen.kind);
            done = each(name, if kind == FileType::Unknown { stat() } else { kind });
        }
    })?;
    done.map(|()| next)
}

impl DirNames {
    /// No names yet; they are charged to `share`.
    pub(super) fn new(share: Share) -> Self {
        Self { bytes: Vec::new(), entries: Vec::new(), share, next: None, flat: None }
    }

    /// Lists `dir`; opens no file. On a server, some of the names: [`DirNames::more`] lists the others.
    pub(super) fn list(dir: &Below, rules: &Rules, share: Share) -> Result<Self> {
        let mut names = Self { next: Some(0), ..Self::new(share) };
        if rules.shows_file() {
            // The siblings of a container may be on a later page.
            dir.list_far()?;
        }
        names.more(dir, rules)?;
        Ok(names)
    }

    /// Lists more names, if there are any.
    pub(super) fn more(&mut self, dir: &Below, rules: &Rules) -> Result<bool> {
        let Some(at) = self.next else { return Ok(false) };
        self.next = some(dir, at, &mut |name, kind| self.add(dir, name, kind, rules))?;
        Ok(true)
    }

    fn add(&mut self, dir: &Below, name: &[u8], kind: FileType, rules: &Rules) -> Result<()> {
        if !rules.is_container(name) || !is_candidate(dir, OsStr::from_bytes(name), kind) {
            return self.push(name, 0, plain(kind));
        }
        if !rules.shows_file() {
            return self.push(name, 0, NameKind::Tree);
        }
        self.push(name, 0, plain(kind))?;
        match rules.tree_name(name, |name| dir.stat(name).is_ok()) {
            Some(tree) => self.push(&tree, tree.len() - name.len(), NameKind::Tree),
            None => Ok(()),
        }
    }

    /// Adds an entry; `added`: bytes by which its name is longer than that of the underlying file.
    pub(super) fn push(&mut self, name: &[u8], added: usize, kind: NameKind) -> Result<()> {
        let (Ok(start), Ok(len), Ok(added)) = (self.bytes.len().try_into(), name.len().try_into(), added.try_into())
        else {
            return Limits::check(to_u64(self.bytes.len()), MOST, "directory").map(drop);
        };
        self.bytes.extend_from_slice(name);
        self.entries.push(NameEntry { start, len, kind, added });
        let all = to_u64(self.bytes.capacity() + size_of::<NameEntry>() * self.entries.capacity());
        if all > self.share.held().bytes {
            self.share.change(Holding::memory(all.next_multiple_of(STEP)))
        } else {
            Ok(())
        }
    }

    /// The entry at `position`.
    pub(super) fn get(&self, position: u64) -> Option<ListedName<'_>> {
        let NameEntry { start, len, kind, added } = *self.entries.get(usize::try_from(position).ok()?)?;
        let start = usize::try_from(start).ok()?;
        let name = self.bytes.get(start..start + usize::from(len))?;
        let file = match (kind, &self.flat) {
            (NameKind::Flat(_) | NameKind::Archive, Some(flat)) => flat.find(name)?.0,
            _ => name.get(..name.len() - usize::from(added))?,
        };
        Some(ListedName { name, file, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Account, Users};

    #[test]
    fn names_are_held_by_the_user_who_lists_them() {
        let users = Users::new(&Account::new(0, 0), 0, true);
        let mut names = DirNames::new(users.share(1000, Holding::default()).unwrap());
        let refused = (0..1_000_000).find_map(|_| names.push(&[b'x'; 200], 0, NameKind::File).err());
        assert_eq!(refused.unwrap().errno(), libc::ENOMEM);
        // Half of 16 MiB, and a vector that grows uses at least half of its capacity.
        assert!(to_u64(names.bytes.len()) > 4 << 20 && users.is_short(1000));
        drop(names);
        assert!(!users.is_short(1000));
    }
}
