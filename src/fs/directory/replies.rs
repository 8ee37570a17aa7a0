//! The calls on a mounted directory: where each goes, and the replies to those on what is outside of containers, from
//! metadata threads.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuser::{Errno, FopenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus};
use fuser::{ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyXattr};

use super::MirroredDir;
use super::flat::FlatEntry;
use super::nodes::{NodePlace, place};
use super::outer::SOON;
use crate::fs::inode_attr::{AttrBuilder, Numbering};
use crate::fs::session::Session;
use crate::fs::shared::{GENERATION, NAME_MAX};
use crate::fs::xattrs::answer_xattr;
use crate::fs::{daemon_id, stats};
use crate::source::Space;
use crate::tree::{Ino, ROOT};
use crate::wanted::Entered;

/// Where a call goes.
pub(in crate::fs) enum To<'a> {
    /// An inode of the container in a slot.
    Container(u32, Ino),
    /// An inode of a directory, outside of its containers.
    Outer(&'a Arc<MirroredDir>, u64),
}

impl MirroredDir {
    /// Where a call on an entry goes; the root of a container is an entry of the mirrored directory.
    pub(in crate::fs) fn entry(self: &Arc<Self>, number: u64) -> To<'_> {
        match place(number) {
            NodePlace::Inner(slot, inner) => To::Container(slot, Ino(inner)),
            NodePlace::Flat(number, inner) => match self.slot(number) {
                Some(slot) => To::Container(slot, Ino(inner)),
                // Forgotten.
                None => To::Outer(self, number),
            },
            NodePlace::Outer(number) => To::Outer(self, number),
        }
    }

    /// As [`MirroredDir::entry`], for a call on the content of a directory.
    pub(in crate::fs) fn content(self: &Arc<Self>, number: u64) -> To<'_> {
        match self.entry(number) {
            To::Outer(_, number) => self.slot(number).map_or(To::Outer(self, number), |slot| To::Container(slot, ROOT)),
            inner @ To::Container(..) => inner,
        }
    }

    /// The session in `slot`, if it is open.
    pub(in crate::fs) fn open_session(&self, slot: u32) -> Option<Arc<Session>> {
        self.state().open.get(&slot).cloned()
    }

    /// As [`Waits::enter`](crate::fs::killed::Waits::enter), for a call that may wait for long: for a server, or until
    /// a stream is decoded. `is_outside`: outside of containers.
    pub(in crate::fs) fn asked(&self, reader: u32, is_outside: bool) -> Option<Entered> {
        // To show containers as files, they are opened.
        let may_wait = self.is_far || !is_outside || self.containers.rules.is_flat();
        may_wait.then(|| self.waits.enter(reader))
    }

    /// Whether the directory is on a server.
    pub(in crate::fs) fn is_far(&self) -> bool {
        self.is_far
    }

    /// Records whether the kernel can map files that are read directly.
    pub(in crate::fs) fn can_map(&self, is_mappable: bool) {
        self.reads_directly.store(is_mappable, Ordering::Relaxed);
    }

    /// Replies to a lookup.
    pub(in crate::fs) fn look_up(self: &Arc<Self>, parent: u64, name: OsString, uid: u32, reply: ReplyEntry) {
        self.offload(move |me| {
            let nothing = || AttrBuilder::new(me.owner, Numbering::default()).nothing();
            match me.find(parent, &name, uid) {
                Ok(Some(attr)) => reply.entry(&me.keep(), &attr, GENERATION),
                Ok(None) if me.containers.rules.is_flat() => match me.find_flat(parent, &name, uid) {
                    Ok(Some(FlatEntry::File(file))) => me.reply_flat(file, reply),
                    Ok(Some(FlatEntry::Archive(attr))) => reply.entry(&me.keep(), &attr, GENERATION),
                    Ok(None) => reply.entry(&SOON, &nothing(), GENERATION),
                    Err(e) => reply.error(e),
                },
                Ok(None) => reply.entry(&SOON, &nothing(), GENERATION),
                Err(e) => reply.error(e),
            }
            me.forget_some(uid);
        });
    }

    /// Replies to getattr.
    pub(in crate::fs) fn reply_attr(self: &Arc<Self>, number: u64, handle: Option<u64>, reply: ReplyAttr) {
        self.offload(move |me| match me.stat(number, handle) {
            Ok(attr) => reply.attr(&me.keep(), &attr),
            Err(e) => reply.error(e),
        });
    }

    /// Replies to readlink.
    pub(in crate::fs) fn reply_target(self: &Arc<Self>, number: u64, reply: ReplyData) {
        self.offload(move |me| match me.target(number) {
            Ok(target) => reply.data(&target),
            Err(e) => reply.error(e),
        });
    }

    /// Replies to open.
    pub(in crate::fs) fn reply_open(self: &Arc<Self>, number: u64, uid: u32, reply: ReplyOpen) {
        self.offload(move |me| match me.open(number, uid) {
            Ok((handle, flags)) => reply.opened(handle, flags),
            Err(e) => reply.error(e),
        });
    }

    /// Replies to release.
    pub(in crate::fs) fn close(&self, handle: u64, reply: ReplyEmpty) {
        let gone = super::write(&self.files).remove(&handle);
        reply.ok();
        self.release(gone);
    }

    /// Replies to opendir.
    pub(in crate::fs) fn reply_open_dir(self: &Arc<Self>, number: u64, uid: u32, reply: ReplyOpen) {
        self.offload(move |me| match me.open_dir(number, uid) {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(e) => reply.error(e),
        });
    }

    /// Replies to readdir.
    pub(in crate::fs) fn list_dir(self: &Arc<Self>, number: u64, handle: u64, offset: u64, reply: ReplyDirectory) {
        self.offload(move |me| me.list(number, handle, offset, reply));
    }

    /// Replies to readdirplus.
    pub(in crate::fs) fn list_dir_plus(
        self: &Arc<Self>,
        number: u64,
        handle: u64,
        offset: u64,
        uid: u32,
        reply: ReplyDirectoryPlus,
    ) {
        self.offload(move |me| {
            me.list_plus(number, handle, offset, uid, reply);
            me.forget_some(uid);
        });
    }

    /// Closes a directory that was open.
    pub(in crate::fs) fn close_dir(&self, handle: u64, reply: ReplyEmpty) {
        let gone = super::write(&self.listings).remove(&handle);
        reply.ok();
        drop(gone);
    }

    /// Replies to statfs as df(1) shows the file system of the directory: how full that is, not that nothing can be
    /// written.
    pub(in crate::fs) fn reply_space(self: &Arc<Self>, reply: ReplyStatfs) {
        self.offload(move |me| match me.containers.top.space() {
            Ok(space) => {
                let block = u32::try_from(space.block).unwrap_or(4096);
                let Space { blocks, free, available, files, free_files, .. } = space;
                reply.statfs(blocks, free, available, files, free_files, block, NAME_MAX, block);
            }
            Err(e) => reply.error(Errno::from_i32(e.errno())),
        });
    }

    /// Replies to getxattr. The root has those that describe the mount; reading them does not count as use.
    pub(in crate::fs) fn attribute(&self, number: u64, name: &OsStr, size: u32, reply: ReplyXattr) {
        if number == ROOT.0 {
            // A container that has changed is found again as it is now.
            let stats = || stats::value(&self.activity, &self.cache, &(self.decoder)(), false);
            let is_stats = name.as_encoded_bytes() == stats::NAME.to_bytes();
            if let Some(value) = daemon_id::attribute(name).or_else(|| is_stats.then(stats)) {
                return answer_xattr(Ok(value), size, reply);
            }
        }
        self.activity.request();
        let is_known = name.as_encoded_bytes().starts_with(b"user.");
        reply.error(if is_known { Errno::NO_XATTR } else { Errno::EOPNOTSUPP });
    }
}
