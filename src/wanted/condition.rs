//! A condition variable whose threads also wake when their work is given up.
//!
//! A thread of work without a question sleeps until it is notified or its work is given up; no time-out wakes it.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use super::{Wanted, check, lock, until_question};
use crate::error::Result;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A condition variable.
#[derive(Debug, Default)]
#[expect(clippy::box_collection, reason = "one word in each of many values that no thread waits for")]
pub struct Condition(Mutex<Option<Box<Vec<Arc<Parker>>>>>);

/// A thread that waits, once.
#[derive(Debug, Default)]
struct Parker {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Condition {
    /// One for which no thread waits.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        let waiting = lock(&self.0).take();
        for parker in waiting.into_iter().flat_map(|waiting| *waiting) {
            parker.wake();
        }
    }

    /// Waits for a notification (spurious wake-ups included), and fails once the work of this thread is given up. While
    /// the caller of the work is asked, `mutex` is not locked.
    ///
    /// # Errors
    /// `EINTR`.
    pub(crate) fn wait<'a, T>(&self, mutex: &'a Mutex<T>, locked: MutexGuard<'a, T>) -> Result<MutexGuard<'a, T>> {
        self.wait_for(mutex, locked, None)
    }

    /// As [`Condition::wait`], for at most `most`.
    ///
    /// # Errors
    /// `EINTR`.
    pub(crate) fn wait_for<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        locked: MutexGuard<'a, T>,
        most: Option<Duration>,
    ) -> Result<MutexGuard<'a, T>> {
        let parker = Arc::new(Parker::default());
        lock(&self.0).get_or_insert_default().push(parker.clone());
        drop(locked);
        let wanted = Wanted::current();
        let registered = wanted.as_ref().map(|wanted| wanted.0.given_up.register(parker.clone().into()));
        parker.park(most.into_iter().chain(until_question()).min());
        drop(registered);
        if let Some(waiting) = &mut *lock(&self.0) {
            waiting.retain(|other| !Arc::ptr_eq(other, &parker));
        }
        // Also when notified: bytes that arrive one by one never let the time pass.
        check()?;
        Ok(lock(mutex))
    }

    /// As [`Condition::wait`], while `is_early`.
    ///
    /// # Errors
    /// `EINTR`.
    pub(crate) fn wait_while<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        mut locked: MutexGuard<'a, T>,
        mut is_early: impl FnMut(&mut T) -> bool,
    ) -> Result<MutexGuard<'a, T>> {
        while is_early(&mut locked) {
            locked = self.wait(mutex, locked)?;
        }
        Ok(locked)
    }
}

impl Parker {
    /// Waits until it is woken, or was, or for `most`.
    fn park(&self, most: Option<Duration>) {
        let woken = lock(&self.is_woken);
        match most {
            _ if *woken => {}
            None => drop(self.woken.wait(woken)),
            Some(most) => drop(self.woken.wait_timeout(woken, most)),
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        *lock(&self.is_woken) = true;
        self.woken.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::super::{LOOK, carried, is_given_up, while_wanted};
    use super::*;
    use crate::clock::PATIENCE;

    #[test]
    fn notifications_do_not_keep_a_caller_from_giving_up() {
        let (mutex, condition) = (Mutex::new(()), Condition::new());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    condition.notify_all();
                    thread::yield_now();
                }
            });
            let waited =
                while_wanted(|| false, || condition.wait_while(&mutex, mutex.lock().unwrap(), |()| true).map(drop));
            done.store(true, Ordering::Relaxed);
            assert!(is_given_up(&waited.unwrap_err()));
        });
    }

    #[test]
    fn who_waits_is_asked_and_ends_with_the_others_that_work_for_it() {
        let (mutex, condition) = (Mutex::new(()), Condition::new());
        let wait = || condition.wait_while(&mutex, mutex.lock().unwrap(), |()| true).map(drop);
        let asked = Rc::new(RefCell::new(Vec::new()));
        let note = asked.clone();
        let question = move || {
            note.borrow_mut().push(thread::current().id());
            note.borrow().len() < 3
        };
        while_wanted(question, || {
            thread::scope(|scope| {
                let other = scope.spawn(carried(wait));
                assert!(is_given_up(&wait().unwrap_err()));
                assert!(is_given_up(&other.join().unwrap().unwrap_err()));
            });
            assert!(check().is_err());
        });
        check().unwrap();
        assert_eq!(*asked.borrow(), [thread::current().id(); 3]);
    }

    #[test]
    fn a_loop_around_a_wait_that_nobody_ends_ends_when_its_caller_gives_up() {
        let (mutex, never) = (Mutex::new(()), Condition::new());
        let waited = while_wanted(
            || false,
            || {
                let mut locked = mutex.lock().unwrap();
                for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
                    locked = never.wait(&mutex, locked)?;
                }
                Ok(())
            },
        );
        assert!(is_given_up(&waited.unwrap_err()));
    }

    #[test]
    fn what_comes_is_waited_for_with_and_without_a_question() {
        for wanted in [None, Some(Wanted::default())] {
            let (mutex, condition) = (Mutex::new(false), Condition::new());
            let wait = || condition.wait_while(&mutex, mutex.lock().unwrap(), |there| !*there).map(|there| *there);
            let got = thread::scope(|scope| {
                let waiting = scope.spawn(|| wanted.as_ref().map_or_else(wait, |wanted| wanted.within(wait)));
                *mutex.lock().unwrap() = true;
                condition.notify_all();
                waiting.join().unwrap()
            });
            assert!(got.unwrap());
        }
    }

    #[test]
    fn a_thread_that_nobody_asks_wakes_when_its_work_is_given_up_before_or_meanwhile() {
        for gives_up_first in [true, false] {
            let (mine, mutex, never) = (Wanted::default(), Mutex::new(false), Condition::new());
            let waits = || {
                let mut locked = mutex.lock().unwrap();
                *locked = true;
                never.wait_while(&mutex, locked, |_| true).map(drop)
            };
            let ended = thread::scope(|scope| {
                if gives_up_first {
                    mine.give_up();
                }
                let waiting = scope.spawn(|| mine.within(waits));
                if !gives_up_first {
                    crate::clock::wait_until(|| *mutex.lock().unwrap());
                    mine.give_up();
                }
                waiting.join().unwrap()
            });
            assert!(
                is_given_up(&ended.unwrap_err()) && lock(&never.0).as_ref().is_none_or(|waiting| waiting.is_empty())
            );
        }
    }
}
