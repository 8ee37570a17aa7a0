//! Models of continuations that wait for shared work, and of their callers.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::sync::model::{Time, check, later};
use crate::sync::thread;

/// A continuation of `caller` that counts how often it runs.
fn parked(caller: &Wanted, slot: &mut Weak<Callers>, runs: &Arc<AtomicU32>) -> Arc<Parked<u8>> {
    let runs = runs.clone();
    let then: Then<u8> = Box::new(move |_| _ = runs.fetch_add(1, Ordering::Relaxed));
    caller.within(|| Parked::new(then, Callers::of(slot)))
}

#[test]
fn a_continuation_ends_once_with_the_result_or_as_its_caller_gives_up() {
    check(Time::Stands, || {
        let (caller, runs) = (Wanted::default(), Arc::new(AtomicU32::new(0)));
        let waits = parked(&caller, &mut Weak::new(), &runs);
        let (same, gives_up) = (waits.clone(), caller.clone());
        let comes = thread::spawn(move || same.end(Ok(1)));
        let gives_up = thread::spawn(move || gives_up.give_up());
        waits.watch();
        gives_up.join().unwrap();
        comes.join().unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn shared_work_is_given_up_when_all_of_its_callers_have_and_not_before() {
    check(Time::Stands, || {
        let (callers, runs) = ([(); 2].map(|()| Wanted::default()), Arc::new(AtomicU32::new(0)));
        let (mut slot, all) = (Weak::new(), Arc::new(Callers::default()));
        let waits = callers.each_ref().map(|caller| parked(caller, &mut slot, &runs));
        let (work, first) = (all.work(), slot.upgrade().unwrap());
        first.join(&all);
        [all, first].into_iter().for_each(Callers::leave);
        let [one, other] = callers;
        let gives_up = thread::spawn(move || one.give_up());
        waits.iter().for_each(Parked::watch);
        gives_up.join().unwrap();
        assert!(!work.is_given_up() && runs.load(Ordering::Relaxed) == 1);
        later();
        other.give_up();
        assert!(work.is_given_up() && runs.load(Ordering::Relaxed) == 2);
    });
}
