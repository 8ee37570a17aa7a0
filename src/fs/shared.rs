//! What every call needs, and the answers to those that ask for names and attributes.
//!
//! What is in memory is answered at once. What is not is left to others: structure to the lane for metadata, a length
//! that has to be computed to a worker, one that many files wait for to a gate.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use fuser::{Errno, FileHandle, FopenFlags, INodeNo, ReplyEntry, ReplyOpen};

use super::fuse_adapter::{Decoder, FOR_EVER, GENERATION};
use super::inode_attr::AttrBuilder;
use super::offload::{Offload, On};
use super::read::{Open, Reader};
use super::source_watch::Watch;
use super::umount::PID_ATTRIBUTE;
use crate::cache::Cache;
use crate::checksum::Threads;
use crate::error::{Error, Result};
use crate::tree::{Attr, DirEntry, Ino, Kind, OpenFile, ROOT, Tree};
use crate::view::Effort;

/// Positions in a directory before its first entry: `.` and `..`.
const DOTS: u64 = 2;

/// Tells the turns of extended attributes from others; no inode number has it.
const XATTR: u64 = 1 << 63;

/// What has decoded so far, in the whole mount.
const DECODER: &[u8] = b"user.fzmfs.decoder";

/// What calls and the work that they leave to others share.
pub(super) struct Shared {
    pub(super) tree: Tree,
    pub(super) cache: Arc<Cache>,
    pub(super) reader: Arc<Reader>,
    pub(super) watch: Arc<Watch>,
    pub(super) look: AttrBuilder,
    offload: Arc<Offload>,
    pub(super) open: RwLock<HashMap<u64, Arc<Open>>>,
    next: AtomicU64,
    decoder: Decoder,
    /// Bytes that `statfs` shows, as known when it was mounted.
    pub(super) bytes: u64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("tree", &self.tree).field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(
        tree: Tree,
        cache: Arc<Cache>,
        checks: Threads,
        watch: Arc<Watch>,
        look: AttrBuilder,
        decoder: Decoder,
    ) -> Self {
        let offload = Offload::new(cache.clone(), checks);
        let reader = Arc::new(Reader::new(cache.clone(), watch.clone(), offload.clone()));
        let (open, next) = (RwLock::default(), AtomicU64::new(1));
        let info = tree.container().info();
        let bytes = info.decoded_size.unwrap_or(info.file_size);
        Self { tree, cache, reader, watch, look, offload, open, next, decoder, bytes }
    }

    /// The error as an errno; what was broken is logged.
    pub(super) fn errno(&self, ino: u64, e: &Error) -> Errno {
        if e.errno() == libc::EIO {
            self.reader.log(ino, e);
        }
        Errno::from_i32(e.errno())
    }

    /// Runs `work` on the lane for metadata: what is about `ino` in turn, unless that is a directory which was visited.
    pub(super) fn offload(self: &Arc<Self>, ino: Ino, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let me = self.clone();
        let job = Box::new(move || catch_panic(|| work(&me)));
        if self.tree.is_visited(ino) {
            self.offload.run(On::Lane, job);
        } else {
            self.offload.run_in_turn(ino, On::Lane, job);
        }
    }

    /// As [`Shared::offload`], apart from it: what asks for extended attributes goes in turn also for directories.
    pub(super) fn offload_xattr(self: &Arc<Self>, ino: Ino, work: impl FnOnce(&Self) + Send + 'static) {
        let me = self.clone();
        self.offload.run_in_turn(ino | XATTR, On::Lane, Box::new(move || catch_panic(|| work(&me))));
    }

    /// Hands the attributes of `ino` to `then`: from memory at once, else when they are known.
    pub(super) fn attr(self: &Arc<Self>, ino: Ino, then: impl FnOnce(&Self, Result<Attr>) + Send + 'static) {
        if let Some(attr) = self.tree.known_attr(ino) {
            return then(self, Ok(attr));
        }
        self.offload(ino, move |me| match me.tree.cheap_attr(ino) {
            Some(attr) => then(me, Ok(attr)),
            None => me.prepared(ino, move |me, file| then(me, file.and_then(|_| me.tree.attr(ino, &*me.cache)))),
        });
    }

    /// Hands the file `ino` to `then` on a thread that may do what is left to learn its length. On the lane.
    pub(super) fn prepared(
        self: &Arc<Self>,
        ino: Ino,
        then: impl FnOnce(&Arc<Self>, Result<Arc<OpenFile>>) + Send + 'static,
    ) {
        let (file, effort) = match self.tree.file(ino).and_then(|file| Ok((file.effort()?, file))) {
            Ok((effort, file)) => (file, effort),
            Err(e) => return then(self, Err(e)),
        };
        let me = self.clone();
        let on = match effort {
            Effort::Structure => return then(self, Ok(file)),
            Effort::Sizing(gate) => {
                return gate.when_open(move |verdict| match verdict {
                    Ok(()) => me.offload(ino, move |me| me.prepared(ino, then)),
                    Err(e) => catch_panic(|| then(&me, Err(e))),
                });
            }
            Effort::Part => On::Workers,
            Effort::Whole => On::Checks,
        };
        self.offload.run_in_turn(ino, on, Box::new(move || catch_panic(|| then(&me, Ok(file)))));
    }

