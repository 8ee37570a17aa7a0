//! Inode numbers.
#![forbid(unsafe_code)]

use std::fmt;

/// An inode number, valid for the life of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

/// The root directory.
pub const ROOT: Ino = Ino(1);

impl Ino {
    /// The inode number of child `index` of a directory, if this is that of child 0.
    pub(super) fn child(self, index: u64) -> Self {
        Self(self.0 + index)
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_number_is_shown_as_a_number() {
        assert_eq!((ROOT.to_string(), ROOT.child(41).to_string()), ("1".into(), "42".into()));
    }
}
