//! Detects that the container is modified while it is mounted.
//!
//! Opens and decodes check the file themselves. This thread also detects a change while readers are served from the
//! page cache alone. Only this thread makes the kernel drop pages: the notification waits for pages that a decoder has
//! yet to fill, so a decoder that sent it would deadlock.
//!
//! Only a file that is seen to differ counts as changed: if `stat` fails, the read that needed it fails, and the next
//! one tries again.
//!
//! Limits: the cost of a check does not depend on the number of files: files of a folder are checked when they are
//! read, when an event names them, and a fixed number every few seconds.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};

use super::events::Events;
use super::inode_attr::Numbering;
use super::opened_inodes::OpenedInodes;
use super::sys;
use super::wake::Wake;
use crate::error::{Error, Kind, Result};
use crate::source::{Folder, Source};
use crate::tree::Ino;

/// Interval of checks for changes without events: network file systems, writes through mappings.
const PERIOD: Duration = Duration::from_secs(5);

/// Exceeds the time that a reply from memory needs to reach the kernel.
const SETTLED: Duration = Duration::from_millis(100);

/// Minimum pause after events, in case unrelated files in the directory cause many.
const REST: Duration = Duration::from_millis(10);

/// Number of a folder's files to check per period.
const LOOKED_AT: usize = 1024;

/// The files of a container, and whether any has changed.
#[derive(Debug)]
pub(super) struct Watch {
    sources: Vec<Arc<Source>>,
    folder: Option<Arc<Folder>>,
    /// `None` if inotify is not available.
    events: Option<Arc<Events>>,
    changed: AtomicBool,
    /// A checksum failed, and the pages are not dropped yet.
    failed: AtomicBool,
    /// Wakes the watching thread, which may watch other containers too.
    wake: Arc<Wake>,
    opened: Mutex<OpenedInodes>,
    numbers: Numbering,
    /// Number of times that [`Watch::look`] has notified the kernel of a change.
    told: AtomicU32,
}

