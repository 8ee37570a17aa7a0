//! Detects programs that visit the entries of a directory in order: `find`, `ls -l`, a reader of numbered chunks.
//!
//! The entries that such a program is likely to ask for next are prepared in steps of half a window, so that one
//! wake-up of a metadata thread serves many requests, and the event loops answer them from memory.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::tree::Ino;

/// Number of entries prepared ahead.
pub(super) const WINDOW: u64 = 64;
/// Largest distance from one visited entry to the next that counts as in order.
const GAP: u64 = 8;
/// Number of directories and programs observed at a time.
const WALKS: usize = 16;

/// How a program visits the entries of a directory, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visit {
    /// Their attributes are requested, or their entries.
    Name,
    /// They are opened.
    Open,
}

/// The walks observed most recently.
#[derive(Debug, Default)]
pub(super) struct Walks(Vec<Walk>);

#[derive(Debug)]
struct Walk {
    dir: Ino,
    visit: Visit,
    /// The position visited last.
    at: u64,
    /// The position up to which entries are prepared.
    ahead: u64,
}

impl Walks {
    /// Records that the entry at position `at` of `dir` is visited. Returns the positions to prepare now, if any.
    pub(super) fn visits(&mut self, dir: Ino, visit: Visit, at: u64) -> Option<Range<u64>> {
        let opened = |walk: &Walk| walk.dir == dir && walk.visit == Visit::Open && (walk.at..walk.ahead).contains(&at);
        if visit == Visit::Name && self.0.iter().any(opened) {
            // It is prepared already, with its attributes.
            return None;
        }
        let is_it = |walk: &Walk| {
            walk.dir == dir && walk.visit == visit && (walk.at..=walk.at.saturating_add(GAP)).contains(&at)
        };
        let Some(found) = self.0.iter().rposition(is_it) else {
            if self.0.len() == WALKS {
                self.0.remove(0);
            }
            self.0.push(Walk { dir, visit, at, ahead: at.saturating_add(1) });
            return None;
        };
        // The last one is the one observed most recently.
        let mut walk = self.0.remove(found);
        let again = walk.at == at;
        walk.at = at;
        let (from, to) = (walk.ahead.max(at.saturating_add(1)), at.saturating_add(WINDOW));
        let step = !again && to.saturating_sub(from) >= WINDOW / 2;
        if step {
            walk.ahead = to;
        }
        self.0.push(walk);
        step.then_some(from..to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(9);

    #[test]
    fn entries_in_order_are_prepared_once_each_and_before_they_are_visited() {
        let mut walks = Walks::default();
        let (mut prepared, mut steps) = (1, 0);
        for at in 0..10_000 {
            assert!(at <= 1 || at < prepared, "{at}");
            // Looked up, then listed.
            for _ in 0..2 {
                if let Some(range) = walks.visits(DIR, Visit::Name, at) {
                    assert!(range.start >= prepared && range.end <= at + WINDOW);
                    (prepared, steps) = (range.end, steps + 1);
                }
            }
            // Meanwhile, visits below, and reads of another directory.
            walks.visits(Ino(1000 + at), Visit::Name, 0);
            walks.visits(Ino(8), Visit::Open, at / 2);
        }
        assert!(steps <= 2 * 10_000 / WINDOW + 1, "{steps}");
    }

    #[test]
    fn files_that_are_looked_up_and_opened_are_prepared_once() {
        let mut walks = Walks::default();
        let mut prepared = vec![0; 1000];
        for at in 0..900 {
            for visit in [Visit::Name, Visit::Open] {
                let range = walks.visits(DIR, visit, at).unwrap_or(0..0);
                range.for_each(|at| prepared[at as usize] += 1);
            }
        }
        assert!(prepared[2..=WINDOW as usize].iter().all(|&times| times <= 2));
        assert!(prepared[WINDOW as usize + 1..900].iter().all(|&times| times == 1), "{prepared:?}");
    }

    #[test]
    fn entries_out_of_order_are_not() {
        let mut walks = Walks::default();
        for at in [5, 5, 4, 100, 91, 50, 3] {
            assert_eq!(walks.visits(DIR, Visit::Name, at), None);
        }
        assert_eq!(walks.visits(DIR, Visit::Name, 6), Some(7..6 + WINDOW));
        assert_eq!(walks.visits(Ino(8), Visit::Name, 7), None, "another directory");
        assert_eq!(walks.visits(DIR, Visit::Open, 7), None, "another purpose");
        assert_eq!(walks.visits(DIR, Visit::Open, u64::MAX - 1), None);
    }
}
