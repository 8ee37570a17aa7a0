//! The names of one directory: in order and indexed by hash, with a few bytes of overhead per name. A few names are
//! compared one by one and have no table.
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
    /// For more than [`FEW`] names.
    table: Option<Box<Table>>,
}

/// A hash table with open addressing.
#[derive(Debug, Default)]
struct Table {
    /// The number of a name plus one, or 0 if free. A power of two long, at most two thirds full.
    slots: Vec<u32>,
    hash: RandomState,
}

/// Maximum number of names without a table.
const FEW: usize = 8;

impl Names {
    /// Name number `index`.
    pub(super) fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).and_then(|i| self.ends.get(i)).map_or(0, |&end| end as usize);
        self.text.get(start..end)
    }

    /// The number of `name`.
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        let Some(table) = &self.table else {
            return (0..self.ends.len()).find(|&index| self.is(index, name));
        };
        let slot = table.slots.get(self.slot(table, name)?)?;
        (*slot as usize).checked_sub(1)
    }

    /// Adds `name` unless it is present; returns whether it was added.
    ///
    /// # Errors
    /// [`Kind::TooLarge`] beyond 4 GiB of names.
    pub(super) fn insert(&mut self, name: &str) -> Result<bool> {
        let count = self.ends.len() + 1;
        if count > FEW && self.table.as_ref().is_none_or(|table| count * 3 > table.slots.len() * 2) {
            self.grow();
        }
        let slot = match &self.table {
            None if self.find(name.as_bytes()).is_some() => return Ok(false),
            None => None,
            Some(table) => match self.slot(table, name.as_bytes()) {
                Some(slot) if table.slots.get(slot) == Some(&0) => Some(slot),
                _ => return Ok(false),
            },
        };
        let limit = u64::from(u32::MAX);
        let too_large = |n: usize| Error::new(Kind::TooLarge { value: to_u64(n), limit }, "names of a directory");
        let end = self.text.len() + name.len();
        let end = u32::try_from(end).map_err(|_| too_large(end))?;
        let number = u32::try_from(count).map_err(|_| too_large(count))?;
        if let (Some(table), Some(slot)) = (&mut self.table, slot)
            && let Some(slot) = table.slots.get_mut(slot)
        {
            *slot = number;
        }
        self.text.push_str(name);
        self.ends.push(end);
        Ok(true)
    }

    /// About how many bytes of memory they take.
    pub(super) fn weight(&self) -> u64 {
        let slots = self.table.as_ref().map_or(0, |table| table.slots.len());
        to_u64(self.text.len()).saturating_add(4 * to_u64(self.ends.len() + slots))
    }

    /// Releases spare capacity.
    pub(super) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Whether name number `index` is `name`.
    fn is(&self, index: usize, name: &[u8]) -> bool {
        self.get(index).is_some_and(|n| n.as_bytes() == name)
    }

    /// The slot of `name`, or the free slot where it belongs; `None` while there are no slots.
    fn slot(&self, table: &Table, name: &[u8]) -> Option<usize> {
        let mask = table.slots.len().checked_sub(1)?;
        let mut at = table.hash.hash_one(name) as usize & mask;
        loop {
            match table.slots.get(at)? {
                0 => return Some(at),
                number if self.is(*number as usize - 1, name) => return Some(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    fn grow(&mut self) {
        let mut table = self.table.take().unwrap_or_default();
        table.slots = vec![0; (table.slots.len() * 2).max(2 * FEW)];
        for number in 0..self.ends.len() {
            let slot = self.get(number).and_then(|name| self.slot(&table, name.as_bytes()));
            if let Some(slot) = slot.and_then(|slot| table.slots.get_mut(slot)) {
                *slot = number as u32 + 1;
            }
        }
        self.table = Some(table);
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
        assert!(names.table.unwrap().slots.len() <= 4 * names.ends.len());
    }

    #[test]
    fn a_few_names_have_no_table_and_are_found_as_well() {
        let mut names = Names::default();
        for i in 0..2 * FEW {
            assert!(i >= FEW || names.table.is_none(), "{i}");
            assert!(names.insert(&i.to_string()).unwrap());
            assert!(!names.insert(&(i / 2).to_string()).unwrap());
            assert_eq!(names.find((i / 2).to_string().as_bytes()), Some(i / 2));
            assert_eq!(names.find((i + 1).to_string().as_bytes()), None);
        }
    }

    /// Slots examined by the longest search.
    fn longest_search(names: &Names) -> usize {
        let full: Vec<bool> = names.table.as_ref().unwrap().slots.iter().map(|slot| *slot != 0).collect();
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
        assert_ne!(Table::default().hash.hash_one("x"), Table::default().hash.hash_one("x"));
    }
}
