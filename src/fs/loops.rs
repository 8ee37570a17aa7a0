//! The event loops of a session: as many as resources allow, and all running before the mount is reported as ready.
//!
//! fuser starts the loops itself and does not recover from a lack of memory or threads: it aborts, or it ends the
//! session and leaves a dead mount. So the resources are tested before mounting.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::mount::DEVICE;
use super::sys;

/// Loops look up, and all but one may do metadata work (`offload`): a few suffice for any number of readers.
const LOOPS: std::ops::RangeInclusive<usize> = 2..=8;

/// fuser's allocation per loop: its largest request, and 4 KiB.
const BUFFER: usize = (16 << 20) + 4096;
/// Minimum memory for decoding: threads, pieces in transit to the cache and the disk, tables. With less, a mount would
/// answer most reads with ENOMEM.
const WORK: usize = 48 << 20;
/// The other threads of a mount, and their allocations: the session, the watch, and a worker.
const OTHERS: [usize; 3] = [0, 0, WORK];
/// Address space of a thread: the stack that the standard library gives it, and its signal stack with room to spare.
const STACKS: usize = (2 << 20) + (256 << 10);
/// Descriptors that are opened later: the device twice, the mount table, the root of the mount, one to examine our
/// threads; minus the one that pins the mount point.
const DESCRIPTORS: usize = 4;

/// The prefix of the names of fuser's event loops.
pub(super) const NAME: &str = "fuser-";

/// How long the loops may take to start.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(1);

/// Configuration of a session's event loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loops {
    /// Number of loops.
    pub(super) count: usize,
    /// Whether each loop has its own descriptor.
    pub(super) own_descriptors: bool,
}

impl Loops {
    /// As many loops as memory, threads and descriptors allow.
    ///
    /// # Errors
    /// Fails if even one loop is not possible.
    pub(super) fn affordable() -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let wanted = (cores / 4).clamp(*LOOPS.start(), *LOOPS.end());
        let mut count = wanted;
        while let Err(e) = try_out(count) {
            if count == 1 {
                return Err(e);
            }
            count -= 1;
        }
        descriptors("/dev/null", DESCRIPTORS)?;
        let device = || File::options().read(true).write(true).open(DEVICE);
        let own_descriptors = descriptors(DEVICE, count - 1 + DESCRIPTORS).is_ok()
            && device().is_ok_and(|device| sys::clones_sessions(&device));
        Ok(Self { count, own_descriptors })
    }

    /// Waits until all loops of this process are running. `ended` becomes readable if the session ends; it then
    /// contains the reason.
    ///
    /// # Errors
    /// Fails if the session ends or the loops do not start in time.
    pub(super) fn wait(&self, ended: &File) -> io::Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let running = running()?;
            if sys::wait_readable(&[ended.as_fd()], Some(Duration::ZERO))? == [true] {
                let (mut ended, mut why) = (ended, String::new());
                ended.read_to_string(&mut why)?;
                return Err(io::Error::other(format!("the session ended: {why}")));
            }
            if running >= self.count {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(io::Error::other("the event loops do not start"));
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Briefly starts the threads of a mount with `count` loops, all at once, with their memory.
fn try_out(count: usize) -> io::Result<()> {
    // All at once first: a thread that gets a stack and no signal stack ends the process.
    let all = count * (BUFFER + STACKS) + OTHERS.iter().map(|size| size + STACKS).sum::<usize>();
    Vec::<u8>::new().try_reserve_exact(all).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
    let hold = Mutex::new(());
    let held = hold.lock();
    let (report, reports) = mpsc::channel();
    thread::scope(|scope| {
        let mut started = Ok(());
        for size in std::iter::repeat_n(BUFFER, count).chain(OTHERS) {
            let (report, hold) = (report.clone(), &hold);
            let run = move || {
                let mut buffer: Vec<u8> = Vec::new();
                report.send(buffer.try_reserve_exact(size)).ok();
                drop(hold.lock().unwrap_or_else(PoisonError::into_inner));
            };
            started = thread::Builder::new().spawn_scoped(scope, run).map(drop);
            if started.is_err() {
                break;
            }
        }
        drop(report);
        let all = started.is_ok() && reports.iter().take(count + OTHERS.len()).all(|reserved| reserved.is_ok());
        drop(held);
        started?;
        if all { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENOMEM)) }
    })
}

/// Opens `path` `count` times simultaneously.
fn descriptors(path: &str, count: usize) -> io::Result<()> {
    let open = |_| File::options().read(true).write(true).open(path);
    (0..count).map(open).collect::<io::Result<Vec<File>>>().map(drop)
}

/// Whether this thread is an event loop.
pub(super) fn is_loop() -> bool {
    thread::current().name().is_some_and(|name| name.starts_with(NAME))
}

/// The number of loops that have started, identified by fuser's thread names.
fn running() -> io::Result<usize> {
    let mut loops = 0;
    // Listed first, so that only one descriptor is open at a time: an entry of a directory keeps it open.
    let tasks = std::fs::read_dir("/proc/self/task")?.map(|task| Ok(task?.path()));
    for task in tasks.collect::<io::Result<Vec<_>>>()? {
        match std::fs::read(task.join("comm")) {
            Ok(name) => loops += usize::from(name.starts_with(NAME.as_bytes())),
            // The thread has just ended.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(loops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn missing_resources_are_not_affordable() {
        try_out(2).unwrap();
        descriptors("/dev/null", 3).unwrap();
        assert!(descriptors("/nonexistent", 1).is_err());
    }

    #[test]
    fn loops_that_have_ended_are_not_waited_for() {
        let loops = Loops { count: 1000, own_descriptors: false };
        let (ended, mut ends) = sys::pipe().unwrap();
        ends.write_all(b"no more threads").unwrap();
        drop(ends);
        assert!(loops.wait(&ended).unwrap_err().to_string().contains("no more threads"));
    }
}
