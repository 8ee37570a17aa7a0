//! A growing list of fixed-size records, for tables with an entry for each part of a container.
//!
//! The records are kept in [`Chunks`] of the account. The last ones of a list that is not complete are not charged.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::limits::Charge;

use super::Account;
use super::chunks::{CHUNK, Chunks};

/// A list of records of `WORDS` numbers each.
#[derive(Debug)]
pub struct Records<const WORDS: usize> {
    chunks: Chunks,
    /// The records after the last chunk.
    tail: Vec<[u64; WORDS]>,
    /// For the tail of a finished list.
    tail_charge: Option<Charge>,
    len: usize,
}

impl<const WORDS: usize> Records<WORDS> {
    /// Bytes of a record.
    const SIZE: usize = WORDS.saturating_mul(8);
    /// Records of a chunk.
    const PER_CHUNK: usize = match CHUNK.checked_div(Self::SIZE) {
        Some(n) => n,
        None => 1,
    };

    /// Creates an empty list; `what` names it in errors.
    pub fn new(account: &Account, what: &'static str) -> Self {
        Self { chunks: Chunks::new(account, what), tail: Vec::new(), tail_charge: None, len: 0 }
    }

    /// Creates a list of `len` records `record`, which are then set in any order.
    ///
    /// # Errors
    /// As [`Records::push`].
    pub fn filled(len: usize, record: [u64; WORDS], account: &Account, what: &'static str) -> Result<Self> {
        let mut list = Self { chunks: Chunks::random(account, what), ..Self::new(account, what) };
        (0..len).try_for_each(|_| list.push(record))?;
        list.finish()?;
        Ok(list)
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if neither memory nor disk space is left; [`Kind::Io`] if the allocation or the file fails.
    pub fn push(&mut self, record: [u64; WORDS]) -> Result<()> {
        self.tail.push(record);
        if self.tail.len() >= Self::PER_CHUNK
            && let Err(error) = self.pack(CHUNK)
        {
            self.tail.pop();
            return Err(error);
        }
        self.len = self.len.saturating_add(1);
        Ok(())
    }

    /// Marks the list as complete: frees unused memory, and charges all of it. No record may be added afterwards.
    ///
    /// # Errors
    /// As [`Records::push`].
    pub fn finish(&mut self) -> Result<()> {
        self.tail.shrink_to_fit();
        self.tail_charge = None;
        let bytes = self.tail.len().saturating_mul(Self::SIZE);
        match self.chunks.account().charge_list(to_u64(bytes), self.chunks.what()) {
            Ok(charge) => self.tail_charge = Some(charge),
            // There may be room on the disk.
            Err(_) => self.pack(bytes)?,
        }
        Ok(())
    }

    /// Moves the records in the tail to a chunk of `len` bytes.
    fn pack(&mut self, len: usize) -> Result<()> {
        let tail = &self.tail;
        self.chunks.push(len, |bytes| {
            for (place, record) in bytes.chunks_exact_mut(Self::SIZE).zip(tail) {
                write(place, record);
            }
        })?;
        self.tail.clear();
        Ok(())
    }

    /// Record `index`.
    pub fn get(&self, index: usize) -> Option<[u64; WORDS]> {
        let chunk = index.checked_div(Self::PER_CHUNK)?;
        if chunk == self.chunks.len() {
            return self.tail.get(index.checked_rem(Self::PER_CHUNK)?).copied();
        }
        let words = self.chunks.get(chunk, Self::range(index))?.as_chunks().0;
        let mut record = [0; WORDS];
        for (word, bytes) in record.iter_mut().zip(words) {
            *word = u64::from_le_bytes(*bytes);
        }
        Some(record)
    }

    /// The number of records at the start of the list for which `is_before` holds; it must hold for no later one.
    pub fn partition_point(&self, is_before: impl Fn(&[u64; WORDS]) -> bool) -> usize {
        let (mut from, mut to) = (0, self.len);
        while from < to {
            let middle = from.midpoint(to);
            match self.get(middle) {
                Some(record) if is_before(&record) => from = middle.saturating_add(1),
                _ => to = middle,
            }
        }
        from
    }

    /// Replaces record `index`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is none.
    pub fn set(&mut self, index: usize, record: [u64; WORDS]) -> Result<()> {
        let what = self.chunks.what();
        let none = || Error::new(Kind::NotFound, what);
        let chunk = index.checked_div(Self::PER_CHUNK).ok_or_else(none)?;
        if chunk == self.chunks.len() {
            let place = index.checked_rem(Self::PER_CHUNK).and_then(|place| self.tail.get_mut(place));
            *place.ok_or_else(none)? = record;
        } else {
            write(self.chunks.get_mut(chunk, Self::range(index)).ok_or_else(none)?, &record);
        }
        Ok(())
    }

    /// The bytes of record `index` in its chunk.
    fn range(index: usize) -> Range<usize> {
        let start = index.checked_rem(Self::PER_CHUNK).unwrap_or(0).saturating_mul(Self::SIZE);
        start..start.saturating_add(Self::SIZE)
    }
}

fn write(place: &mut [u8], record: &[u64]) {
    for (bytes, word) in place.as_chunks_mut().0.iter_mut().zip(record) {
        *bytes = word.to_le_bytes();
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::as_conversions, reason = "a test fails by panicking")]
mod tests {
    use super::super::LISTS;
    use super::*;

