//! Tests: when a gate opens, and how often its check runs.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

use super::*;
use crate::bytes::FileOffset;
use crate::checksum::{BackgroundChecks, crc32};
use crate::clock::{PATIENCE, wait_until};
use crate::error::Error;
use crate::platform::os_error;
use crate::source::Source;
use crate::wanted::{self, Wanted, is_given_up};

#[test]
fn a_gate_runs_its_check_once() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let gate = ChecksumGate::new(&Verify::First, 0, &Threads::default(), || {
        ASKED.fetch_add(1, Ordering::Relaxed);
        Err(Error::corrupt("no", "x"))
    });
    assert!(gate.verdict().is_none());
    assert!(gate.wait().is_err() && gate.wait().is_err() && gate.clone().wait().is_err());
    assert_eq!(ASKED.load(Ordering::Relaxed), 1);
}

/// A gate with a check that fails to read the first `failures` times.
fn flaky(mode: &Verify, failures: u32) -> (ChecksumGate, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let check = move || match count.fetch_add(1, Ordering::Relaxed) {
        n if n < failures => Err(Error::io(os_error(libc::EIO), "payload")),
        _ => Ok(()),
    };
    (ChecksumGate::new(mode, 0, &Threads::default(), check), asked)
}

#[test]
fn a_check_that_could_not_read_is_retried_by_the_next_reader() {
    let (gate, asked) = flaky(&Verify::First, 1);
    assert_eq!(gate.wait().unwrap_err().errno(), libc::EIO);
    assert!(gate.verdict().is_none());
    gate.wait().unwrap();
    gate.wait().unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 2);

    let (gate, _) = flaky(&Verify::First, 1);
    let (tx, rx) = mpsc::channel();
    for _ in 0..2 {
        let tx = tx.clone();
        gate.when_open(move |verdict| tx.send(verdict.is_ok()).unwrap());
    }
    let first = [rx.recv_timeout(PATIENCE).unwrap(), rx.recv_timeout(PATIENCE).unwrap()];
    gate.when_open(move |verdict| tx.send(verdict.is_ok()).unwrap());
    assert_eq!((first[0], rx.recv_timeout(PATIENCE).unwrap()), (false, true));

    let checks = BackgroundChecks::default();
    let (gate, asked) = flaky(&Verify::Background(checks.clone()), 1);
    gate.wait().unwrap();
    assert!(checks.join().is_err());
    assert!(!gate.is_open(), "nothing is known yet, so the next reader begins it again");
    gate.wait().unwrap();
    let _ = checks.join();
    assert!(gate.is_open() && asked.load(Ordering::Relaxed) == 2);
}

#[test]
fn in_the_background_only_the_last_bytes_wait_for_the_verdict_and_a_failure_refuses_all() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let (checks, told) = (BackgroundChecks::default(), Arc::new(AtomicU32::new(0)));
    let count = told.clone();
    checks.on_failure(move |_| _ = count.fetch_add(1, Ordering::Relaxed));
    let gate = ChecksumGate::new(&Verify::Auto(checks.clone()), 1 << 40, &Threads::default(), move || {
        wait.lock().unwrap().recv().unwrap();
        Err(Error::corrupt("no", "x"))
    });
    ChecksumGate::wait_before(Some(&gate), false).unwrap();
    assert!(ChecksumGate::shut(Some(&gate), false).is_none());
    let end = ChecksumGate::shut(Some(&gate), true).expect("the end is withheld");
    let (tx, rx) = mpsc::channel();
    end.when_open(move |verdict| tx.send(verdict.is_ok()).unwrap());
    assert!(rx.try_recv().is_err());
    go.send(()).unwrap();
    assert!(!rx.recv_timeout(PATIENCE).unwrap());
    assert!(checks.join().is_err());
    assert_eq!((gate.verified(), told.load(Ordering::Relaxed)), (Verified::Failed, 1));
    assert!(ChecksumGate::shut(Some(&gate), false).is_some() && ChecksumGate::wait_before(Some(&gate), false).is_err());
}

