//! Models of a value that is computed once.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use shuttle::sync::mpsc;

use super::*;
use crate::sync::model::{Time, check};
use crate::sync::thread;
use crate::wanted::{Wanted, is_given_up};

#[test]
fn a_value_is_computed_once_by_one_thread_at_a_time_and_a_failed_read_is_not_kept() {
    check(Time::Passes, || {
        let (once, computing, times) =
            (Arc::new(Once::new()), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let get = || {
            let (once, computing, times) = (once.clone(), computing.clone(), times.clone());
            move || {
                let compute = || {
                    assert_eq!(computing.fetch_add(1, Ordering::Relaxed), 0);
                    thread::yield_now();
                    computing.fetch_sub(1, Ordering::Relaxed);
                    match times.fetch_add(1, Ordering::Relaxed) {
                        0 => Err(Error::io(io::Error::from_raw_os_error(libc::EIO), "x")),
                        _ => Ok(7),
                    }
                };
                u32::from(once.get(compute).is_err_and(|error| error.errno() == libc::EIO))
            }
        };
        let all = [(); 3].map(|()| thread::spawn(get()));
        let failed: u32 = all.into_iter().map(|one| one.join().unwrap()).sum();
        assert_eq!((failed, times.load(Ordering::Relaxed), once.ready().unwrap().unwrap()), (1, 2, &7));
    });
}

#[test]
fn after_a_panic_the_next_caller_computes() {
    check(Time::Passes, || {
        let once = Arc::new(Once::new());
        let same = once.clone();
        let panics = thread::spawn(move || {
            let get = || same.get(|| resume_unwind(Box::new("on purpose"))).map(|value| *value);
            catch_unwind(AssertUnwindSafe(get)).map_or(8, Result::unwrap)
        });
        assert_eq!(once.get(|| Ok(8)).unwrap(), &8);
        assert_eq!(panics.join().unwrap(), 8);
    });
}

#[test]
fn who_gives_up_waits_no_longer_and_the_others_get_the_value() {
    check(Time::Passes, || {
        let (once, mine, (go, wait)) = (Arc::new(Once::new()), Wanted::default(), mpsc::channel::<()>());
        let (begun, has_begun) = mpsc::channel();
        let (first, second, third) = (once.clone(), once.clone(), once.clone());
        let computes = thread::spawn(move || {
            let compute = || {
                begun.send(()).unwrap();
                wait.recv().unwrap();
                Ok(9)
            };
            *first.get(compute).unwrap()
        });
        has_begun.recv().unwrap();
        let asks = mine.clone();
        let gives_up = thread::spawn(move || asks.within(|| second.get(|| Ok(1)).map(|value| *value)));
        let waits = thread::spawn(move || *third.get(|| Ok(2)).unwrap());
        mine.give_up();
        // Before there is a value.
        assert!(is_given_up(&gives_up.join().unwrap().unwrap_err()));
        go.send(()).unwrap();
        assert_eq!((computes.join().unwrap(), waits.join().unwrap()), (9, 9));
    });
}
