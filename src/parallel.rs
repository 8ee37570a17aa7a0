//! Work on the items of an iterator by several threads, with the results in the order of the items.
//!
//! Limits: at most twice as many items as threads are taken before the results of the first ones are.
//! Invariant: a panic in the work is one of the caller.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Passes each of `items` to `work`, on at most `threads` threads, and the results to `each`, on this one and in order,
/// until that fails. Threads start as items come.
///
/// # Errors
/// Those of `each`; what follows the first is not worked on, unless a thread has begun to.
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
        let mut take = |result: Receiver<thread::Result<R>>| match result.recv() {
            Ok(Ok(result)) => each(result),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Ok(()),
        };
        let taken = items.into_iter().try_for_each(|item| {
            if started < threads && results.len() >= started {
                let worker = move || {
                    while let Some((item, result)) = next() {
                        // Whoever waited for it may have failed.
                        result.send(work(item)).ok();
                    }
                };
                started += usize::from(thread::Builder::new().spawn_scoped(scope, worker).is_ok());
            }
            let (sender, result) = mpsc::sync_channel(1);
            if started == 0 {
                // There are no threads to be had.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

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
    fn a_panic_in_the_work_is_one_of_the_caller() {
        let work = |item: usize| assert!(item < 3, "of the work");
        let done = catch_unwind(AssertUnwindSafe(|| in_order(2, 0..10, work, |()| Ok::<_, ()>(()))));
        assert!(done.is_err());
    }
}
