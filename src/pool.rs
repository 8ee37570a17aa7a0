//! A thread pool for one kind of work; threads start on demand and exit after an idle timeout.
//!
//! It has two queues: demands, which a caller waits for, run before hints, which no caller waits for.
//!
//! Invariant: a panic in a job ends only that job.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, thread};

/// A job for a worker.
pub type Job = Box<dyn FnOnce() + Send>;

/// How long an idle worker waits for work before it exits.
const IDLE: Duration = Duration::from_secs(10);
/// Maximum number of queued hints.
const HINTS: usize = 256;

/// A thread pool.
#[derive(Debug)]
pub struct Pool(Arc<PoolState>);

#[derive(Debug)]
struct PoolState {
    /// Prefix of the thread names; their number follows.
    name: &'static str,
    workers: AtomicUsize,
    queue: Mutex<JobQueue>,
    work: Condvar,
}

#[derive(Default)]
struct JobQueue {
    demands: VecDeque<Job>,
    hints: VecDeque<Job>,
    threads: usize,
    /// Threads waiting for work, or starting.
    idle: usize,
    closed: bool,
}

impl std::fmt::Debug for JobQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { demands, hints, threads, idle, closed } = self;
        write!(f, "{} demands, {} hints, {threads} threads, {idle} idle, closed {closed}", demands.len(), hints.len())
    }
}

impl Pool {
    /// Creates a pool of at most `workers` threads, called `name-0`, `name-1`, .... Starts none yet.
    pub fn new(workers: usize, name: &'static str) -> Self {
        let (workers, queue) = (AtomicUsize::new(workers.max(1)), Mutex::default());
        Self(Arc::new(PoolState { name, workers, queue, work: Condvar::new() }))
    }

    /// The maximum number of threads.
    pub fn workers(&self) -> usize {
        self.0.workers.load(Ordering::Relaxed)
    }

    /// Sets the maximum number of threads; excess threads exit when they have been idle.
    pub fn set_workers(&self, workers: usize) {
        self.0.workers.store(workers.max(1), Ordering::Relaxed);
    }

    /// Queues `job` before all hints. If no thread can be started, runs it on the calling thread.
    pub fn demand(&self, job: Job) {
        let mut queue = self.0.lock();
        queue.demands.push_back(job);
        let alone = self.0.wake(&mut queue) == 0;
        let job = if alone { queue.demands.pop_front() } else { None };
        drop(queue);
        job.into_iter().for_each(run);
    }

    /// Queues `job` before all hints if a thread is free to run it now; otherwise returns it.
    pub fn offer(&self, job: Job) -> Option<Job> {
        let mut queue = self.0.lock();
        if !self.is_free_in(&queue) {
            return Some(job);
        }
        queue.demands.push_back(job);
        if self.0.wake(&mut queue) == 0 { queue.demands.pop_back() } else { None }
    }

    /// Whether a thread is free to run a job now.
    pub fn is_free(&self) -> bool {
        self.is_free_in(&self.0.lock())
    }

    fn is_free_in(&self, queue: &JobQueue) -> bool {
        queue.demands.len() < queue.idle || queue.threads < self.workers()
    }

    /// Whether jobs are queued for which no thread is free: a long job should end or queue the rest of itself.
    pub fn is_short(&self) -> bool {
        let queue = self.0.lock();
        queue.demands.len() + queue.hints.len() > queue.idle
    }

    /// Queues `job` to run after all demands. Returns `false` and drops it if the queue is full or no thread can be
    /// started.
    pub fn hint(&self, job: Job) -> bool {
        let mut queue = self.0.lock();
        if queue.hints.len() >= HINTS {
            return false;
        }
        queue.hints.push_back(job);
        if self.0.wake(&mut queue) == 0 {
            queue.hints.pop_back();
            return false;
        }
        true
    }

    /// Drops all hints that no worker has started.
    pub fn forget_hints(&self) {
        let hints = std::mem::take(&mut self.0.lock().hints);
        drop(hints);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.closed = true;
        let hints = std::mem::take(&mut queue.hints);
        drop(queue);
        // A value that a hint owns may use this pool when it is dropped.
        drop(hints);
        self.0.work.notify_all();
    }
}

impl PoolState {
    fn lock(&self) -> MutexGuard<'_, JobQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes or starts a worker for the job just queued; returns the number of threads.
    fn wake(self: &Arc<Self>, queue: &mut JobQueue) -> usize {
        if queue.idle > 0 {
            self.work.notify_one();
        }
        if queue.demands.len() + queue.hints.len() > queue.idle && queue.threads < self.workers.load(Ordering::Relaxed)
        {
            let shared = self.clone();
            let name = format!("{}-{}", self.name, queue.threads);
            if thread::Builder::new().name(name).spawn(move || shared.serve()).is_ok() {
                queue.threads += 1;
                queue.idle += 1;
            }
        }
        queue.threads
    }

