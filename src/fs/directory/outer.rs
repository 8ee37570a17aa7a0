//! Replies for entries outside containers: those of the mirrored directory, as they are now.
//!
//! Files keep owner and mode, less the write bits, and the tree of a container has those of its file: so the kernel
//! grants nobody more than the directory itself does. It checks attributes that may be half a second old: a request for
//! an entry whose owner, mode or inode has changed since gets `ESTALE`, and the kernel looks it up again. Two
//! exceptions keep the old rights for that half second: the mounted directory, whose inode number is fixed, and, in
//! listings, the parents of a directory: the whole path is checked only when a file is opened.
//!
//! The owner runs `chmod 600 x` while the kernel has its mode as 644. Another user opens `x` a tenth of a second later:
//! the kernel permits it and asks for the file, which is found to have changed: `ESTALE`. The kernel looks `x` up,
//! learns mode 600, and refuses.
//!
//! A symbolic link is shown; its target is given if it cannot lead out of the directory.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fuser::{Errno, FileAttr, FileHandle, FileType, FopenFlags, INodeNo, ReplyData};
use rustix::fs::FileType as Native;

use super::nodes::{EntryKey, identity};
use super::{DirHandle, MirroredDir, OpenFile};
use crate::account::Holding;
use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::fs::inode_attr::{AttrBuilder, Numbering, time};
use crate::fs::killed::Killed;
use crate::fs::offload::On;
use crate::fs::options::{Access, Owner};
use crate::fs::read::reply::Reply;
use crate::fs::read::reply_buffer;
use crate::fs::shared::catch_panic;
use crate::fs::sys;
use crate::mirror::{Opened, Target, is_candidate, stat_container, who_may_read};
use crate::source::{Below, Passed, Rights, Seen, Version, stays_inside};
use crate::tree::ROOT;

/// How long the kernel may keep an entry outside of containers: a change is seen within a second on a busy machine too.
pub(super) const SOON: Duration = Duration::from_millis(500);
/// A handle, and a file that is open, with its descriptor.
pub(super) const HANDLE: Holding = Holding { bytes: 256, descriptors: 0 };
const FILE: Holding = Holding { bytes: 512, descriptors: 1 };
/// `st_blksize` of files that are passed through.
const BLOCK: u32 = 128 << 10;

pub(super) fn errno(error: &Error) -> Errno {
    Errno::from_i32(error.errno())
}

pub(super) fn kind(native: Native) -> FileType {
    match native {
        Native::Directory => FileType::Directory,
        Native::Symlink => FileType::Symlink,
        Native::Fifo => FileType::NamedPipe,
        Native::Socket => FileType::Socket,
        Native::CharacterDevice => FileType::CharDevice,
        Native::BlockDevice => FileType::BlockDevice,
        Native::RegularFile | Native::Unknown => FileType::RegularFile,
    }
}

impl MirroredDir {
    /// The attributes of an entry; `is_tree`: of the root of a container.
    pub(super) fn attr(&self, number: u64, seen: &Seen, is_tree: bool) -> FileAttr {
        let mtime = time(seen.mtime);
        let kind = if is_tree { FileType::Directory } else { kind(seen.kind) };
        let mode = u16::try_from(seen.rights.mode & 0o555).unwrap_or(0);
        // Readers of the file may enter its tree.
        let mode = if is_tree { mode & 0o444 | (mode & 0o444) >> 2 } else { mode };
        let is_dir = kind == FileType::Directory;
        FileAttr {
            ino: INodeNo(number),
            size: if is_dir { 0 } else { seen.size },
            blocks: seen.blocks,
            atime: mtime,
            mtime,
            ctime: mtime,
            crtime: mtime,
            kind,
            perm: if kind == FileType::Symlink { 0o777 } else { mode & !self.owner.umask },
            // Of a directory: the number of subdirectories is not known.
            nlink: if is_dir { 1 } else { seen.links },
            uid: self.owner.uid.or(seen.rights.uid).unwrap_or(self.ids.0),
            gid: self.owner.gid.or(seen.rights.gid).unwrap_or(self.ids.1),
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        }
    }

    /// The readers of a container. Looks at all of its files only if others than the owner of the mount and root use it.
    pub(super) fn who_may_read(&self, opened: &Opened) -> Result<Rights> {
        match self.access {
            Access::AllUsers => who_may_read(&*opened.container, &opened.seen),
            Access::Owner | Access::OwnerAndRoot => Ok(opened.seen.rights),
        }
    }

    /// Owner, modes and numbers of the files of a container, which `rights` may read.
    pub(super) fn attributes(&self, rights: Rights, numbering: Numbering) -> AttrBuilder {
        let Rights { uid, gid, mode } = rights;
        let owner = Owner { uid: self.owner.uid.or(uid), gid: self.owner.gid.or(gid), ..self.owner };
        let attributes = AttrBuilder::new(owner, numbering).readable(mode);
        if self.is_far { attributes.far() } else { attributes }
    }

