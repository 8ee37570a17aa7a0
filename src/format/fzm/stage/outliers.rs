//! Outliers: values that a quantizer could not code, stored aside with their positions.
//!
//! Reference: sections 5.1 and 5.2. They are stored in any order; the first read sorts them by
//! position, once, and charges what is kept to the budget. A window then finds its own by a search.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::lazy::Lazy;
use super::types::{Element, elements};
use super::window::Scratch;
use crate::bytes::{narrow, wide};
use crate::error::{Error, Kind, Result};
use crate::format::fzm::stream::Stream;
use crate::limits::{Budget, Charge};

/// The names of the three ports, for errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub(super) values: &'static str,
    pub(super) indices: &'static str,
}

/// The three ports, and what is made of them.
pub(super) struct Outliers<T> {
    values: Arc<dyn Stream>,
    indices: Arc<dyn Stream>,
    count: Arc<dyn Stream>,
    names: Names,
    /// Elements of the array: every position is below.
    len: u64,
    budget: Budget,
    sorted: Lazy<Sorted<T>>,
}

/// Positions, ascending, each once, and their values.
pub(super) struct Sorted<T> {
    at: Vec<u32>,
    value: Vec<T>,
    _charge: Option<Charge>,
}

impl<T> Sorted<T> {
    /// Those at positions `from..to`.
    pub(super) fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &T)> {
        let (at, value) = self.slices(from, to);
        at.iter().map(|&at| u64::from(at)).zip(value)
    }

    /// The positions in `from..to`, and their values.
    fn slices(&self, from: u64, to: u64) -> (&[u32], &[T]) {
        let place = |position: u64| self.at.partition_point(|&at| u64::from(at) < position);
        let range = if self.at.is_empty() { 0..0 } else { place(from)..place(to) };
        (self.at.get(range.clone()).unwrap_or_default(), self.value.get(range).unwrap_or_default())
    }
}

impl<T: Element> Sorted<T> {
    /// The positions in `positions`, and the bytes of their values: for a device.
    pub(super) fn bytes(&self, positions: Range<u64>) -> (Vec<u32>, Vec<u8>) {
        let (at, value) = self.slices(positions.start, positions.end);
        let mut bytes = vec![0; value.len() * T::SIZE];
        bytes.chunks_exact_mut(T::SIZE).zip(value).for_each(|(own, value)| value.put(own));
        (at.to_vec(), bytes)
    }
}

/// Elements that are read at a time.
const BATCH: u64 = 1 << 14;

impl<T: Element> Outliers<T> {
    /// The outliers of an array of `len` elements.
    pub(super) fn new([values, indices, count]: [Arc<dyn Stream>; 3], names: Names, len: u64, budget: Budget) -> Self {
        Self { values, indices, count, names, len, budget, sorted: Lazy::new() }
    }

    /// The outliers by position, read and sorted by the first call.
    ///
    /// # Errors
    /// Where a port is broken, a position lies beyond the array, or the budget is used up.
    pub(super) fn sorted(&self) -> Result<&Sorted<T>> {
        self.sorted.get(|| self.sort())
    }

    /// How many are valid: a port that went through other stages is as long as its capacity.
    fn valid(&self) -> Result<u64> {
        let stored = self.values.len() / wide(T::SIZE);
        if stored == 0 {
            return Ok(0);
        }
        if self.count.len() < 4 {
            return Err(Error::new(Kind::Truncated { need: 4, have: self.count.len() }, "outlier_count"));
        }
        let mut count = [0; 4];
        self.count.read(0, &mut count)?;
        Ok(u64::from(u32::from_le_bytes(count)).min(stored).min(self.indices.len() / 4))
    }