    /// Answers a lookup in `parent` that came to `found`.
    pub(super) fn entry(self: &Arc<Self>, parent: Ino, found: Result<Option<Ino>>, reply: ReplyEntry) {
        match found {
            Ok(Some(ino)) => self.attr(ino, move |me, attr| match attr {
                Ok(attr) => reply.entry(&FOR_EVER, &me.look.attr(&attr), GENERATION),
                Err(e) => reply.error(me.errno(ino, &e)),
            }),
            // Inode 0 says that there is no such name, and may be remembered.
            Ok(None) => reply.entry(&FOR_EVER, &self.look.nothing(), GENERATION),
            Err(e) => reply.error(self.errno(parent, &e)),
        }
    }

    /// Opens `file`, whose length is known or can be found out here.
    pub(super) fn opened(&self, ino: Ino, file: Result<Arc<OpenFile>>, reply: ReplyOpen) {
        match file.and_then(|file| Ok((file.view(&*self.cache)?, file))) {
            Ok((view, file)) => {
                let handle = self.next.fetch_add(1, Ordering::Relaxed);
                let open = Arc::new(self.reader.open(ino, file, view));
                self.open.write().unwrap_or_else(PoisonError::into_inner).insert(handle, open);
                // Pages stay from one open to the next: the container does not change, or is not served.
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(e) => reply.error(self.errno(ino, &e)),
        }
    }

    /// The entry at `position` of a directory: `.`, `..`, then what the tree has.
    fn entry_at(&self, dir: Ino, position: u64) -> Result<Option<DirEntry>, Errno> {
        let dot =
            |ino, name: &str| Ok(Some(DirEntry { ino, kind: Kind::Dir, name: name.to_owned(), next: position + 1 }));
        match position {
            0 => dot(dir, "."),
            1 => dot(self.tree.parent(dir), ".."),
            _ => {
                let entry = self.tree.entry(dir, position - DOTS).map_err(|e| self.errno(dir, &e))?;
                Ok(entry.map(|entry| DirEntry { next: entry.next + DOTS, ..entry }))
            }
        }
    }

    /// Gives `add` the entries from `position` on until it is full or there are no more.
    pub(super) fn list(
        &self,
        dir: INodeNo,
        mut position: u64,
        mut add: impl FnMut(&DirEntry) -> bool,
    ) -> Result<(), Errno> {
        while let Some(entry) = self.entry_at(dir.0, position)? {
            if add(&entry) {
                break;
            }
            position = entry.next;
        }
        Ok(())
    }

    /// An extended attribute, where that takes a look into memory only.
    pub(super) fn known_xattr(&self, ino: Ino, name: &OsStr) -> Option<Result<Vec<u8>, Errno>> {
        if ino == ROOT && name.as_bytes() == PID_ATTRIBUTE.to_bytes() {
            return Some(Ok(std::process::id().to_string().into_bytes()));
        }
        if !name.as_bytes().starts_with(b"user.") {
            // No labels and no access lists here: `ls` asks for them once a mount then, not once a file.
            return Some(Err(Errno::EOPNOTSUPP));
        }
        (name.as_bytes() == DECODER).then(|| Ok((self.decoder)().into_bytes()))
    }

    /// An extended attribute that the tree knows, or not.
    pub(super) fn xattr(&self, ino: Ino, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let all = self.tree.xattrs(ino).map_err(|e| self.errno(ino, &e))?;
        let found = all.into_iter().find(|(known, _)| known.as_bytes() == name.as_bytes());
        found.map(|(_, value)| value.into_bytes()).ok_or(Errno::NO_XATTR)
    }

    pub(super) fn xattr_names(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        let all = self.tree.xattrs(ino).map_err(|e| self.errno(ino, &e))?;
        let names = all.into_iter().map(|(name, _)| name.into_bytes()).chain([DECODER.to_vec()]);
        Ok(names.flat_map(|name| name.into_iter().chain([0])).collect())
    }
}

/// Runs one call. Where it panics the reply is dropped, which answers EIO.
pub(super) fn catch_panic(call: impl FnOnce()) {
    // The panic itself is logged by the hook.
    catch_unwind(AssertUnwindSafe(call)).ok();
}
