//! The names in a mirrored directory, as they were when it was opened: positions in it do not change meanwhile.
//!
//! Limits: 12 bytes and the name for each entry, charged to the account.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::FileType;

use crate::account::Account;
use crate::bytes::to_u64;
use crate::error::Result;
use crate::limits::Charge;
use crate::mirror::Rules;
use crate::source::Below;

/// Entries from one charge to the next.
const STEP: usize = 1 << 14;
/// Maximum bytes of all names.
const MOST: u64 = u32::MAX as u64;

/// The entries of a directory.
#[derive(Debug, Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    charges: Vec<Charge>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u32,
    len: u16,
    kind: Kind,
    /// How much shorter the name of the file is whose tree this is.
    added: u8,
}

/// What an entry is, as far as it is known without `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A directory.
    Dir,
    /// A file.
    File,
    /// A link, or something else.
    Other(FileType),
    /// The tree of a container.
    Tree,
}

/// An entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed<'a> {
    pub(super) name: &'a [u8],
    /// The name of the file that it is, or whose tree it is.
    pub(super) file: &'a [u8],
    pub(super) kind: Kind,
}

impl Names {
    /// Lists `dir`; opens no file.
    pub(super) fn list(dir: &Below, rules: &Rules, account: &Account) -> Result<Self> {
        let mut names = Self::default();
        let mut failed = None;
        let mut charged = 0;
        dir.names(|name, kind| {
            if failed.is_some() {
                return;
            }
            let kind = match kind {
                FileType::Unknown => dir.stat(OsStr::from_bytes(name)).map_or(FileType::Unknown, |seen| seen.kind),
                kind => kind,
            };
            failed = names.add(dir, name, kind, rules).and_then(|()| names.charge(account, &mut charged)).err();
        })?;
        failed.map_or(Ok(names), Err)
    }

    fn add(&mut self, dir: &Below, name: &[u8], kind: FileType, rules: &Rules) -> Result<()> {
        let kind = match kind {
            FileType::Directory => Kind::Dir,
            FileType::RegularFile if rules.is_container(name) => {
                let exists = |name: &OsStr| dir.stat(name).is_ok();
                if rules.shows_file() {
                    self.push(name, 0, Kind::File)?;
                    let Some(tree) = rules.tree_name(name, exists) else { return Ok(()) };
                    return self.push(&tree, tree.len() - name.len(), Kind::Tree);
                }
                Kind::Tree
            }
            FileType::RegularFile => Kind::File,
            other => Kind::Other(other),
        };
        self.push(name, 0, kind)
    }

    fn push(&mut self, name: &[u8], added: usize, kind: Kind) -> Result<()> {
        let limit = || crate::limits::Limits::check(to_u64(self.bytes.len()), MOST, "directory");
        let (Ok(start), Ok(len), Ok(added)) = (self.bytes.len().try_into(), name.len().try_into(), added.try_into())
        else {
            return limit().map(drop);
        };
        self.bytes.extend_from_slice(name);
        self.entries.push(Entry { start, len, kind, added });
        Ok(())
    }

    /// Charges what was added since the last time, now and then.
    fn charge(&mut self, account: &Account, charged: &mut u64) -> Result<()> {
        if self.entries.len().is_multiple_of(STEP) {
            let all = to_u64(self.bytes.len()) + 12 * to_u64(self.entries.len());
            self.charges.push(account.charge_list(all.saturating_sub(*charged), "directory")?);
            *charged = all;
        }
        Ok(())
    }

    /// The entry at `position`.
    pub(super) fn get(&self, position: u64) -> Option<Listed<'_>> {
        let Entry { start, len, kind, added } = *self.entries.get(usize::try_from(position).ok()?)?;
        let start = usize::try_from(start).ok()?;
        let name = self.bytes.get(start..start + usize::from(len))?;
        let file = name.get(..name.len() - usize::from(added))?;
        Some(Listed { name, file, kind })
    }
}
