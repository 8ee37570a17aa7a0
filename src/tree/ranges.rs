//! Which inode numbers the children of each visited directory have, for the life of the tree.
//!
//! All entries below a directory of numbered directories have one range: see `numbered`.
//!
//! Limits: 24 bytes for a directory, and 8 for each child of one that has subdirectories with names, or for each level
//! of numbers; charged to the account.
#![forbid(unsafe_code)]

use crate::account::{Account, Records};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};

use super::numbered::{LevelPlace, place, total};
use super::{Ino, ROOT};

/// The largest inode number, unless the tree shares the numbers with others.
pub(super) const LARGEST: u64 = u64::MAX >> 1;
/// Ranges from one of the first steps of a search to the next.
const STEP: usize = 2048;
/// Instead of the first slot of a directory without subdirectories.
const NONE: u64 = u64::MAX;
/// Added to the first slot of a directory of numbered entries; its slots hold the number of its levels and their sides.
const NUMBERED: u64 = 1 << 63;

/// The inode numbers of the children of visited directories.
#[derive(Debug)]
pub(super) struct Ranges {
    /// By ascending inode numbers: that of the first child, that of the directory, and the slot of the first child.
    visited: Records<3>,
    /// The first inode number of every [`STEP`]th of them, for a search that looks at few of the records.
    steps: Vec<u64>,
    /// For each child of a directory with subdirectories: 1 plus the number of its own range, or 0. See [`NUMBERED`].
    slots: Records<1>,
    /// The range of the root.
    root: Option<usize>,
    /// The next free inode number.
    pub(super) next: u64,
    largest: u64,
}

impl Ranges {
    pub(super) fn new(account: &Account, largest: u64) -> Self {
        let (visited, slots) = (Records::new(account, "inode numbers"), Records::new(account, "inode numbers"));
        Self { visited, steps: Vec::new(), slots, root: None, next: ROOT.0 + 1, largest }
    }

    /// The directory that contains `ino`, and the index of `ino` there.
    pub(super) fn parent(&self, ino: Ino) -> Option<(Ino, u64)> {
        let [first, dir, slot] = self.visited.get(self.holder(ino)?)?;
        let position = ino.0 - first;
        let Some(sides) = self.sides(slot) else { return Some((Ino(dir), position)) };
        let LevelPlace { depth, number, first: level } = place(&sides, position)?;
        let Some(above) = depth.checked_sub(1) else { return Some((Ino(dir), number)) };
        // Skips the entries of the levels above.
        let side = *sides.get(depth)?;
        let above = level - sides.get(..=above)?.iter().product::<u64>();
        Some((Ino(first + above + number / side), number % side))
    }

    /// The first inode number and the number of the children of `dir`, if it was visited.
    pub(super) fn children(&self, dir: Ino) -> Option<(Ino, u64)> {
        if dir != ROOT
            && let Some([first, _, slot]) = self.holder(dir).and_then(|holder| self.visited.get(holder))
            && let Some(sides) = self.sides(slot)
        {
            return numbered_below(&sides, first, dir);
        }
        let range = if dir == ROOT { self.root? } else { self.own(self.slot(dir)?)? };
        let [first, _, slot] = self.visited.get(range)?;
        if let Some(sides) = self.sides(slot) {
            return Some((Ino(first), *sides.first()?));
        }
        let end = self.visited.get(range + 1).map_or(self.next, |[next, ..]| next);
        Some((Ino(first), end - first))
    }

    /// The sides of the levels of numbered entries, if `slot` is that of their directory.
    fn sides(&self, slot: u64) -> Option<Vec<u64>> {
        let slot = to_usize(slot.checked_sub(NUMBERED).filter(|_| slot != NONE)?, "inode numbers").ok()?;
        let [levels] = self.slots.get(slot)?;
        (1..=to_usize(levels, "inode numbers").ok()?)
            .map(|level| self.slots.get(slot + level).map(|[side]| side))
            .collect()
    }

    /// Assigns inode numbers to all entries below `dir`, with levels of `sides` names; returns the first.
    ///
    /// # Errors
    /// As [`Ranges::add`].
    pub(super) fn add_numbered(&mut self, dir: Ino, sides: &[u64]) -> Result<Ino> {
        let slot = NUMBERED + to_u64(self.slots.len());
        self.slots.push([to_u64(sides.len())])?;
        sides.iter().try_for_each(|&side| self.slots.push([side]))?;
        self.push(dir, total(sides).unwrap_or(u64::MAX), slot)
    }

    /// Assigns inode numbers to the `len` children of `dir`; returns the first.
    ///
    /// # Errors
    /// [`Kind::TooLarge`] if there are not enough; [`Kind::NoRoom`] if the account is exhausted.
    pub(super) fn add(&mut self, dir: Ino, len: u64, has_subdirs: bool) -> Result<Ino> {
        let slot = if has_subdirs { to_u64(self.slots.len()) } else { NONE };
        if has_subdirs {
            (0..len).try_for_each(|_| self.slots.push([0]))?;
        }
        self.push(dir, len, slot)
    }

    /// Adds the range of `dir`.
    fn push(&mut self, dir: Ino, len: u64, slot: u64) -> Result<Ino> {
        let (first, number) = (self.next, self.visited.len());
        let next = first.checked_add(len).filter(|&next| next <= self.largest);
        let next = next.ok_or_else(|| Error::new(Kind::TooLarge { value: len, limit: self.largest }, "directory"))?;
        let own = if dir == ROOT { None } else { self.slot(dir) };
        self.visited.push([first, dir.0, slot])?;
        if number.is_multiple_of(STEP) {
            self.steps.push(first);
        }
        match own {
            Some(own) => self.slots.set(own, [to_u64(number) + 1])?,
            None => self.root = Some(number),
        }
        self.next = next;
        Ok(Ino(first))
    }

    /// The number of the range with `ino`.
    fn holder(&self, ino: Ino) -> Option<usize> {
        if ino.0 >= self.next {
            return None;
        }
        let step = self.steps.partition_point(|&first| first <= ino.0);
        let (mut low, mut high) = (step.saturating_sub(1) * STEP, (step * STEP).min(self.visited.len()));
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.visited.get(middle) {
                Some([first, ..]) if first <= ino.0 => low = middle + 1,
                _ => high = middle,
            }
        }
        low.checked_sub(1)
    }

    /// The slot of the directory `dir`.
    fn slot(&self, dir: Ino) -> Option<usize> {
        let [first, _, slot] = self.visited.get(self.holder(dir)?)?;
        let slot = (slot != NONE).then(|| slot + (dir.0 - first))?;
        to_usize(slot, "inode numbers").ok()
    }

    /// The range in a slot.
    fn own(&self, slot: usize) -> Option<usize> {
        let [number] = self.slots.get(slot)?;
        to_usize(number.checked_sub(1)?, "inode numbers").ok()
    }
}

/// The children of `dir`, one of the numbered entries that start at `first`.
fn numbered_below(sides: &[u64], first: u64, dir: Ino) -> Option<(Ino, u64)> {
    let LevelPlace { depth, number, first: level } = place(sides, dir.0 - first)?;
    let count: u64 = sides.get(..=depth)?.iter().product();
    let side = *sides.get(depth + 1)?;
    Some((Ino(first + level + count + number * side), side))
}