    fn sort(&self) -> Result<Sorted<T>> {
        let n = self.valid()?;
        if n == 0 {
            return Ok(Sorted { at: Vec::new(), value: Vec::new(), _charge: None });
        }
        let what = self.names.values;
        let entry = wide(size_of::<u32>() + size_of::<T>());
        let charge = self.budget.charge(n.saturating_mul(entry), what)?;
        let mut at = Vec::with_capacity(narrow(n, what)?);
        each::<u32>(&*self.indices, n, |i| {
            if u64::from(i) >= self.len {
                return Err(Error::corrupt(format!("{i} in an array of {}", self.len), self.names.indices));
            }
            at.push(i);
            Ok(())
        })?;
        let mut value = Vec::with_capacity(at.len());
        each::<T>(&*self.values, n, |v| {
            value.push(v);
            Ok(())
        })?;
        if !at.is_sorted_by(|a, b| a < b) {
            // The order of the positions, and how far the value of each lies from its place.
            let _working = self.budget.charge(n.saturating_mul(8 + entry), what)?;
            let mut order: Vec<u64> = at.iter().zip(0_u64..).map(|(&at, i)| u64::from(at) << 32 | i).collect();
            order.sort_unstable();
            // Positions are unique in good files; of several the one stored last stays.
            order.dedup_by(|next, kept| {
                let same = *next >> 32 == *kept >> 32;
                if same {
                    *kept = *next;
                }
                same
            });
            at = order.iter().map(|&key| (key >> 32) as u32).collect();
            value = order.iter().filter_map(|&key| value.get(key as u32 as usize).copied()).collect();
        }
        Ok(Sorted { at, value, _charge: Some(charge) })
    }
}

/// Calls `take` with the first `n` elements of `stream`.
fn each<E: Element>(stream: &dyn Stream, n: u64, mut take: impl FnMut(E) -> Result<()>) -> Result<()> {
    let mut first = 0;
    while first < n {
        let batch = BATCH.min(n - first);
        let mut bytes = Scratch::bytes(narrow(batch, "outliers")? * E::SIZE);
        stream.read(first * wide(E::SIZE), &mut bytes)?;
        elements(&bytes).try_for_each(&mut take)?;
        first += batch;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::Memory;
    use super::*;

    fn sorted(values: &[f32], indices: &[u32], count: &[u8], budget: u64) -> Result<Vec<(u64, f32)>> {
        let values = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let indices = indices.iter().flat_map(|v| v.to_le_bytes()).collect();
        let ports = [values, indices, count.to_vec()].map(|b| Arc::new(Memory(b)) as Arc<dyn Stream>);
        let names = Names { values: "outlier_errors", indices: "outlier_indices" };
        let outliers = Outliers::new(ports, names, 10, Budget::new(budget));
        outliers.sorted().map(|s| s.between(0, 10).map(|(at, v)| (at, *v)).collect())
    }

    #[test]
    fn outliers_come_in_order_of_position_however_they_are_stored() {
        let all = [(1, 10.0), (4, 40.0), (9, 90.0)];
        assert_eq!(sorted(&[40.0, 90.0, 10.0], &[4, 9, 1], &[3, 0, 0, 0], 1000).unwrap(), all);
        assert_eq!(sorted(&[10.0, 40.0, 90.0], &[1, 4, 9], &[9, 0, 0, 0], 24).unwrap(), all);
        assert_eq!(sorted(&[5.0, 40.0, 10.0, 6.0], &[1, 4, 1], &[3, 0, 0, 0], 1000).unwrap(), all[..2]);
    }

    #[test]
    fn the_shortest_of_count_values_and_indices_counts() {
        assert_eq!(sorted(&[1.0, 2.0], &[3, 4], &[1, 0, 0, 0], 100).unwrap(), [(3, 1.0)]);
        assert_eq!(sorted(&[1.0, 2.0], &[3], &[2, 0, 0, 0], 100).unwrap(), [(3, 1.0)]);
        assert_eq!(sorted(&[1.0], &[3, 77], &[2, 0, 0, 0], 100).unwrap(), [(3, 1.0)]);
        assert_eq!(sorted(&[], &[3], &[], 0).unwrap(), []);
    }

    #[test]
    fn positions_beyond_the_array_and_more_than_the_budget_are_refused() {
        let error = |values: &[f32], indices: &[u32], count: &[u8], budget| {
            sorted(values, indices, count, budget).unwrap_err().to_string()
        };
        assert_eq!(error(&[1.0], &[10], &[1, 0, 0, 0], 100), "10 in an array of 10 (outlier_indices)");
        assert_eq!(error(&[1.0], &[1], &[1, 0], 100), "needs 4 bytes, 2 left (outlier_count)");
        assert_eq!(error(&[1.0], &[1], &[1, 0, 0, 0], 7), "8 is over the limit of 7 (outlier_errors)");
        assert_eq!(error(&[1.0, 2.0], &[2, 1], &[2, 0, 0, 0], 47), "32 is over the limit of 31 (outlier_errors)");
    }
}
