//! External merge sort: runs are sorted in memory, stored in buffers of the account, and merged.
//!
//! Limits: one run of heap; the other runs are charged to the account, which moves them to a file beyond `cache=`.
//! Invariant: O(n log n) in the number of records.
#![forbid(unsafe_code)]
#![warn(clippy::as_conversions, clippy::indexing_slicing)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::account::{Account, Buffer};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};

/// Bytes of a run. A merge buffers one window per run: 32 MiB for 4 GiB of runs.
pub(super) const RUN: usize = 8 << 20;
/// Bytes of a window. It is copied and its pages released at once, because the system may map 2 MiB for one byte.
const WINDOW: usize = 64 << 10;
/// Bytes of a word.
const WORD: usize = 8;

/// Collects records of `N` words, compared word by word.
pub(super) struct Sorter<const N: usize> {
    account: Account,
    what: &'static str,
    open: Vec<[u64; N]>,
    /// Whether the records in `open` were added in ascending order; used if there are no runs.
    ascending: bool,
    runs: Vec<Buffer>,
    most: usize,
}

impl<const N: usize> Sorter<N> {
    /// An empty sorter; `what` names the records in errors.
    pub(super) fn new(account: &Account, what: &'static str) -> Self {
        Self::with_run(account, what, RUN)
    }

    fn with_run(account: &Account, what: &'static str, run: usize) -> Self {
        let most = (run / (N * WORD).max(1)).max(1);
        Self { account: account.clone(), what, open: Vec::new(), ascending: true, runs: Vec::new(), most }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`crate::error::Kind::NoRoom`] if the account is exhausted.
    pub(super) fn push(&mut self, record: [u64; N]) -> Result<()> {
        if self.open.len() >= self.most {
            self.close_run()?;
        }
        self.ascending &= self.open.last().is_none_or(|last| *last <= record);
        self.open.push(record);
        Ok(())
    }

    fn close_run(&mut self) -> Result<()> {
        self.open.sort_unstable();
        let len = self.open.len() * N * WORD;
        let mut run = self.account.buffer(to_u64(len), self.what)?;
        let words = self.open.iter().flatten();
        for (dst, word) in run.as_chunks_mut::<WORD>().0.iter_mut().zip(words) {
            *dst = word.to_le_bytes();
        }
        run.release(0..len);
        self.runs.push(run);
        self.open.clear();
        Ok(())
    }

    /// Passes all records to `each` in ascending order.
    ///
    /// # Errors
    /// As [`Sorter::push`]; fails if `each` fails.
    pub(super) fn finish(mut self, each: &mut dyn FnMut([u64; N]) -> Result<()>) -> Result<()> {
        if self.runs.is_empty() {
            if !self.ascending {
                self.open.sort_unstable();
            }
            return self.open.iter().try_for_each(|record| each(*record));
        }
        if !self.open.is_empty() {
            self.close_run()?;
        }
        self.open = Vec::new();
        let runs: Vec<_> = self.runs.iter().map(|run| (run, 0..run.len())).collect();
        merge(&runs, each)
    }
}

/// Sorts the words of `buffer` run by run, and passes them to `each` in ascending order. The buffer then holds the
/// sorted runs.
///
/// # Errors
/// Fails if `each` fails.
pub(super) fn sorted_words(buffer: &mut Buffer, run: usize, each: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
    let mut ranges = Vec::new();
    let mut words: Vec<u64> = Vec::new();
    let mut at = 0;
    while at < buffer.len() {
        let range = at..buffer.len().min(at + run);
        words.clear();
        let bytes = buffer.get_mut(range.clone()).unwrap_or_default().as_chunks_mut::<WORD>().0;
        words.extend(bytes.iter().map(|word| u64::from_le_bytes(*word)));
        words.sort_unstable();
        for (dst, word) in bytes.iter_mut().zip(&words) {
            *dst = word.to_le_bytes();
        }
        buffer.release(range.clone());
        at = range.end;
        ranges.push(range);
    }
    drop(words);
    let runs: Vec<_> = ranges.into_iter().map(|range| (&*buffer, range)).collect();
    merge(&runs, &mut |[word]| each(word))
}

