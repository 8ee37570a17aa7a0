//! Work on several threads: on the items of an iterator, with the results in order; or on shared state.
//!
//! Limits: items are taken at most twice the number of threads ahead of the results. Invariant: a panic in the work is
//! raised in the caller.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Receiver, RecvError, RecvTimeoutError, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::wanted::{self, carried};

/// Passes each of `items` to `work`, on at most `threads` threads, and the results to `each`, on this one and in order,
/// until that fails. Threads start as items come.
///
/// # Errors
/// Errors of `each`; after the first one, no further item is begun.
pub fn in_order<T: Send, R: Send, E>(
    threads: usize,
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
    mut each: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let (jobs, queue) = mpsc::channel::<(T, SyncSender<thread::Result<R>>)>();
    let queue = &Mutex::new(queue);
    let work = &|item| catch_unwind(AssertUnwindSafe(|| work(item)));
    let next = move || queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
    thread::scope(|scope| {
        // Dropped with the caller's part, which ends the threads.
        let jobs = jobs;
        let mut results = VecDeque::<Receiver<thread::Result<R>>>::new();
        let mut started = 0;
        // Each job has a result.
        let mut take = |result: Receiver<thread::Result<R>>| match wanted_from(&result) {
            Ok(Ok(result)) => each(result),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Ok(()),
        };
        let taken = items.into_iter().try_for_each(|item| {
            if started < threads && results.len() >= started {
                let worker = move || {
                    while let Some((item, result)) = next() {
                        // The waiter may have failed.
                        result.send(work(item)).ok();
                    }
                };
                started += usize::from(thread::Builder::new().spawn_scoped(scope, carried(worker)).is_ok());
            }
            let (sender, result) = mpsc::sync_channel(1);
            if started == 0 {
                // No thread could be started.
                sender.send(work(item)).ok();
                return take(result);
            }
            // Fails only without a receiver, which is there.
            jobs.send((item, sender)).ok();
            results.push_back(result);
            if results.len() < 2 * started { Ok(()) } else { results.pop_front().map_or(Ok(()), &mut take) }
        });
        let taken = taken.and_then(|()| results.into_iter().try_for_each(&mut take));
        drop(jobs);
        if taken.is_err() {
            while next().is_some() {}
        }
        taken
    })
}

/// Runs `work` on this thread and on up to `others` more; returns all results.
///
/// # Errors
/// The first one of `work`.
pub fn together<R: Send, E: Send>(others: usize, work: impl Fn() -> Result<R, E> + Sync) -> Result<Vec<R>, E> {
    let (sender, results) = mpsc::channel();
    let work = &|| catch_unwind(AssertUnwindSafe(&work));
    thread::scope(|scope| {
        for _ in 0..others {
            let sender = sender.clone();
            // The receiver is there.
            let other = carried(move || _ = sender.send(work()));
            // Fewer threads only make it slower.
            drop(thread::Builder::new().spawn_scoped(scope, other));
        }
        drop(sender);
        let mut all = vec![work()];
        while let Ok(other) = wanted_from(&results) {
            all.push(other);
        }
        all.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// Runs `work` on this thread, and `helper` on another one, if there is a helper; without a thread it is dropped.
pub fn helped<R>(helper: Option<impl FnOnce() + Send>, work: impl FnOnce() -> R) -> R {
    thread::scope(|scope| {
        if let Some(helper) = helper {
            drop(thread::Builder::new().spawn_scoped(scope, carried(helper)));
        }
        work()
    })
}

/// Receives from the threads of this caller; meanwhile asks, on their behalf, whether the work is wanted.
fn wanted_from<T>(from: &Receiver<T>) -> Result<T, RecvError> {
    loop {
        let Some(most) = wanted::until_question() else { return from.recv() };
        match from.recv_timeout(most) {
            Ok(received) => return Ok(received),
            Err(RecvTimeoutError::Disconnected) => return Err(RecvError),
            // They give up.
            Err(RecvTimeoutError::Timeout) => _ = wanted::check(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::error::{Error, Kind};
    use crate::sync;
    use crate::wanted::{is_given_up, while_wanted};

    #[test]
    fn results_come_in_order_and_few_items_are_taken_ahead() {
        for threads in [0, 1, 2, 5] {
            let (taken, mut got) = (AtomicUsize::new(0), Vec::new());
            let items = (0..50).inspect(|_| _ = taken.fetch_add(1, Ordering::Relaxed));
            let work = |item: u64| {
                thread::sleep(Duration::from_micros(item * 7919 % 300));
                item
            };
            let each = |item| {
                got.push(item);
                assert!(taken.load(Ordering::Relaxed) <= got.len() + 2 * threads.max(1), "{threads}");
                Ok::<_, ()>(())
            };
            in_order(threads, items, work, each).unwrap();
            assert_eq!(got, (0..50).collect::<Vec<_>>(), "{threads}");
        }
    }

    #[test]
    fn as_many_threads_work_as_are_allowed() {
        let (all, ids) = (Barrier::new(4), Mutex::new(BTreeSet::new()));
        let work = |item: usize| {
            ids.lock().unwrap().insert(format!("{:?}", thread::current().id()));
            if item < 4 {
                all.wait();
            }
        };
        in_order(4, 0..20, work, |()| Ok::<_, ()>(())).unwrap();
        assert_eq!(ids.into_inner().unwrap().len(), 4);
    }

    #[test]
    fn after_a_failure_nothing_is_begun() {
        let begun = AtomicUsize::new(0);
        let work = |item: usize| {
            begun.fetch_add(1, Ordering::Relaxed);
            item
        };
        let failed = in_order(3, 0..1_000_000, work, |item| if item == 5 { Err(item) } else { Ok(()) });
        assert_eq!(failed, Err(5));
        assert!(begun.into_inner() <= 5 + 2 * 3 + 1);
    }

    #[test]
    fn those_that_work_together_return_all_they_did_or_an_error() {
        let next = AtomicUsize::new(0);
        let work = || {
            Ok::<_, Error>(
                std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|n| *n < 1000).count(),
            )
        };
        assert_eq!(together(3, work).unwrap().into_iter().sum::<usize>(), 1000);
        let failed = together(3, || {
            if next.fetch_add(1, Ordering::Relaxed) % 4 == 2 { Err(Error::new(Kind::Changed, "x")) } else { Ok(()) }
        });
        assert!(failed.is_err());
    }

    #[test]
    fn threads_that_wait_for_each_other_end_when_their_caller_gives_up() {
        let forever = || {
            let (mutex, never) = (sync::Mutex::new(()), wanted::Condition::new());
            let locked = mutex.lock().unwrap();
            never.wait_while(&mutex, locked, |()| true).map(drop)
        };
        let main = thread::current().id();
        // The caller only waits for the others.
        let work = || if thread::current().id() == main { Ok(()) } else { forever() };
        let failed = while_wanted(|| false, || together(2, work));
        assert!(is_given_up(&failed.unwrap_err()));
        let failed = while_wanted(|| false, || in_order(2, 0..5, |_| forever(), |waited| waited));
        assert!(is_given_up(&failed.unwrap_err()));
    }

    #[test]
    fn a_panic_in_the_work_is_one_of_the_caller() {
        let work = |item: usize| assert!(item < 3, "of the work");
        let done = catch_unwind(AssertUnwindSafe(|| in_order(2, 0..10, work, |()| Ok::<_, ()>(()))));
        assert!(done.is_err());
    }
}
