//! Adapter from fuser to the tree: each call queries the tree and replies.
//!
//! If a call panics, it replies EIO and the mount continues. Event loops answer from memory; parsing, reading and
//! decoding are offloaded to other threads (see `shared`).
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fuser::{
    Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};

use super::inode_attr::AttrBuilder;
use super::killed::Killed;
use super::read_only;
use super::shared::{DOTS, FOR_EVER, GENERATION, Shared, catch_panic};
use super::walks::Visit;
use crate::error::Kind;
use crate::paging::page_size;
use crate::tree::{Ino, KnownAttr, OpenDir};
use crate::wanted::Entered;

/// For a size that is not known yet: the kernel must ask again before using it.
const NOT_AT_ALL: Duration = Duration::ZERO;
/// Maximum number of entries that an event loop lists with their attributes, each a few look-ups in memory; a metadata
/// thread lists the others.
const AT_ONCE: u32 = 1024;
/// Longer names are refused, as in other file systems.
pub(super) const NAME_MAX: u32 = 255;
/// Maximum number of background requests; the kernel's default is 12.
pub(super) const BACKGROUND: u16 = 64;

/// The file system of one container, as seen by the kernel; and whether the kernel is to do without opendir.
#[derive(Debug)]
pub(super) struct Session(Arc<Shared>, bool);

impl Session {
    /// With `ask_opendir`, the kernel always asks, so that opening a directory of a dead mount fails.
    pub(super) fn new(shared: Shared, ask_opendir: bool) -> Self {
        Self(Arc::new(shared), !ask_opendir)
    }

    /// Its state.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// As [`Killed::enter`], if requests may wait for long.
    fn asked(&self, request: &Request) -> Option<Entered> {
        self.0.killed.as_ref().map(|killed| killed.enter(request.pid()))
    }
}

/// The kernel's readahead of files on a server: a page, with which large reads are still requests of 128 KiB. With less,
/// which the kernel rounds to none, they would be requests of a page.
pub(super) fn far_readahead() -> u32 {
    u32::try_from(page_size()).unwrap_or(u32::MAX)
}

/// Replies to getxattr or listxattr: the size if `limit` is 0, otherwise the bytes if they fit.
pub(super) fn answer_xattr(value: Result<Vec<u8>, Errno>, limit: u32, reply: ReplyXattr) {
    match value {
        Err(e) => reply.error(e),
        Ok(bytes) => match u32::try_from(bytes.len()) {
            Ok(len) if limit == 0 => reply.size(len),
            Ok(len) if len <= limit => reply.data(&bytes),
            _ => reply.error(Errno::ERANGE),
        },
    }
}

