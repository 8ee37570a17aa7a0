//! State shared by all calls, and the replies for names and attributes.
//!
//! Replies at once if the data is in memory. Otherwise structure is read on the metadata threads, a length is computed
//! by a worker, and a length that many files share waits for a gate.
//!
//! | `stat` of a file whose length | is answered by |
//! |---|---|
//! | is in memory | the event loop |
//! | follows from headers and tables | a metadata thread |
//! | is that of a document, which is made for it | a worker |
//! | is known when all of a stream was decoded | a checksum thread |
//! | follows from others that are being measured | a metadata thread, after the gate |
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use fuser::{Errno, FileHandle, FopenFlags, Generation, ReplyEntry, ReplyOpen};

use super::activity::Activity;
use super::faults::Faults;
use super::held::{Held, Holders};
use super::inode_attr::AttrBuilder;
use super::killed::Killed;
use super::offload::{JobTurn, Offload, On};
use super::opened_inodes::OpenedInodes;
use super::read::{Open, Reader};
use super::source_watch::Watch;
use super::walks::{Visit, WINDOW, Walks};
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::limits::Charge;
use crate::recent::Recent;
use crate::tree::{Attr, EntryRef, Ino, Kind, OpenDir, OpenFile, Tree};
use crate::view::{Effort, View};

/// Number of positions before the first entry of a directory: `.` and `..`.
pub(super) const DOTS: u64 = 2;

/// Longer names are refused, as in other file systems.
pub(super) const NAME_MAX: u32 = 255;

/// Maximum number of files that are kept open because they are likely to be opened next: enough for two programs.
const READY: NonZeroUsize = NonZeroUsize::MIN.saturating_add(2 * WINDOW as usize);

/// How long the kernel may cache names and attributes: for the life of the mount, as a container that changes is no
/// longer served.
pub(super) const FOR_EVER: Duration = Duration::from_secs(1 << 30);
/// Inode numbers are never reused during a mount.
pub(super) const GENERATION: Generation = Generation(0);

/// Returns which device has decoded so far.
pub(super) type DecodedBy = Box<dyn Fn() -> String + Send + Sync>;

/// Replies with the attributes that were found.
type AttrReply = Box<dyn FnOnce(&Shared, Result<Attr>) + Send>;

/// A file that a user has open.
pub(super) struct Handle {
    open: Arc<Open>,
    _held: Held,
}

