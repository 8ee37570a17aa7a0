//! Sorting records of a position and a value by position, with bounded working memory.
//!
//! Runs of [`RUN`] records are sorted in place, one at a time. If runs overlap, all are merged into a second store. Of
//! several records for one position, the one stored last wins.
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::account::Account;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::fzm::stage::array_store::ArrayStore;
use crate::format::fzm::stage::types::Element;

/// Records sorted at a time.
const RUN: u64 = 1 << 18;
/// Bytes that a merge reads ahead, over all runs.
const AHEAD: u64 = 4 << 20;

/// Bytes of a record.
pub(super) const fn record<T: Element>() -> u64 {
    4 + T::SIZE as u64
}

/// The position at the start of a record.
///
/// # Errors
/// Fails if the record is too short.
pub(super) fn position(record: &[u8]) -> Result<u32> {
    let bytes = record.first_chunk().ok_or_else(|| Error::corrupt("a record without a position", "outliers"))?;
    Ok(u32::from_le_bytes(*bytes))
}

/// Sorts the first `n` of `records` by position, without duplicates. Returns them and their number.
pub(super) fn by_position<T: Element>(
    mut records: ArrayStore,
    n: u64,
    account: &Account,
    what: &'static str,
) -> Result<(ArrayStore, u64)> {
    let mut runs = Vec::new();
    let mut first = 0;
    while first < n {
        let count = RUN.min(n - first);
        let size = to_usize(record::<T>(), what)?;
        let bytes = records.get_mut(first * record::<T>(), to_usize(count, what)? * size)?;
        runs.push(SortedRun { at: first, left: sort_run(bytes, size)? });
        first += count;
    }
    if let [run] = runs.as_slice() {
        return Ok((records, run.left));
    }
    let mut merged = ArrayStore::new(n * record::<T>(), account, what)?;
    let count = merge::<T>(&records, &runs, &mut merged, what)?;
    Ok((merged, count))
}

/// Sorts records of `size` bytes in place and moves the unique ones to the front. Returns their number.
fn sort_run(bytes: &mut [u8], size: usize) -> Result<u64> {
    let key = |(record, i): (&[u8], u64)| Ok(u64::from(position(record)?) << 32 | i);
    let mut order = bytes.chunks_exact(size).zip(0..).map(key).collect::<Result<Vec<u64>>>()?;
    order.sort_unstable();
    order.dedup_by(|next, kept| {
        let same = *next >> 32 == *kept >> 32;
        if same {
            *kept = *next;
        }
        same
    });
    let stored = bytes.to_vec();
    for (own, key) in bytes.chunks_exact_mut(size).zip(&order) {
        let from = (*key & u64::from(u32::MAX)) as usize * size;
        let record = stored.get(from..from + size).ok_or_else(|| Error::corrupt("a record is missing", "outliers"))?;
        own.copy_from_slice(record);
    }
    Ok(to_u64(order.len()))
}

/// A sorted run: its next record, and the number left.
#[derive(Debug, Clone, Copy)]
struct SortedRun {
    at: u64,
    left: u64,
}

/// A run being read.
struct RunReader {
    run: SortedRun,
    /// Records read ahead, and the offset of the current one.
    ahead: Vec<u8>,
    next: usize,
}

impl RunReader {
    /// Advances to the next record; returns whether there is one.
    fn advance(&mut self, records: &ArrayStore, size: u64, batch: u64) -> Result<bool> {
        self.next += to_usize(size, "outliers")?;
        if self.next < self.ahead.len() {
            return Ok(true);
        }
        let n = batch.min(self.run.left);
        self.ahead.clear();
        self.ahead.extend_from_slice(records.get(self.run.at * size, to_usize(n * size, "outliers")?)?);
        self.next = 0;
        self.run = SortedRun { at: self.run.at + n, left: self.run.left - n };
        Ok(n > 0)
    }

    fn record(&self, size: usize) -> Result<&[u8]> {
        let record = self.ahead.get(self.next..).and_then(|rest| rest.get(..size));
        record.ok_or_else(|| Error::corrupt("a record is missing", "outliers"))
    }
}

/// Merges `runs` of `records` into `merged`; for equal positions the last run wins. Returns the number of records
/// written.
fn merge<T: Element>(
    records: &ArrayStore,
    runs: &[SortedRun],
    merged: &mut ArrayStore,
    what: &'static str,
) -> Result<u64> {
    let size = to_usize(record::<T>(), what)?;
    let batch = (AHEAD / record::<T>() / to_u64(runs.len()).max(1)).clamp(16, 4096);
    let mut readers = Vec::with_capacity(runs.len());
    let mut heap = BinaryHeap::with_capacity(runs.len());
    let key = |reader: &RunReader, run: u64| Ok::<u64, Error>(u64::from(position(reader.record(size)?)?) << 32 | run);
    for (run, &own) in (0..).zip(runs) {
        let mut reader = RunReader { run: own, ahead: Vec::new(), next: 0 };
        if reader.advance(records, record::<T>(), batch)? {
            heap.push(Reverse(key(&reader, run)?));
        }
        readers.push(reader);
    }
    let (mut out, mut count, mut last) = (Vec::with_capacity(size << 12), 0, None);
    while let Some(mut top) = heap.peek_mut() {
        let run = top.0 & u64::from(u32::MAX);
        let Some(reader) = readers.get_mut(to_usize(run, what)?) else {
            return Err(Error::corrupt("a run is missing", what));
        };
        if last == Some(top.0 >> 32) {
            out.truncate(out.len().saturating_sub(size));
        } else if out.len() >= size << 12 {
            // Only when the next record has a new position: a duplicate replaces the last one in `out`.
            merged.write(count * record::<T>(), &out)?;
            count += to_u64(out.len() / size);
            out.clear();
        }
        last = Some(top.0 >> 32);
        out.extend_from_slice(reader.record(size)?);
        if reader.advance(records, record::<T>(), batch)? {
            top.0 = key(reader, run)?;
        } else {
            PeekMut::pop(top);
        }
    }
    merged.write(count * record::<T>(), &out)?;
    Ok(count + to_u64(out.len() / size))
}
