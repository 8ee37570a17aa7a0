//! A mounted directory: its containers, each a separate tree, and the files that are passed through.
//!
//! Entries outside of containers are looked up each time, and the kernel keeps them for half a second: new, changed and
//! removed files are seen that soon, on every file system. `inotify` would report them a little sooner, but not the
//! changes that other machines make on a shared file system, and would need a watch for each directory that the kernel
//! knows, and users may have few watches; looking up a file takes some microseconds. Below a container the kernel keeps
//! everything, since a container that changes becomes another inode. Containers are opened when they are entered.
//!
//! The directory may be a prefix of a server. Its lists cost requests, so the kernel keeps entries for a minute; a file
//! that was replaced meanwhile is noticed when it is opened.
//!
//! Limits: open files, directories and containers are charged to the user who opened them (`held`); the inode numbers
//! of closed containers are kept while the kernel knows them. One cache, one account and one set of threads for all.
#![forbid(unsafe_code)]

mod ahead;
mod as_of;
mod changes;
mod flat;
mod forgetting;
mod listing;
mod names;
mod nodes;
mod order;
mod outer;
mod reached;
mod replies;
mod sessions;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use fuser::{Errno, Notifier};

use super::activity::{Activity, InUse};
use super::faults::Faults;
use super::held;
use super::killed::{Killed, Waits};
use super::offload::{JobTurn, Offload, On};
use super::options::{Access, MountOptions, Owner};
use super::session::Session;
use super::shared::{DecodedBy, catch_panic};
use super::source_watch::Watch;
use super::sys;
use super::wake::Wake;
use crate::account::{Share, Users};
use crate::cache::Cache;
use crate::error::Error;
use crate::lru_list::LruList;
use crate::mirror::Containers;
use crate::recent::Recent;
use crate::source::{Below, Passed, Version};
use crate::tree::{Ino, Numbers};

use ahead::Ahead;
use as_of::AsOf;
use flat::Flat;
use names::DirNames;
use nodes::{NodePlace, Nodes, SLOTS, base, place};
use outer::SOON;

pub(super) use replies::To;

/// How long the kernel may keep an entry on a server.
const MINUTE: Duration = Duration::from_secs(60);

/// The state of a directory mount.
pub(super) struct MirroredDir {
    containers: Containers,
    owner: Owner,
    access: Access,
    /// The owner of entries without one: objects.
    ids: (u32, u32),
    state: Mutex<Inodes>,
    cache: Arc<Cache>,
    offload: Arc<Offload>,
    activity: Arc<Activity>,
    decoder: DecodedBy,
    users: Users,
    /// Tells the kernel, once the session has begun.
    notifier: OnceLock<Notifier>,
    is_forgetting: AtomicBool,
    /// Files that are passed through and open.
    files: RwLock<HashMap<u64, (DirHandle<OpenFile>, InUse)>>,
    recent_files: Recent<(u32, u64, Version), Weak<OpenFile>>,
    /// Directories that are open.
    listings: RwLock<HashMap<u64, DirHandle<MirroredOpenDir>>>,
    recent_listings: Recent<(u32, u64), Weak<MirroredOpenDir>>,
    next: AtomicU64,
    /// Wakes the thread that checks the containers in use.
    wake: Arc<Wake>,
    flat: Flat,
    ahead: Ahead,
    faults: Faults,
    /// Whether the kernel can map files that are read directly.
    reads_directly: AtomicBool,
    /// Requests that may wait for long.
    waits: Arc<Waits>,
    /// Whether the directory is on a server.
    is_far: bool,
    /// Containers, open or closed, that have failed a check since their last look.
    failed: Arc<Mutex<Vec<Arc<Watch>>>>,
}

/// The object behind a handle, shared with other handles of the same user.
struct DirHandle<T> {
    open: Arc<T>,
    _share: Share,
}

/// A file that is passed through and open.
struct OpenFile {
    _share: Share,
    /// Its inode.
    number: u64,
    file: Passed,
    /// Gives up fetches whose readers were killed, if it is on a server.
    killed: Option<Killed>,
}

/// A directory that is open.
struct MirroredOpenDir {
    /// They only grow, if it is on a server.
    names: RwLock<DirNames>,
    as_of: AsOf,
    /// The directory with its cached entries, if it is on a server.
    far: Option<Below>,
}

/// The inodes that the kernel knows, and the containers among them.
struct Inodes {
    nodes: Nodes,
    /// The containers that were entered.
    slots: HashMap<u32, ContainerSlot>,
    next_slot: u32,
    /// The open containers, by slot; those that are directories weigh 1.
    open: LruList<u32, Arc<Session>>,
}

/// A container that was entered.
struct ContainerSlot {
    /// Its inode.
    node: u64,
    /// The numbers of its tree, while it is closed.
    numbers: Option<Numbers>,
}

impl fmt::Debug for MirroredDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MirroredDir").field("containers", &self.containers).finish_non_exhaustive()
    }
}