#[test]
fn bytes_are_withheld_only_while_they_need_a_verdict_that_is_not_there() {
    let gate = |mode: &Verify| ChecksumGate::new(mode, 0, &Threads::default(), || Ok(()));
    let first = gate(&Verify::First);
    assert!(first.is_withheld());
    first.wait().unwrap();
    assert!(!first.is_withheld() && !gate(&Verify::Off).is_withheld());
    let background = gate(&Verify::Background(BackgroundChecks::default()));
    assert!(!background.is_withheld() && background.before(true).is_withheld());
    background.check().unwrap();
    assert!(!background.before(true).is_withheld());
}

#[test]
fn only_the_first_failure_that_a_reader_reports_is_news() {
    let (check, failed) = (SharedCheck::reported(&Threads::default()), Err(Error::corrupt("no", "x")));
    assert_eq!([Ok(()), failed.clone(), failed].map(|verdict| check.report(&verdict, None)), [false, true, false]);
}

#[test]
fn a_check_goes_on_while_a_parked_reader_wants_it_and_ends_when_none_does() {
    let (begun, has_begun) = mpsc::channel();
    let check = move |ends: bool| {
        begun.send(()).unwrap();
        wait_until(|| ends || wanted::check().is_err());
        wanted::check()
    };
    let (begin, (tx, rx)) = (check.clone(), mpsc::channel());
    let gate = ChecksumGate::new(&Verify::First, 0, &Threads::new(1), move || begin(true));
    let told = tx.clone();
    gate.when_open(move |verdict| told.send(verdict).unwrap());
    rx.recv_timeout(PATIENCE).unwrap().unwrap();
    has_begun.recv().unwrap();

    let mine = Wanted::default();
    let gate = ChecksumGate::new(&Verify::First, 0, &Threads::new(1), move || check(false));
    mine.within(|| gate.when_open(move |verdict| tx.send(verdict).unwrap()));
    has_begun.recv_timeout(PATIENCE).unwrap();
    mine.give_up();
    assert!(is_given_up(&rx.recv_timeout(PATIENCE).unwrap().unwrap_err()));
}

#[test]
fn by_default_a_check_of_more_than_64_mib_runs_in_the_background() {
    let gate = |cost| ChecksumGate::new(&Verify::default(), cost, &Threads::default(), || Ok(()));
    let (small, large) = (gate(super::super::AT_ONCE), gate(super::super::AT_ONCE + 1));
    assert!(ChecksumGate::shut(Some(&small), false).is_some());
    ChecksumGate::wait_before(Some(&large), false).unwrap();
    assert!(large.is_open());
}

