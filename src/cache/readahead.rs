//! Readahead: decides which pieces to decode before they are requested, with a small state per open file.
//!
//! Sequential reads open a window that doubles up to a few pieces per worker; a seek closes it. The kernel sends the
//! reads of one reader from several threads and slightly out of order, so a read near the expected offset counts as
//! sequential.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::bytes::to_u64;

/// Bytes that must be read sequentially before readahead starts.
const PATIENCE: u64 = 128 << 10;
/// Maximum distance of a sequential read from the expected offset.
const SLACK: u64 = 1 << 20;
/// Pieces of readahead per worker.
const DEPTH: u64 = 2;
/// Batches of readahead: one being decoded, one being fetched, one being handed out.
const BATCHES: u64 = 3;

/// The read pattern of one open file.
#[derive(Debug, Clone)]
pub struct Readahead {
    workers: u64,
    /// Maximum window size.
    most: u64,
    /// The offset at which a sequential reader continues.
    next: u64,
    /// Bytes read sequentially, and the number of reads.
    run: u64,
    reads: u32,
    /// The run began at an unexpected place. A read is expected where the last one ended; the first one, at the start
    /// of the file.
    sought: bool,
    window: u64,
    /// The end of the range requested so far.
    ahead: u64,
}

impl Readahead {
    /// State for a file decoded by `workers` threads into a cache of `budget` bytes.
    pub fn new(workers: usize, budget: u64) -> Self {
        Self {
            workers: to_u64(workers),
            most: budget / 4,
            next: 0,
            run: 0,
            reads: 0,
            sought: false,
            window: 0,
            ahead: 0,
        }
    }

    /// The same for a file that is far: a reader at its start may be one that jumps, too.
    #[must_use]
    pub fn far(self) -> Self {
        Self { sought: true, ..self }
    }

    /// Whether `range`, which is not recorded yet, is a random read: it is elsewhere than expected, or continues a
    /// short run that began so.
    pub fn is_random(&self, range: &Range<u64>) -> bool {
        !self.is_expected(range) || self.sought && self.run < PATIENCE
    }

    /// Whether `range` is about where the last read ended.
    fn is_expected(&self, range: &Range<u64>) -> bool {
        let len = range.end.saturating_sub(range.start);
        range.start.abs_diff(self.next) <= SLACK.min(self.run.max(len))
    }

    /// Records a read of `range` and returns the range to prefetch now, if any. `piece` and `batch` are the bytes of a
    /// piece and of the largest batch that is decoded at once.
    pub fn next(&mut self, range: &Range<u64>, (piece, batch): (u64, u64)) -> Option<Range<u64>> {
        let len = range.end.saturating_sub(range.start);
        if !self.is_expected(range) {
            *self = Self { next: range.end, run: len, reads: 1, sought: true, window: 0, ahead: range.end, ..*self };
            return None;
        }
        self.run = self.run.saturating_add(len);
        self.reads = self.reads.saturating_add(1);
        self.next = self.next.max(range.end);
        if self.reads < 2 || self.run < PATIENCE {
            return None;
        }
        let piece = piece.max(1);
        let mut deep = piece.saturating_mul(DEPTH.saturating_mul(self.workers).saturating_add(1));
        if batch > piece {
            deep = deep.max(batch.saturating_mul(BATCHES));
        }
        let limit = deep.max(PATIENCE).min(self.most);
        self.window = self.window.saturating_mul(2).max(piece).max(PATIENCE).min(limit);
        self.ahead = self.ahead.max(self.next);
        let end = self.next.saturating_add(self.window);
        // In steps of a quarter of the window or of a batch, not a little for every read.
        let step = self.window.div_ceil(4).max(batch.min(self.window / 2));
        if end.saturating_sub(self.ahead) < step {
            return None;
        }
        Some(std::mem::replace(&mut self.ahead, end)..end)
    }

