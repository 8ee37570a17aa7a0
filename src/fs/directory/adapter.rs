//! Adapter from fuser to a directory mount: calls on a container go to its session, all others are answered for the
//! mirrored directory, on metadata threads.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuser::{
    Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};

use super::Directory;
use super::flat::FlatEntry;
use super::nodes::{Place, place};
use super::outer::SOON;
use crate::fs::daemon_id;
use crate::fs::fuse_adapter::{BACKGROUND, NAME_MAX, Session, answer_xattr, far_readahead};
use crate::fs::inode_attr::{AttrBuilder, Numbering};
use crate::fs::read_only;
use crate::fs::shared::{GENERATION, catch_panic};
use crate::fs::stats;
use crate::fs::xattrs::xattr_names_of_root;
use crate::source::Space;
use crate::tree::{Ino, ROOT};
use crate::wanted::Entered;

/// The file system of a directory, as seen by the kernel.
#[derive(Debug)]
pub(in crate::fs) struct DirectorySession {
    me: Arc<Directory>,
    attributes: AttrBuilder,
}

/// Where a call goes.
enum To {
    /// The mirrored directory.
    Outer(u64),
    /// An inode of the container in a slot.
    Container(u32, Ino),
}

impl DirectorySession {
    pub(in crate::fs) fn new(me: Arc<Directory>) -> Self {
        let attributes = AttrBuilder::new(me.owner, Numbering::default());
        Self { me, attributes }
    }

    /// Destination of a call on an entry; the root of a container is an entry of the mirrored directory.
    fn entry(&self, ino: INodeNo) -> To {
        match place(ino.0) {
            Place::Inner(slot, inner) => To::Container(slot, Ino(inner)),
            Place::Flat(number, inner) => match self.me.slot(number) {
                Some(slot) => To::Container(slot, Ino(inner)),
                // Forgotten.
                None => To::Outer(number),
            },
            Place::Outer(number) => To::Outer(number),
        }
    }

    /// As [`DirectorySession::entry`], for a call on the content of a directory.
    fn content(&self, ino: INodeNo) -> To {
        match self.entry(ino) {
            To::Outer(number) => self.me.slot(number).map_or(To::Outer(number), |slot| To::Container(slot, ROOT)),
            inner @ To::Container(..) => inner,
        }
    }

    /// As [`Waits::enter`](crate::fs::killed::Waits::enter), if a call may wait for long: for a server, or until a
    /// stream is decoded.
    fn asked(&self, request: &Request, to: &To) -> Option<Entered> {
        let may_wait = match to {
            _ if self.me.is_far => true,
            // To show containers as files, they are opened.
            To::Outer(_) => self.me.containers.rules.is_flat(),
            To::Container(slot, _) => self.open_session(*slot).is_none_or(|session| session.shared().killed.is_some()),
        };
        may_wait.then(|| self.me.waits.enter(request.pid()))
    }

    /// The session in `slot`, if it is open.
    fn open_session(&self, slot: u32) -> Option<Arc<Session>> {
        self.me.state().open.get(&slot).cloned()
    }
}