    /// Finds `name` in the directory `parent` and counts the look-up. `None` if it does not exist.
    pub(super) fn find(&self, parent: u64, name: &OsStr, uid: u32) -> Result<Option<FileAttr>, Errno> {
        let below = self.below(parent)?;
        let is_there = |name: &OsStr| below.stat(name).is_ok_and(|seen| is_candidate(&below, name, seen.kind));
        let exists = |name: &OsStr| below.stat(name).is_ok();
        let rules = &self.containers.rules;
        let (file, is_tree) = match rules.target(name.as_bytes(), is_there, exists) {
            Target::Itself => (name.as_bytes(), false),
            Target::Tree(file) => (file, true),
        };
        match seen_at(&below, file, is_tree) {
            Ok(seen) if is_tree && rules.is_flat() => match self.is_tree(parent, name, &seen, &below) {
                Ok(false) => Ok(None),
                Ok(true) => Ok(Some(self.tell(parent, file, &seen, is_tree, uid))),
                Err(e) => Err(Errno::from_i32(e.errno_of_existing())),
            },
            Ok(seen) => {
                let attr = self.tell(parent, file, &seen, is_tree, uid);
                Ok(Some(self.with_length_of_target(parent, &below, name, attr)))
            }
            Err(e) if e.errno() == libc::ENOENT => Ok(None),
            Err(e) => Err(errno(&e)),
        }
    }

    /// The attributes of an entry for a reply to the kernel; counts the look-up.
    pub(super) fn tell(&self, parent: u64, name: &[u8], seen: &Seen, is_tree: bool, uid: u32) -> FileAttr {
        let entry = EntryKey { parent, name, is_tree, identity: identity(seen, is_tree), is_flat: false };
        let may_go = if is_tree { !self.containers.rules.renames_trees() } else { seen.kind != Native::Directory };
        let number = self.state().nodes.tell(&entry, seen.rights, uid, may_go);
        self.attr(number, seen, is_tree)
    }

    /// The attributes of an inode now; of an open file, also if it was removed or replaced.
    pub(super) fn stat(&self, number: u64, handle: Option<u64>) -> Result<FileAttr, Errno> {
        if number == ROOT.0 {
            let seen = self.below(number)?.stat_itself().map_err(|e| errno(&e))?;
            return Ok(self.attr(number, &seen, false));
        }
        let of_open = |open: Arc<OpenFile>| Ok((false, open.file.seen().map_err(|e| errno(&e))?));
        let held =
            || super::read(&self.files).values().map(|(of, _)| &of.open).find(|open| open.number == number).cloned();
        let (is_tree, seen) = match handle.and_then(|handle| self.file(handle)) {
            Some(open) => of_open(open)?,
            None => self.known(number).or_else(|e| held().map_or(Err(e), of_open))?,
        };
        let attr = self.attr(number, &seen, is_tree);
        if attr.kind != FileType::Symlink {
            return Ok(attr);
        }
        let (parent, name) = self.around(number)?;
        Ok(self.with_length_of_target(parent, &self.below(parent)?, &name, attr))
    }

    /// Looks at an inode again: whether it is the root of a container, and its attributes, if the kernel knows it as that.
    fn known(&self, number: u64) -> Result<(bool, Seen), Errno> {
        let (parent, name) = self.around(number)?;
        let is_tree = self.state().nodes.get(number).ok_or(Errno::ESTALE)?.is_tree;
        let seen = seen_at(&self.below(parent)?, name.as_bytes(), is_tree).map_err(|e| errno(&e))?;
        let mut state = self.state();
        let mark = state.nodes.mark(identity(&seen, is_tree), seen.rights);
        if state.nodes.get(number).is_some_and(|node| node.identity == mark) {
            Ok((is_tree, seen))
        } else {
            Err(Errno::ESTALE)
        }
    }

    /// `attr` of the entry `name`; of a link, with the length of the target that it has here.
    pub(super) fn with_length_of_target(&self, parent: u64, below: &Below, name: &OsStr, attr: FileAttr) -> FileAttr {
        let link = (attr.kind == FileType::Symlink).then(|| below.link(name).ok()).flatten();
        let target = link.and_then(|target| self.plain_target(parent, below, target.as_bytes()));
        target.map_or(attr, |target| FileAttr { size: to_u64(target.len()), ..attr })
    }

