//! Runs work that an event loop must not do, on threads chosen by the kind of work.
//!
//! Metadata (listing, small reads of structure) has its own threads, so that metadata and decodes do not delay each
//! other; so has work that may open a container, which can take long. Work over a whole file runs on the checksum
//! threads. Requests for the same result run one after the other, on one thread in total: the first does the work.
//!
//! Reads of files that are passed through wait for disks and servers and decode nothing: they have their own threads,
//! so that one without an answer blocks nothing else.
//!
//! An event loop does metadata and opening for its own request itself while another loop is left to take the next one:
//! that saves waking a thread for each request of a program that asks one after the other (200 small containers, each
//! opened and read for the first time: 0.86 of the time). The last loop never waits; nor does any, on a server.
//!
//! A job is wanted as long as the request that offloaded it.
//!
//! Limits: [`METADATA_THREADS`] threads for metadata, and as many for openings, or [`FAR`] of each if the container is
//! on a server; [`PASSED_THREADS`] for files that are passed through; `threads=` threads for each of the others.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::loops;
use crate::cache::Cache;
use crate::checksum::Threads;
use crate::error::Result;
use crate::pool::{Job, Pool};
use crate::tree::Ino;
use crate::wanted::{Parked, carried};

/// Number of metadata threads.
const METADATA_THREADS: usize = 4;
/// Number of threads that read files that are passed through. Waiting takes no processor time.
const PASSED_THREADS: usize = 32;
/// Number of metadata threads if most of them wait for a server, where one wait must not hold up another.
const FAR: usize = 64;

/// Selects the threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    /// Metadata threads, for parsed containers.
    Metadata,
    /// Metadata threads for containers that may have to be opened or parsed.
    Opening,
    /// Decoding threads.
    Workers,
    /// Threads that read files that are passed through.
    Passed,
    /// Checksum threads, for work over whole files.
    Checks,
}

/// Key of jobs that run one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum JobTurn {
    /// The names, attributes or length of an inode.
    Inode(Ino),
    /// The extended attributes of an inode.
    Xattrs(Ino),
    /// The bytes of computed files: a picture takes up to 64 MiB while it is made.
    Computed,
    /// Entries prepared before they are requested.
    Ahead,
}

/// The threads that event loops offload work to.
pub(super) struct Offload {
    metadata: Pool,
    opening: Pool,
    passed: Pool,
    cache: Arc<Cache>,
    checks: Threads,
    /// Jobs waiting behind the running job of the same turn.
    turns: Mutex<HashMap<JobTurn, VecDeque<Arc<Parked<()>>>>>,
    /// How many more event loops may wait at the same time.
    spare_loops: AtomicUsize,
}

impl Offload {
    /// Combines new metadata threads with the workers of `cache` and `checks`. Starts no thread yet.
    pub(super) fn new(cache: Arc<Cache>, checks: Threads) -> Arc<Self> {
        let [metadata, opening] = ["metadata", "opening"].map(|name| Pool::new(METADATA_THREADS, name));
        let passed = Pool::new(PASSED_THREADS, "passed");
        Arc::new(Self {
            metadata,
            opening,
            passed,
            cache,
            checks,
            turns: Mutex::default(),
            spare_loops: AtomicUsize::new(0),
        })
    }

    /// For requests that wait for a server.
    pub(super) fn expect_waits(&self) {
        self.metadata.set_workers(FAR);
        self.opening.set_workers(FAR);
    }

    /// Lets event loops do metadata work of their own requests: of `count` loops, all but one at the same time.
    pub(super) fn share_loops(&self, count: usize) {
        self.spare_loops.store(count.saturating_sub(1), Ordering::Relaxed);
    }

    /// Drops `value`, perhaps the last reference to a file on a server, on a metadata thread: that may have to write
    /// the fetched bytes to disk.
    pub(super) fn release(&self, value: impl Send + 'static) {
        self.metadata.demand(Box::new(move || drop(value)));
    }

    /// Runs `job`; on this thread, if it is an event loop that may wait.
    pub(super) fn run(&self, on: On, job: Job) {
        let job: Job = Box::new(carried(job));
        match self.waiting_loop(on) {
            Some(_waiting) => run_caught(job),
            None => self.start(on, job),
        }
    }

    fn start(&self, on: On, job: Job) {
        match on {
            On::Metadata => self.metadata.demand(job),
            On::Opening => self.opening.demand(job),
            On::Workers => self.cache.submit(job),
            On::Passed => self.passed.demand(job),
            On::Checks => self.checks.run(job),
        }
    }

    /// Runs `job` after all earlier jobs of the same `turn`.
    pub(super) fn run_in_turn(self: &Arc<Self>, turn: JobTurn, on: On, job: Job) {
        let Some(job) = self.queue(turn, on, job) else { return };
        match self.waiting_loop(on).filter(|_| turn != JobTurn::Ahead) {
            Some(_waiting) => self.have_turn(turn, job),
            None => self.take_turn(turn, on, job),
        }
    }

