//! Models of work that is given up.

use super::*;
use crate::sync::model::{Time, check};
use crate::sync::{Mutex, thread};

/// A flag, and who waits for it.
type Flag = Arc<(Mutex<bool>, Condition)>;

fn comes(flag: &Flag) -> impl FnOnce() -> Result<()> + use<> {
    let flag = flag.clone();
    move || {
        let (mutex, condition) = &*flag;
        condition.wait_while(mutex, mutex.lock().unwrap(), |came| !*came).map(|came| assert!(*came))
    }
}

#[test]
fn the_question_is_asked_without_the_lock_and_a_refusal_ends_all_threads_of_its_caller() {
    check(Time::Passes, || {
        let flag = Flag::default();
        let question = flag.clone();
        while_wanted(
            move || *question.0.lock().unwrap(),
            || {
                let other = thread::spawn(carried(comes(&flag)));
                assert!(is_given_up(&comes(&flag)().unwrap_err()));
                assert!(is_given_up(&other.join().unwrap().unwrap_err()));
            },
        );
        check_is_wanted();
    });
}

/// After the work.
fn check_is_wanted() {
    super::check().unwrap();
    assert!(Wanted::current().is_none());
}

#[test]
fn what_comes_ends_every_wait_of_work_that_nobody_gives_up() {
    check(Time::Passes, || {
        let (flag, other) = (Flag::default(), Wanted::default());
        let asks = other.clone();
        let wanted = Wanted::default();
        let mine = wanted.clone();
        let (firm, within) = (thread::spawn(comes(&flag)), comes(&flag));
        let within = thread::spawn(move || mine.within(within));
        let given_up = comes(&flag);
        let given_up = thread::spawn(move || asks.within(given_up));
        other.give_up();
        _ = given_up.join().unwrap();
        // Of something else.
        flag.1.notify_all();
        *flag.0.lock().unwrap() = true;
        flag.1.notify_all();
        firm.join().unwrap().unwrap();
        within.join().unwrap().unwrap();
    });
}
