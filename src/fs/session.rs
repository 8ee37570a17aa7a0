//! fuser's calls, translated: each asks the tree and answers, nothing else.
//!
//! A call that panics answers EIO and the mount goes on; a call that would have to decode is left to a worker.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use fuser::{
    AccessFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig,
    LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyXattr,
    Request,
};

use super::look::Look;
use super::read::{Open, Reader};
use super::umount::PID_ATTRIBUTE;
use super::watch::Watch;
use crate::cache::Cache;
use crate::error::Error;
use crate::tree::{DirEntry, Kind, ROOT, Tree};

/// How long the kernel may keep names and attributes: the container does not change while it is served.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);
/// For a size that is not known yet: asked for again before it counts.
const NOT_AT_ALL: Duration = Duration::ZERO;
/// Longer names are refused, as every file system does.
const NAME_MAX: u32 = 255;
/// An inode number means the same for the life of the mount.
const GENERATION: Generation = Generation(0);
/// Positions in a directory before its first entry: `.` and `..`.
const DOTS: u64 = 2;
/// Requests that the kernel may have waiting in the background; its own limit is 12.
const BACKGROUND: u16 = 64;

/// What has decoded so far, in the whole mount.
const DECODER: &[u8] = b"user.fzmfs.decoder";

/// The file system of one container, as the kernel sees it.
#[derive(Debug)]
pub(super) struct Session(Arc<Shared>);

/// Says what has decoded so far.
pub(super) type Decoder = Box<dyn Fn() -> String + Send + Sync>;

/// What calls and the work that they leave to others share.
struct Shared {
    tree: Tree,
    cache: Arc<Cache>,
    reader: Arc<Reader>,
    watch: Arc<Watch>,
    look: Look,
    open: RwLock<HashMap<u64, Arc<Open>>>,
    next: AtomicU64,
    decoder: Decoder,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("tree", &self.tree).field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(tree: Tree, cache: Arc<Cache>, watch: Arc<Watch>, look: Look, decoder: Decoder) -> Self {
        let reader = Arc::new(Reader::new(cache.clone(), watch.clone()));
        let (open, next) = (RwLock::default(), AtomicU64::new(1));
        Self(Arc::new(Shared { tree, cache, reader, watch, look, open, next, decoder }))
    }
}

impl Shared {
    /// The error as an errno; what was broken is logged.
    fn errno(&self, ino: INodeNo, e: &Error) -> Errno {
        if e.errno() == libc::EIO {
            self.reader.log(ino.0, e);
        }
        Errno::from_i32(e.errno())
    }

    /// Runs `work` on a worker.
    fn later(self: &Arc<Self>, work: impl FnOnce(&Self) + Send + 'static) {
        let me = self.clone();
        self.cache.submit(Box::new(move || shielded(|| work(&me))));
    }

