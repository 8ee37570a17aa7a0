//! A turn at holding more than the memory has room for: one at a time.
#![forbid(unsafe_code)]

use std::sync::PoisonError;

use super::Account;
use crate::error::Result;
use crate::sync::{Mutex, MutexGuard};
use crate::wanted::Condition;

/// Whether the turn is taken.
#[derive(Debug, Default)]
pub(super) struct Turns {
    taken: Mutex<bool>,
    freed: Condition,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn, until it is dropped; see [`Account::turn`].
#[derive(Debug)]
pub struct Turn(Account);

impl Account {
    /// Waits for the turn at exceeding the memory: with one holder at a time, the excess of one bounds that of all.
    ///
    /// # Errors
    /// `EINTR` if the work of this thread is not wanted any more.
    pub fn turn(&self) -> Result<Turn> {
        let turns = &self.0.turns;
        *turns.freed.wait_while(&turns.taken, turns.lock(), |taken| *taken)? = true;
        Ok(Turn(self.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let turns = &self.0.0.turns;
        *turns.lock() = false;
        turns.freed.notify_all();
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../tests/models/turn.rs"]
mod models;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::wanted::while_wanted;

    #[test]
    fn one_holder_has_the_turn_and_who_gives_up_waits_no_longer() {
        let account = Account::new(0, 0);
        let turn = account.turn().unwrap();
        let other = account.clone();
        assert!(while_wanted(|| false, || other.turn()).is_err());
        thread::scope(|scope| {
            let next = scope.spawn(|| account.turn().map(drop));
            drop(turn);
            next.join().unwrap().unwrap();
        });
        drop(account.turn().unwrap());
    }
}
