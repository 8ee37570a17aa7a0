//! The containers of a directory that have changed, or of which a check has failed: the kernel drops their pages.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use fuser::Notifier;

use super::{Directory, lock};
use crate::error::Error;
use crate::fs::source_watch::Watch;

/// Interval of checks of the open containers.
const PERIOD: Duration = Duration::from_millis(500);

impl Directory {
    /// What follows when a check of a container fails of which bytes were served: the kernel drops its pages. It may have
    /// been closed meanwhile; its inodes, and their pages, are kept.
    pub(super) fn failing(&self, watch: &Arc<Watch>) -> impl Fn(&Error) + Send + Sync + 'static {
        let (watch, failed) = (watch.clone(), self.failed.clone());
        move |error| {
            tracing::error!("{error}; nothing that this checksum covers is served any more");
            watch.mark_failed();
            lock(&failed).push(watch.clone());
        }
    }

    /// The containers to look at: those that are open, and those of which a check has failed.
    pub(super) fn watches(&self) -> Vec<Arc<Watch>> {
        let mut watches = std::mem::take(&mut *lock(&self.failed));
        watches.extend(self.state().open.iter().map(|(_, session)| session.shared().watch.clone()));
        watches
    }

    /// Checks the open containers until `ended` says so; a changed one is no longer served.
    pub(in crate::fs) fn watch(&self, notifier: &Notifier, ended: impl Fn(Duration) -> bool) {
        while !ended(PERIOD) {
            self.watches().iter().for_each(|watch| watch.look(notifier));
        }
    }
}
