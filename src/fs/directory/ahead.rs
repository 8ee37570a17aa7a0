//! Opens the containers of a directory that are likely to be entered next.
//!
//! A program that enters them in the order of their names, or of the directory, and reads a file in each, is expected to
//! go on like that: while it reads one, the next [`AHEAD`] are opened, and the beginning of that file in them is
//! decoded. Not on a server, where that may be in vain and costs requests.
//!
//! A container that was opened ahead is the one that is entered only if its version is still that of the entry then.
//!
//! Limits: [`WALKS`] directories with at most [`NAMES`] names, which are charged; [`AHEAD`] containers of each, charged
//! as those that are open; [`BEGINNING`] bytes of each.
//!
//! Example: `cat run/*.b2nd/data.raw` enters `000.b2nd`, `001.b2nd`, `002.b2nd`. From the third step on, which goes as
//! far as the one before, `003.b2nd` and `004.b2nd` are open, and their `data.raw` is decoded, when `cat` gets there.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::order::{Order, Step};
use super::sessions::Parsed;
use super::{MirroredDir, lock, names};
use crate::bytes::to_u64;
use crate::error::Result;
use crate::fs::offload::{JobTurn, On};
use crate::fs::session::Session;
use crate::fs::shared::catch_panic;
use crate::limits::Limits;
use crate::mirror::is_candidate;
use crate::tree::ROOT;
use crate::view::Effort;

/// Containers that are opened ahead.
const AHEAD: usize = 2;
/// Bytes of a file that are decoded ahead.
const BEGINNING: u64 = 8 << 20;
/// Directories that are observed at a time.
const WALKS: usize = 4;
/// Maximum number of names of a directory.
const NAMES: u64 = 1 << 16;
/// How long a directory is not listed again for names that are new.
const KNOWN: Duration = Duration::from_secs(60);

/// The directories whose containers were entered last.
#[derive(Default)]
pub(super) struct Ahead(Mutex<Vec<ContainerWalk>>);

/// How a program goes through the containers of a directory.
struct ContainerWalk {
    dir: u64,
    /// The container that was entered last.
    name: Box<OsStr>,
    session: Weak<Session>,
    /// The containers of the directory, and when they were listed.
    order: Option<(Arc<Order>, Instant)>,
    step: Option<Step>,
    next: Vec<NextContainer>,
}

/// A container that is likely to be entered.
#[derive(Clone)]
struct NextContainer {
    name: Box<OsStr>,
    state: Arc<Mutex<AheadState>>,
}

enum AheadState {
    Queued,
    Open(Box<Parsed>),
    /// Or it cannot be opened, which is reported when it is entered.
    Taken,
}

/// Work to do ahead.
enum Todo {
    Nothing,
    List,
    /// Open these, and prefetch the file that was opened last in the container before.
    Open(Vec<NextContainer>, Option<String>),
}

impl Ahead {
    /// The container at `path` in the directory `dir`, if it was opened ahead; waits for it while it is being opened.
    pub(super) fn take(&self, dir: u64, path: &Path) -> Option<Parsed> {
        let name = path.file_name()?;
        let mut walks = lock(&self.0);
        let next = &mut walks.iter_mut().find(|walk| walk.dir == dir)?.next;
        let next = next.swap_remove(next.iter().position(|next| *next.name == *name)?);
        drop(walks);
        match mem::replace(&mut *lock(&next.state), AheadState::Taken) {
            AheadState::Open(parsed) => Some(*parsed),
            AheadState::Queued | AheadState::Taken => None,
        }
    }

    /// Records that the container `name` in `dir` was entered.
    fn enters(&self, dir: u64, name: &OsStr, session: &Arc<Session>) -> Todo {
        let mut walks = lock(&self.0);
        let Some(at) = walks.iter().position(|walk| walk.dir == dir) else {
            let oldest = (walks.len() == WALKS).then(|| walks.remove(0));
            walks.push(ContainerWalk::new(dir, name, session));
            drop(walks);
            drop(oldest);
            return Todo::Nothing;
        };
        // The last one is the one observed most recently.
        let mut walk = walks.remove(at);
        let (todo, gone) = walk.enters(name, session);
        walks.push(walk);
        drop(walks);
        drop(gone);
        todo
    }

