//! The containers of a mounted directory that are open.
//!
//! Idle containers are closed, least recently used first, when there are too many or there is no room for another one.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::nodes::{LARGEST, base};
use super::{Inodes, MirroredDir};
use crate::error::{Error, Kind, Result};
use crate::fs::held::Holders;
use crate::fs::inode_attr::{AttrBuilder, Numbering};
use crate::fs::killed::Killed;
use crate::fs::session::Session;
use crate::fs::shared::{DecodedBy, Shared};
use crate::fs::source_watch::Watch;
use crate::limits::Charge;
use crate::mirror::{Look, Opened};
use crate::tree::{Numbers, ROOT, Tree};

/// Maximum number of open containers that are not in use.
const MOST: usize = 256;
/// Number of these that are closed together when there is no room for another one.
const TOGETHER: usize = 8;
/// Maximum number of idle containers that are directories, which keep descriptors.
const FOLDERS: u64 = 16;
/// Maximum number of idle containers on a server, which keep fetched bytes.
const OBJECTS: usize = 16;
/// Approximate bytes of an open container beyond its own charges: tree, view, texts.
const CONTAINER: u64 = 96 << 10;

/// A container that is open, with its tree.
pub(super) struct Parsed {
    pub(super) opened: Opened,
    pub(super) tree: Tree,
    charge: Charge,
}

impl Parsed {
    /// Whether its files are still those that were opened; those of a directory may not be.
    fn is_unchanged(&self) -> bool {
        let container = &self.opened.container;
        container.folder().is_none() && container.sources().iter().all(|source| source.check().is_ok())
    }
}

impl MirroredDir {
    /// The container in `slot`, opened if necessary.
    pub(super) fn opened(&self, slot: u32) -> Result<Arc<Session>> {
        let stale = || Error::new(Kind::Changed, "file");
        let mut state = self.state();
        if let Some(session) = state.open.get(&slot) {
            return Ok(session.clone());
        }
        let (node, is_numbered) =
            state.slots.get(&slot).map(|slot| (slot.node, slot.numbers.is_some())).ok_or_else(stale)?;
        let (identity, is_flat) = state.nodes.get(node).map(|node| (node.identity, node.is_flat)).ok_or_else(stale)?;
        let path = state.nodes.path(node).ok_or_else(stale)?;
        let parent = state.nodes.parent(node);
        drop(state);
        let is_this = |opened: &Opened| self.state().nodes.mark(opened.seen.version(), opened.seen.rights) == identity;
        // The entries of one that was opened ahead have numbers already, which may not be those of before.
        let ahead = self.ahead.take(parent, &path).filter(|_| !is_numbered);
        let parsed = match ahead.filter(|parsed| is_this(&parsed.opened) && parsed.is_unchanged()) {
            Some(parsed) => parsed,
            None if is_flat => {
                let (charge, stem) = (self.charge()?, self.flat_stem(parent, &path)?);
                let Look::Files(opened) = self.containers.open_flat(&path, None, &stem)? else { return Err(stale()) };
                self.with_tree(*opened, &path, charge)?
            }
            None => self.parsed(&path, self.charge()?)?,
        };
        if !is_this(&parsed.opened) {
            return Err(stale());
        }
        let numbering = Numbering { root: node, base: if is_flat { node } else { base(slot) } };
        let rights = self.who_may_read(&parsed.opened)?;
        if !self.state().nodes.tell_readers(node, rights) {
            self.flat.forget(node);
            return Err(stale());
        }
        let attributes = self.attributes(rights, numbering);
        let session = Arc::new(self.session(slot, parsed, attributes, numbering));
        if is_flat {
            // Its files have numbers only then.
            session.shared().tree.open_dir(ROOT)?;
        }
        let mut state = self.state();
        if !state.slots.contains_key(&slot) {
            return Err(stale());
        }
        if let Some(other) = state.open.get(&slot).cloned() {
            // Another thread was faster; files may be open in its session.
            drop(state);
            return Ok(other);
        }
        state.open.push(slot, session.clone(), u64::from(has_folder(&session)));
        let closed = state.close_some(0);
        drop(state);
        drop(closed);
        Ok(session)
    }