/// Replies with the entries of the directory `ino`, which is `open`, from `offset`.
fn list(me: &Shared, ino: Ino, open: &OpenDir, offset: u64, mut reply: ReplyDirectory) {
    match me
        .list(ino, open, offset, |e| reply.add(me.attributes.number(e.ino), e.next, AttrBuilder::kind(e.kind), e.name))
    {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

/// Adds the entries of the directory `ino` from `offset` to `reply`, with the attributes that `attr` gives. Returns the
/// position of the first one for which it gives none, if the reply is not full before.
fn add_plus(
    me: &Shared,
    ino: Ino,
    open: &OpenDir,
    offset: u64,
    reply: &mut ReplyDirectoryPlus,
    mut attr: impl FnMut(Ino) -> Option<KnownAttr>,
) -> Result<Option<u64>, Errno> {
    let (mut at, mut rest) = (offset, None);
    me.list(ino, open, offset, |e| {
        let unknown = || (me.attributes.unknown(e.ino, e.kind), NOT_AT_ALL);
        // The kernel looks at the types alone of `.` and `..`.
        let (attr, keep) = match (at < DOTS).then_some(KnownAttr::NoSize).or_else(|| attr(e.ino)) {
            Some(KnownAttr::All(attr)) => (me.attributes.attr(&attr), FOR_EVER),
            // An unknown size is computed on demand, by getattr.
            Some(KnownAttr::NoSize) => unknown(),
            None => {
                rest = Some(at);
                return true;
            }
        };
        at = e.next;
        reply.add(me.attributes.number(e.ino), e.next, e.name, &keep, &attr, GENERATION)
    })?;
    Ok(rest)
}

/// As [`add_plus`], with the entries in memory, and at most [`AT_ONCE`].
fn add_known(me: &Shared, ino: Ino, offset: u64, reply: &mut ReplyDirectoryPlus) -> Result<Option<u64>, Errno> {
    let Some(open) = me.tree.known_dir(ino) else { return Ok(Some(offset)) };
    let mut left = AT_ONCE;
    add_plus(me, ino, &open, offset, reply, |ino| {
        left = left.checked_sub(1)?;
        me.tree.known_entry_attr(&open, ino)
    })
}

/// As [`list`], with the attributes that are known without decoding.
fn list_plus(me: &Shared, ino: Ino, open: &OpenDir, offset: u64, mut reply: ReplyDirectoryPlus) {
    match add_plus(me, ino, open, offset, &mut reply, |ino| Some(me.tree.entry_attr(open, ino))) {
        Ok(_) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

/// The calls that may come before anything else of a container was opened.
impl Session {
    /// Replies to a lookup.
    pub(super) fn look_up(&self, parent: Ino, name: &OsStr, reply: ReplyEntry) {
        catch_panic(|| {
            if name.len() > NAME_MAX as usize {
                return reply.error(Errno::ENAMETOOLONG);
            }
            self.0.lookup(parent, name, reply);
        });
    }

    /// Replies to getattr.
    pub(super) fn attributes(&self, ino: Ino, reply: ReplyAttr) {
        catch_panic(|| {
            self.0.attr(ino, move |me, attr| match attr {
                Ok(attr) => reply.attr(&FOR_EVER, &me.attributes.attr(&attr)),
                Err(e) => reply.error(me.errno(ino, &e)),
            });
        });
    }

    /// Replies to readlink.
    pub(super) fn target(&self, ino: Ino, reply: ReplyData) {
        // Asked once: the kernel keeps targets.
        catch_panic(|| {
            self.0.offload(ino, move |me| match me.tree.link(ino) {
                Ok(to) => reply.data(to.as_bytes()),
                Err(e) => reply.error(me.errno(ino, &e)),
            });
        });
    }

    /// Replies to open.
    pub(super) fn open_file(&self, ino: Ino, uid: u32, reply: ReplyOpen) {
        catch_panic(|| {
            let me = &self.0;
            let is_first = me.watch.record_open(ino);
            match me.known_file(ino) {
                Some(file) if me.watch.is_same_in_memory() => me.opened(ino, Ok(file), is_first, uid, reply),
                _ => me.offload(ino, move |me| match me.watch.unchanged() {
                    Ok(()) => me.prepared(ino, move |me, file| me.opened(ino, file, is_first, uid, reply)),
                    Err(e) if matches!(e.kind(), Kind::Changed) => reply.error(Errno::ESTALE),
                    Err(e) => reply.error(me.errno(ino, &e)),
                }),
            }
            me.visited(ino, Visit::Open);
        });
    }

    /// Replies to readdir.
    pub(super) fn list_dir(&self, ino: Ino, offset: u64, reply: ReplyDirectory) {
        catch_panic(|| {
            if let Some(open) = self.0.tree.known_dir(ino) {
                return list(&self.0, ino, &open, offset, reply);
            }
            self.0.offload(ino, move |me| match me.open_dir(ino) {
                Ok(open) => list(me, ino, &open, offset, reply),
                Err(e) => reply.error(e),
            });
        });
    }

    /// Replies to readdirplus.
    pub(super) fn list_dir_plus(&self, ino: Ino, offset: u64, mut reply: ReplyDirectoryPlus) {
        catch_panic(|| {
            let me = &self.0;
            match add_known(me, ino, offset, &mut reply) {
                Ok(None) => reply.ok(),
                Ok(Some(rest)) => me.offload(ino, move |me| match me.open_dir(ino) {
                    Ok(open) => list_plus(me, ino, &open, rest, reply),
                    Err(e) => reply.error(e),
                }),
                Err(e) => reply.error(e),
            }
            if offset == 0 {
                me.visited(ino, Visit::Name);
            }
        });
    }

    /// Replies to getxattr.
    pub(super) fn attribute(&self, ino: Ino, name: &OsStr, size: u32, reply: ReplyXattr) {
        catch_panic(|| {
            if let Some(value) = self.0.known_xattr(ino, name) {
                return answer_xattr(value, size, reply);
            }
            let name = name.to_owned();
            self.0.offload_xattr(ino, move |me| answer_xattr(me.xattr(ino, &name), size, reply));
        });
    }

    /// Replies to listxattr.
    pub(super) fn attribute_names(&self, ino: Ino, size: u32, reply: ReplyXattr) {
        catch_panic(|| self.0.offload_xattr(ino, move |me| answer_xattr(me.xattr_names(ino), size, reply)));
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
            // Older kernels lack some of these; they are optional.
            config.add_capabilities(flag).ok();
        }
        // Without it, a file that is read directly could not be mapped.
        let is_mappable = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
        self.0.reads_directly.store(is_mappable, Ordering::Relaxed);
        self.1 &= config.capabilities().contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        // Fails only for 0.
        config.set_max_background(BACKGROUND).ok();
        if self.0.killed.as_ref().is_some_and(Killed::is_far) {
            // The kernel's readahead for a reader that jumps would be fetched in vain.
            config.set_max_readahead(far_readahead()).ok();
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _asked = self.asked(request);
        tracing::debug!(target: "fzmfs::request", parent = parent.0, ?name, "lookup");
        self.0.activity.request();
        self.look_up(parent.into(), name, reply);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let _asked = self.asked(request);
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "getattr");
        self.0.activity.request();
        self.attributes(ino.into(), reply);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let _asked = self.asked(request);
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "readlink");
        self.0.activity.request();
        self.target(ino.into(), reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _asked = self.asked(request);
        tracing::debug!(target: "fzmfs::request", ino = ino.0, ?flags, "open");
        self.0.activity.request();
        self.open_file(ino.into(), request.uid(), reply);
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _asked = self.asked(request);
        tracing::debug!(target: "fzmfs::request", ino = ino.0, offset, size, "read");
        self.0.activity.request();
        let killed = self.0.killed.as_ref().filter(|killed| killed.is_far());
        catch_panic(|| match (self.0.open_file(handle.0), killed) {
            (Some(open), None) => self.0.reader.read(&open, offset, size, reply),
            (Some(open), Some(killed)) => {
                self.0.reader.read(&open, offset, size, killed.watch(request.pid(), reply));
            }
            (None, _) => reply.error(Errno::EBADF),
        });
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
        self.0.activity.request();
        catch_panic(|| {
            let gone = self.0.close(handle.0);
            reply.ok();
            drop(gone);
        });
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "opendir");
        self.0.activity.request();
        if self.1 {
            // Nothing to open: after ENOSYS the kernel does not ask again, but still caches directories.
            return reply.error(Errno::ENOSYS);
        }
        reply.opened(FileHandle(0), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn readdir(&self, request: &Request, ino: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectory) {
        let _asked = self.asked(request);
        tracing::debug!(target: "fzmfs::request", ino = ino.0, offset, "readdir");
        self.0.activity.request();
        self.list_dir(ino.into(), offset, reply);
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        let _asked = self.asked(request);
        tracing::debug!(target: "fzmfs::request", ino = ino.0, offset, "readdirplus");
        self.0.activity.request();
        self.list_dir_plus(ino.into(), offset, reply);
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(self.0.bytes.div_ceil(4096), 0, 0, 0, 0, 4096, NAME_MAX, 4096);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, ?name, "getxattr");
        self.attribute(ino.into(), name, size, reply);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let _asked = self.asked(request);
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "listxattr");
        self.0.activity.request();
        self.attribute_names(ino.into(), size, reply);
    }

    read_only::answers!();
}
