//! The names of one directory: in order and indexed by hash, with a few bytes of overhead per name.
//!
//! Each table keys its hash with new random numbers: names come from the file, and its author must not be able to
//! choose names that all collide.
#![forbid(unsafe_code)]

use std::hash::{BuildHasher, RandomState};

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};

/// Unique names, numbered in insertion order.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// All names concatenated, and the end of each.
    text: String,
    ends: Vec<u32>,
    /// Open addressing: the number of a name plus one, or 0 if free. A power of two long, at most two thirds full.
    slots: Vec<u32>,
    hash: RandomState,
}

impl Names {
    /// Name number `index`.
    pub(super) fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).and_then(|i| self.ends.get(i)).map_or(0, |&end| end as usize);
        self.text.get(start..end)
    }

    /// The number of `name`.
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        let slot = self.slots.get(self.slot(name)?)?;
        (*slot as usize).checked_sub(1)
    }

    /// Adds `name` unless it is present; returns whether it was added.
    ///
    /// # Errors
    /// [`Kind::TooLarge`] beyond 4 GiB of names.
    pub(super) fn insert(&mut self, name: &str) -> Result<bool> {
        if (self.ends.len() + 1) * 3 > self.slots.len() * 2 {
            self.grow();
        }
        let Some(slot) = self.slot(name.as_bytes()) else { return Ok(false) };
        let Some(slot) = self.slots.get_mut(slot).filter(|slot| **slot == 0) else { return Ok(false) };
        let limit = u64::from(u32::MAX);
        let too_large = |n: usize| Error::new(Kind::TooLarge { value: to_u64(n), limit }, "names of a directory");
        let end = self.text.len() + name.len();
        let end = u32::try_from(end).map_err(|_| too_large(end))?;
        *slot = u32::try_from(self.ends.len() + 1).map_err(|_| too_large(self.ends.len()))?;
        self.text.push_str(name);
        self.ends.push(end);
        Ok(true)
    }

    /// Releases spare capacity.
    pub(super) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// The slot of `name`, or the free slot where it belongs; `None` while there are no slots.
    fn slot(&self, name: &[u8]) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = self.hash.hash_one(name) as usize & mask;
        loop {
            match self.slots.get(at)? {
                0 => return Some(at),
                number if self.get(*number as usize - 1).is_some_and(|n| n.as_bytes() == name) => return Some(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    fn grow(&mut self) {
        let len = (self.slots.len() * 2).max(8);
        self.slots = vec![0; len];
        for number in 0..self.ends.len() {
            let slot = self.get(number).and_then(|name| self.slot(name.as_bytes()));
            if let Some(slot) = slot.and_then(|slot| self.slots.get_mut(slot)) {
                *slot = number as u32 + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_under_its_number_and_no_other_is() {
        let mut names = Names::default();
        assert_eq!(names.find(b"x"), None);
        for i in 0..10_000 {
            assert!(names.insert(&format!("name {i}")).unwrap());
        }
        assert!(!names.insert("name 77").unwrap());
        names.shrink();
        for i in 0..10_000 {
            let name = format!("name {i}");
            assert_eq!((names.get(i), names.find(name.as_bytes())), (Some(name.as_str()), Some(i)));
        }
        assert_eq!((names.find(b"name 10000"), names.find(b""), names.get(10_000)), (None, None, None));
        assert!(names.slots.len() <= 4 * names.ends.len());
    }

    /// Slots examined by the longest search.
    fn longest_search(names: &Names) -> usize {
        let full: Vec<bool> = names.slots.iter().map(|slot| *slot != 0).collect();
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
        let mut names = Names::default();
        for name in flood.take(COUNT) {
            assert!(names.insert(&name).unwrap());
        }
        let longest = longest_search(&names);
        assert!(longest < 1000, "{longest} slots for one name");
        assert_ne!(Names::default().hash.hash_one("x"), Names::default().hash.hash_one("x"));
    }
}
