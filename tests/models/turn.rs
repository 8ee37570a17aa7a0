//! A model of the turns at holding more than the memory has room for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::sync::model::{Time, check, later};
use crate::sync::thread;
use crate::wanted::Wanted;

#[test]
fn one_at_a_time_has_the_turn_and_all_have_had_it_but_who_gave_up() {
    check(Time::Passes, || {
        let (account, holders, mine) = (Account::new(0, 0), Arc::new(AtomicU32::new(0)), Wanted::default());
        let takes = || {
            let (account, holders) = (account.clone(), holders.clone());
            move || {
                let turn = account.turn()?;
                assert_eq!(holders.fetch_add(1, Ordering::Relaxed), 0);
                thread::yield_now();
                holders.fetch_sub(1, Ordering::Relaxed);
                drop(turn);
                Ok(())
            }
        };
        let (given_up, asks) = (takes(), mine.clone());
        let given_up = thread::spawn(move || _ = asks.within(given_up));
        let all: [thread::JoinHandle<Result<()>>; 3] = [(); 3].map(|()| thread::spawn(takes()));
        later();
        mine.give_up();
        all.into_iter().for_each(|one| one.join().unwrap().unwrap());
        given_up.join().unwrap();
    });
}
