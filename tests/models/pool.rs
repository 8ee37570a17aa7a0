//! Models of a pool.

use std::panic::resume_unwind;

use shuttle::sync::mpsc::{self, Sender};

use super::*;
use crate::sync::model::{Time, check};

fn says(to: &Sender<u32>, what: u32) -> Job {
    let to = to.clone();
    Box::new(move || to.send(what).unwrap())
}

#[test]
fn every_job_runs_whenever_idle_threads_end() {
    check(Time::Passes, || {
        let (pool, (tx, rx)) = (Pool::new(2, "model"), mpsc::channel());
        (0..3).for_each(|job| pool.demand(says(&tx, job)));
        assert!(pool.hint(says(&tx, 3)));
        let mut ran: Vec<u32> = (0..4).map(|_| rx.recv().unwrap()).collect();
        ran.sort_unstable();
        assert_eq!(ran, [0, 1, 2, 3]);
    });
}

#[test]
fn no_more_threads_than_workers_run_jobs() {
    check(Time::Passes, || {
        let (pool, running) = (Pool::new(2, "model"), Arc::new(AtomicUsize::new(0)));
        let (tx, rx) = mpsc::channel();
        for _ in 0..4 {
            let (running, tx) = (running.clone(), tx.clone());
            pool.demand(Box::new(move || {
                tx.send(running.fetch_add(1, Ordering::SeqCst) + 1).unwrap();
                running.fetch_sub(1, Ordering::SeqCst);
            }));
        }
        drop((pool, tx));
        assert!(rx.into_iter().all(|at_once| at_once <= 2));
    });
}

#[test]
fn a_panic_ends_only_its_job() {
    check(Time::Stands, || {
        let (pool, (tx, rx)) = (Pool::new(1, "model"), mpsc::channel());
        pool.demand(Box::new(|| resume_unwind(Box::new("on purpose"))));
        pool.demand(says(&tx, 1));
        assert_eq!(rx.recv().unwrap(), 1);
    });
}

#[test]
fn demands_run_before_hints() {
    check(Time::Passes, || {
        let (pool, (tx, rx)) = (Pool::new(1, "model"), mpsc::channel());
        let (go, wait) = mpsc::channel::<()>();
        pool.demand(Box::new(move || wait.recv().unwrap()));
        assert!(pool.hint(says(&tx, 2)));
        pool.demand(says(&tx, 1));
        go.send(()).unwrap();
        assert_eq!([rx.recv().unwrap(), rx.recv().unwrap()], [1, 2]);
    });
}

#[test]
fn the_end_of_a_pool_runs_its_demands_drops_its_hints_and_ends_its_threads() {
    // A thread that is left waiting is a deadlock.
    check(Time::Stands, || {
        let (pool, (tx, rx)) = (Pool::new(2, "model"), mpsc::channel());
        (0..3).for_each(|job| pool.demand(says(&tx, job)));
        pool.hint(says(&tx, 3));
        drop((pool, tx));
        // Ends when all jobs have run or were dropped.
        let mut ran: Vec<u32> = rx.into_iter().filter(|job| *job < 3).collect();
        ran.sort_unstable();
        assert_eq!(ran, [0, 1, 2]);
    });
}

#[test]
fn an_offer_is_accepted_only_if_a_thread_is_free_to_run_it() {
    let all_end = |workers: usize| {
        let pool = Arc::new(Pool::new(workers, "model"));
        let (tx, rx) = mpsc::channel();
        for job in 0..2 {
            let (mine, tx) = (pool.clone(), tx.clone());
            pool.demand(Box::new(move || {
                let (done, wait) = mpsc::channel();
                mine.offer(says(&done, job)).into_iter().for_each(|refused| refused());
                tx.send(wait.recv().unwrap()).unwrap();
            }));
        }
        assert_eq!(rx.recv().unwrap() + rx.recv().unwrap(), 1);
    };
    check(Time::Passes, move || all_end(1));
    check(Time::Passes, move || all_end(2));
}