impl Filesystem for DirectorySession {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Targets of links may change, and files may be written to.
        let wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_ASYNC_DIO;
        // The server's listing has the attributes already: no need to look entries up again.
        let unwanted = if self.me.is_far { InitFlags::FUSE_READDIRPLUS_AUTO } else { InitFlags::empty() };
        for flag in wanted.difference(unwanted).iter() {
            // Older kernels lack some of these; they are optional.
            config.add_capabilities(flag).ok();
        }
        let is_mappable = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
        self.me.reads_directly.store(is_mappable, Ordering::Relaxed);
        // Fails only for 0.
        config.set_max_background(BACKGROUND).ok();
        if self.me.is_far {
            // As for one container.
            config.set_max_readahead(far_readahead()).ok();
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        tracing::debug!(target: "fzmfs::request", parent = parent.0, ?name, "lookup");
        self.me.activity.request();
        if name.len() > NAME_MAX as usize {
            return reply.error(Errno::ENAMETOOLONG);
        }
        let name = name.to_owned();
        let to = self.content(parent);
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, dir) => self.me.enter(slot, move |session| match session {
                Ok(session) => session.look_up(dir, &name, reply),
                Err(e) => reply.error(e),
            }),
            To::Outer(parent) => {
                let (nothing, uid) = (self.attributes.nothing(), request.uid());
                self.me.offload(move |me| {
                    match me.find(parent, &name, uid) {
                        Ok(Some(attr)) => reply.entry(&me.keep(), &attr, GENERATION),
                        Ok(None) if me.containers.rules.is_flat() => match me.find_flat(parent, &name, uid) {
                            Ok(Some(FlatEntry::File(file))) => me.reply_flat(file, reply),
                            Ok(Some(FlatEntry::Archive(attr))) => reply.entry(&me.keep(), &attr, GENERATION),
                            Ok(None) => reply.entry(&SOON, &nothing, GENERATION),
                            Err(e) => reply.error(e),
                        },
                        Ok(None) => reply.entry(&SOON, &nothing, GENERATION),
                        Err(e) => reply.error(e),
                    }
                    me.forget_some(uid);
                });
            }
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        catch_panic(|| self.me.forget_inode(ino.0, count));
    }

    fn getattr(&self, request: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "getattr");
        self.me.activity.request();
        let to = self.entry(ino);
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, inner) => self.me.enter(slot, move |session| match session {
                Ok(session) => session.attributes(inner, reply),
                Err(e) => reply.error(e),
            }),
            To::Outer(number) => self.me.offload(move |me| match me.stat(number, handle.map(|handle| handle.0)) {
                Ok(attr) => reply.attr(&me.keep(), &attr),
                Err(e) => reply.error(e),
            }),
        }
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "readlink");
        self.me.activity.request();
        let to = self.entry(ino);
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, inner) => self.me.enter(slot, move |session| match session {
                Ok(session) => session.target(inner, reply),
                Err(e) => reply.error(e),
            }),
            To::Outer(number) => self.me.offload(move |me| match me.target(number) {
                Ok(target) => reply.data(&target),
                Err(e) => reply.error(e),
            }),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, ?flags, "open");
        self.me.activity.request();
        let uid = request.uid();
        let to = self.entry(ino);
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, inner) => self.me.enter(slot, move |session| match session {
                Ok(session) => session.open_file(inner, uid, reply),
                Err(e) => reply.error(e),
            }),
            To::Outer(number) => {
                self.me.offload(move |me| match me.open(number, uid) {
                    Ok((handle, flags)) => reply.opened(handle, flags),
                    Err(e) => reply.error(e),
                });
            }
        }
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.entry(ino) {
            To::Container(slot, inner) => match self.open_session(slot) {
                Some(session) => {
                    session.read(request, INodeNo(inner.0), handle, offset, size, flags, lock, reply);
                }
                // An open file keeps its container open.
                None => reply.error(Errno::EBADF),
            },
            to @ To::Outer(_) => {
                let _asked = self.asked(request, &to);
                tracing::debug!(target: "fzmfs::request", ino = ino.0, offset, size, "read");
                self.me.activity.request();
                catch_panic(|| self.me.read(request.pid(), handle.0, offset, size, reply));
            }
        }
    }

    fn release(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        flags: OpenFlags,
        lock: Option<LockOwner>,
        flush: bool,
        reply: ReplyEmpty,
    ) {
        match self.entry(ino) {
            To::Container(slot, inner) => match self.open_session(slot) {
                Some(session) => session.release(request, INodeNo(inner.0), handle, flags, lock, flush, reply),
                None => reply.ok(),
            },
            To::Outer(_) => {
                let gone = super::write(&self.me.files).remove(&handle.0);
                reply.ok();
                self.me.release(gone);
            }
        }
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "opendir");
        self.me.activity.request();
        let to = self.content(ino);
        let _asked = self.asked(request, &to);
        match to {
            // Listed as far as it is read; the kernel keeps it.
            To::Container(..) => {
                reply.opened(FileHandle(0), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
            }
            To::Outer(number) => {
                let uid = request.uid();
                self.me.offload(move |me| match me.open_dir(number, uid) {
                    Ok(handle) => reply.opened(handle, FopenFlags::empty()),
                    Err(e) => reply.error(e),
                });
            }
        }
    }

    fn readdir(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectory) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, offset, "readdir");
        self.me.activity.request();
        let to = self.content(ino);
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, dir) => self.me.enter(slot, move |session| match session {
                Ok(session) => session.list_dir(dir, offset, reply),
                Err(e) => reply.error(e),
            }),
            To::Outer(number) => self.me.offload(move |me| me.list(number, handle.0, offset, reply)),
        }
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, offset, "readdirplus");
        self.me.activity.request();
        let to = self.content(ino);
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, dir) => self.me.enter(slot, move |session| match session {
                Ok(session) => session.list_dir_plus(dir, offset, reply),
                Err(e) => reply.error(e),
            }),
            To::Outer(number) => {
                let uid = request.uid();
                self.me.offload(move |me| {
                    me.list_plus(number, handle.0, offset, uid, reply);
                    me.forget_some(uid);
                });
            }
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let gone = super::write(&self.me.listings).remove(&handle.0);
        reply.ok();
        drop(gone);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.me.offload(move |me| match me.containers.top.space() {
            Ok(space) => {
                let block = u32::try_from(space.block).unwrap_or(4096);
                // As df(1) shows the file system of the directory: how full that is, not that nothing can be written.
                let Space { blocks, free, available, files, free_files, .. } = space;
                reply.statfs(blocks, free, available, files, free_files, block, NAME_MAX, block);
            }
            Err(e) => reply.error(Errno::from_i32(e.errno())),
        });
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, ?name, "getxattr");
        if ino.0 == ROOT.0 {
            // A container that has changed is found again as it is now.
            let stats = || stats::value(&self.me.activity, &self.me.cache, &(self.me.decoder)(), false);
            let is_stats = name.as_encoded_bytes() == stats::NAME.to_bytes();
            if let Some(value) = daemon_id::attribute(name).or_else(|| is_stats.then(stats)) {
                return answer_xattr(Ok(value), size, reply);
            }
        }
        self.me.activity.request();
        if !name.as_encoded_bytes().starts_with(b"user.") {
            // No security labels or ACLs.
            return reply.error(Errno::EOPNOTSUPP);
        }
        let name = name.to_owned();
        let to = self.content(ino);
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, inner) => self.me.enter(slot, move |session| match session {
                Ok(session) => session.attribute(inner, &name, size, reply),
                Err(e) => reply.error(e),
            }),
            To::Outer(_) => reply.error(Errno::NO_XATTR),
        }
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        tracing::debug!(target: "fzmfs::request", ino = ino.0, "listxattr");
        self.me.activity.request();
        let to = self.content(ino);
        let _asked = self.asked(request, &to);
        match to {
            To::Container(slot, ROOT) if self.open_session(slot).is_none() => {
                answer_xattr(Ok(xattr_names_of_root()), size, reply);
            }
            To::Container(slot, inner) => self.me.enter(slot, move |session| match session {
                Ok(session) => session.attribute_names(inner, size, reply),
                Err(e) => reply.error(e),
            }),
            To::Outer(_) => answer_xattr(Ok(Vec::new()), size, reply),
        }
    }

    read_only::answers!();
}
