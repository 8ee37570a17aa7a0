//! A hash index over entries that are kept elsewhere: finds the number of an entry by the hash of its key.
//!
//! Each index keys its hash with new random numbers: names come from the file, and its author must not be able to
//! choose names that all collide.
#![forbid(unsafe_code)]

use std::hash::{BuildHasher, RandomState};

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};

use super::{Account, Records};

/// Slots of the smallest table.
const SMALLEST: u64 = 16;

/// An open-addressed table, at most two thirds full.
#[derive(Debug)]
pub struct HashIndex {
    account: Account,
    /// In the upper half 32 bits of a hash, in the lower half the number of its entry plus one; 0 if free. A power of
    /// two long.
    slots: Records<1>,
    count: u64,
    hash: RandomState,
}

impl HashIndex {
    /// Creates an empty index.
    pub fn new(account: &Account) -> Self {
        let slots = Records::new(account, WHAT);
        Self { account: account.clone(), slots, count: 0, hash: RandomState::new() }
    }

    /// The hash of a key.
    pub fn hash(&self, key: &[u8]) -> u32 {
        (self.hash.hash_one(key) >> 32) as u32
    }

    /// The number of the entry with hash `hash` that is the one wanted, according to `is`.
    pub fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = to_u64(self.slots.len()).checked_sub(1)?;
        let mut at = u64::from(hash) & mask;
        loop {
            let [slot] = self.slots.get(at as usize)?;
            let number = (slot as u32).checked_sub(1)?;
            if (slot >> 32) as u32 == hash && is(number) {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds the entry `number` under `hash`; its key must be new.
    ///
    /// # Errors
    /// [`Kind::TooLarge`] beyond 4 billion entries; otherwise as [`Records::push`].
    pub fn insert(&mut self, hash: u32, number: u32) -> Result<()> {
        let limit = u64::from(u32::MAX);
        let number = number.checked_add(1).ok_or_else(|| Error::new(Kind::TooLarge { value: limit, limit }, WHAT))?;
        if (self.count + 1) * 3 > to_u64(self.slots.len()) * 2 {
            self.grow()?;
        }
        self.count += 1;
        put(&mut self.slots, u64::from(hash) << 32 | u64::from(number))
    }

    /// Bytes that it takes.
    pub fn weight(&self) -> u64 {
        8 * to_u64(self.slots.len())
    }

    fn grow(&mut self) -> Result<()> {
        let len = (to_u64(self.slots.len()) * 2).max(SMALLEST);
        let mut slots = Records::filled(len as usize, [0], &self.account, WHAT)?;
        for [slot] in (0..self.slots.len()).filter_map(|i| self.slots.get(i)).filter(|&slot| slot != [0]) {
            put(&mut slots, slot)?;
        }
        self.slots = slots;
        Ok(())
    }
}

/// Name of the index in error messages.
const WHAT: &str = "index of names";

/// Puts the nonzero `slot` in the first free place for its hash.
fn put(slots: &mut Records<1>, slot: u64) -> Result<()> {
    let mask = to_u64(slots.len()).wrapping_sub(1);
    let mut at = (slot >> 32) & mask;
    while slots.get(at as usize).is_some_and(|slot| slot != [0]) {
        at = (at + 1) & mask;
    }
    slots.set(at as usize, [slot])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots examined by the longest search.
    fn longest_search(index: &HashIndex) -> usize {
        let full: Vec<bool> = (0..index.slots.len()).map(|i| index.slots.get(i) != Some([0])).collect();
        // Twice, because a run may wrap around.
        let twice = full.iter().chain(&full);
        let runs = twice.scan(0, |run, full| {
            *run = if *full { *run + 1 } else { 0 };
            Some(*run)
        });
        runs.max().unwrap_or(0)
    }

    #[test]
    fn names_chosen_to_fall_on_one_slot_of_an_unkeyed_hash_are_spread() {
        const COUNT: usize = 20_000;
        let mask = (COUNT * 3 / 2).next_power_of_two() - 1;
        // Names that an unkeyed hash, which any author of a file can compute, would put into one 64th of the slots.
        let flood = (0_u64..).map(|i| format!("{i:07x}"));
        let flood = flood.filter(|name| xxhash_rust::xxh3::xxh3_64(name.as_bytes()) as usize & mask < mask / 64);
        let account = Account::new(1 << 30, 0);
        let mut index = HashIndex::new(&account);
        for (number, name) in (0..).zip(flood.take(COUNT)) {
            index.insert(index.hash(name.as_bytes()), number).unwrap();
        }
        let longest = longest_search(&index);
        assert!(longest < 1000, "{longest} slots for one name");
        assert!(index.slots.len() <= 4 * COUNT);
        assert_ne!(HashIndex::new(&account).hash(b"x"), HashIndex::new(&account).hash(b"x"));
    }

    #[test]
    fn two_thirds_of_the_slots_are_used_and_each_takes_eight_bytes() {
        let mut index = HashIndex::new(&Account::new(0, 0));
        assert_eq!((index.weight(), index.find(1, |_| true)), (0, None));
        let weights: Vec<u64> = (0..22_u32)
            .map(|number| {
                index.insert(number.wrapping_mul(0x9E37_79B9), number).unwrap();
                index.weight()
            })
            .collect();
        assert_eq!(weights, [vec![128; 10], vec![256; 11], vec![512]].concat());
    }

    #[test]
    fn an_entry_is_found_by_its_whole_hash_and_only_if_it_is_the_one_wanted() {
        let mut index = HashIndex::new(&Account::new(1 << 20, 0));
        // The same slot of sixteen.
        index.insert(5, 0).unwrap();
        index.insert(5 + 16, 1).unwrap();
        index.insert(5, 2).unwrap();
        assert_eq!(index.find(5 + 16, |_| true), Some(1));
        assert_eq!(index.find(5, |number| number > 0), Some(2));
        assert_eq!((index.find(5, |number| number == 1), index.find(5 + 32, |_| true)), (None, None));
    }
}
