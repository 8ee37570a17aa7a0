//! Requests of readers that were killed are answered, and only those.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

use super::*;
use crate::bytes::FileOffset;
use crate::source::Origin;
use crate::wanted::{self, carried};

struct Sent(mpsc::Sender<Result<usize, i32>>);

impl Reply for Sent {
    fn data(self, bytes: &[u8]) {
        self.0.send(Ok(bytes.len())).unwrap();
    }

    fn error(self, errno: i32) {
        self.0.send(Err(errno)).unwrap();
    }
}

fn killed() -> (Arc<Waits>, Killed) {
    let waits = Arc::new(Waits::default());
    let killed = Killed { waits: waits.clone(), sources: Vec::new().into(), is_far: true };
    (waits, killed)
}

#[test]
fn a_signal_that_ends_the_thread_is_told_from_one_that_does_not() {
    let status = |pending: &str, shared: &str, caught: &str| {
        format!(
            "Name:\tx\nState:\tD (disk sleep)\nSigPnd:\t{pending}\nShdPnd:\t{shared}\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t{caught}\n"
        )
    };
    for (status, want) in [
        (status("0", "0", "0"), false),
        (status("100", "0", "0"), true),
        (status("0", "2", "0"), true),
        (status("0", "2", "2"), false),
        (status("0", "10000", "0"), false),
        ("State:\tZ (zombie)\n".to_owned(), true),
        (String::new(), false),
    ] {
        assert_eq!(is_ending(&status), want, "{status}");
    }
    assert!(!is_killed(std::process::id()) && !is_killed(0) && is_killed(u32::MAX));
}

#[test]
fn threads_are_looked_up_only_where_they_have_the_numbers_that_the_kernel_tells() {
    assert!(is_of_this_namespace("Name:\tx\nNSpid:\t7\nNSpgid:\t7\t7\n"));
    assert!(!is_of_this_namespace("Name:\tx\nNSpid:\t4711\t7\n"), "the /proc of the namespace above");
    assert!(!is_of_this_namespace("Name:\tx\n"));
    assert!(is_of_this_namespace(&std::fs::read_to_string("/proc/self/status").unwrap()));
}

#[test]
fn a_reader_that_is_gone_gets_its_reply_and_the_others_theirs() {
    let ((waits, killed), (tx, rx)) = (killed(), mpsc::channel());
    let there = killed.watch(std::process::id(), Sent(tx.clone()));
    let gone = killed.watch(u32::MAX, Sent(tx));
    waits.look();
    assert!(rx.try_recv().is_err(), "too early");
    waits.clock.pass(PERIOD);
    waits.look();
    assert_eq!(rx.try_recv(), Ok(Err(libc::EINTR)));
    gone.data(&[0; 3]);
    there.data(&[0; 2]);
    assert_eq!((rx.try_recv(), rx.try_recv().is_err()), (Ok(Ok(2)), true));
    assert!(waits.lock().reads.is_empty());
}

#[test]
fn a_request_is_given_up_when_its_reader_is_gone_as_long_as_a_thread_works_for_it() {
    let waits = Waits::default();
    let working = |reader| {
        let _entered = waits.enter(reader);
        carried(|| wanted::check().is_err())
    };
    let (gone, there) = (working(u32::MAX), working(std::process::id()));
    drop(working(u32::MAX));
    waits.clock.pass(PERIOD);
    waits.look();
    assert!(gone() && !there());
    waits.look();
    assert!(waits.lock().requests.is_empty());
    wanted::check().unwrap();
}

/// A source that counts how often it was given up.
#[derive(Debug)]
struct Far(Arc<AtomicUsize>);

impl Origin for Far {
    fn len(&self) -> u64 {
        0
    }

    fn read(&self, _: FileOffset, _: &mut [u8], _: &'static str) -> crate::error::Result<()> {
        Ok(())
    }

    fn is_far(&self) -> bool {
        true
    }

    fn cancel(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A reply that arrives while the readers are being looked at.
struct Looked(Arc<Waits>);

impl Reply for Looked {
    fn data(self, _: &[u8]) {
        self.0.clock.pass(PERIOD);
        self.0.look();
    }

    fn error(self, _: i32) {
        self.0.look();
    }
}

#[test]
fn what_is_fetched_ahead_goes_on_after_a_reply_and_is_given_up_when_the_reader_is_killed() {
    let (waits, count) = (Arc::new(Waits::default()), Arc::new(AtomicUsize::new(0)));
    let killed = Killed::new(&waits, vec![Source::of("x", Far(count.clone()))]).unwrap();
    killed.watch(std::process::id(), Looked(waits.clone())).data(&[0; 3]);
    assert_eq!(count.load(Ordering::Relaxed), 0);
    let (tx, _rx) = mpsc::channel();
    let gone = killed.watch(u32::MAX, Sent(tx));
    waits.clock.pass(PERIOD);
    waits.look();
    assert_eq!(count.load(Ordering::Relaxed), 1);
    drop(gone);
}
