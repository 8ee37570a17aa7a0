//! The calls on one container: each queries its tree and replies.
//!
//! If a call panics, it replies EIO and the mount continues. Event loops answer from memory; parsing, reading and
//! decoding are offloaded to other threads (see `shared`).
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use fuser::{
    Errno, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyXattr,
};

use super::inode_attr::AttrBuilder;
use super::killed::Killed;
use super::shared::{DOTS, FOR_EVER, GENERATION, Shared, catch_panic};
use super::walks::Visit;
use super::xattrs::answer_xattr;
use crate::error::Kind;
use crate::tree::{Ino, KnownAttr, OpenDir};
use crate::wanted::Entered;

/// For a size that is not known yet: the kernel must ask again before using it.
const NOT_AT_ALL: Duration = Duration::ZERO;
/// Maximum number of entries that an event loop lists with their attributes, each a few look-ups in memory; a metadata
/// thread lists the others.
const AT_ONCE: u32 = 1024;
/// A container that is open in a mount.
#[derive(Debug)]
pub(super) struct Session(Arc<Shared>);

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

impl Session {
    pub(super) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// Its state.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// Whether reads may wait for a server.
    pub(super) fn is_far(&self) -> bool {
        self.0.killed.as_ref().is_some_and(Killed::is_far)
    }

    /// As [`Killed::enter`], if requests may wait for long.
    pub(super) fn asked(&self, reader: u32) -> Option<Entered> {
        self.0.killed.as_ref().map(|killed| killed.enter(reader))
    }

    /// Replies to a lookup.
    pub(super) fn look_up(&self, parent: Ino, name: &OsStr, reply: ReplyEntry) {
        catch_panic(|| self.0.lookup(parent, name, reply));
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

    /// Replies to a read by the thread `reader`.
    pub(super) fn read(&self, reader: u32, handle: u64, offset: u64, size: u32, reply: ReplyData) {
        let _asked = self.asked(reader);
        let killed = self.0.killed.as_ref().filter(|killed| killed.is_far());
        catch_panic(|| match (self.0.open_file(handle), killed) {
            (Some(open), None) => self.0.reader.read(&open, offset, size, reply),
            (Some(open), Some(killed)) => self.0.reader.read(&open, offset, size, killed.watch(reader, reply)),
            (None, _) => reply.error(Errno::EBADF),
        });
    }

    /// Replies to release.
    pub(super) fn close(&self, handle: u64, reply: ReplyEmpty) {
        catch_panic(|| {
            let gone = self.0.close(handle);
            reply.ok();
            drop(gone);
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