/// A sorted run during the merge.
struct Head<'a, const N: usize> {
    buffer: &'a Buffer,
    rest: Range<usize>,
    /// Pages before this offset were released.
    released: usize,
    /// Records to come, in reverse order.
    window: Vec<[u64; N]>,
}

impl<const N: usize> Head<'_, N> {
    fn next(&mut self) -> Option<[u64; N]> {
        if self.window.is_empty() {
            self.fill();
        }
        self.window.pop()
    }

    fn fill(&mut self) {
        let size = N * WORD;
        let end = self.rest.end.min(self.rest.start + WINDOW / size * size);
        let bytes = self.buffer.get(self.rest.start..end).unwrap_or_default();
        let record = |bytes: &[u8]| {
            let mut record = [0; N];
            for (word, bytes) in record.iter_mut().zip(bytes.as_chunks::<WORD>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            record
        };
        self.window.extend(bytes.chunks_exact(size).rev().map(record));
        self.rest.start = end;
        self.buffer.release(self.released..end);
        // Only whole pages are released.
        self.released = end - end % WINDOW;
    }
}

fn merge<const N: usize>(runs: &[(&Buffer, Range<usize>)], each: &mut dyn FnMut([u64; N]) -> Result<()>) -> Result<()> {
    let mut heads: Vec<_> = runs
        .iter()
        .map(|(buffer, range)| Head { buffer, rest: range.clone(), released: range.start, window: Vec::new() })
        .collect();
    let mut heap = BinaryHeap::with_capacity(heads.len());
    for (number, head) in (0_u64..).zip(&mut heads) {
        heap.extend(head.next().map(|record| Reverse((record, number))));
    }
    while let Some(mut top) = heap.peek_mut() {
        let Reverse((record, number)) = *top;
        each(record)?;
        let head = heads.get_mut(to_usize(number, "run")?).ok_or_else(|| Error::corrupt("is missing", "run"))?;
        match head.next() {
            Some(next) => *top = Reverse((next, number)),
            None => drop(std::collections::binary_heap::PeekMut::pop(top)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Peaks;

    /// Unordered but reproducible numbers.
    fn numbers(count: u64) -> Vec<u64> {
        (0..count).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40).collect()
    }

    #[test]
    fn records_are_sorted_in_memory_or_on_disk() {
        for (memory, spill) in [(1 << 20, 0), (0, 1 << 20), (5000, 1 << 20)] {
            for count in [0, 1, 63, 64, 65, 1000] {
                let account = Account::new(memory, spill);
                let mut want: Vec<_> = numbers(count).into_iter().map(|n| [n % 10, n]).collect();
                let mut sorter = Sorter::with_run(&account, "records", 1024);
                for record in &want {
                    sorter.push(*record).unwrap();
                }
                want.sort_unstable();
                let mut got = Vec::new();
                let mut each = |record| {
                    got.push(record);
                    Ok(())
                };
                sorter.finish(&mut each).unwrap();
                assert_eq!(got, want, "{memory} {count}");
                assert_eq!(account.memory().used() + account.disk().used(), 0);
            }
        }
    }

    #[test]
    fn words_of_a_buffer_are_sorted() {
        for (memory, spill) in [(1 << 20, 0), (0, 1 << 20)] {
            let account = Account::new(memory, spill);
            let mut want = numbers(3000);
            let mut buffer = account.buffer(24_000, "words").unwrap();
            for (dst, word) in buffer.as_chunks_mut::<8>().0.iter_mut().zip(&want) {
                *dst = word.to_le_bytes();
            }
            want.sort_unstable();
            let mut got = Vec::new();
            sorted_words(&mut buffer, 1024, &mut |word| {
                got.push(word);
                Ok(())
            })
            .unwrap();
            assert_eq!(got, want);
        }
    }

    #[test]
    fn more_than_one_run_is_charged_and_refused_without_room() {
        let account = Account::new(1000, 1500);
        let mut sorter = Sorter::<1>::with_run(&account, "records", 800);
        let pushed = (0..1000).position(|n| sorter.push([n]).is_err());
        assert_eq!(pushed, Some(300));
        assert_eq!(account.peaks(), Peaks { memory: 800, disk: 800, decoded: 0 });
    }
}
