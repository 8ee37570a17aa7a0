//! Models of the threads of checks.

use super::*;
use crate::sync::model::{Time, check};
use crate::sync::thread;

#[test]
fn no_more_helpers_than_threads_are_out_and_all_come_back() {
    check(Time::Passes, || {
        let (threads, out) = (Threads::new(4), Arc::new(AtomicUsize::new(0)));
        let all = [(); 3].map(|()| {
            let (threads, out) = (threads.clone(), out.clone());
            thread::spawn(move || {
                let helpers = threads.helpers(2);
                assert!(out.fetch_add(helpers.count(), Ordering::SeqCst) + helpers.count() <= 3);
                out.fetch_sub(helpers.count(), Ordering::SeqCst);
            })
        });
        all.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(threads.helpers(9).count(), 3);
    });
}

#[test]
fn checks_of_a_closed_container_end() {
    check(Time::Stands, || {
        let threads = Threads::new(2);
        let (tx, rx) = shuttle::sync::mpsc::channel();
        for _ in 0..3 {
            let (mine, tx) = (threads.clone(), tx.clone());
            threads.run(Box::new(move || {
                while mine.check_open("x").is_ok() {
                    thread::yield_now();
                }
                tx.send(()).unwrap();
            }));
        }
        threads.close();
        drop((threads, tx));
        assert_eq!(rx.into_iter().count(), 3);
    });
}
