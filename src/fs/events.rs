//! inotify events of a container's files: which file was written to, and which was renamed.
//!
//! A write counts as a change even if the timestamps are set back afterwards. Threads that examine a doubtful file also
//! drain the queue, so that they know of all earlier events.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io;

use crate::source::{Evidence, Folder, Source};

/// Size of the event buffer.
const TAKEN: usize = 16 << 10;
/// Number of a folder's files to check when events were lost.
const LOOKED_AT: usize = 4096;

/// The watched files of one container.
#[derive(Debug)]
pub(super) struct Events {
    queue: OwnedFd,
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    files: HashMap<i32, EventFile>,
    folder: Option<(i32, Arc<Folder>)>,
    /// Whether the event queue overflowed.
    lost: bool,
}

#[derive(Debug)]
struct EventFile {
    source: Arc<Source>,
    renamed: bool,
    /// inotify has removed the watch: the file's last name was deleted, though it is still open here.
    ended: bool,
}

impl Events {
    /// Watches the files as far as possible; returns whether all of them are watched.
    pub(super) fn watch(sources: &[Arc<Source>], folder: Option<&Arc<Folder>>) -> io::Result<(Arc<Self>, bool)> {
        let queue = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let events = Arc::new(Self { queue, watched: Mutex::default() });
        let mut complete = true;
        for source in sources {
            let Some(file) = source.file() else { continue };
            let flags = WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::MOVE_SELF;
            match events.add(file.as_fd(), flags) {
                Ok(id) => {
                    // Changes before the start of the watch went unnoticed.
                    source.check().ok();
                    events.lock().files.insert(id, EventFile { source: source.clone(), renamed: false, ended: false });
                    let weak = Arc::downgrade(&events);
                    source.set_witness(move || weak.upgrade().map_or(Evidence::Written, |events| events.evidence(id)));
                }
                Err(_) => complete = false,
            }
        }
        if let Some(folder) = folder {
            let flags = WatchFlags::MODIFY
                | WatchFlags::ATTRIB
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO
                | WatchFlags::DELETE
                | WatchFlags::ONLYDIR;
            match events.add(folder.descriptor(), flags) {
                Ok(id) => events.lock().folder = Some((id, folder.clone())),
                Err(_) => complete = false,
            }
        }
        Ok((events, complete))
    }

    fn add(&self, file: BorrowedFd<'_>, flags: WatchFlags) -> io::Result<i32> {
        // Through /proc, so that the open file is watched even if its name now refers to another one.
        add_watch(&self.queue, format!("/proc/self/fd/{}", file.as_raw_fd()), flags)
    }

    /// Readable when events are queued.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    /// Drains the queue, and marks the changed files.
    pub(super) fn take(&self) {
        self.take_into(&mut self.lock());
    }

    /// The evidence about a watched file.
    fn evidence(&self, id: i32) -> Evidence {
        let mut watched = self.lock();
        self.take_into(&mut watched);
        let lost = watched.lost;
        let Some(file) = watched.files.get_mut(&id).filter(|_| !lost) else { return Evidence::Written };
        let renamed = std::mem::take(&mut file.renamed);
        if file.ended {
            // Events so far explain this change; no later one will be reported.
            watched.files.remove(&id);
        }
        // A rename explains one change only.
        if renamed { Evidence::Renamed } else { Evidence::Untouched }
    }

    fn take_into(&self, watched: &mut Watched) {
        let mut buffer = [MaybeUninit::uninit(); TAKEN];
        let mut reader = Reader::new(&self.queue, &mut buffer);
        // An error means that the queue is empty.
        while let Ok(event) = reader.next() {
            let (id, what) = (event.wd(), event.events());
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                watched.lost = true;
                // The folder remembers the result.
                watched.folder.iter().for_each(|(_, folder)| _ = folder.check_some(LOOKED_AT));
            } else if let Some((_, folder)) = watched.folder.as_ref().filter(|(folder, _)| *folder == id) {
                let name = event.file_name().map(CStr::to_bytes).unwrap_or_default();
                match folder.find(name) {
                    Some(index) if what.contains(ReadFlags::MODIFY) => folder.set_changed(index),
                    Some(index) => _ = folder.check(index),
                    None => {}
                }
            } else if let Some(file) = watched.files.get_mut(&id) {
                file.ended |= what.contains(ReadFlags::IGNORED);
                file.renamed |= what.contains(ReadFlags::MOVE_SELF);
                if what.contains(ReadFlags::MODIFY) {
                    file.source.set_changed();
                }
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
