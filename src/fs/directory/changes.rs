//! The containers of a directory that have changed or failed a check: the kernel drops their pages.
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use fuser::Notifier;

use super::{Inodes, MirroredDir, lock};
use crate::error::Error;
use crate::fs::faults::Faults;
use crate::fs::source_watch::Watch;
use crate::fs::sys;

/// Interval of checks of the containers in use.
const PERIOD: Duration = Duration::from_millis(500);

impl MirroredDir {
    /// Handles a failed check of a container that has served bytes: the kernel drops its pages. The container may have
    /// been closed since; its inodes, and their pages, are kept.
    pub(super) fn failing(&self, watch: &Arc<Watch>, faults: &Faults) -> impl Fn(&Error) + Send + Sync + 'static {
        let (watch, failed, faults) = (watch.clone(), self.failed.clone(), faults.clone());
        move |error| {
            faults.in_check(error);
            lock(&failed).push(watch.clone());
            watch.mark_failed();
        }
    }

    /// The containers that failed a check since the last call.
    pub(super) fn failed(&self) -> Vec<Arc<Watch>> {
        std::mem::take(&mut *lock(&self.failed))
    }

    /// The containers to check at intervals: those with an open file.
    pub(super) fn watches(&self) -> Vec<Arc<Watch>> {
        let state = self.state();
        let in_use = state.open.iter().map(|(_, session)| session.shared()).filter(|shared| shared.is_open());
        in_use.map(|shared| shared.watch.clone()).collect()
    }

    /// Marks changed containers, so that they are found again as new ones even if the version of their file is the
    /// same.
    pub(super) fn give_up(&self) {
        let mut state = self.state();
        let Inodes { nodes, slots, open, .. } = &mut *state;
        for (slot, _) in open.iter().filter(|(_, session)| session.shared().watch.has_changed()) {
            if let Some(node) = slots.get(slot).and_then(|slot| nodes.get(slot.node)) {
                node.is_gone = true;
            }
        }
    }

    /// Checks the containers in use until the session makes `ends` readable; a changed one is no longer served. Sleeps
    /// while no container has an open file; whoever opens one wakes it, and so does a check that fails.
    pub(in crate::fs) fn watch(&self, notifier: &Notifier, ends: &File) {
        // The session has begun, and this is called once.
        let _ = self.notifier.set(notifier.clone());
        let mut time = None;
        loop {
            let Ok(ready) = sys::wait_readable(&[ends.as_fd(), self.wake.as_fd()], time) else { return };
            match ready[..] {
                [true, ..] => return,
                [_, true] => {
                    self.wake.take();
                    self.wake.wakes();
                    time = Some(PERIOD);
                    self.failed().iter().for_each(|watch| watch.drop_failed(notifier));
                }
                _ => {
                    let watches = self.watches();
                    for watch in &watches {
                        watch.look(notifier);
                    }
                    self.give_up();
                    if watches.is_empty() {
                        self.wake.sleeps();
                        // One may have been opened just before.
                        time = (!self.watches().is_empty()).then_some(PERIOD);
                    }
                }
            }
        }
    }
}
