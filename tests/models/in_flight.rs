//! Models of one decode in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::sync::model::{Time, check};
use crate::sync::thread;

#[test]
fn one_caller_claims_a_decode() {
    check(Time::Passes, || {
        let flight = Arc::new(InFlight::new(false));
        let all = [(); 3].map(|()| {
            let flight = flight.clone();
            thread::spawn(move || u32::from(flight.claim()))
        });
        assert_eq!(all.into_iter().map(|one| one.join().unwrap()).sum::<u32>(), 1);
    });
}

#[test]
fn who_waits_is_woken_and_every_continuation_runs_once() {
    check(Time::Passes, || {
        let (flight, told) = (Arc::new(InFlight::new(true)), Arc::new(AtomicU32::new(0)));
        let (same, count, other) = (flight.clone(), told.clone(), flight.clone());
        let waits = thread::spawn(move || same.wait().unwrap().len());
        let follows = thread::spawn(move || {
            let then = move |got: Result<Piece>| _ = count.fetch_add(got.unwrap().len() as u32, Ordering::Relaxed);
            assert!(other.after(Box::new(then)).is_none());
        });
        let result = Ok(Arc::new(vec![0; 5]));
        InFlight::run(flight.complete(&result), &result);
        follows.join().unwrap();
        assert_eq!((waits.join().unwrap(), told.load(Ordering::Relaxed)), (5, 5));
    });
}