    const N: u64 = 300_000;

    fn fill(account: &Account, n: u64) -> Result<Records<3>> {
        let mut list = Records::new(account, "list");
        (0..n).try_for_each(|i| list.push([i, i * i, !i]))?;
        list.finish()?;
        Ok(list)
    }

    #[test]
    fn records_are_the_same_in_memory_in_a_file_and_beyond_the_account() {
        for (memory, disk) in [(64 << 20, 0), (2 << 20, 64 << 20), (0, 64 << 20), (1 << 20, 0)] {
            let account = Account::new(memory, disk);
            let mut list = fill(&account, N).unwrap();
            assert_eq!((list.len() as u64, list.is_empty()), (N, false));
            assert!(fill(&account, 0).unwrap().is_empty());
            for i in [0, 1, 43_690, 43_691, N / 2, N - 1] {
                assert_eq!(list.get(i as usize), Some([i, i * i, !i]), "{i}");
                list.set(i as usize, [7, i, 8]).unwrap();
                assert_eq!(list.get(i as usize), Some([7, i, 8]), "{i}");
            }
            assert!(list.get(N as usize).is_none() && list.set(N as usize, [0; 3]).is_err());
            let peaks = account.peaks();
            assert!(peaks.memory <= memory && peaks.disk <= disk, "{peaks:?}");
            drop(list);
            assert_eq!((account.memory().used(), account.disk().used()), (0, 0));
        }
    }

    #[test]
    fn the_partition_point_is_that_of_a_slice() {
        for n in [0, 1, 2, 7, 100_000] {
            let list = fill(&Account::new(0, 64 << 20), n).unwrap();
            for at in [0, 1, 3, 6, 7, n / 2, n.saturating_sub(1), n] {
                assert_eq!(list.partition_point(|&[i, ..]| i < at) as u64, at.min(n), "{at} of {n}");
            }
        }
    }

    #[test]
    fn lists_larger_than_the_account_and_the_allowance_are_refused() {
        let account = Account::new(0, 0);
        let e = fill(&account, LISTS / 24 + 100_000).unwrap_err();
        assert!(matches!(e.kind(), Kind::NoRoom { .. }), "{e}");
        // All lists together, the chunks that are not full included.
        let mut lists = Vec::new();
        while let Ok(list) = fill(&account, 70_000) {
            lists.push(list);
            assert!(lists.len() as u64 * 70_000 * 24 <= LISTS);
        }
        assert!((lists.len() as u64 + 1) * 70_000 * 24 + (1 << 20) > LISTS);
    }

    #[test]
    fn a_list_that_is_set_in_any_order_takes_the_allowance_before_the_disk_and_is_named_in_errors() {
        let account = Account::new(0, 1 << 20);
        let mut list = Records::filled(20_000, [7, 8, 9], &account, "list").unwrap();
        assert_eq!((list.chunks.len(), account.disk().used()), (1, 0));
        assert!(list.set(20_000, [0; 3]).unwrap_err().to_string().contains("list"));
    }

    #[test]
    fn the_end_of_a_list_goes_to_the_disk_if_nothing_else_has_room() {
        let account = Account::new(0, 1 << 20);
        let allowance = account.charge_list(LISTS, "others").unwrap();
        let list = fill(&account, 1000).unwrap();
        assert_eq!((list.len(), account.disk().used()), (1000, 24_000));
        assert_eq!((list.get(999), list.get(1000)), (Some([999, 998_001, !999]), None));
        drop((list, allowance));
        assert_eq!(account.disk().used(), 0);
    }
}