    /// The cache refused part of the range from [`Readahead::next`]: the next call returns it again.
    pub fn refused(&mut self) {
        self.ahead = self.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    /// Pieces that are decoded one by one.
    const PIECE: (u64, u64) = (MIB, MIB);

    fn reader() -> Readahead {
        Readahead::new(2, 64 * MIB)
    }

    #[test]
    fn the_first_reads_of_a_file_that_is_far_may_be_those_of_a_reader_that_jumps() {
        let (mut near, mut far) = (reader(), reader().far());
        for (at, is_random) in [(0, true), (64, true), (128, false)] {
            let range = at << 10..(at + 64) << 10;
            assert_eq!((near.is_random(&range), far.is_random(&range)), (false, is_random));
            near.next(&range, PIECE);
            far.next(&range, PIECE);
        }
    }

    #[test]
    fn sequential_reads_widen_the_window_and_nothing_is_prefetched_twice() {
        let mut state = reader();
        let step = 128 << 10;
        let mut asked = 0;
        for at in (0..32 * MIB).step_by(step) {
            let read = at..at + step as u64;
            if let Some(ahead) = state.next(&read, PIECE) {
                assert!(ahead.start >= asked && ahead.end > ahead.start, "{ahead:?} after {asked}");
                assert!(ahead.end <= read.end + 5 * MIB);
                asked = ahead.end;
            } else if at >= step as u64 {
                assert!(asked > read.end, "nothing ahead at {at}");
            }
        }
    }

    #[test]
    fn random_reads_prefetch_nothing() {
        let mut state = reader();
        let mut at = 7 * MIB;
        for _ in 0..100 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) % (1 << 40);
            assert_eq!(state.next(&(at..at + 4096), PIECE), None);
        }
        // The header of an array, then a distant range.
        let mut state = reader();
        assert_eq!(state.next(&(0..128), PIECE), None);
        assert_eq!(state.next(&(500 * MIB..500 * MIB + 65536), PIECE), None);
    }

    #[test]
    fn a_reader_that_jumps_is_random_until_it_has_read_some_in_order() {
        let mut state = reader();
        let mut read = |at: u64, len: u64| {
            let is_random = state.is_random(&(at..at + len));
            state.next(&(at..at + len), PIECE);
            is_random
        };
        // From the start of the file, in order.
        assert!((0..100).all(|i| !read(i * 4096, 4096)));
        // Here and there, and some more in order at each place.
        for place in [100 * MIB, 50 * MIB, 200 * MIB] {
            assert!((0..PATIENCE / 4096).all(|i| read(place + i * 4096, 4096)));
        }
        assert!((0..100).all(|i| !read(200 * MIB + PATIENCE + i * 4096, 4096)));
        // Large reads.
        assert!(read(MIB, PATIENCE) && !read(MIB + PATIENCE, PATIENCE));
    }

    #[test]
    fn reads_slightly_out_of_order_continue_the_window_and_a_jump_resets_it() {
        let mut state = reader();
        let block = |i: u64| i * (128 << 10)..(i + 1) * (128 << 10);
        for i in [0, 2, 1, 3, 5, 4] {
            state.next(&block(i), PIECE);
        }
        assert!(state.window >= MIB);
        assert_eq!(state.next(&block(1000), PIECE), None);
        assert_eq!(state.window, 0);
        assert!(state.next(&block(1001), PIECE).is_some());
    }

    #[test]
    fn the_window_opens_with_the_read_that_makes_a_run_long_enough() {
        let mut state = reader();
        assert_eq!(state.next(&(0..PATIENCE / 2), PIECE), None);
        assert!(state.next(&(PATIENCE / 2..PATIENCE), PIECE).is_some());
        // The first read of a file need not be at its start.
        let mut state = reader();
        assert_eq!(state.next(&(9 * MIB..10 * MIB), PIECE), None);
        assert_eq!(state.next(&(10 * MIB..11 * MIB), PIECE), Some(11 * MIB..12 * MIB));
        // A reader that goes back begins anew where it is.
        assert_eq!(state.next(&(2 * MIB..3 * MIB), PIECE), None);
        assert_eq!(state.next(&(3 * MIB..4 * MIB), PIECE), Some(4 * MIB..5 * MIB));
    }

    #[test]
    fn the_window_moves_in_steps_and_what_was_refused_is_asked_for_again() {
        // At most 1 MiB.
        let mut state = Readahead::new(1, 4 * MIB);
        let kib = |from: u64, to: u64| from << 10..to << 10;
        state.next(&kib(0, 128), (1, 1));
        let mut all = Vec::new();
        for at in (128..4096).step_by(128) {
            all.extend(state.next(&kib(at, at + 128), (MIB, 1)));
        }
        // A quarter of the window each time.
        assert!(all[4..].iter().all(|range| range.end - range.start == 256 << 10), "{all:?}");
        // Half a window, for a batch that is larger.
        let mut state = Readahead::new(1, 4 * MIB);
        state.next(&kib(0, 128), (MIB, 8 * MIB));
        assert_eq!(state.next(&kib(128, 256), (MIB, 8 * MIB)), Some(kib(256, 1280)));
        assert_eq!(state.next(&kib(256, 512), (MIB, 8 * MIB)), None);
        assert_eq!(state.next(&kib(512, 768), (MIB, 8 * MIB)), Some(kib(1280, 1792)));
        state.refused();
        assert_eq!(state.next(&kib(768, 800), (MIB, 8 * MIB)), Some(kib(800, 1824)));
    }

    #[test]
    fn whole_batches_are_prefetched_three_ahead() {
        let mut state = Readahead::new(2, 1 << 30);
        let steps = (0..2000).filter_map(|i| state.next(&(i * 131_072..(i + 1) * 131_072), (MIB, 16 * MIB)));
        let whole: Vec<_> = steps.skip(8).collect();
        assert!(whole.len() > 4 && whole.iter().all(|ahead| ahead.end - ahead.start >= 16 * MIB), "{whole:?}");
        assert_eq!(state.window, 48 * MIB);
    }

    #[test]
    fn a_small_budget_keeps_the_window_small() {
        let mut state = Readahead::new(64, 2 * MIB);
        for i in 0..100 {
            if let Some(ahead) = state.next(&(i * 65536..(i + 1) * 65536), (MIB, 8 * MIB)) {
                assert!(ahead.end - (i + 1) * 65536 <= MIB / 2);
            }
        }
    }
}
