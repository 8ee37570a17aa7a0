//! The callers of shared work: it is given up once all of them have given up.
//!
//! Two requests wait for one piece, each within work of its own. The first one is given up: its continuation ends at
//! once, and the decode goes on. So is the second one: it ends too, and the decode is given up.
#![forbid(unsafe_code)]

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, Weak};
use std::task::Wake;

use super::given_up::Registered;
use super::{Wanted, during, given_up, lock};
use crate::error::Result;
use crate::sync::Mutex;

/// Called with the result of shared work.
pub type Then<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// The callers of some work: each has a reference, until it has the result or [leaves](Callers::leave).
#[derive(Debug, Default)]
pub struct Callers {
    work: Wanted,
    /// Work that is done for these callers and for others.
    with: Mutex<Option<Arc<Callers>>>,
}

/// A continuation that waits for the result of shared work. If its caller gives up, it ends at once with `EINTR`.
pub struct Parked<T> {
    wanted: Option<Wanted>,
    /// `None` once it has ended.
    waiting: Mutex<Option<Waiting<T>>>,
}

struct Waiting<T> {
    then: Then<T>,
    callers: Arc<Callers>,
    registered: Option<Registered>,
}

impl Callers {
    /// A reference to the callers of `slot`, which may be the first one.
    pub fn of(slot: &mut Weak<Self>) -> Arc<Self> {
        slot.upgrade().unwrap_or_else(|| {
            let first = Arc::default();
            *slot = Arc::downgrade(&first);
            first
        })
    }

    /// Their work.
    pub fn work(&self) -> Wanted {
        self.work.clone()
    }

    /// Makes them callers of the work of `all` too, in place of other work before.
    pub fn join(&self, all: &Arc<Self>) {
        let before = lock(&self.with).replace(all.clone());
        if let Some(before) = before {
            Self::leave(before);
        }
    }

    /// Gives a reference up, and the work with the last one. That wakes others, so no lock may be held.
    pub fn leave(caller: Arc<Self>) {
        let Some(last) = Arc::into_inner(caller) else { return };
        last.work.give_up();
        if let Some(with) = last.with.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Self::leave(with);
        }
    }
}

impl<T: Send + 'static> Parked<T> {
    /// Parks `then`, one of `callers`. [`Parked::watch`] follows.
    pub fn new(then: Then<T>, callers: Arc<Callers>) -> Arc<Self> {
        let waiting = Waiting { then, callers, registered: None };
        Arc::new(Self { wanted: Wanted::current(), waiting: Mutex::new(Some(waiting)) })
    }

    /// Has it end when its caller gives up; now, if that has.
    pub fn watch(self: &Arc<Self>) {
        let Some(wanted) = &self.wanted else { return };
        let registered = wanted.flag().register(self.clone().into());
        if let Some(waiting) = &mut *lock(&self.waiting) {
            waiting.registered = Some(registered);
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        lock(&self.waiting).is_none()
    }

    /// Runs the continuation with `result` on this thread; returns `false` if it has ended before.
    pub fn end(&self, result: Result<T>) -> bool {
        self.end_after(drop, result)
    }

    fn end_after(&self, leave: impl FnOnce(Arc<Callers>), result: Result<T>) -> bool {
        let Some(Waiting { then, callers, registered }) = lock(&self.waiting).take() else { return false };
        drop(registered);
        leave(callers);
        if catch_unwind(AssertUnwindSafe(|| during(self.wanted.clone(), || then(result)))).is_err() {
            tracing::error!("a continuation panicked");
        }
        true
    }
}

impl<T: Send + 'static> Wake for Parked<T> {
    fn wake(self: Arc<Self>) {
        self.end_after(Callers::leave, Err(given_up()));
    }
}

impl<T> fmt::Debug for Parked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parked")
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../tests/models/callers.rs"]
mod models;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::super::is_given_up;
    use super::*;

    fn parked(caller: &Wanted, slot: &mut Weak<Callers>) -> (Arc<Parked<u8>>, Receiver<Result<u8>>) {
        let (tx, rx) = channel();
        let then: Then<u8> = Box::new(move |got| tx.send(got).unwrap());
        let parked = caller.within(|| Parked::new(then, Callers::of(slot)));
        parked.watch();
        (parked, rx)
    }

    #[test]
    fn work_of_several_callers_is_given_up_by_the_last_of_them() {
        let [one, other, late] = [(); 3].map(|()| Wanted::default());
        let (mut slot, all) = (Weak::new(), Arc::new(Callers::default()));
        let ((first, ended), (second, other_ended)) = (parked(&one, &mut slot), parked(&other, &mut slot));
        let (work, both) = (slot.upgrade().unwrap().work(), all.work());
        let upgraded = slot.upgrade().unwrap();
        upgraded.join(&all);
        [upgraded, all].into_iter().for_each(Callers::leave);
        one.give_up();
        assert!(first.has_ended() && is_given_up(&ended.try_recv().unwrap().unwrap_err()));
        assert!(!second.has_ended() && !work.is_given_up() && !both.is_given_up());
        other.give_up();
        assert!(is_given_up(&other_ended.try_recv().unwrap().unwrap_err()));
        assert!(work.is_given_up() && both.is_given_up() && slot.strong_count() == 0);
        // The next caller is that of other work; one that has given up before ends as it parks.
        let (_parked, waits) = parked(&Wanted::default(), &mut slot);
        late.give_up();
        let (gone, ended) = parked(&late, &mut slot);
        assert!(gone.has_ended() && ended.try_recv().unwrap().is_err());
        assert!(waits.try_recv().is_err() && !slot.upgrade().unwrap().work().is_given_up());
    }

    #[test]
    fn a_continuation_has_one_result_in_the_work_of_its_caller_and_may_panic() {
        let (caller, mut slot) = (Wanted::default(), Weak::new());
        let (one, got) = parked(&caller, &mut slot);
        let work = slot.upgrade().unwrap().work();
        assert!(one.end(Ok(7)) && !one.end(Ok(8)));
        caller.give_up();
        assert!(got.try_recv().unwrap().unwrap() == 7 && got.try_recv().is_err() && slot.strong_count() == 0);
        assert!(!work.is_given_up(), "it has ended");
        let asks: Then<u8> = Box::new(|_| panic!("{}", Wanted::current().is_some()));
        Wanted::default().within(|| Parked::new(asks, Callers::of(&mut slot))).end(Ok(1));
    }
}
