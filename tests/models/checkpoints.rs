//! A model of a scan that several threads need.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::testing::context;
use super::*;
use crate::sync::model::{Time, check};
use crate::sync::thread;

#[test]
fn nothing_is_scanned_twice_and_each_waits_for_its_own_entry() {
    check(Time::Stands, || {
        let points = Arc::new(Checkpoints::new(5, &context(), "x"));
        let scanned = Arc::new(AtomicU64::new(0));
        let all = [1, 2, 4].map(|until| {
            let (points, scanned) = (points.clone(), scanned.clone());
            thread::spawn(move || {
                let next = |frontier: Frontier, entries: &mut Vec<u64>| {
                    scanned.fetch_add(1, Ordering::Relaxed);
                    thread::yield_now();
                    entries.push(frontier.last + 3);
                    Ok(())
                };
                points.reach(|frontier| frontier.scanned >= until, next).unwrap();
                assert_eq!(points.get(until).unwrap(), Some(3 * until));
            })
        });
        all.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(scanned.load(Ordering::Relaxed), 4);
    });
}
