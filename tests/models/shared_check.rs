//! Models of a check that runs once for all who need its verdict.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use shuttle::sync::mpsc;

use super::*;
use crate::sync::model::{Time, check, later};
use crate::sync::thread;
use crate::wanted::{self, Wanted};

fn broken() -> Error {
    Error::corrupt("no", "x")
}

/// A check on one thread, which says how often it ran before it runs `work`.
fn counted(work: impl Fn(u32) -> Result<()> + Send + Sync + 'static) -> (Arc<SharedCheck>, Arc<AtomicU32>, Threads) {
    let (ran, threads) = (Arc::new(AtomicU32::new(0)), Threads::new(1));
    let count = ran.clone();
    let check = SharedCheck::new(&threads, move || {
        thread::yield_now();
        work(count.fetch_add(1, Ordering::Relaxed))
    });
    (Arc::new(check), ran, threads)
}

/// Parks a reader, and says what it was told.
fn parked(check: &Arc<SharedCheck>) -> mpsc::Receiver<Result<()>> {
    let (tx, rx) = mpsc::channel();
    check.when_done(Box::new(move |verdict| tx.send(verdict).unwrap()));
    rx
}

fn waits(check: &Arc<SharedCheck>) -> thread::JoinHandle<Result<()>> {
    let check = check.clone();
    thread::spawn(move || check.wait())
}

#[test]
fn a_failure_wins_over_a_pass_whichever_comes_first() {
    check(Time::Passes, || {
        let (check, ..) = counted(|_| Ok(()));
        let (one, same) = (waits(&check), check.clone());
        let reports = thread::spawn(move || {
            assert!(same.report(&Err(broken()), None));
            // From now on.
            assert!(same.wait().is_err());
        });
        let other = parked(&check);
        reports.join().unwrap();
        assert!(check.wait().is_err());
        _ = (one.join().unwrap(), other.recv().unwrap());
        assert!(check.wait().is_err() && check.progress().0.unwrap().is_err());
    });
}

#[test]
fn a_check_runs_once_and_each_who_waits_or_is_parked_has_its_verdict() {
    check(Time::Passes, || {
        let (check, ran, threads) = counted(|_| Ok(()));
        let checks = BackgroundChecks::default();
        let (first, one) = (parked(&check), waits(&check));
        check.begin(&checks);
        let second = parked(&check);
        assert!(one.join().unwrap().is_ok());
        assert!(first.recv().unwrap().is_ok() && second.recv().unwrap().is_ok() && checks.join().is_ok());
        // All of its jobs have ended.
        let (tx, rx) = mpsc::channel();
        threads.run(Box::new(move || tx.send(()).unwrap()));
        rx.recv().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_check_that_could_not_be_done_gives_no_verdict_and_the_next_reader_starts_it_again() {
    check(Time::Passes, || {
        let (check, ran, _) = counted(|times| match times {
            0 => Err(Error::io(io::Error::from_raw_os_error(libc::EIO), "x")),
            _ => Ok(()),
        });
        let (one, first) = (waits(&check), parked(&check));
        _ = (one.join().unwrap(), first.recv().unwrap());
        assert!(parked(&check).recv().unwrap().is_ok() || ran.load(Ordering::Relaxed) == 1);
        assert!(check.wait().is_ok() && check.progress().0.unwrap().is_ok());
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_blocking_reader_waits_for_no_free_thread() {
    check(Time::Stands, || {
        let (check, _, threads) = counted(|_| Ok(()));
        let (go, wait) = mpsc::channel::<()>();
        threads.run(Box::new(move || wait.recv().unwrap()));
        let told = parked(&check);
        assert!(waits(&check).join().unwrap().is_ok() && check.wait().is_ok());
        assert!(told.recv().unwrap().is_ok());
        go.send(()).unwrap();
    });
}

#[test]
fn who_gives_up_ends_the_check_only_for_himself() {
    check(Time::Passes, || {
        let (check, ..) = counted(|_| {
            thread::yield_now();
            wanted::check()
        });
        let (mine, same) = (Wanted::default(), check.clone());
        let asks = mine.clone();
        let gives_up = thread::spawn(move || asks.within(|| (parked(&same), same.wait()).1));
        let (one, other) = (waits(&check), parked(&check));
        later();
        mine.give_up();
        assert!(one.join().unwrap().is_ok() && other.recv().unwrap().is_ok());
        assert!(gives_up.join().unwrap().err().is_none_or(|error| is_given_up(&error)));
    });
}

#[test]
fn who_joins_background_checks_sees_each_failure() {
    check(Time::Passes, || {
        let (check, ..) = counted(|_| Err(broken()));
        let checks = BackgroundChecks::default();
        let told = Arc::new(AtomicU32::new(0));
        let count = told.clone();
        checks.on_failure(move |_| _ = count.fetch_add(1, Ordering::Relaxed));
        check.begin(&checks);
        assert!(checks.join().is_err());
        assert_eq!(told.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn who_has_seen_a_failure_that_a_reader_reports_finds_it_among_the_background_checks() {
    check(Time::Passes, || {
        let check = Arc::new(SharedCheck::reported(&Threads::new(1)));
        let checks = BackgroundChecks::default();
        let (same, all) = (check.clone(), checks.clone());
        let reports = thread::spawn(move || _ = same.report(&Err(broken()), Some(&all)));
        if check.wait().is_err() {
            assert!(checks.join().is_err());
        }
        reports.join().unwrap();
    });
}

#[test]
fn who_has_seen_that_a_check_has_begun_waits_for_it_among_the_background_checks() {
    check(Time::Passes, || {
        let (check, ..) = counted(|_| Err(broken()));
        let checks = BackgroundChecks::default();
        let (same, all) = (check.clone(), checks.clone());
        let other = thread::spawn(move || same.begin(&all));
        check.begin(&checks);
        assert!(checks.join().is_err());
        other.join().unwrap();
    });
}
