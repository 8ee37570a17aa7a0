//! The file system as the kernel sees it: one container, or the containers of a directory and its other files.
//!
//! Calls on a container go to its session, all others to the directory. Nothing is written, and there is nothing to
//! flush, seek, control or poll.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuser::{
    Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};

use super::activity::Activity;
use super::directory::{MirroredDir, To};
use super::session::Session;
use super::shared::{NAME_MAX, catch_panic};
use super::xattrs::{answer_xattr, xattr_names_of_root};
use crate::paging::page_size;
use crate::tree::ROOT;
use crate::wanted::Entered;

/// Maximum number of background requests; the kernel's default is 12.
const BACKGROUND: u16 = 64;

/// The subject of a mount.
#[derive(Debug)]
pub(super) enum Mounted {
    /// One container.
    Container(Arc<Session>),
    /// The containers of a directory, and its other files.
    Directory(Arc<MirroredDir>),
}

/// The file system of a mount.
#[derive(Debug)]
pub(super) struct Adapter {
    mounted: Mounted,
    activity: Arc<Activity>,
    /// Whether the kernel is to do without opendir.
    skips_opendir: bool,
}

/// A reply that can be an error.
trait Refuse: Send + 'static {
    fn refuse(self, errno: Errno);
}

macro_rules! refuse {
    ($($reply:ty)*) => { $(impl Refuse for $reply {
        fn refuse(self, errno: Errno) {
            self.error(errno);
        }
    })* };
}

refuse!(ReplyAttr ReplyData ReplyDirectory ReplyDirectoryPlus ReplyEntry ReplyOpen ReplyXattr);

impl Adapter {
    /// With `ask_opendir`, the kernel always asks, so that opening a directory of a dead mount fails.
    pub(super) fn new(mounted: Mounted, activity: Arc<Activity>, ask_opendir: bool) -> Self {
        Self { mounted, activity, skips_opendir: !ask_opendir }
    }