impl MirroredDir {
    pub(super) fn new(
        containers: Containers,
        request: &MountOptions,
        cache: Arc<Cache>,
        offload: Arc<Offload>,
        activity: Arc<Activity>,
        seed: u64,
    ) -> io::Result<Arc<Self>> {
        let gpu = containers.options.gpu.clone();
        let (slots, open) = (HashMap::new(), LruList::unbounded());
        let is_far = containers.top.prefix().is_some();
        if is_far {
            offload.expect_waits();
        }
        let users = held::users(&containers.options.account, request.access);
        Ok(Arc::new(Self {
            containers,
            owner: request.owner,
            access: request.access,
            ids: sys::effective_ids(),
            state: Mutex::new(Inodes { nodes: Nodes::new(seed, users.clone()), slots, next_slot: 0, open }),
            cache,
            offload,
            activity,
            decoder: Box::new(move || gpu.decoder()),
            users,
            notifier: OnceLock::new(),
            is_forgetting: AtomicBool::new(false),
            files: RwLock::default(),
            recent_files: Recent::new(held::MOST),
            listings: RwLock::default(),
            recent_listings: Recent::new(held::MOST),
            next: AtomicU64::new(1),
            wake: Arc::new(Wake::new()?),
            flat: Flat::default(),
            ahead: Ahead::default(),
            faults: Faults::new(&request.file),
            reads_directly: AtomicBool::new(false),
            waits: Arc::default(),
            is_far,
            failed: Arc::default(),
        }))
    }

    /// Requests that may wait for long, and whether reads may wait for a server.
    pub(super) fn waits(&self) -> (Arc<Waits>, bool) {
        (self.waits.clone(), self.is_far)
    }

    /// How long the kernel may keep an entry.
    fn keep(&self) -> Duration {
        if self.is_far { MINUTE } else { SOON }
    }

    fn state(&self) -> MutexGuard<'_, Inodes> {
        lock(&self.state)
    }

    /// Drops `gone`, which the kernel has closed or forgotten: now, or on a metadata thread if that may wait for the
    /// disk.
    fn release(&self, gone: impl Send + 'static) {
        if self.is_far {
            self.offload.release(gone);
        }
    }

    /// Runs `work` on a metadata thread.
    fn offload(self: &Arc<Self>, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let me = self.clone();
        self.offload.run(On::Metadata, Box::new(move || catch_panic(|| work(&me))));
    }

    /// Passes the container in `slot` to `then`: at once if it is open, otherwise on a thread that opens it.
    pub(super) fn enter(self: &Arc<Self>, slot: u32, then: impl FnOnce(Result<&Session, Errno>) + Send + 'static) {
        let open = self.open_session(slot);
        if let Some(session) = open {
            return then(Ok(&session));
        }
        let me = self.clone();
        let job = move || {
            catch_panic(|| match me.opened(slot) {
                Ok(session) => {
                    then(Ok(&session));
                    me.entered(slot, &session);
                }
                Err(e) => then(Err(me.refused(slot, &e))),
            });
        };
        self.offload.run_in_turn(JobTurn::Inode(Ino(base(slot))), On::Opening, Box::new(job));
    }

    /// The errno of a container that cannot be opened; logs EIO.
    fn refused(&self, slot: u32, error: &Error) -> Errno {
        let errno = error.errno_of_existing();
        let state = self.state();
        let path = state.slots.get(&slot).and_then(|slot| state.nodes.path(slot.node));
        drop(state);
        if let Some(path) = path.filter(|_| errno == libc::EIO) {
            self.faults.of(&self.containers.top.path().join(path)).in_container(error);
        }
        Errno::from_i32(errno)
    }

    /// The slot of the container whose root is `node`; `None` if it is not a container.
    fn slot(&self, node: u64) -> Option<u32> {
        let mut state = self.state();
        let Inodes { nodes, slots, next_slot, .. } = &mut *state;
        let found = nodes.get(node).filter(|node| node.is_tree)?;
        if let Some(slot) = found.slot {
            return Some(slot);
        }
        if slots.len() >= SLOTS as usize {
            return None;
        }
        while slots.contains_key(&*next_slot) {
            *next_slot = (*next_slot + 1) % SLOTS;
        }
        let slot = *next_slot;
        *next_slot = (slot + 1) % SLOTS;
        found.slot = Some(slot);
        slots.insert(slot, ContainerSlot { node, numbers: None });
        Some(slot)
    }

    /// Records that the kernel has forgotten an inode that it calls `number`.
    pub(super) fn forget_inode(&self, number: u64, count: u64) {
        match place(number) {
            NodePlace::Outer(number) | NodePlace::Flat(number, _) => self.forget(number, count),
            // Forgotten with its container.
            NodePlace::Inner(..) => {}
        }
    }

    /// Records that the kernel has forgotten an inode of the mirrored directory, or a file of a container there.
    fn forget(&self, number: u64, count: u64) {
        let mut state = self.state();
        let Some(slot) = state.nodes.forget(number, count).and_then(|node| node.slot) else { return };
        // Inodes below it are forgotten before. A file of it may still be open: it is released later.
        let gone = (state.slots.remove(&slot), state.open.remove(&slot));
        drop(state);
        self.release(gone);
    }

    /// The path of an inode of the mirrored directory.
    fn path(&self, number: u64) -> Result<PathBuf, Errno> {
        self.state().nodes.path(number).ok_or(Errno::ESTALE)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