    fn opened(&self, ino: INodeNo, reply: ReplyOpen) {
        let file = self.tree.file(ino.0).and_then(|file| file.view(&*self.cache));
        match file {
            Ok(view) => {
                let handle = self.next.fetch_add(1, Ordering::Relaxed);
                let open = Arc::new(self.reader.open(ino.0, view));
                self.open.write().unwrap_or_else(PoisonError::into_inner).insert(handle, open);
                // Pages stay from one open to the next: the container does not change, or is not served.
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(e) => reply.error(self.errno(ino, &e)),
        }
    }

    /// The entry at `position` of a directory: `.`, `..`, then what the tree has.
    fn entry(&self, dir: INodeNo, position: u64) -> Result<Option<DirEntry>, Errno> {
        let dot =
            |ino, name: &str| Ok(Some(DirEntry { ino, kind: Kind::Dir, name: name.to_owned(), next: position + 1 }));
        match position {
            0 => dot(dir.0, "."),
            1 => dot(self.tree.parent(dir.0), ".."),
            _ => {
                let entry = self.tree.entry(dir.0, position - DOTS).map_err(|e| self.errno(dir, &e))?;
                Ok(entry.map(|entry| DirEntry { next: entry.next + DOTS, ..entry }))
            }
        }
    }

    /// Gives `add` the entries from `position` on until it is full or there are no more.
    fn list(&self, dir: INodeNo, mut position: u64, mut add: impl FnMut(&DirEntry) -> bool) -> Result<(), Errno> {
        while let Some(entry) = self.entry(dir, position)? {
            if add(&entry) {
                break;
            }
            position = entry.next;
        }
        Ok(())
    }

    fn xattr(&self, ino: INodeNo, name: &OsStr) -> Result<Vec<u8>, Errno> {
        if ino.0 == ROOT && name.as_bytes() == PID_ATTRIBUTE.to_bytes() {
            return Ok(std::process::id().to_string().into_bytes());
        }
        if !name.as_bytes().starts_with(b"user.") {
            // No labels and no access lists here: `ls` asks for them once a mount then, not once a file.
            return Err(Errno::EOPNOTSUPP);
        }
        if name.as_bytes() == DECODER {
            return Ok((self.decoder)().into_bytes());
        }
        let all = self.tree.xattrs(ino.0).map_err(|e| self.errno(ino, &e))?;
        let found = all.into_iter().find(|(known, _)| known.as_bytes() == name.as_bytes());
        found.map(|(_, value)| value.into_bytes()).ok_or(Errno::NO_XATTR)
    }

    fn xattr_names(&self, ino: INodeNo) -> Result<Vec<u8>, Errno> {
        let all = self.tree.xattrs(ino.0).map_err(|e| self.errno(ino, &e))?;
        let names = all.into_iter().map(|(name, _)| name.into_bytes()).chain([DECODER.to_vec()]);
        Ok(names.flat_map(|name| name.into_iter().chain([0])).collect())
    }
}

/// Runs one call. Where it panics the reply is dropped, which answers EIO.
fn shielded(call: impl FnOnce()) {
    // The panic itself is logged by the hook.
    catch_unwind(AssertUnwindSafe(call)).ok();
}

/// Answers as getxattr and listxattr do: the size where `room` is 0, else the bytes if they fit.
fn answer_xattr(value: Result<Vec<u8>, Errno>, room: u32, reply: ReplyXattr) {
    match value {
        Err(e) => reply.error(e),
        Ok(bytes) => match u32::try_from(bytes.len()) {
            Ok(len) if room == 0 => reply.size(len),
            Ok(len) if len <= room => reply.data(&bytes),
            _ => reply.error(Errno::ERANGE),
        },
    }
}

impl Filesystem for Session {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_ASYNC_DIO;
        for flag in wanted.iter() {
            // An older kernel does without.
            config.add_capabilities(flag).ok();
        }
        // Never an error for a number above 0.
        config.set_max_background(BACKGROUND).ok();
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        tracing::debug!(target: "fzmfs::request", parent = parent.0, ?name, "lookup");
        shielded(|| {
            let me = &self.0;
            if name.len() > NAME_MAX as usize {
                return reply.error(Errno::ENAMETOOLONG);
            }
            let ino = match me.tree.lookup(parent.0, name.as_bytes()) {
                Ok(Some(ino)) => INodeNo(ino),
                // Inode 0 says that there is no such name, and may be remembered.
                Ok(None) => return reply.entry(&FOR_EVER, &me.look.nothing(), GENERATION),
                Err(e) => return reply.error(me.errno(parent, &e)),
            };
            if let Some(attr) = me.tree.cheap_attr(ino.0) {
                return reply.entry(&FOR_EVER, &me.look.attr(&attr), GENERATION);
            }
            me.later(move |me| match me.tree.attr(ino.0, &*me.cache) {
                Ok(attr) => reply.entry(&FOR_EVER, &me.look.attr(&attr), GENERATION),
                Err(e) => reply.error(me.errno(ino, &e)),
            });
        });
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "getattr");
        shielded(|| {
            let me = &self.0;
            if let Some(attr) = me.tree.cheap_attr(ino.0) {
                return reply.attr(&FOR_EVER, &me.look.attr(&attr));
            }
            me.later(move |me| match me.tree.attr(ino.0, &*me.cache) {
                Ok(attr) => reply.attr(&FOR_EVER, &me.look.attr(&attr)),
                Err(e) => reply.error(me.errno(ino, &e)),
            });
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "readlink");
        shielded(|| match self.0.tree.link(ino.0) {
            Ok(to) => reply.data(to.as_bytes()),
            Err(e) => reply.error(self.0.errno(ino, &e)),
        });
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, ?flags, "open");
        shielded(|| {
            let me = &self.0;
            if !me.watch.admit(ino.0) {
                return reply.error(Errno::ESTALE);
            }
            // A length that is not known has to be found out by decoding.
            match me.tree.file(ino.0) {
                Ok(file) if file.lies_ready() => me.opened(ino, reply),
                Ok(_) => me.later(move |me| me.opened(ino, reply)),
                Err(e) => reply.error(me.errno(ino, &e)),
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, offset, size, "read");
        shielded(|| {
            let open = self.0.open.read().unwrap_or_else(PoisonError::into_inner).get(&handle.0).cloned();
            match open {
                Some(open) => self.0.reader.read(&open, offset, size, reply),
                None => reply.error(Errno::EBADF),
            }
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // There is nothing to flush, and the kernel asks only once.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "release");
        shielded(|| {
            let gone = self.0.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.0);
            reply.ok();
            drop(gone);
        });
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "opendir");
        reply.opened(FileHandle(0), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, offset, "readdir");
        shielded(|| {
            let listed = self.0.list(ino, offset, |e| reply.add(INodeNo(e.ino), e.next, Look::kind(e.kind), &e.name));
            match listed {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(e),
            }
        });
    }

    fn readdirplus(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, offset, "readdirplus");
        shielded(|| {
            let me = &self.0;
            let listed = me.list(ino, offset, |e| {
                // Listing does not decode: a size that is not known is asked for when somebody wants it.
                let (attr, keep) = match me.tree.cheap_attr(e.ino) {
                    Some(attr) => (me.look.attr(&attr), FOR_EVER),
                    None => (me.look.unknown(e.ino, e.kind), NOT_AT_ALL),
                };
                reply.add(INodeNo(e.ino), e.next, &e.name, &keep, &attr, GENERATION)
            });
            match listed {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(e),
            }
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        shielded(|| {
            let info = self.0.tree.container().info();
            let bytes = info.decoded_size.unwrap_or(info.file_size);
            reply.statfs(bytes.div_ceil(4096), 0, 0, 0, 0, 4096, NAME_MAX, 4096);
        });
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, ?name, "getxattr");
        shielded(|| answer_xattr(self.0.xattr(ino, name), size, reply));
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "listxattr");
        shielded(|| answer_xattr(self.0.xattr_names(ino), size, reply));
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks modes itself.
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    // There are no holes and no devices: the kernel does without us from the first refusal on.

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }
}