    /// The loop of a worker.
    fn serve(&self) {
        let mut queue = self.lock();
        queue.idle -= 1;
        loop {
            if let Some(job) = queue.demands.pop_front().or_else(|| queue.hints.pop_front()) {
                drop(queue);
                run(job);
                queue = self.lock();
            } else if queue.closed {
                break;
            } else {
                queue.idle += 1;
                let (guard, wait) = self.work.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
                queue = guard;
                queue.idle -= 1;
                if wait.timed_out() && queue.demands.is_empty() && queue.hints.is_empty() {
                    break;
                }
            }
        }
        queue.threads -= 1;
    }
}

fn run(job: Job) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        tracing::error!("a job of a worker panicked");
    }
}

#[cfg(all(test, shuttle))]
#[path = "../tests/models/pool.rs"]
mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{PATIENCE, wait_until};
    use std::sync::mpsc;

    #[test]
    fn demands_run_before_hints_and_panics_end_only_their_job() {
        let pool = Pool::new(1, "test");
        let (tx, rx) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        pool.demand(Box::new(move || _ = wait.recv()));
        let say = |what: &'static str| -> Job {
            let tx = tx.clone();
            Box::new(move || tx.send(what).unwrap())
        };
        assert!(pool.hint(say("hint")));
        pool.demand(Box::new(|| panic!("on purpose")));
        pool.demand(say("demand"));
        go.send(()).unwrap();
        assert_eq!([rx.recv().unwrap(), rx.recv().unwrap()], ["demand", "hint"]);
    }

    #[test]
    fn a_hint_that_waits_for_a_worker_when_it_is_dropped_does_not_stop_the_end_of_the_pool() {
        /// Lets the first demand end, and waits for the second one.
        struct Waits(mpsc::Sender<()>, mpsc::Receiver<()>, mpsc::Sender<bool>);
        impl Drop for Waits {
            fn drop(&mut self) {
                self.0.send(()).unwrap();
                self.2.send(self.1.recv_timeout(PATIENCE).is_ok()).unwrap();
            }
        }
        let pool = Pool::new(1, "test");
        let ((go, wait), (done, second), (tx, rx)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
        pool.demand(Box::new(move || _ = wait.recv()));
        pool.demand(Box::new(move || done.send(()).unwrap()));
        let waits = Waits(go, second, tx);
        assert!(pool.hint(Box::new(move || drop(waits))));
        drop(pool);
        assert!(rx.recv().unwrap(), "the worker was free to run it");
    }

    #[test]
    fn an_offer_is_for_a_free_thread_and_a_pool_with_more_jobs_than_those_is_short() {
        let pool = Pool::new(2, "test");
        let ((go, wait), (tx, begun)) = (mpsc::channel::<()>(), mpsc::channel());
        let wait = Arc::new(Mutex::new(wait));
        let waits = || -> Job {
            let (wait, tx) = (wait.clone(), tx.clone());
            Box::new(move || {
                tx.send(()).unwrap();
                _ = wait.lock().unwrap().recv();
            })
        };
        for _ in 0..2 {
            assert!(pool.offer(waits()).is_none());
            begun.recv_timeout(PATIENCE).unwrap();
        }
        assert!(pool.offer(waits()).is_some() && !pool.is_short());
        pool.demand(waits());
        assert!(pool.is_short());
        assert!(pool.hint(waits()) && pool.is_short());
        drop(go);
        wait_until(|| pool.0.lock().idle == 2);
        assert!(!pool.is_short() && pool.offer(waits()).is_none());
    }

    #[test]
    fn no_thread_exists_before_the_first_job_and_hints_are_bounded() {
        let pool = Pool::new(2, "test");
        assert_eq!(pool.0.lock().threads, 0);
        let (go, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        for _ in 0..2 {
            let wait = wait.clone();
            pool.demand(Box::new(move || _ = wait.lock().unwrap().recv()));
        }
        assert_eq!(pool.0.lock().threads, 2);
        while !pool.0.lock().demands.is_empty() {
            thread::yield_now();
        }
        assert_eq!((0..HINTS + 5).filter(|_| pool.hint(Box::new(|| ()))).count(), HINTS);
        pool.forget_hints();
        assert!(pool.hint(Box::new(|| ())));
        drop(go);
    }
}
