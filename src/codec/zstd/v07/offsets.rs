//! The offsets used last, to which sequences refer.
//!
//! Reference: section 2.4, "Sequences section".
#![forbid(unsafe_code)]

use super::super::entropy::History;

/// The last three offsets used, in 0.7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RepeatOffsets(pub(super) [usize; 3]);

impl RepeatOffsets {
    /// The initial offsets of a frame.
    pub(super) const INITIAL: Self = Self([1, 4, 8]);
}

impl History for RepeatOffsets {
    #[inline]
    fn resolve(&mut self, value: usize, without_literals: bool) -> usize {
        let [a, b, c] = self.0;
        let entry = match value {
            1 | 2 if without_literals => 3 - value,
            _ => value,
        };
        self.0 = match entry {
            1 => [a, b, c],
            2 => [b, a, c],
            3 => [c, a, b],
            _ => [value - 3, a, b],
        };
        self.0[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeat_offsets_follow_the_draft() {
        // value, without literals, offset, history afterwards (before: 1 4 8)
        for (value, bare, offset, after) in [
            (10, false, 7, [7, 1, 4]),
            (1, false, 1, [1, 4, 8]),
            (2, false, 4, [4, 1, 8]),
            (3, false, 8, [8, 1, 4]),
            (1, true, 4, [4, 1, 8]),
            (2, true, 1, [1, 4, 8]),
            (3, true, 8, [8, 1, 4]),
        ] {
            let mut recent = RepeatOffsets::INITIAL;
            assert_eq!((recent.resolve(value, bare), recent.0), (offset, after), "{value} {bare}");
        }
    }
}