    /// Charges an open container; closes others that are not in use if there is no room for it.
    fn charge(&self) -> Result<Charge> {
        loop {
            let charged = self.charge_ahead();
            if charged.is_ok() {
                return charged;
            }
            let closed = self.state().close_some(TOGETHER);
            if closed.is_empty() {
                return charged;
            }
        }
    }

    /// As [`MirroredDir::charge`], for a container that may not be entered: closes no others.
    pub(super) fn charge_ahead(&self) -> Result<Charge> {
        self.containers.options.account.charge_list(CONTAINER, "open container")
    }

    /// Opens the container at `path`.
    pub(super) fn parsed(&self, path: &Path, charge: Charge) -> Result<Parsed> {
        self.with_tree(self.containers.open(path, None)?, path, charge)
    }

    fn with_tree(&self, opened: Opened, path: &Path, charge: Charge) -> Result<Parsed> {
        let numbers = Numbers::new(&self.containers.options.account, LARGEST);
        let name = path.file_name().unwrap_or_default();
        let tree = Tree::charging(opened.container.clone(), name, &self.containers.options.account)?;
        Ok(Parsed { opened, tree: tree.continuing(numbers), charge })
    }

    /// A session of the container in `slot`, with the inode numbers that it had when it was closed.
    fn session(&self, slot: u32, parsed: Parsed, attributes: AttrBuilder, numbering: Numbering) -> Session {
        let Parsed { opened, tree, charge } = parsed;
        let Opened { container, input, checks, error, .. } = opened;
        let faults = self.faults.of(&input.path);
        if let Some(error) = &error {
            faults.in_container(error);
        }
        let watch = Arc::new(Watch::polled(container.sources(), container.folder(), numbering, self.wake.clone()));
        checks.on_failure(self.failing(&watch, &faults));
        let killed = Killed::of(&self.waits, &*container);
        let numbers = self.state().slots.get_mut(&slot).and_then(|slot| slot.numbers.take());
        let tree = match numbers {
            Some(numbers) => tree.continuing(numbers),
            None => tree,
        };
        let gpu = self.containers.options.gpu.clone();
        let decoder: DecodedBy = Box::new(move || gpu.decoder());
        let threads = (self.cache.clone(), self.offload.clone());
        let holders = Holders::new(&self.users, CONTAINER, &self.activity);
        let mut shared = Shared::new(tree, faults, threads, watch, attributes, holders, decoder);
        shared.killed = killed;
        shared.charge = Some(charge);
        shared.reads_directly.store(self.reads_directly.load(Ordering::Relaxed), Ordering::Relaxed);
        Session::new(shared)
    }
}

impl Inodes {
    /// Closes the containers that were not used for longest, down to the limit and at least `least` of them, but none
    /// that is in use.
    fn close_some(&mut self, least: usize) -> Vec<Arc<Session>> {
        let is_idle = |session: &Arc<Session>| Arc::strong_count(session) == 1 && session.shared().is_idle();
        let is_far = self.open.iter().next().is_some_and(|(_, session)| session.is_far());
        let most = if is_far { OBJECTS } else { MOST };
        let mut excess = self.open.len().saturating_sub(most).max(least);
        let mut folders = self.open.weight().saturating_sub(FOLDERS);
        let mut chosen = Vec::new();
        for (slot, session) in self.open.iter().rev().filter(|(_, session)| is_idle(session)) {
            let is_folder = has_folder(session);
            if excess > 0 || (is_folder && folders > 0) {
                chosen.push(*slot);
                excess = excess.saturating_sub(1);
                folders = folders.saturating_sub(u64::from(is_folder));
            }
        }
        let mut closed = Vec::new();
        for number in chosen {
            let Some(session) = self.open.remove(&number) else { continue };
            if let Some(slot) = self.slots.get_mut(&number) {
                slot.numbers = Some(session.shared().tree.take_numbers());
            }
            closed.push(session);
        }
        closed
    }
}

fn has_folder(session: &Session) -> bool {
    session.shared().tree.container().folder().is_some()
}