    /// If this thread is an event loop that may do work meant for the threads `on`: what keeps it from being counted as
    /// free meanwhile.
    fn waiting_loop(&self, on: On) -> Option<WaitingLoop<'_>> {
        let is_metadata = matches!(on, On::Metadata | On::Opening);
        is_metadata.then(|| WaitingLoop::begin(&self.spare_loops)).flatten()
    }

    /// As [`Offload::run_in_turn`] on the threads for openings, called on a thread that may wait: runs `job` at once, on
    /// this thread, unless another one has the turn.
    pub(super) fn run_in_turn_here(self: &Arc<Self>, turn: JobTurn, job: Job) {
        if let Some(job) = self.queue(turn, On::Opening, job) {
            self.have_turn(turn, job);
        }
    }

    /// Queues `job` behind the jobs of its turn; returns it if there are none, so that the turn is its own. A queued job
    /// that is given up runs at once: it answers, and does no more.
    fn queue(self: &Arc<Self>, turn: JobTurn, on: On, job: Job) -> Option<Job> {
        let job: Job = Box::new(carried(job));
        let mut turns = self.turns();
        let waiting = match turns.entry(turn) {
            Entry::Occupied(waiting) => waiting.into_mut(),
            Entry::Vacant(free) => {
                free.insert(VecDeque::new());
                return Some(job);
            }
        };
        let me = self.clone();
        let then = move |turn_came: Result<()>| {
            if turn_came.is_ok() { me.take_turn(turn, on, job) } else { me.start(on, job) }
        };
        let parked = Parked::new(Box::new(then), Arc::default());
        waiting.push_back(parked.clone());
        drop(turns);
        parked.watch();
        None
    }

    fn take_turn(self: &Arc<Self>, turn: JobTurn, on: On, job: Job) {
        let me = self.clone();
        self.start(on, Box::new(carried(move || me.have_turn(turn, job))));
    }

    /// Runs `job`, whose turn it is, and passes the turn on.
    fn have_turn(self: &Arc<Self>, turn: JobTurn, job: Job) {
        run_caught(job);
        loop {
            let mut turns = self.turns();
            let Some(next) = turns.get_mut(&turn).and_then(VecDeque::pop_front) else {
                turns.remove(&turn);
                return;
            };
            drop(turns);
            // One that was given up needs no turn.
            if next.end(Ok(())) {
                return;
            }
        }
    }

    fn turns(&self) -> MutexGuard<'_, HashMap<JobTurn, VecDeque<Arc<Parked<()>>>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run_caught(job: Job) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        tracing::error!("a request that was offloaded panicked");
    }
}

thread_local! {
    /// Whether this thread is an event loop that does work.
    static WORKS: Cell<bool> = const { Cell::new(false) };
}

/// An event loop that does work while this exists; `None` within other work that it does.
struct WaitingLoop<'a>(Option<&'a AtomicUsize>);

impl<'a> WaitingLoop<'a> {
    fn begin(spare: &'a AtomicUsize) -> Option<Self> {
        if WORKS.get() {
            return Some(Self(None));
        }
        let take = |spare: usize| spare.checked_sub(1);
        if !loops::is_loop() || spare.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return None;
        }
        WORKS.set(true);
        Some(Self(Some(spare)))
    }
}