    /// Where a call on an entry goes.
    fn entry(&self, ino: INodeNo) -> To<'_> {
        match &self.mounted {
            Mounted::Container(_) => To::Container(0, ino.into()),
            Mounted::Directory(outer) => outer.entry(ino.0),
        }
    }

    /// As [`Adapter::entry`], for a call on the content of a directory.
    fn content(&self, ino: INodeNo) -> To<'_> {
        match &self.mounted {
            Mounted::Container(_) => To::Container(0, ino.into()),
            Mounted::Directory(outer) => outer.content(ino.0),
        }
    }

    /// The session of the container in `slot`, if it is open.
    fn open_session(&self, slot: u32) -> Option<Arc<Session>> {
        match &self.mounted {
            Mounted::Container(session) => Some(session.clone()),
            Mounted::Directory(outer) => outer.open_session(slot),
        }
    }

    /// Passes the session of the container in `slot` to `call`: at once if it is open, otherwise on a thread that opens
    /// it.
    fn enter<R: Refuse>(&self, slot: u32, reply: R, call: impl FnOnce(&Session, R) + Send + 'static) {
        match &self.mounted {
            Mounted::Container(session) => call(session, reply),
            Mounted::Directory(outer) => outer.enter(slot, move |session| match session {
                Ok(session) => call(session, reply),
                Err(e) => reply.refuse(e),
            }),
        }
    }

    /// Binds the work for a call to its caller, who may be killed, if it may take long.
    fn asked(&self, request: &Request, to: &To<'_>) -> Option<Entered> {
        match (to, &self.mounted) {
            (To::Outer(outer, _), _) => outer.asked(request.pid(), true),
            (To::Container(..), Mounted::Container(session)) => session.asked(request.pid()),
            (To::Container(slot, _), Mounted::Directory(outer)) => match outer.open_session(*slot) {
                Some(session) => session.asked(request.pid()),
                None => outer.asked(request.pid(), false),
            },
        }
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let always = InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_PARALLEL_DIROPS | InitFlags::FUSE_ASYNC_DIO;
        let (own, is_far) = match &self.mounted {
            Mounted::Container(session) => {
                (InitFlags::FUSE_READDIRPLUS_AUTO | InitFlags::FUSE_CACHE_SYMLINKS, session.is_far())
            }
            // Targets of links may change, and files may be written to. The listing of a server has the attributes
            // already: no need to look entries up again.
            Mounted::Directory(outer) if outer.is_far() => (InitFlags::FUSE_AUTO_INVAL_DATA, true),
            Mounted::Directory(_) => (InitFlags::FUSE_READDIRPLUS_AUTO | InitFlags::FUSE_AUTO_INVAL_DATA, false),
        };
        for flag in (always | own).iter() {
            // Older kernels lack some of these; they are optional.
            config.add_capabilities(flag).ok();
        }
        // Without it, a file that is read directly could not be mapped.
        let is_mappable = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
        match &self.mounted {
            Mounted::Container(session) => session.shared().reads_directly.store(is_mappable, Ordering::Relaxed),
            Mounted::Directory(outer) => outer.can_map(is_mappable),
        }
        self.skips_opendir &= config.capabilities().contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        // Fails only for 0.
        config.set_max_background(BACKGROUND).ok();
        if is_far {
            // More would be fetched in vain for a reader that jumps. With a page, large reads still are requests of
            // 128 KiB; with less, which the kernel rounds to none, they would be requests of a page.
            config.set_max_readahead(u32::try_from(page_size()).unwrap_or(u32::MAX)).ok();
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        tracing::debug!(target: "fzmfs::request", parent = parent.0, ?name, "lookup");
        self.activity.request();
        if name.len() > NAME_MAX as usize {
            return reply.error(Errno::ENAMETOOLONG);
        }
        let (name, to) = (name.to_owned(), self.content(parent));
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, dir) => {
                self.enter(slot, reply, move |session, reply| session.look_up(dir, &name, reply));
            }
            To::Outer(outer, parent) => outer.look_up(parent, name, request.uid(), reply),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        if let Mounted::Directory(outer) = &self.mounted {
            catch_panic(|| outer.forget_inode(ino.0, count));
        }
    }

    fn getattr(&self, request: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "getattr");
        self.activity.request();
        let to = self.entry(ino);
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, ino) => self.enter(slot, reply, move |session, reply| session.attributes(ino, reply)),
            To::Outer(outer, number) => outer.reply_attr(number, handle.map(|handle| handle.0), reply),
        }
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "readlink");
        self.activity.request();
        let to = self.entry(ino);
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, ino) => self.enter(slot, reply, move |session, reply| session.target(ino, reply)),
            To::Outer(outer, number) => outer.reply_target(number, reply),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, ?flags, "open");
        self.activity.request();
        let (to, uid) = (self.entry(ino), request.uid());
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, ino) => {
                self.enter(slot, reply, move |session, reply| session.open_file(ino, uid, reply));
            }
            To::Outer(outer, number) => outer.reply_open(number, uid, reply),
        }
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
        tracing::debug!(target: "fzmfs::request", ino = ino.0, offset, size, "read");
        self.activity.request();
        match self.entry(ino) {
            To::Container(slot, _) => match self.open_session(slot) {
                Some(session) => session.read(request.pid(), handle.0, offset, size, reply),
                // An open file keeps its container open.
                None => reply.error(Errno::EBADF),
            },
            To::Outer(outer, _) => {
                let _asked = outer.asked(request.pid(), true);
                catch_panic(|| outer.read(request.pid(), handle.0, offset, size, reply));
            }
        }
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
        self.activity.request();
        match self.entry(ino) {
            To::Container(slot, _) => match self.open_session(slot) {
                Some(session) => session.close(handle.0, reply),
                None => reply.ok(),
            },
            To::Outer(outer, _) => outer.close(handle.0, reply),
        }
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "opendir");
        self.activity.request();
        let to = self.content(ino);
        let _asked = self.asked(request, &to);
        match to {
            // Nothing to open: after ENOSYS the kernel does not ask again, but still caches directories.
            To::Container(..) if self.skips_opendir => reply.error(Errno::ENOSYS),
            // Listed as far as it is read; the kernel keeps it.
            To::Container(..) => {
                reply.opened(FileHandle(0), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
            }
            To::Outer(outer, number) => outer.reply_open_dir(number, request.uid(), reply),
        }
    }

    fn readdir(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectory) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, offset, "readdir");
        self.activity.request();
        let to = self.content(ino);
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, dir) => {
                self.enter(slot, reply, move |session, reply| session.list_dir(dir, offset, reply));
            }
            To::Outer(outer, number) => outer.list_dir(number, handle.0, offset, reply),
        }
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, offset, "readdirplus");
        self.activity.request();
        let to = self.content(ino);
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, dir) => {
                self.enter(slot, reply, move |session, reply| session.list_dir_plus(dir, offset, reply));
            }
            To::Outer(outer, number) => outer.list_dir_plus(number, handle.0, offset, request.uid(), reply),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        match &self.mounted {
            Mounted::Container(_) => reply.ok(),
            Mounted::Directory(outer) => outer.close_dir(handle.0, reply),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match &self.mounted {
            Mounted::Container(session) => {
                reply.statfs(session.shared().bytes.div_ceil(4096), 0, 0, 0, 0, 4096, NAME_MAX, 4096);
            }
            Mounted::Directory(outer) => outer.reply_space(reply),
        }
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, ?name, "getxattr");
        if ino.0 != ROOT.0 && !name.as_encoded_bytes().starts_with(b"user.") {
            // No security labels or ACLs, for which no container is opened.
            self.activity.request();
            return reply.error(Errno::EOPNOTSUPP);
        }
        let to = self.content(ino);
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, ino) => {
                let name = name.to_owned();
                self.enter(slot, reply, move |session, reply| session.attribute(ino, &name, size, reply));
            }
            To::Outer(outer, number) => outer.attribute(number, name, size, reply),
        }
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "listxattr");
        self.activity.request();
        let to = self.content(ino);
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, ROOT) if self.open_session(slot).is_none() => {
                answer_xattr(Ok(xattr_names_of_root()), size, reply);
            }
            To::Container(slot, ino) => {
                self.enter(slot, reply, move |session, reply| session.attribute_names(ino, size, reply));
            }
            To::Outer(..) => answer_xattr(Ok(Vec::new()), size, reply),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn access(&self, _: &Request, _: INodeNo, _: fuser::AccessFlags, reply: ReplyEmpty) {
        // The kernel checks modes itself (default_permissions).
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    // No writes, no holes, no ioctls, no polling: after the first ENOSYS the kernel does not ask again.

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: fuser::ReplyLseek) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: fuser::IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: fuser::ReplyIoctl,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: fuser::PollNotifier,
        _: fuser::PollEvents,
        _: fuser::PollFlags,
        reply: fuser::ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }
}