    /// The containers that are open, of all directories.
    #[cfg(test)]
    pub(super) fn open(&self) -> Vec<String> {
        let walks = lock(&self.0);
        let next = walks.iter().flat_map(|walk| &walk.next);
        let open = next.filter(|next| matches!(*lock(&next.state), AheadState::Open(_)));
        let mut names: Vec<_> = open.map(|next| next.name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn listed(&self, dir: u64, order: Order) {
        if let Some(walk) = lock(&self.0).iter_mut().find(|walk| walk.dir == dir) {
            walk.order = Some((Arc::new(order), Instant::now()));
        }
    }
}

impl ContainerWalk {
    fn new(dir: u64, name: &OsStr, session: &Arc<Session>) -> Self {
        Self { dir, name: name.into(), session: Arc::downgrade(session), order: None, step: None, next: Vec::new() }
    }

    /// Returns what to do, and what is not expected any more: it is to be dropped without the lock.
    fn enters(&mut self, name: &OsStr, session: &Arc<Session>) -> (Todo, Vec<NextContainer>) {
        let from = mem::replace(&mut self.name, name.into());
        let before = mem::replace(&mut self.session, Arc::downgrade(session));
        let Some((order, listed)) = &self.order else { return (Todo::List, Vec::new()) };
        let order = order.clone();
        if !order.contains(name) {
            let todo = if listed.elapsed() < KNOWN { Todo::Nothing } else { Todo::List };
            return (todo, mem::take(&mut self.next));
        }
        let step = order.step(&from, name);
        let goes_on = step.is_some() && mem::replace(&mut self.step, step) == step;
        let Some(step) = step.filter(|_| goes_on) else { return (Todo::Nothing, mem::take(&mut self.next)) };
        let mut fresh = Vec::new();
        let mut old = mem::take(&mut self.next);
        for name in order.after(name, step, AHEAD) {
            let known = old.iter().position(|next| *next.name == *name).map(|at| old.swap_remove(at));
            let next = known.unwrap_or_else(|| {
                let next = NextContainer { name: name.into(), state: Arc::new(Mutex::new(AheadState::Queued)) };
                fresh.push(next.clone());
                next
            });
            self.next.push(next);
        }
        let file = before.upgrade().and_then(|session| session.shared().last_path());
        (Todo::Open(fresh, file), old)
    }
}

impl MirroredDir {
    /// Records that the container in `slot` was entered for the first time, and prepares those that follow.
    pub(super) fn entered(self: &Arc<Self>, slot: u32, session: &Arc<Session>) {
        if self.is_far || self.containers.rules.is_flat() {
            return;
        }
        let state = self.state();
        let Some(node) = state.slots.get(&slot).map(|slot| slot.node) else { return };
        let (dir, path) = (state.nodes.parent(node), state.nodes.path(node));
        drop(state);
        let Some(path) = path else { return };
        match self.ahead.enters(dir, path.file_name().unwrap_or_default(), session) {
            Todo::Nothing => {}
            Todo::List => self.run_ahead(move |me| {
                // Without its names, nothing is expected in it.
                let order = me.order(dir).unwrap_or_default();
                me.ahead.listed(dir, order);
            }),
            Todo::Open(next, file) => {
                for next in next {
                    let (path, file) = (path.with_file_name(&next.name), file.clone());
                    self.run_ahead(move |me| me.open_ahead(&next.state, &path, file.as_deref()));
                }
            }
        }
    }

    fn run_ahead(self: &Arc<Self>, work: impl FnOnce(&Self) + Send + 'static) {
        let me = self.clone();
        self.offload.run_in_turn(JobTurn::Ahead, On::Opening, Box::new(move || catch_panic(|| work(&me))));
    }

    /// Opens the container at `path`, and prefetches the beginning of its file `file`.
    fn open_ahead(&self, state: &Mutex<AheadState>, path: &Path, file: Option<&str>) {
        let mut state = lock(state);
        if !matches!(*state, AheadState::Queued) {
            return;
        }
        let opened = self.charge_ahead().and_then(|charge| self.parsed(path, charge));
        *state = match opened {
            // The files of a directory are opened when they are read.
            Ok(parsed) if parsed.opened.container.folder().is_some() => AheadState::Taken,
            Ok(parsed) => {
                if let Some(file) = file {
                    // Its reader gets the error.
                    self.prefetch(&parsed, file).ok();
                }
                AheadState::Open(Box::new(parsed))
            }
            Err(_) => AheadState::Taken,
        };
    }

    fn prefetch(&self, parsed: &Parsed, file: &str) -> Result<()> {
        let mut ino = ROOT;
        for name in file.split('/') {
            let Some(child) = parsed.tree.lookup(ino, name.as_bytes())? else { return Ok(()) };
            ino = child;
        }
        let file = parsed.tree.file(ino)?;
        if matches!(file.effort()?, Effort::Structure) {
            let view = file.view(&*self.cache)?;
            // As the continuation of what is read in order: it passes through the cache, and the memory is used again.
            let mut hints = self.cache.prefetch_batch();
            view.pieces(0..view.len().min(BEGINNING), &mut |blob, piece, size| hints.add(blob, piece, size))?;
            hints.send();
        }
        Ok(())
    }

    /// The containers of the directory `dir`.
    fn order(&self, dir: u64) -> Result<Order> {
        let path = self.state().nodes.path(dir).unwrap_or_default();
        let below = self.containers.top.below(&path)?;
        let (mut names, mut bytes) = (Vec::new(), 0);
        names::each(&below, |name, kind| {
            let name = OsStr::from_bytes(name);
            if self.containers.rules.is_container(name.as_bytes()) && is_candidate(&below, name, kind) {
                bytes += to_u64(name.len() + size_of::<Box<OsStr>>());
                Limits::check(to_u64(names.len()), NAMES - 1, "directory")?;
                names.push(name.into());
            }
            Ok(())
        })?;
        let charge = self.containers.options.account.charge_list(bytes, "names of containers")?;
        Ok(Order::new(names, charge))
    }
}