impl Drop for WaitingLoop<'_> {
    fn drop(&mut self) {
        if let Some(spare) = self.0 {
            WORKS.set(false);
            spare.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offload")
            .field("metadata", &self.metadata)
            .field("turns", &self.turns().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::clock::PATIENCE;
    use crate::wanted::Wanted;

    #[test]
    fn requests_of_one_turn_occupy_one_thread_and_run_in_order() {
        let offload = Offload::new(Cache::new(1 << 20, 1), Threads::new(1));
        let (tx, rx) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        offload.run_in_turn(JobTurn::Inode(Ino(7)), On::Metadata, Box::new(move || wait.recv().unwrap()));
        for i in 0..20 {
            let tx = tx.clone();
            let on = [On::Metadata, On::Workers, On::Checks][i % 3];
            let job = move || {
                tx.send(i).unwrap();
                assert_ne!(i, 3, "a panic ends one turn and no other");
            };
            offload.run_in_turn(JobTurn::Inode(Ino(7)), on, Box::new(job));
        }
        // The other metadata threads are free, and so are other turns.
        let done = tx.clone();
        offload.run_in_turn(JobTurn::Computed, On::Metadata, Box::new(move || done.send(100).unwrap()));
        assert_eq!(rx.recv_timeout(PATIENCE).unwrap(), 100);
        go.send(()).unwrap();
        let order: Vec<usize> = (0..20).map(|_| rx.recv_timeout(PATIENCE).unwrap()).collect();
        assert_eq!(order, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_queued_request_that_is_given_up_runs_at_once_and_the_turn_goes_to_the_next() {
        let offload = Offload::new(Cache::new(1 << 20, 1), Threads::new(1));
        let (tx, rx) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let turn = JobTurn::Inode(Ino(7));
        offload.run_in_turn(turn, On::Workers, Box::new(move || wait.recv().unwrap()));
        let callers = [(); 3].map(|()| Wanted::default());
        for (i, caller) in callers.iter().enumerate() {
            let tx = tx.clone();
            let job = move || tx.send((i, Wanted::current().unwrap().is_given_up())).unwrap();
            caller.within(|| offload.run_in_turn(turn, On::Metadata, Box::new(job)));
        }
        callers[1].give_up();
        assert_eq!(rx.recv_timeout(PATIENCE).unwrap(), (1, true));
        go.send(()).unwrap();
        assert_eq!([(); 2].map(|()| rx.recv_timeout(PATIENCE).unwrap()), [(0, false), (2, false)]);
    }

    #[test]
    fn a_turn_is_taken_on_this_thread_if_it_is_free_and_waited_for_if_not() {
        let offload = Offload::new(Cache::new(1 << 20, 1), Threads::new(1));
        let here = thread::current().id();
        let (tx, rx) = mpsc::channel();
        let job = || {
            let tx = tx.clone();
            Box::new(move || tx.send(thread::current().id()).unwrap())
        };
        offload.run_in_turn_here(JobTurn::Inode(Ino(7)), job());
        assert_eq!(rx.try_recv().unwrap(), here);
        let (go, wait) = mpsc::channel::<()>();
        offload.run_in_turn(JobTurn::Inode(Ino(7)), On::Workers, Box::new(move || wait.recv().unwrap()));
        offload.run_in_turn_here(JobTurn::Inode(Ino(7)), job());
        offload.run_in_turn_here(JobTurn::Inode(Ino(8)), job());
        assert_eq!(rx.try_recv().unwrap(), here, "another turn");
        assert!(rx.try_recv().is_err());
        go.send(()).unwrap();
        assert_ne!(rx.recv_timeout(PATIENCE).unwrap(), here);
    }

    #[test]
    fn event_loops_do_their_own_metadata_work_and_one_is_always_left() {
        let offload = Offload::new(Cache::new(1 << 20, 1), Threads::new(1));
        offload.share_loops(2);
        // Runs `call` on a thread that is named as an event loop.
        let on_loop = |number: u32, call: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(format!("{}{number}", loops::NAME)).spawn(call).unwrap()
        };
        let (tx, rx) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let (busy, report) = (offload.clone(), tx.clone());
        let first = on_loop(
            0,
            Box::new(move || {
                let (here, nested) = (thread::current().id(), busy.clone());
                let job = move || {
                    assert_eq!(thread::current().id(), here);
                    // Work that it needs in turn is done here too; reads, and work for later requests, are not.
                    let report_here = report.clone();
                    nested.run(On::Metadata, Box::new(move || report_here.send(thread::current().id()).unwrap()));
                    let report_here = report.clone();
                    nested.run(On::Passed, Box::new(move || report_here.send(thread::current().id()).unwrap()));
                    let ahead = Box::new(move || report.send(thread::current().id()).unwrap());
                    nested.run_in_turn(JobTurn::Ahead, On::Metadata, ahead);
                    wait.recv().unwrap();
                };
                busy.run_in_turn(JobTurn::Inode(Ino(7)), On::Opening, Box::new(job));
            }),
        );
        let ran: Vec<_> = (0..3).map(|_| rx.recv_timeout(PATIENCE).unwrap()).collect();
        assert_eq!(ran.iter().filter(|&&id| id == first.thread().id()).count(), 1);
        // Of an inode of its own: a job before it may still have the turn of another.
        let runs_on_loop = |inode| {
            let (offload, report) = (offload.clone(), tx.clone());
            let call = move || {
                let job = Box::new(move || report.send(thread::current().id()).unwrap());
                offload.run_in_turn(JobTurn::Inode(Ino(inode)), On::Opening, job);
            };
            let thread = on_loop(1, Box::new(call));
            let id = thread.thread().id();
            thread.join().unwrap();
            rx.recv_timeout(PATIENCE).unwrap() == id
        };
        assert!(!runs_on_loop(8), "the last loop hands its work over");
        go.send(()).unwrap();
        first.join().unwrap();
        assert!(runs_on_loop(9), "another one is left again");
        // Threads of other names never do.
        offload.run(On::Metadata, Box::new(move || tx.send(thread::current().id()).unwrap()));
        assert_ne!(rx.recv_timeout(PATIENCE).unwrap(), thread::current().id());
    }

    #[test]
    fn no_kind_of_work_waits_behind_another() {
        let kinds = [On::Metadata, On::Opening, On::Workers, On::Passed, On::Checks];
        for free in kinds {
            let cache = Cache::new(1 << 20, 1);
            let offload = Offload::new(cache, Threads::new(1));
            let (end, held) = mpsc::channel::<()>();
            let held = Arc::new(Mutex::new(held));
            // As many as there are threads for any of them.
            for on in kinds.into_iter().filter(|&on| on != free).cycle().take(4 * PASSED_THREADS) {
                let held = held.clone();
                offload.run(on, Box::new(move || _ = held.lock().unwrap().recv()));
            }
            let (tx, rx) = mpsc::channel();
            offload.run(free, Box::new(move || tx.send(()).unwrap()));
            rx.recv_timeout(PATIENCE).unwrap();
            drop(end);
        }
    }
}
