//! Readers that are killed while they wait for a server: they end at once, and work that nobody waits for is cancelled.
//!
//! The kernel sends `FUSE_INTERRUPT`, but fuser does not pass it on, and there is none for the kernel's readahead. So a
//! thread looks up the process behind each slow request in `/proc`: whether it is alive, and whether a fatal signal is
//! pending. Other signals do not end a read, as with any file.
//!
//! Work for such a request ends with it ([`crate::wanted`]): each request has a mark, which its jobs carry in a
//! thread-local.
//!
//! Only for containers whose reads may wait for a server, and for those of which a directory may be listed, or a file
//! measured, by decoding all of a stream: other decoding ends soon by itself.
//!
//! `cat` reads from a server that does not answer, and gets SIGKILL. Within two looks, 200 ms, the thread finds the
//! signal in `ShdPnd` of `/proc/TID/status` and answers `EINTR`; `cat` ends. If no other request waits for the same
//! container, its fetches are cancelled on the same look; if one does, they go on.
//!
//! Limits: without `/proc` of the namespace in which the daemon runs, nothing is given up.
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::read::reply::Reply;
use crate::clock::Clock;
use crate::format::Container;
use crate::source::Source;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::wanted::{Allowance, Entered, Wanted};

/// Interval between two looks, and the time that a request may take before the first.
const PERIOD: Duration = Duration::from_millis(100);
/// Limits of one answer: requests to servers, bytes from them, time. Finding the parts of a container without an index
/// takes a request for each; more parts than that cannot be served well.
const ANSWER: (u64, u64, Duration) = (10_000, 1 << 30, Duration::from_secs(600));
/// Signals that do nothing by default: `SIGCHLD`, `SIGURG`, `SIGWINCH`, `SIGCONT`, and the stop signals.
const HARMLESS: [i32; 8] = [
    libc::SIGCHLD,
    libc::SIGURG,
    libc::SIGWINCH,
    libc::SIGCONT,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// The requests of a mount that wait, and their readers.
#[derive(Default)]
pub(super) struct Waits {
    waiting: Mutex<Waiters>,
    came: Condvar,
    clock: Clock,
}

#[derive(Default)]
struct Waiters {
    /// The reads.
    reads: Vec<Arc<dyn Wait>>,
    /// All requests that threads work for: reader, time of arrival, and the mark that cancels it.
    requests: Vec<(u32, Instant, Wanted)>,
}

/// The sources of one container, or a file that is passed through: fetches for them are cancelled when nobody waits for
/// them.
pub(super) struct Killed {
    waits: Arc<Waits>,
    sources: Arc<[Arc<Source>]>,
    is_far: bool,
}

/// A request that waits.
trait Wait: Send + Sync {
    fn reader(&self) -> u32;
    fn since(&self) -> Instant;
    fn sources(&self) -> &Arc<[Arc<Source>]>;
    /// Whether nobody waits for the reply: it was sent, or the reader was killed.
    fn has_ended(&self) -> bool;
    /// Whether the reader was killed before.
    fn was_killed(&self) -> bool;
    /// Replies with `EINTR`.
    fn end(&self);
}

struct WaitingRequest<R> {
    reader: u32,
    since: Instant,
    sources: Arc<[Arc<Source>]>,
    /// `None` once it was sent.
    reply: Mutex<Option<R>>,
    killed: AtomicBool,
}

impl<R: Reply> WaitingRequest<R> {
    fn take(&self) -> Option<R> {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<R: Reply> Wait for WaitingRequest<R> {
    fn reader(&self) -> u32 {
        self.reader
    }

    fn since(&self) -> Instant {
        self.since
    }

    fn sources(&self) -> &Arc<[Arc<Source>]> {
        &self.sources
    }

    fn has_ended(&self) -> bool {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn was_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }

    fn end(&self) {
        if let Some(reply) = self.take() {
            self.killed.store(true, Ordering::Release);
            reply.error(libc::EINTR);
        }
    }
}

/// The reply to a request that may wait.
pub(super) struct MayWait<R: Reply> {
    waits: Arc<Waits>,
    waiting: Arc<WaitingRequest<R>>,
}

impl<R: Reply> Reply for MayWait<R> {
    fn data(self, bytes: &[u8]) {
        if let Some(reply) = self.waiting.take() {
            reply.data(bytes);
        }
    }

    fn error(self, errno: i32) {
        if let Some(reply) = self.waiting.take() {
            reply.error(errno);
        }
    }
}

impl<R: Reply> Drop for MayWait<R> {
    fn drop(&mut self) {
        // Dropping an unanswered one answers it.
        drop(self.waiting.take());
        let own: *const () = Arc::as_ptr(&self.waiting).cast();
        self.waits.lock().reads.retain(|other| !std::ptr::eq(Arc::as_ptr(other).cast::<()>(), own));
    }
}

impl Killed {
    /// For the requests to those of `sources` that may wait for a server, registered in `waits`; `None` if none may.
    pub(super) fn new(waits: &Arc<Waits>, sources: Vec<Arc<Source>>) -> Option<Self> {
        let is_far = sources.iter().any(|source| source.is_far());
        is_far.then(|| Self { waits: waits.clone(), sources: sources.into(), is_far })
    }

    /// The same for `container`, also if it is here and may be listed or measured for long.
    pub(super) fn of(waits: &Arc<Waits>, container: &dyn Container) -> Option<Self> {
        let slow = || Self { waits: waits.clone(), sources: Arc::new([]), is_far: false };
        Self::new(waits, container.sources()).or_else(|| is_slow(container).then(slow))
    }

    /// Whether reads may wait for a server.
    pub(super) fn is_far(&self) -> bool {
        self.is_far
    }

    /// As [`Waits::enter`].
    pub(super) fn enter(&self, reader: u32) -> Entered {
        self.waits.enter(reader)
    }

    /// The reply to use instead of `reply`, to the request of the thread `reader`.
    pub(super) fn watch<R: Reply>(&self, reader: u32, reply: R) -> MayWait<R> {
        let (since, sources, reply) = (self.waits.clock.now(), self.sources.clone(), Mutex::new(Some(reply)));
        let waiting = Arc::new(WaitingRequest { reader, since, sources, reply, killed: AtomicBool::new(false) });
        self.waits.lock().reads.push(waiting.clone());
        self.waits.came.notify_one();
        MayWait { waits: self.waits.clone(), waiting }
    }
}

/// Whether all of the stream of `container` may be decoded to list a directory, or to find the length of a file.
fn is_slow(container: &dyn Container) -> bool {
    container.lists_by_decoding()
        || container.stream().is_some_and(|stream| stream.known_len().is_none())
        || container.wrapped().is_some_and(|inner| is_slow(&**inner))
}

impl Waits {
    /// Binds the work of this thread, and of others for it, to a request of the thread `reader`, until the returned value is
    /// dropped.
    pub(super) fn enter(&self, reader: u32) -> Entered {
        let until = Instant::now() + ANSWER.2;
        let wanted = Wanted::limited(Allowance { requests: ANSWER.0, bytes: ANSWER.1, until });
        self.lock().requests.push((reader, self.clock.now(), wanted.clone()));
        self.came.notify_one();
        wanted.enter()
    }

    /// Looks at the readers, for ever.
    pub(super) fn run(&self) {
        loop {
            let is_empty = |waiting: &mut Waiters| waiting.reads.is_empty() && waiting.requests.is_empty();
            let waiting = self.came.wait_while(self.lock(), is_empty);
            drop(waiting.unwrap_or_else(PoisonError::into_inner));
            std::thread::sleep(PERIOD);
            self.look();
        }
    }

    fn look(&self) {
        let now = self.clock.now();
        let is_old = |since: Instant| now.saturating_duration_since(since) >= PERIOD;
        let mut waiting = self.lock();
        // The others are answered.
        waiting.requests.retain(|(_, _, wanted)| wanted.is_shared() && !wanted.is_given_up());
        let requests: Vec<_> = waiting.requests.iter().filter(|(_, since, _)| is_old(*since)).cloned().collect();
        let old: Vec<_> = waiting.reads.iter().filter(|wait| is_old(wait.since())).cloned().collect();
        drop(waiting);
        requests.iter().filter(|(reader, ..)| is_killed(*reader)).for_each(|(_, _, wanted)| wanted.give_up());
        // Copies would count as threads that work for them.
        drop(requests);
        old.iter().filter(|wait| !wait.has_ended() && is_killed(wait.reader())).for_each(|wait| wait.end());
        drop(old);
        // Held, so that no new reader joins a fetch that is cancelled.
        let waiting = self.lock();
        let waiting = &waiting.reads;
        let is_wanted = |sources: &Arc<[Arc<Source>]>| {
            waiting.iter().any(|wait| Arc::ptr_eq(wait.sources(), sources) && !wait.has_ended())
        };
        // An answered reader is about to leave: readahead for it goes on.
        for wait in waiting.iter().filter(|wait| wait.was_killed() && !is_wanted(wait.sources())) {
            wait.sources().iter().for_each(|source| source.cancel());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiters> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Killed").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

/// Whether the thread `id` is gone, or a signal is pending that ends it.
fn is_killed(id: u32) -> bool {
    // 0: in a namespace that is not ours.
    if id == 0 {
        return false;
    }
    let ended = match std::fs::read_to_string(format!("/proc/{id}/status")) {
        Ok(status) => is_ending(&status),
        Err(e) => matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
    };
    ended && std::fs::read_to_string("/proc/self/status").is_ok_and(|own| is_of_this_namespace(&own))
}

/// Whether `/proc`, where `own` is the status of this process, numbers threads as this process does, and so the kernel
/// in its requests: the process has one number for each namespace from that of `/proc` down to its own.
fn is_of_this_namespace(own: &str) -> bool {
    let numbers = own.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() == 1)
}

/// Whether `status`, as in `/proc`, is that of a thread that is ending.
fn is_ending(status: &str) -> bool {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0)
    };
    let bit = |signal: i32| 1_u64 << (signal - 1);
    let harmless = HARMLESS.iter().fold(0, |all, &signal| all | bit(signal));
    let pending = field("SigPnd") | field("ShdPnd");
    let fatal = pending & !(field("SigBlk") | field("SigIgn") | field("SigCgt") | harmless);
    // A signal that ends all threads of a process arrives as SIGKILL.
    let is_dead = status.lines().any(|line| line.starts_with("State:\tZ") || line.starts_with("State:\tX"));
    is_dead || fatal | pending & bit(libc::SIGKILL) != 0
}
