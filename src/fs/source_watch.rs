//! Noticing that the container was written to or cut while it is mounted.
//!
//! Opens and decodes check by themselves; this thread sees a change also while readers are served
//! from the kernel's pages alone, and is the one place from which the kernel is told to drop them:
//! a notification waits for pages that a decoder has yet to fill, so no decoder may send it.
//!
//! What a check costs does not depend on how many files there are: those of a folder are checked when they
//! are read, when an event names them, and some of them every few seconds.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};

use super::events::Events;
use super::sys;
use crate::error::{Error, Kind, Result};
use crate::source::{Folder, Source};

/// How often the files are looked at where no event comes: network file systems, writes through mappings.
const PERIOD: Duration = Duration::from_secs(5);

/// Longer than an answer from memory takes to reach the kernel.
const SETTLED: Duration = Duration::from_millis(100);

/// At least so long is slept after events: a directory may be busy with files that are none of ours.
const REST: Duration = Duration::from_millis(10);

/// Files of a folder that are looked at in each period.
const LOOKED_AT: usize = 1024;

/// The files of a container, and whether one of them has changed.
#[derive(Debug)]
pub(super) struct Watch {
    sources: Vec<Arc<Source>>,
    folder: Option<Arc<Folder>>,
    /// Where the system has inotify for us.
    events: Option<Arc<Events>>,
    changed: AtomicBool,
    /// Wakes the thread.
    wake_tx: File,
    /// Inodes that were ever opened: the kernel may hold pages of these.
    opened: Mutex<HashSet<u64>>,
}

impl Watch {
    /// A watch over `sources` and the files of `folder`; the file is for [`Watch::run`].
    ///
    /// # Errors
    /// Where the system has no descriptor left.
    pub(super) fn new(sources: Vec<Arc<Source>>, folder: Option<Arc<Folder>>) -> io::Result<(Self, File)> {
        let (wake_rx, wake_tx) = sys::pipe()?;
        let events = Events::watch(&sources, folder.as_ref()).ok();
        if events.as_ref().is_none_or(|(_, complete)| !complete) {
            tracing::debug!("not every file of the container can be watched; they are looked at every {PERIOD:?}");
        }
        let events = events.map(|(events, _)| events);
        let (changed, opened) = (AtomicBool::new(false), Mutex::default());
        Ok((Self { sources, folder, events, changed, wake_tx, opened }, wake_rx))
    }

    /// Whether the container is known to have changed: then nothing of it is served any more.
    pub(super) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Whether the files are as they were: looks at those that are held open. Of the others it says what was seen when
    /// they were read.
    ///
    /// # Errors
    /// [`Kind::Changed`].
    pub(super) fn unchanged(&self) -> Result<()> {
        if self.has_changed() {
            return Err(Error::new(Kind::Changed, "file"));
        }
        self.check().inspect_err(|_| self.mark_changed())
    }

    fn check(&self) -> Result<()> {
        self.sources.iter().try_for_each(|source| source.check())?;
        self.folder.as_ref().map_or(Ok(()), |folder| folder.unchanged())
    }

    /// As [`Watch::unchanged`], before `ino` is opened.
    pub(super) fn check_open(&self, ino: u64) -> bool {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(ino);
        self.unchanged().is_ok()
    }

    /// Says that a read or a decode has met a changed file.
    pub(super) fn mark_changed(&self) {
        if !self.changed.swap(true, Ordering::AcqRel) {
            // The pipe holds the byte until the thread comes; it is written once.
            (&self.wake_tx).write_all(&[1]).ok();
        }
    }

    /// Watches until a change was dealt with, which is: `forget` is called, and the kernel drops all pages.
    pub(super) fn run(&self, wake_rx: &File, notifier: &Notifier, forget: impl Fn()) {
        let mut looked = Instant::now();
        while !self.has_changed() {
            let mut fds = vec![wake_rx.as_fd()];
            fds.extend(self.events.as_ref().map(|events| events.descriptor()));
            if let Err(e) = sys::wait_readable(&fds, Some(PERIOD)) {
                tracing::warn!("the container is no longer watched: {e}");
                return;
            }
            if let Some(events) = &self.events {
                events.take();
            }
            if looked.elapsed() >= PERIOD {
                looked = Instant::now();
                // What it finds is kept by the folder.
                self.folder.iter().for_each(|folder| _ = folder.check_some(LOOKED_AT));
            }
            if self.check().is_err() {
                self.mark_changed();
            } else {
                std::thread::sleep(REST);
            }
        }
        tracing::error!(
            "{}: the file changed while it was mounted; nothing of it is served any more: unmount it and mount it again",
            self.changed_file().as_deref().unwrap_or(Path::new("container")).display()
        );
        forget();
        self.drop_pages(notifier);
        // Answers that were on their way may have filled pages behind that.
        std::thread::sleep(SETTLED);
        self.drop_pages(notifier);
    }

    fn changed_file(&self) -> Option<PathBuf> {
        let source = self.sources.iter().find(|source| source.check().is_err());
        source.map(|source| source.path().to_path_buf()).or_else(|| self.folder.as_ref()?.changed())
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