#[test]
fn a_lazy_check_runs_only_before_the_end() {
    let ran = Arc::new(AtomicU32::new(0));
    let count = ran.clone();
    let gate = ChecksumGate::lazy(&Verify::default(), u64::MAX, &Threads::default(), move || {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    ChecksumGate::wait_before(Some(&gate), false).unwrap();
    assert_eq!((ran.load(Ordering::Relaxed), gate.verified()), (0, Verified::Pending));
    ChecksumGate::wait_before(Some(&gate), true).unwrap();
    assert_eq!((ran.load(Ordering::Relaxed), gate.verified()), (1, Verified::Yes));
}

#[test]
fn a_check_of_what_is_far_away_runs_only_before_the_end_and_if_it_is_near_by_then() {
    use std::sync::atomic::AtomicBool;
    let (near, ran) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (is_near, count) = (near.clone(), ran.clone());
    let mode = Verify::default().far();
    let check = move || {
        count.fetch_add(1, Ordering::Relaxed);
        Err(Error::corrupt("no", "x"))
    };
    let gate = ChecksumGate::new(&mode, 1, &Threads::default(), check).near(move || is_near.load(Ordering::Relaxed));
    for is_end in [false, true] {
        ChecksumGate::wait_before(Some(&gate), is_end).unwrap();
        assert!(ChecksumGate::shut(Some(&gate), is_end).is_none());
    }
    near.store(true, Ordering::Relaxed);
    ChecksumGate::wait_before(Some(&gate), false).unwrap();
    assert_eq!((ran.load(Ordering::Relaxed), gate.verified()), (0, Verified::Pending));
    assert!(ChecksumGate::wait_before(Some(&gate), true).is_err());
    assert!(ran.load(Ordering::Relaxed) == 1 && ChecksumGate::wait_before(Some(&gate), false).is_err());
}

#[test]
fn a_reader_reports_what_its_own_decoding_found() {
    let checks = BackgroundChecks::default();
    let gate = ChecksumGate::reported(&Verify::Background(checks.clone()), &Threads::default());
    ChecksumGate::wait_before(Some(&gate), true).unwrap();
    gate.report(&Err(Error::io(os_error(libc::EIO), "payload")));
    assert_eq!(gate.verified(), Verified::Pending, "a failed read is not a verdict");
    gate.report(&Err(Error::corrupt("no", "x")));
    gate.report(&Ok(()));
    assert_eq!(gate.verified(), Verified::Failed);
    assert!(ChecksumGate::wait_before(Some(&gate), false).is_err() && checks.join().is_err());
}

#[test]
fn a_failure_that_a_reader_reports_wins_over_a_check_that_passes_before_or_after() {
    let (checks, told) = (BackgroundChecks::default(), Arc::new(AtomicU32::new(0)));
    let count = told.clone();
    checks.on_failure(move |_| _ = count.fetch_add(1, Ordering::Relaxed));
    let (tx, begun) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let channels = Mutex::new((tx, wait));
    let gate = ChecksumGate::new(&Verify::Background(checks.clone()), 0, &Threads::default(), move || {
        let (begun, wait) = &*channels.lock().unwrap();
        begun.send(()).unwrap();
        wait.recv_timeout(PATIENCE).unwrap();
        Ok(())
    });
    let (tx, rx) = mpsc::channel();
    gate.before(true).when_open(move |verdict| tx.send(verdict.is_err()).unwrap());
    begun.recv_timeout(PATIENCE).unwrap();
    gate.report(&Err(Error::corrupt("no", "x")));
    go.send(()).unwrap();
    assert!(rx.recv_timeout(PATIENCE).unwrap(), "a parked reader gets the failure");
    assert!(checks.join().is_err() && gate.before(true).wait().is_err() && gate.wait().is_err());
    assert_eq!((gate.verified(), told.load(Ordering::Relaxed)), (Verified::Failed, 1));

    let (gate, _) = flaky(&Verify::First, 0);
    gate.wait().unwrap();
    gate.report(&Err(Error::corrupt("no", "x")));
    assert!(gate.wait().is_err() && gate.verified() == Verified::Failed);
}

#[test]
fn parked_readers_share_one_run_and_occupy_no_thread() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let gate = ChecksumGate::new(&Verify::First, 0, &Threads::default(), move || {
        wait.lock().unwrap().recv().unwrap();
        Ok(())
    });
    let (tx, rx) = mpsc::channel();
    for i in 0..1000 {
        let tx = tx.clone();
        gate.when_open(move |verdict| tx.send((i, verdict.is_ok())).unwrap());
    }
    assert!(rx.try_recv().is_err(), "this thread has parked them all and waits for none");
    go.send(()).unwrap();
    let got: Vec<_> = (0..1000).map(|_| rx.recv_timeout(PATIENCE).unwrap()).collect();
    assert!(got.iter().zip(0..).all(|(got, i)| *got == (i, true)));
    gate.when_open(move |verdict| tx.send((1000, verdict.is_ok())).unwrap());
    assert_eq!(rx.try_recv().unwrap(), (1000, true), "at once from now on");
}

#[test]
fn all_threads_of_a_pool_may_wait_at_a_gate() {
    let source = Source::from_bytes(vec![1; 20 << 20]);
    let gate = ChecksumGate::new(&Verify::First, 0, &Threads::default(), move || {
        crc32(&source, FileOffset(0), 20 << 20, &Threads::new(4), "payload").map(drop)
    });
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| gate.wait().unwrap());
        }
    });
    assert!(gate.verdict().is_some());
}

#[test]
fn a_check_that_panics_is_a_failure_and_blocks_no_reader() {
    let gate = ChecksumGate::new(&Verify::First, 0, &Threads::default(), || panic!("on purpose"));
    let (tx, rx) = mpsc::channel();
    gate.when_open(move |verdict| tx.send(verdict.is_err()).unwrap());
    assert!(rx.recv_timeout(PATIENCE).unwrap());
    assert!(gate.wait().is_err());
}

#[test]
fn a_gate_that_is_off_runs_its_check_only_for_verify() {
    let gate = ChecksumGate::new(&Verify::Off, 0, &Threads::default(), || Err(Error::corrupt("no", "x")));
    gate.wait().unwrap();
    assert!(gate.check().is_err());
    gate.wait().unwrap();
}
