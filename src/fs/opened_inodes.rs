//! The inodes that were ever opened: the kernel may hold pages of them.
//!
//! Limits: kept as ranges of inode numbers, at most [`MOST`] of them. Above that, the nearest ranges are merged, with
//! the inodes between them: to drop the pages of a file that was never opened does no harm.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use crate::tree::Ino;

/// Maximum number of ranges.
const MOST: usize = 1 << 14;

/// A set of inodes that may contain more than were inserted.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenedInodes {
    /// First and last inode of each range. More than `gap` inodes lie between two ranges.
    ranges: BTreeMap<Ino, Ino>,
    gap: u64,
}

impl OpenedInodes {
    pub(super) fn contains(&self, ino: Ino) -> bool {
        self.ranges.range(..=ino).next_back().is_some_and(|(_, &end)| ino <= end)
    }

    /// Inserts `ino`. Returns whether it was missing.
    pub(super) fn insert(&mut self, ino: Ino) -> bool {
        let (mut first, mut last) = (ino, ino);
        if let Some((&start, &end)) = self.ranges.range(..=ino).next_back() {
            if ino <= end {
                return false;
            }
            if ino.0 - end.0 - 1 <= self.gap {
                first = start;
            }
        }
        if let Some((&start, &end)) = self.ranges.range(ino..).next()
            && start.0 - ino.0 - 1 <= self.gap
        {
            self.ranges.remove(&start);
            last = end;
        }
        self.ranges.insert(first, last);
        while self.ranges.len() > MOST {
            self.widen();
        }
        true
    }

    /// Doubles the gap, and merges the ranges that it separates no more.
    fn widen(&mut self) {
        self.gap = self.gap.saturating_mul(2).saturating_add(1);
        let mut merged: BTreeMap<Ino, Ino> = BTreeMap::new();
        for (start, end) in std::mem::take(&mut self.ranges) {
            match merged.last_entry() {
                Some(mut before) if start.0 - before.get().0 - 1 <= self.gap => _ = before.insert(end),
                _ => _ = merged.insert(start, end),
            }
        }
        self.ranges = merged;
    }

    /// The inodes, in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Ino> {
        self.ranges.iter().flat_map(|(&first, &last)| (first.0..=last.0).map(Ino))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_in_any_order_are_each_listed_once() {
        let mut opened = OpenedInodes::default();
        for ino in [7, 3, 5, 4, 7, 100, 6, u64::MAX, 1, 99] {
            opened.insert(Ino(ino));
        }
        assert_eq!(opened.iter().collect::<Vec<_>>(), [1, 3, 4, 5, 6, 7, 99, 100, u64::MAX].map(Ino));
        assert_eq!(opened.ranges.len(), 4);
    }

    #[test]
    fn a_million_scattered_inodes_take_a_bounded_number_of_ranges_and_none_is_lost() {
        let mut opened = OpenedInodes::default();
        // Multiplication by an odd number scatters them without repetition.
        let inodes: Vec<Ino> = (1..1_000_000_u64).map(|i| Ino((i * 0x9E37_79B1) % (1 << 24))).collect();
        for &ino in &inodes {
            opened.insert(ino);
            assert!(opened.ranges.len() <= MOST);
        }
        let found = |ino: Ino| opened.ranges.range(..=ino).next_back().is_some_and(|(_, &last)| ino <= last);
        assert!(inodes.iter().all(|&ino| found(ino)));
    }
}
