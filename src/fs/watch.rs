//! Noticing that the container was written to or cut while it is mounted.
//!
//! Opens and decodes check by themselves; this thread sees a change also while readers are served
//! from the kernel's pages alone, and is the one place from which the kernel is told to drop them:
//! a notification waits for pages that a decoder has yet to fill, so no decoder may send it.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fuser::{INodeNo, Notifier};

use super::sys;
use crate::error::{Error, Kind, Result};
use crate::source::Source;

/// How often the files are looked at where no event comes: network file systems, writes through mappings.
const PERIOD: Duration = Duration::from_secs(5);

/// Longer than an answer from memory takes to reach the kernel.
const SETTLED: Duration = Duration::from_millis(100);

/// Files of one container that are looked at for each open; the rest has the watch.
const LOOKED_AT: usize = 16;

/// The files of a container, and whether one of them has changed.
#[derive(Debug)]
pub(super) struct Watch {
    sources: Vec<Arc<Source>>,
    changed: AtomicBool,
    /// Wakes the thread.
    alarm: File,
    /// Inodes that were ever opened: the kernel may hold pages of these.
    opened: Mutex<HashSet<u64>>,
}

impl Watch {
    /// A watch over `sources`; the file is for [`Watch::run`].
    ///
    /// # Errors
    /// Where the system has no descriptor left.
    pub(super) fn new(sources: Vec<Arc<Source>>) -> io::Result<(Self, File)> {
        let (bell, alarm) = sys::pipe()?;
        let (changed, opened) = (AtomicBool::new(false), Mutex::default());
        Ok((Self { sources, changed, alarm, opened }, bell))
    }

    /// Whether the container is known to have changed: then nothing of it is served any more.
    pub(super) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Whether the files are as they were: looks at them.
    ///
    /// # Errors
    /// [`Kind::Changed`].
    pub(super) fn unchanged(&self) -> Result<()> {
        if self.has_changed() {
            return Err(Error::new(Kind::Changed, "file"));
        }
        let looked_at = self.sources.iter().take(LOOKED_AT);
        looked_at.into_iter().try_for_each(|source| source.check()).inspect_err(|_| self.raise())
    }

    /// As [`Watch::unchanged`], before `ino` is opened.
    pub(super) fn admit(&self, ino: u64) -> bool {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(ino);
        self.unchanged().is_ok()
    }

    /// Says that a read or a decode has met a changed file.
    pub(super) fn raise(&self) {
        if !self.changed.swap(true, Ordering::AcqRel) {
            // The pipe holds the byte until the thread comes; it is written once.
            (&self.alarm).write_all(&[1]).ok();
        }
    }

    /// Watches until a change was dealt with, which is: `forget` is called, and the kernel drops all pages.
    pub(super) fn run(&self, bell: &File, notifier: &Notifier, forget: impl Fn()) {
        let events = self.subscribe();
        while !self.has_changed() {
            let mut fds = vec![bell.as_fd()];
            fds.extend(events.as_ref().map(AsFd::as_fd));
            if let Err(e) = sys::wait_readable(&fds, Some(PERIOD)) {
                tracing::warn!("the container is no longer watched: {e}");
                return;
            }
            if let Some(events) = &events {
                drain(events);
            }
            if self.sources.iter().any(|s| s.check().is_err()) {
                self.raise();
            }
        }
        let changed = self.sources.iter().find(|s| s.check().is_err());
        tracing::error!(
            "{}: the file changed while it was mounted; nothing of it is served any more: unmount it and mount it again",
            changed.map_or(Path::new("container"), |s| s.path()).display()
        );
        forget();
        self.drop_pages(notifier);
        // Answers that were on their way may have filled pages behind that.
        std::thread::sleep(SETTLED);
        self.drop_pages(notifier);
    }

    fn subscribe(&self) -> Option<File> {
        let events = sys::inotify().ok()?;
        let watched =
            self.sources.iter().filter_map(|s| s.descriptor()).all(|fd| sys::inotify_watch(&events, fd).is_ok());
        if !watched {
            tracing::debug!("not every file of the container can be watched; they are looked at every {PERIOD:?}");
        }
        Some(events)
    }

    fn drop_pages(&self, notifier: &Notifier) {
        let opened: Vec<u64> = self.opened.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        for ino in opened {
            if let Err(e) = notifier.inval_inode(INodeNo(ino), 0, 0) {
                tracing::debug!("inode {ino}: the kernel keeps its pages: {e}");
            }
        }
    }
}

/// Takes all events; which they were does not matter, the files are looked at after each.
fn drain(mut events: &File) {
    let mut buffer = [0; 4096];
    while matches!(events.read(&mut buffer), Ok(n) if n > 0) {}
}
