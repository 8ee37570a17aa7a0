//! Directories of numbered directories and files, as deep as there are numbers in the name of a file.
//!
//! The number of names per level defines everything below such a directory: inode numbers are consecutive, level by
//! level, so that entries take no memory.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{File, NumberedFiles};

use super::Kind;

/// A directory of numbered entries.
#[derive(Clone)]
pub(super) struct Level {
    files: Arc<dyn NumberedFiles>,
    /// How many numbers lead to it.
    depth: usize,
    /// Its own number among the directories of its depth.
    number: u64,
}

impl Level {
    /// The directory that contains all of `files`.
    pub(super) fn first(files: Arc<dyn NumberedFiles>) -> Self {
        Self { files, depth: 0, number: 0 }
    }

    /// How many names each level has, from the first one.
    pub(super) fn sides(&self) -> &[u64] {
        self.files.sides()
    }

    pub(super) fn len(&self) -> u64 {
        self.sides().get(self.depth).copied().unwrap_or(0)
    }

    fn is_last(&self) -> bool {
        self.depth + 1 >= self.sides().len()
    }

    /// The number of child `index` among the entries of its depth.
    fn child(&self, index: u64) -> u64 {
        self.number.saturating_mul(self.len()).saturating_add(index)
    }

    /// The index of the child called `name`.
    pub(super) fn find(&self, name: &[u8]) -> Option<u64> {
        let plain = name.iter().all(u8::is_ascii_digit) && (name.len() == 1 || name.first() != Some(&b'0'));
        let number: u64 = std::str::from_utf8(name).ok().filter(|_| plain)?.parse().ok()?;
        Some(number).filter(|&index| index < self.len())
    }

    pub(super) fn kind(&self) -> Kind {
        if self.is_last() { Kind::File } else { Kind::Dir }
    }

    /// Child `index`, if it is a directory.
    pub(super) fn below(&self, index: u64) -> Option<Self> {
        let files = Arc::clone(&self.files);
        (!self.is_last()).then(|| Self { files, depth: self.depth + 1, number: self.child(index) })
    }

    /// The number of directories among the children.
    pub(super) fn subdirs(&self) -> u32 {
        if self.is_last() { 0 } else { u32::try_from(self.len()).unwrap_or(u32::MAX) }
    }

    /// The file of child `index`, if it is one.
    ///
    /// # Errors
    /// As [`NumberedFiles::file`].
    pub(super) fn file(&self, index: u64) -> Result<Option<File>> {
        if !self.is_last() || index >= self.len() {
            return Ok(None);
        }
        self.files.file(self.child(index)).map(Some)
    }

    /// The length of each file, and the bytes that it occupies in the container, if the children are files.
    pub(super) fn size(&self) -> Option<(u64, u64)> {
        self.is_last().then(|| self.files.size())
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Numbered({:?}, depth {}, number {})", self.sides(), self.depth, self.number)
    }
}

/// Where an entry is among all entries of all levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LevelPlace {
    /// Its level.
    pub(super) depth: usize,
    /// Its number on that level.
    pub(super) number: u64,
    /// The position of the first entry of that level.
    pub(super) first: u64,
}

/// The place of the entry at `position`, with levels of `sides` names.
pub(super) fn place(sides: &[u64], position: u64) -> Option<LevelPlace> {
    let (mut first, mut count) = (0, 1_u64);
    for (depth, &side) in sides.iter().enumerate() {
        count = count.checked_mul(side)?;
        if position - first < count {
            return Some(LevelPlace { depth, number: position - first, first });
        }
        first += count;
    }
    None
}

/// The number of entries of all levels; `None` if it exceeds 64 bits.
pub(super) fn total(sides: &[u64]) -> Option<u64> {
    let sum = |(count, sum): (u64, u64), &side: &u64| {
        let count = count.checked_mul(side)?;
        Some((count, sum.checked_add(count)?))
    };
    sides.iter().try_fold((1, 0), sum).map(|(_, sum)| sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Content;

    /// Files that have as many bytes as their number says.
    struct Files(Vec<u64>);

    impl NumberedFiles for Files {
        fn sides(&self) -> &[u64] {
            &self.0
        }

        fn size(&self) -> (u64, u64) {
            (1, 0)
        }

        fn file(&self, number: u64) -> Result<File> {
            Ok(File::new(Content::Zeros(number)))
        }
    }

    #[test]
    fn only_the_last_level_has_files_and_as_many_as_there_are() {
        let len = |level: &Level, index| {
            let file = level.file(index).unwrap();
            file.map(|file| crate::view::known_len(&file.content).unwrap())
        };
        let first = Level::first(Arc::new(Files(vec![2, 3])));
        assert_eq!([0, 2].map(|index| len(&first, index)), [None, None]);
        let last = first.below(1).unwrap();
        assert_eq!([0, 2, 3].map(|index| len(&last, index)), [Some(3), Some(5), None]);
    }

    #[test]
    fn every_entry_of_every_level_has_one_place() {
        for sides in [&[3][..], &[2, 3], &[2, 1, 4], &[0], &[1, 1, 1]] {
            let mut count = 1;
            let mut first = 0;
            for (depth, side) in sides.iter().enumerate() {
                count *= side;
                for number in 0..count {
                    assert_eq!(place(sides, first + number), Some(LevelPlace { depth, number, first }), "{sides:?}");
                }
                first += count;
            }
            assert_eq!((total(sides), place(sides, first)), (Some(first), None));
        }
        assert_eq!(total(&[1 << 40, 1 << 40]), None);
    }
}