impl Watch {
    /// Watches `sources` and the files of `folder`.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub(super) fn new(sources: Vec<Arc<Source>>, folder: Option<Arc<Folder>>) -> io::Result<Self> {
        let wake = Arc::new(Wake::new()?);
        let events = Events::watch(&sources, folder.as_ref()).ok();
        if events.as_ref().is_none_or(|(_, complete)| !complete) {
            tracing::debug!("not every file of the container can be watched; they are checked every {PERIOD:?}");
        }
        let events = events.map(|(events, _)| events);
        Ok(Self { events, ..Self::polled(sources, folder, Numbering::default(), wake) })
    }

    /// As [`Watch::new`], without events and without descriptors, for a thread that calls [`Watch::look`] and that
    /// `wake` wakes. The kernel knows the inodes by `numbers`.
    pub(super) fn polled(
        sources: Vec<Arc<Source>>,
        folder: Option<Arc<Folder>>,
        numbers: Numbering,
        wake: Arc<Wake>,
    ) -> Self {
        let (changed, failed, opened) = (AtomicBool::new(false), AtomicBool::new(false), Mutex::default());
        let told = AtomicU32::new(0);
        Self { sources, folder, events: None, changed, failed, wake, opened, numbers, told }
    }

    /// Checks once. Makes the kernel drop the pages of a container that has changed or failed. Called at intervals of
    /// at least [`SETTLED`], since replies in flight may fill pages after the first time.
    pub(super) fn look(&self, notifier: &Notifier) {
        self.drop_failed(notifier);
        // If `stat` failed, the next call tries again.
        let _ = self.unchanged();
        self.folder.iter().for_each(|folder| _ = folder.check_some(LOOKED_AT));
        if self.has_changed() && self.told.load(Ordering::Relaxed) < 2 {
            if self.told.fetch_add(1, Ordering::Relaxed) == 0 {
                let file = self.sources.first().map_or(Path::new("container"), |source| source.path());
                tracing::warn!("{}: the file changed; what was opened before is no longer served", file.display());
            }
            self.drop_pages(notifier);
        }
    }

    /// Makes the kernel drop the pages of a container that has failed a check, if it has them still.
    pub(super) fn drop_failed(&self, notifier: &Notifier) {
        if self.failed.swap(false, Ordering::AcqRel) {
            self.drop_pages_twice(notifier);
        }
    }

    /// Whether the container has changed; then it is no longer served.
    pub(super) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Checks the files that are held open; for the files of a folder, reports only changes that were detected before.
    ///
    /// # Errors
    /// [`Kind::Changed`]; [`Kind::Io`] if `stat` fails.
    pub(super) fn unchanged(&self) -> Result<()> {
        if self.has_changed() {
            return Err(Error::new(Kind::Changed, "file"));
        }
        self.check().inspect_err(|e| self.record(e))
    }

    /// Whether the container is known to be unchanged, from memory: for event loops. If this is false,
    /// [`Watch::unchanged`] decides.
    pub(super) fn is_same_in_memory(&self) -> bool {
        !self.has_changed()
            && self.sources.iter().all(|source| source.is_same_in_memory())
            && self.folder.as_ref().is_none_or(|folder| folder.unchanged().is_ok())
    }

    /// Records the error of a check, if it is a change.
    fn record(&self, error: &Error) {
        if matches!(error.kind(), Kind::Changed) {
            self.mark_changed();
        }
    }

    fn check(&self) -> Result<()> {
        self.sources.iter().try_for_each(|source| source.check())?;
        self.folder.as_ref().map_or(Ok(()), |folder| folder.unchanged())
    }

    /// Records a checksum failure in bytes that were served: the kernel's pages are to be dropped.
    pub(super) fn mark_failed(&self) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            self.wake.now();
        }
    }

    /// Records that `ino` is being opened, before anything of it is read. Returns whether it is for the first time.
    pub(super) fn record_open(&self, ino: Ino) -> bool {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(ino)
    }

    /// Records that a read or decode found a changed file.
    pub(super) fn mark_changed(&self) {
        if !self.changed.swap(true, Ordering::AcqRel) {
            self.wake.now();
        }
    }

    /// Records that a file was opened: wakes the thread that checks open files.
    pub(super) fn opened(&self) {
        if self.events.is_none() {
            self.wake.unless_awake();
        }
    }

    /// Watches until a change is detected; then calls `forget` and makes the kernel drop all pages.
    pub(super) fn run(&self, notifier: &Notifier, forget: impl Fn()) {
        let mut looked = Instant::now();
        while !self.has_changed() {
            let mut fds = vec![self.wake.as_fd()];
            fds.extend(self.events.as_ref().map(|events| events.descriptor()));
            let ready = match sys::wait_readable(&fds, Some(PERIOD)) {
                Ok(ready) => ready,
                Err(e) => {
                    tracing::warn!("the container is no longer watched: {e}");
                    return;
                }
            };
            if ready.first() == Some(&true) {
                self.wake.take();
            }
            if let Some(events) = &self.events {
                events.take();
            }
            self.drop_failed(notifier);
            if looked.elapsed() >= PERIOD {
                looked = Instant::now();
                // The folder remembers the result.
                self.folder.iter().for_each(|folder| _ = folder.check_some(LOOKED_AT));
            }
            // If `stat` failed, the next round tries again.
            let _ = self.unchanged();
            if !self.has_changed() {
                std::thread::sleep(REST);
            }
        }
        tracing::error!(
            "{}: the file changed while it was mounted and is no longer served; unmount it and mount it again",
            self.changed_file().as_deref().unwrap_or(Path::new("container")).display()
        );
        forget();
        self.drop_pages_twice(notifier);
    }

    fn drop_pages_twice(&self, notifier: &Notifier) {
        self.drop_pages(notifier);
        // Replies in flight may have filled pages after the first pass.
        std::thread::sleep(SETTLED);
        self.drop_pages(notifier);
    }

    fn changed_file(&self) -> Option<PathBuf> {
        let is_changed = |e: Error| matches!(e.kind(), Kind::Changed);
        let source = self.sources.iter().find(|source| source.check().is_err_and(is_changed));
        source.map(|source| source.path().to_path_buf()).or_else(|| self.folder.as_ref()?.changed())
    }

    fn drop_pages(&self, notifier: &Notifier) {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for ino in opened.iter() {
            match notifier.inval_inode(INodeNo(self.numbers.number(ino)), 0, 0) {
                // The kernel has forgotten the inode, and its pages with it.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => tracing::debug!("inode {ino}: the kernel keeps its pages: {e}"),
                Ok(()) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_that_fails_is_not_a_change_of_the_container() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let watch = Watch::new(vec![Source::open(file.path()).unwrap()], None).unwrap();
        watch.record(&Error::io(io::Error::from_raw_os_error(libc::EIO), "file"));
        assert!(!watch.has_changed() && watch.unchanged().is_ok() && watch.is_same_in_memory());
        std::fs::write(file.path(), b"other").unwrap();
        assert!(!watch.has_changed() && !watch.is_same_in_memory());
        assert!(matches!(watch.unchanged().unwrap_err().kind(), Kind::Changed));
        assert!(watch.has_changed());
    }
}