    /// The target of a symbolic link.
    pub(super) fn target(&self, number: u64) -> Result<Vec<u8>, Errno> {
        let (parent, name) = self.around(number)?;
        let below = self.below(parent)?;
        let target = below.link(&name).map_err(|e| errno(&e))?.into_bytes();
        let target = self.plain_target(parent, &below, &target).unwrap_or(target);
        let depth = self.path(number)?.components().count().saturating_sub(1);
        if stays_inside(Path::new(OsStr::from_bytes(&target)), depth) { Ok(target) } else { Err(Errno::EACCES) }
    }

    /// Opens a file to pass it through; returns its handle, and how the kernel is to treat its pages.
    pub(super) fn open(&self, number: u64, uid: u32) -> Result<(FileHandle, FopenFlags), Errno> {
        let (parent, name) = self.around(number)?;
        let file = self.below_known(parent)?.file(&name).map_err(|e| errno(&e))?;
        let seen = file.seen().map_err(|e| errno(&e))?;
        let handle = self.open_file(file, (uid, number, seen.version())).map_err(|e| errno(&e))?;
        let mut state = self.state();
        let mark = |seen: &Seen| state.nodes.mark(identity(seen, false), seen.rights);
        // Lists of a server may lack tags.
        let (marks, version) =
            ([mark(&seen), mark(&seen.clone().untagged())], state.nodes.mark(seen.version(), seen.rights));
        let node = state.nodes.get(number).ok_or(Errno::ESTALE)?;
        if !marks.contains(&node.identity) {
            return Err(Errno::ESTALE);
        }
        // The pages stay if they are of this version.
        let known = std::mem::replace(&mut node.pages, version);
        drop(state);
        let keep = if known == version { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        super::write(&self.files).insert(number, (handle, self.activity.open()));
        Ok((FileHandle(number), keep))
    }

    /// A handle of `file`, for the user, inode and version in `key`; a version takes one descriptor.
    fn open_file(&self, file: Passed, key: (u32, u64, Version)) -> Result<DirHandle<OpenFile>> {
        let (uid, number, _) = key;
        let share = self.users.share(uid, HANDLE)?;
        let (killed, holding) = match &file {
            // It takes no descriptor; a reader that is killed while it waits does not end the wait of others.
            Passed::Far(source) => (Killed::new(&self.waits, vec![source.clone()]), HANDLE),
            Passed::Local(_) => (None, FILE),
        };
        if let Some(open) = self.recent_files.in_use(&key).filter(|_| killed.is_none()) {
            return Ok(DirHandle { open, _share: share });
        }
        let open = Arc::new(OpenFile { _share: self.users.share(uid, holding)?, number, file, killed });
        self.recent_files.put(key, Arc::downgrade(&open));
        Ok(DirHandle { open, _share: share })
    }

    fn file(&self, handle: u64) -> Option<Arc<OpenFile>> {
        super::read(&self.files).get(&handle).map(|(handle, _)| handle.open.clone())
    }

    /// Replies to a read, by the thread `reader`, of a file that is passed through: at once from the page cache,
    /// otherwise on a thread that may wait.
    pub(in crate::fs) fn read(self: &Arc<Self>, reader: u32, handle: u64, offset: u64, size: u32, reply: ReplyData) {
        use std::os::fd::AsFd;
        let Some(open) = self.file(handle) else { return reply.error(Errno::EBADF) };
        let mut reply = Some(reply);
        if let Passed::Local(file) = &open.file {
            // If allocation fails here, that thread tries again.
            let _ = reply_buffer::with(size.into(), |buffer| {
                // A short read may have stopped at a page that is not in memory.
                if let Ok(n) = sys::read_cached(file.as_fd(), buffer, offset)
                    && n == buffer.len()
                    && let Some(reply) = reply.take()
                {
                    reply.data(buffer);
                }
            });
        }
        match (reply, &open.killed) {
            (None, _) => {}
            (Some(reply), None) => self.read_later(open, offset, size, reply),
            (Some(reply), Some(killed)) => {
                let reply = killed.watch(reader, reply);
                self.read_later(open, offset, size, reply);
            }
        }
    }

    fn read_later(&self, open: Arc<OpenFile>, offset: u64, size: u32, reply: impl Reply) {
        let job = move || {
            let read = reply_buffer::with(size.into(), |buffer| match open.file.read_full(buffer, offset) {
                Ok(n) => Ok(buffer.get(..n).unwrap_or_default().to_vec()),
                Err(e) => Err(e.errno()),
            });
            match read.unwrap_or(Err(libc::ENOMEM)) {
                Ok(bytes) => reply.data(&bytes),
                Err(e) => reply.error(e),
            }
        };
        self.offload.run(On::Passed, Box::new(move || catch_panic(job)));
    }
}

/// The current state of an entry.
pub(super) fn seen_at(below: &Below, name: &[u8], is_container: bool) -> Result<Seen> {
    let name = OsStr::from_bytes(name);
    if is_container { stat_container(below, name) } else { below.stat(name) }
}
