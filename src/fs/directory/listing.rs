//! The replies that list a directory of the mirrored one.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use fuser::{Errno, FileAttr, FileHandle, FileType, INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use super::as_of::AsOf;
use super::names::{DirNames, ListedName, NameKind};
use super::nodes::EntryKey;
use super::outer::{HANDLE, SOON, errno, kind, seen_at};
use super::{DirHandle, MirroredDir, MirroredOpenDir};
use crate::account::Holding;
use crate::error::Result;
use crate::fs::shared::{DOTS, GENERATION};
use crate::source::Below;
use crate::tree::Ino;

impl MirroredDir {
    /// Lists the directory `number`; returns its handle.
    pub(super) fn open_dir(&self, number: u64, uid: u32) -> Result<FileHandle, Errno> {
        let below = self.below(number)?;
        let share = self.users.share(uid, HANDLE).map_err(|e| errno(&e))?;
        let open = self.listing(number, uid, below).map_err(|e| errno(&e))?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        super::write(&self.listings).insert(number, DirHandle { open, _share: share });
        Ok(FileHandle(number))
    }

    /// The names in the directory `number`, which is `below`, for user `uid`: reuses the user's last listing if the
    /// directory has not changed since.
    fn listing(&self, number: u64, uid: u32, below: Below) -> Result<Arc<MirroredOpenDir>> {
        let seen = below.stat_itself()?;
        // Containers can change their files without another version of the directory.
        let is_now = |dir: &Arc<MirroredOpenDir>| dir.as_of.is_same(&seen, Duration::ZERO) && dir.as_of.age() < SOON;
        if let Some(dir) = self.recent_listings.in_use(&(uid, number)).filter(is_now) {
            return Ok(dir);
        }
        let (as_of, share) = (AsOf::new(&seen, self.is_far), self.users.share(uid, Holding::default())?);
        let names = match &self.containers.rules {
            rules if rules.is_flat() => self.list_flat(number, &below, share),
            rules => DirNames::list(&below, rules, share),
        };
        let dir = Arc::new(MirroredOpenDir { names: RwLock::new(names?), as_of, far: self.is_far.then_some(below) });
        self.recent_listings.put((uid, number), Arc::downgrade(&dir));
        Ok(dir)
    }

    /// The entries of an open directory from `offset`, with the position of the next one, until `add` returns true.
    fn entries(
        &self,
        number: u64,
        dir: &MirroredOpenDir,
        offset: u64,
        mut add: impl FnMut(Option<ListedName<'_>>, u64, &[u8], u64) -> bool,
    ) -> Result<(), Errno> {
        let parent = self.state().nodes.parent(number);
        for ((name, number), next) in [(&b"."[..], number), (b"..", parent)].into_iter().zip(1..) {
            if next > offset && add(None, number, name, next) {
                return Ok(());
            }
        }
        let mut at = offset.max(DOTS);
        loop {
            let names = super::read(&dir.names);
            while let Some(entry) = names.get(at - DOTS) {
                at += 1;
                if add(Some(entry), 0, entry.name, at) {
                    return Ok(());
                }
            }
            drop(names);
            let Some(below) = &dir.far else { return Ok(()) };
            if !super::write(&dir.names).more(below, &self.containers.rules).map_err(|e| errno(&e))? {
                return Ok(());
            }
        }
    }

    /// As [`MirroredDir::entries`], with the directory itself.
    fn add_entries(
        &self,
        number: u64,
        handle: u64,
        offset: u64,
        mut add: impl FnMut(&Below, (Option<ListedName<'_>>, u64, &[u8], u64)) -> bool,
    ) -> Result<(), Errno> {
        let dir = super::read(&self.listings).get(&handle).map(|handle| handle.open.clone()).ok_or(Errno::EBADF)?;
        self.now(number, &dir, |below| {
            self.entries(number, &dir, offset, |entry, dots, name, next| add(below, (entry, dots, name, next)))
        })
    }

    /// Passes the directory `number` as it is now to `then`; one on a server as it was listed.
    fn now<T>(
        &self,
        number: u64,
        dir: &MirroredOpenDir,
        then: impl FnOnce(&Below) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match &dir.far {
            Some(below) => then(below),
            None => then(&self.below(number)?),
        }
    }

    /// Replies to readdir.
    pub(super) fn list(&self, number: u64, handle: u64, offset: u64, mut reply: ReplyDirectory) {
        let add = |below: &Below, (entry, dots, name, next): (Option<ListedName<'_>>, u64, &[u8], u64)| {
            let name = OsStr::from_bytes(name);
            let Some(ListedName { file, kind: entry_kind, .. }) = entry else {
                return reply.add(INodeNo(dots), next, FileType::Directory, name);
            };
            let (is_tree, kind, ino) = match entry_kind {
                NameKind::Dir => (false, FileType::Directory, 0),
                NameKind::File => (false, FileType::RegularFile, 0),
                NameKind::Other(native) => (false, kind(native), 0),
                NameKind::Tree | NameKind::Archive => (true, FileType::Directory, 0),
                NameKind::Flat(ino) => (true, FileType::RegularFile, ino),
            };
            let identity = if is_tree {
                seen_at(below, file, true).map(|seen| seen.version())
            } else {
                below.identity(OsStr::from_bytes(file))
            };
            // Removed meanwhile.
            let Ok(identity) = identity else { return false };
            let of = EntryKey { parent: number, name: file, is_tree, identity, is_flat: ino > 0 };
            let number = self.state().nodes.number(&of) + u64::from(ino);
            reply.add(INodeNo(number), next, kind, name)
        };
        match self.add_entries(number, handle, offset, add) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    /// Replies to readdirplus.
    pub(super) fn list_plus(&self, number: u64, handle: u64, offset: u64, uid: u32, mut reply: ReplyDirectoryPlus) {
        let add = |below: &Below, (entry, dots, name, next): (Option<ListedName<'_>>, u64, &[u8], u64)| {
            let name = OsStr::from_bytes(name);
            let Some(entry) = entry else {
                // The kernel looks at the type alone.
                let Some(attr) = stat_dots(self, below, dots) else { return false };
                return reply.add(INodeNo(dots), next, name, &SOON, &attr, GENERATION);
            };
            // Removed meanwhile.
            let is_tree = matches!(entry.kind, NameKind::Tree | NameKind::Archive);
            let is_container = is_tree || matches!(entry.kind, NameKind::Flat(_));
            let Ok(seen) = seen_at(below, entry.file, is_container) else { return false };
            let (attr, keep) = if let NameKind::Flat(ino) = entry.kind {
                self.tell_flat(number, entry.file, &seen, Ino(ino.into()), uid)
            } else {
                let attr = self.tell(number, entry.file, &seen, is_tree, uid);
                (self.with_length_of_target(number, below, name, attr), self.keep())
            };
            let is_full = reply.add(attr.ino, next, name, &keep, &attr, GENERATION);
            if is_full {
                self.forget_inode(attr.ino.0, 1);
            }
            is_full
        };
        match self.add_entries(number, handle, offset, add) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }
}

/// Attributes for `.` and `..`.
fn stat_dots(me: &MirroredDir, below: &Below, number: u64) -> Option<FileAttr> {
    Some(me.attr(number, &below.stat_itself().ok()?, false))
}
