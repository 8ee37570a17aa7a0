//! Detects files that are read in the order in which they are stored in a blob, chunk by chunk.
//!
//! A reader that opens a file where the previous one ended is likely to continue with the next, which the reads of a
//! single file do not show. The data that follows is then decoded ahead, in steps of half a window.
#![forbid(unsafe_code)]

use std::ops::Range;

/// Minimum number of bytes decoded ahead.
const WINDOW: u64 = 1 << 20;

/// The file begun most recently.
#[derive(Debug, Default)]
pub(super) struct SequentialFiles {
    /// Its blob, and the offset in it at which the file ends.
    blob: u64,
    end: u64,
    /// The offset up to which the blob is decoded ahead.
    ahead: u64,
}

impl SequentialFiles {
    /// Records that the file at `own` in `blob` is begun. Returns the range of the blob to decode ahead now, if any,
    /// with a window of at most `most` bytes.
    pub(super) fn begins(&mut self, blob: u64, own: &Range<u64>, most: u64) -> Option<Range<u64>> {
        let follows = self.blob == blob && self.end == own.start && !own.is_empty();
        let ahead = if follows { self.ahead.max(own.end) } else { own.end };
        let window = WINDOW.max(4 * (own.end - own.start)).min(most);
        let to = own.end.saturating_add(window);
        let step = follows && to.saturating_sub(ahead) >= window.div_ceil(2).max(1);
        *self = Self { blob, end: own.end, ahead: if step { to } else { ahead } };
        step.then_some(ahead..to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn files_in_order_are_decoded_ahead_and_nothing_is_asked_for_twice() {
        let mut files = SequentialFiles::default();
        let file = |i: u64| i * 16 * KIB..(i + 1) * 16 * KIB;
        let mut asked = 0;
        for i in 0..1000 {
            if let Some(range) = files.begins(1, &file(i), 1 << 30) {
                assert!(range.start >= asked && range.start >= file(i).end && i > 0);
                asked = range.end;
            }
            assert!(i < 1 || asked >= file(i).end + WINDOW / 2);
        }
    }

    #[test]
    fn files_elsewhere_of_another_blob_or_empty_are_not() {
        let mut files = SequentialFiles::default();
        assert_eq!(files.begins(1, &(0..10), 100), None);
        assert_eq!(files.begins(1, &(20..30), 100), None);
        assert_eq!(files.begins(2, &(30..40), 100), None);
        assert_eq!(files.begins(2, &(40..40), 100), None);
        assert_eq!(files.begins(2, &(40..50), 100), Some(50..150));
        assert_eq!(files.begins(2, &(50..60), 0), None);
    }
}