/// State shared by calls and offloaded work.
pub(super) struct Shared {
    pub(super) tree: Arc<Tree>,
    pub(super) cache: Arc<Cache>,
    pub(super) reader: Arc<Reader>,
    pub(super) watch: Arc<Watch>,
    pub(super) attributes: AttrBuilder,
    pub(super) activity: Arc<Activity>,
    /// Gives up requests whose readers were killed; `None` if none may wait for long.
    pub(super) killed: Option<Killed>,
    /// The charge for its memory, if it is a container in a directory.
    pub(super) charge: Option<Charge>,
    pub(super) offload: Arc<Offload>,
    pub(super) holders: Holders,
    open: RwLock<HashMap<u64, Handle>>,
    next: AtomicU64,
    /// The file that was opened last.
    last: AtomicU64,
    pub(super) walks: Mutex<Walks>,
    /// Files that are likely to be opened next.
    pub(super) ready: Recent<Ino, Arc<OpenFile>>,
    pub(super) decoder: DecodedBy,
    /// Whether the kernel can map files that are read directly, so that some may be.
    pub(super) reads_directly: AtomicBool,
    /// The files that are read whole and have pages in the kernel.
    in_pages: Mutex<OpenedInodes>,
    /// Size shown by `statfs`, as known at mount time.
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
        faults: Faults,
        (cache, offload): (Arc<Cache>, Arc<Offload>),
        watch: Arc<Watch>,
        attributes: AttrBuilder,
        holders: Holders,
        decoder: DecodedBy,
    ) -> Self {
        let tree = Arc::new(tree);
        let faults = faults.named_by(&tree);
        let reader = Arc::new(Reader::new(cache.clone(), watch.clone(), offload.clone(), faults));
        let (open, next) = (RwLock::default(), AtomicU64::new(1));
        let (walks, ready) = (Mutex::default(), Recent::new(READY));
        let info = tree.container().info();
        let bytes = info.decoded_size.unwrap_or(info.file_size);
        let reads_directly = AtomicBool::new(false);
        let (killed, charge, activity) = (None, None, holders.activity.clone());
        Self {
            tree,
            cache,
            reader,
            watch,
            attributes,
            activity,
            killed,
            charge,
            offload,
            holders,
            open,
            next,
            last: AtomicU64::new(0),
            walks,
            ready,
            decoder,
            reads_directly,
            in_pages: Mutex::default(),
            bytes,
        }
    }

    /// Whether no file is open and nothing is in progress, if the caller holds the only session of this.
    pub(super) fn is_idle(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && !self.is_open()
    }

    /// Whether a file is open.
    pub(super) fn is_open(&self) -> bool {
        !self.open.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The path in the tree of the file that was opened last.
    pub(super) fn last_path(&self) -> Option<String> {
        self.tree.path(Ino(self.last.load(Ordering::Relaxed)))
    }

    /// The file that is open as `handle`.
    pub(super) fn open_file(&self, handle: u64) -> Option<Arc<Open>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(&handle).map(|handle| handle.open.clone())
    }

    /// Closes `handle`; dropping the result frees its memory.
    pub(super) fn close(&self, handle: u64) -> Option<Handle> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }

    /// Maps the error to an errno; logs EIO.
    pub(super) fn errno(&self, ino: Ino, e: &Error) -> Errno {
        let errno = e.errno_of_existing();
        if errno == libc::EIO {
            self.reader.log(ino, e);
        }
        Errno::from_i32(errno)
    }

    /// The key under which work on `ino` is serialized, distinct among the trees of the mount.
    fn turn_of(&self, ino: Ino) -> Ino {
        Ino(self.attributes.number(ino).0)
    }

    fn turn(&self, ino: Ino) -> JobTurn {
        JobTurn::Inode(self.turn_of(ino))
    }

    /// Runs `work` on a metadata thread, serialized per `ino` unless that is a directory that was visited.
    pub(super) fn offload(self: &Arc<Self>, ino: Ino, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let me = self.clone();
        let job = Box::new(move || catch_panic(|| work(&me)));
        if self.tree.is_visited(ino) {
            self.offload.run(On::Metadata, job);
        } else {
            self.offload.run_in_turn(self.turn(ino), On::Opening, job);
        }
    }

    /// As [`Shared::offload`], called on a metadata thread: runs `work` at once unless it has to wait for its turn.
    fn here(self: &Arc<Self>, ino: Ino, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        if self.tree.is_visited(ino) {
            return work(self);
        }
        let me = self.clone();
        self.offload.run_in_turn_here(self.turn(ino), Box::new(move || catch_panic(|| work(&me))));
    }

    /// As [`Shared::offload`], for extended attributes: serialized per `ino` apart from other work, visited or not.
    pub(super) fn offload_xattr(self: &Arc<Self>, ino: Ino, work: impl FnOnce(&Self) + Send + 'static) {
        let me = self.clone();
        self.offload.run_in_turn(
            JobTurn::Xattrs(self.turn_of(ino)),
            On::Metadata,
            Box::new(move || catch_panic(|| work(&me))),
        );
    }

    /// Passes the attributes of `ino` to `then`: at once if in memory, otherwise when known. Called on an event loop.
    pub(super) fn attr(self: &Arc<Self>, ino: Ino, then: impl FnOnce(&Self, Result<Attr>) + Send + 'static) {
        match self.tree.known_attr(ino) {
            Some(attr) => then(self, Ok(attr)),
            None => self.offload(ino, move |me| me.find_attr(ino, then)),
        }
    }

    /// As [`Shared::attr`], on a metadata thread.
    fn find_attr(self: &Arc<Self>, ino: Ino, then: impl FnOnce(&Self, Result<Attr>) + Send + 'static) {
        match self.tree.cheap_attr(ino) {
            Some(attr) => then(self, Ok(attr)),
            None => self.prepared(ino, move |me, file| then(me, file.and_then(|_| me.tree.attr(ino, &*me.cache)))),
        }
    }

    /// Passes the file `ino` to `then`, on a thread that may compute its length. Called on a metadata thread.
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
            Effort::Compute => On::Workers,
            Effort::Whole => On::Checks,
        };
        self.offload.run_in_turn(self.turn(ino), on, Box::new(move || catch_panic(|| then(&me, Ok(file)))));
    }

    /// Replies to a lookup of `name` in `parent`.
    pub(super) fn lookup(self: &Arc<Self>, parent: Ino, name: &OsStr, reply: ReplyEntry) {
        if let Some(found) = self.tree.known_child(parent, name.as_bytes()) {
            if let Some(ino) = self.entry(parent, found, reply, |me, ino, then| me.attr(ino, then)) {
                self.visited(ino, Visit::Name);
            }
            return;
        }
        let name = name.to_owned();
        // Otherwise this look-up has the turn of `parent`, which is not held while a subdirectory is listed.
        let no_turn = self.tree.is_visited(parent);
        self.offload(parent, move |me| {
            let found = me.tree.lookup(parent, name.as_bytes());
            let find = |me: &Arc<Self>, ino, then| {
                if no_turn { me.here(ino, move |me| me.find_attr(ino, then)) } else { me.attr(ino, then) }
            };
            if let Some(ino) = me.entry(parent, found, reply, find) {
                me.visited(ino, Visit::Name);
            }
        });
    }

    /// Replies to a lookup in `parent` with its result `found`, which it returns, and its attributes from `find`.
    fn entry(
        self: &Arc<Self>,
        parent: Ino,
        found: Result<Option<Ino>>,
        reply: ReplyEntry,
        find: impl FnOnce(&Arc<Self>, Ino, AttrReply),
    ) -> Option<Ino> {
        match found {
            Ok(Some(ino)) => {
                let then = move |me: &Self, attr: Result<Attr>| match attr {
                    Ok(attr) => reply.entry(&FOR_EVER, &me.attributes.attr(&attr), GENERATION),
                    Err(e) => reply.error(me.errno(ino, &e)),
                };
                find(self, ino, Box::new(then));
                return Some(ino);
            }
            // Inode 0 is a negative entry, which the kernel may cache.
            Ok(None) => reply.entry(&FOR_EVER, &self.attributes.nothing(), GENERATION),
            Err(e) => reply.error(self.errno(parent, &e)),
        }
        None
    }

    /// The file `ino`, if it is open or was prepared, and its view exists; only from memory.
    pub(super) fn known_file(&self, ino: Ino) -> Option<Arc<OpenFile>> {
        let file = self.tree.known_file(ino)?;
        // From now on, its openers hold it.
        self.ready.remove(&ino);
        Some(file)
    }

    /// Opens `file`, whose length is known or may be computed on this thread, for user `uid`; `is_first`: on the first
    /// open.
    pub(super) fn opened(&self, ino: Ino, file: Result<Arc<OpenFile>>, is_first: bool, uid: u32, reply: ReplyOpen) {
        let view = file.and_then(|file| Ok((file.view(&*self.cache)?, file)));
        match view.and_then(|(view, file)| Ok((self.holders.hold(uid, view.computed_len())?, view, file))) {
            Ok((held, view, file)) => {
                let is_whole = file.file.is_read_whole && self.reads_directly.load(Ordering::Relaxed);
                let (is_direct, is_decoded) = if is_whole { self.whole(ino, &view, is_first) } else { (false, false) };
                let (handle, open) = self.keep(ino, file, view, held);
                // Pages stay cached across opens: a container that changes is no longer served.
                let direct = if is_direct { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::empty() };
                reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE | direct);
                if is_decoded {
                    self.reader.prefetch(&open);
                }
            }
            Err(e) => reply.error(self.errno(ino, &e)),
        }
    }

    /// Keeps `file` open, which is `held`; returns its handle too.
    pub(super) fn keep(&self, ino: Ino, file: Arc<OpenFile>, view: Arc<View>, held: Held) -> (FileHandle, Arc<Open>) {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        let open = Arc::new(self.reader.open(ino, file, view));
        let kept = Handle { open: open.clone(), _held: held };
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(handle, kept);
        self.last.store(ino.0, Ordering::Relaxed);
        self.watch.opened();
        (FileHandle(handle), open)
    }

    /// How a file that is read whole is opened: whether straight into the reader's buffer, and whether it is
    /// prefetched.
    ///
    /// A file that may never be read again, or is in our cache, is not worth kernel pages. One that is decoded a second
    /// time gets them, and keeps them.
    fn whole(&self, ino: Ino, view: &View, is_first: bool) -> (bool, bool) {
        let mut in_pages = self.in_pages.lock().unwrap_or_else(PoisonError::into_inner);
        if is_first {
            (true, true)
        } else if in_pages.contains(ino) {
            (false, false)
        } else if self.reader.is_known(view, &(0..view.len())) {
            (true, false)
        } else {
            in_pages.insert(ino);
            (false, true)
        }
    }

    /// The entries of `dir`; lists it if necessary.
    pub(super) fn open_dir(&self, dir: Ino) -> Result<OpenDir, Errno> {
        self.tree.open_dir(dir).map_err(|e| self.errno(dir, &e))
    }

    /// Passes the entries of `dir`, which is `open`, from `position` to `add`, until it returns true or the directory
    /// ends: `.`, `..`, then the entries of the tree.
    pub(super) fn list(
        &self,
        dir: Ino,
        open: &OpenDir,
        position: u64,
        mut add: impl FnMut(EntryRef<'_>) -> bool,
    ) -> Result<(), Errno> {
        let dots = [(".", dir), ("..", self.tree.parent(dir))];
        for ((name, ino), next) in dots.into_iter().zip(1..).filter(|&(_, next)| next > position) {
            if add(EntryRef { ino, kind: Kind::Dir, name, next }) {
                return Ok(());
            }
        }
        let add = |entry: EntryRef<'_>| add(EntryRef { next: entry.next + DOTS, ..entry });
        open.visit(position.saturating_sub(DOTS), add).map_err(|e| self.errno(dir, &e))
    }
}

/// Runs one call. If it panics, the reply is dropped, which sends EIO.
pub(super) fn catch_panic(call: impl FnOnce()) {
    // The panic hook logs it.
    catch_unwind(AssertUnwindSafe(call)).ok();
}
