//! How far ahead of its readers an object is fetched.
//!
//! Sequential readers are detected among all reads. The first reads of a run are fetched as requested; then, up to
//! [`PATIENCE`] bytes, as much again as was read; then a window that grows sixteenfold when an eighth of it is used up.
//! Readers known to be sequential get that window at once. Many small sequential reads, such as the headers of a file
//! without an index, begin with a small window earlier. Several threads decode for one reader, so a read near the end
//! of a run continues it; a reader that uses less than half of a run counts as random. Reading an array row by row goes
//! through several chunks at once and comes back to each: a read in a hole of a run continues it too, and fetches the
//! whole hole.
//!
//! A reader of 256 KiB at a time:
//!
//! | read | bytes read in order | fetched up to |
//! |---|---|---|
//! | 1, 2 | 256, 512 KiB | the end of the read |
//! | 3 | 768 KiB | 1.5 MiB: as much again |
//! | 4 | 1 MiB | 13 MiB: a window of sixteen times 768 KiB |
//! | 5 to 9 | 2.25 MiB | nothing more |
//! | 10 | 2.5 MiB: an eighth of the window is used up | 98.5 MiB: the largest window, in eight requests |
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;

/// Bytes that must be read in order before more is fetched than requested: a window of an array whose blocks are whole
/// rows has nearly as many.
const PATIENCE: u64 = 1 << 20;
/// Sequential reads required before that: a window of an array is one or two, of any size.
const READS: u32 = 3;
/// Reads that suffice without that.
const MANY: u32 = 6;
/// Maximum distance of a read in order from the end of its run.
const SLACK: u64 = 2 << 20;
/// The first window, and that of a run that has fewer than [`PATIENCE`] bytes.
const FIRST: u64 = 8 << 20;
const FIRST_SMALL: u64 = 1 << 20;
/// Largest range of one request.
pub(super) const LARGEST: u64 = 12 << 20;
/// Smallest range of one request for a read that was not announced: it costs no more time than a byte, and the bytes
/// after it are often read next.
pub(super) const SMALLEST: u64 = 32 << 10;
/// The largest window: eight requests.
const MOST: u64 = 8 * LARGEST;
/// The last bytes of a run that decide whether it is sequential.
const MEMORY: u64 = 64 << 20;
/// Maximum number of runs.
const RUNS: usize = 16;

/// A run that has read so many bytes, and at least one part in [`SPARSE`] of its extent, will read its holes too.
const SCAN: u64 = 2 << 20;
const SPARSE: u64 = 8;
/// A hole of at most this size is fetched as a whole.
const HOLE: u64 = 2 << 20;

/// The range to fetch beyond a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RangeAhead {
    /// How far to fetch.
    pub(super) until: u64,
    /// The largest hole that is fetched as a whole.
    pub(super) hole: u64,
}

/// The runs of reads in order, the last one used at the end.
#[derive(Debug)]
pub(super) struct Streams {
    runs: Vec<StreamRun>,
    most: u64,
}

#[derive(Debug, Clone, Copy)]
struct StreamRun {
    /// Start of the part that decides whether it is sequential.
    start: u64,
    /// Where its last read ended.
    next: u64,
    /// Bytes that were read from `start` on.
    bytes: u64,
    /// Number of reads.
    reads: u32,
    /// Whether it is known to be that of a reader in order.
    is_known: bool,
    window: u64,
    /// Where the last window ended.
    ahead: u64,
}

impl Streams {
    /// For windows of at most `most` bytes.
    pub(super) const fn new(most: u64) -> Self {
        Self { runs: Vec::new(), most: if most < MOST { most } else { MOST } }
    }

    /// Records a read of `range`, which may be known to be sequential (`is_ahead`); returns what to fetch now.
    pub(super) fn record(&mut self, range: &Range<u64>, is_ahead: bool) -> RangeAhead {
        let near = |run: &StreamRun| run.next.abs_diff(range.start) <= SLACK;
        let left_out = |run: &StreamRun| run.is_scan() && (run.start..run.next).contains(&range.start);
        let found = self.runs.iter().rposition(near).or_else(|| self.runs.iter().rposition(left_out));
        let new =
            StreamRun { start: range.start, next: range.end, bytes: 0, reads: 0, is_known: false, window: 0, ahead: 0 };
        let mut run = found.map_or(new, |at| self.runs.remove(at));
        run.next = run.next.max(range.end);
        run.ahead = run.ahead.max(range.end);
        run.is_known |= is_ahead;
        let is_dense = run.read(range.end.saturating_sub(range.start));
        let left = run.ahead.saturating_sub(run.next);
        if !is_dense {
            run.window = 0;
        } else if (run.reads >= READS || run.is_known) && left <= run.refill_at(self.most) {
            run.window = run.next_window().min(self.most);
            run.ahead = run.next.saturating_add(run.window);
        }
        if self.runs.len() >= RUNS {
            self.runs.remove(0);
        }
        let until = if run.window == 0 { range.end } else { run.ahead };
        let hole = if run.is_scan() && range.end < run.next { HOLE } else { 0 };
        self.runs.push(run);
        RangeAhead { until, hole }
    }
}

impl StreamRun {
    /// Whether much of it was read.
    fn is_scan(&self) -> bool {
        self.bytes >= SCAN && self.bytes >= self.next.saturating_sub(self.start) / SPARSE
    }

    /// How much of the window is left when the next one begins: a small one grows early, of a full one half is used.
    fn refill_at(&self, most: u64) -> u64 {
        if self.window < most { self.window.saturating_sub(self.window / 8) } else { self.window / 2 }
    }

    /// The window after this one.
    fn next_window(&self) -> u64 {
        let is_small = self.bytes <= SMALLEST.saturating_mul(self.reads.into());
        if self.bytes >= PATIENCE || self.is_known {
            self.window.saturating_mul(16).max(FIRST)
        } else if !is_small {
            self.bytes
        } else if self.reads >= MANY {
            self.window.saturating_mul(4).max(FIRST_SMALL)
        } else {
            0
        }
    }

    /// Counts `len` bytes, or as many as are fetched for them; returns whether the run is in order.
    fn read(&mut self, len: u64) -> bool {
        self.reads = self.reads.saturating_add(1);
        let extent = self.next.saturating_sub(self.start);
        // Bytes that are read again do not count.
        self.bytes = self.bytes.saturating_add(len.max(SMALLEST)).min(extent);
        let is_dense = self.bytes >= extent / 2;
        if extent > MEMORY {
            (self.start, self.bytes) = (self.start.saturating_add(extent / 2), self.bytes / 2);
        }
        is_dense
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "a test")]
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_reader_that_jumps_gets_what_it_asks_for() {
        let mut streams = Streams::new(u64::MAX);
        for i in 0..100 {
            let start = i * 7 % 100 * 10 * MIB;
            assert_eq!(streams.record(&(start..start + 4096), false), RangeAhead { until: start + 4096, hole: 0 });
        }
    }

    #[test]
    fn a_reader_that_jumps_within_a_small_part_gets_what_it_asks_for() {
        let mut streams = Streams::new(u64::MAX);
        for i in 0..1000 {
            let start = (i * 7 % 1000) * 50_000;
            assert_eq!(streams.record(&(start..start + 8192), false), RangeAhead { until: start + 8192, hole: 0 });
        }
    }

    #[test]
    fn small_reads_in_order_begin_with_a_small_window() {
        let mut streams = Streams::new(u64::MAX);
        let read =
            |at: u64| (at * 24_000..at * 24_000 + 3, streams.record(&(at * 24_000..at * 24_000 + 3), false).until);
        let (ranges, ends): (Vec<_>, Vec<u64>) = (0..100).map(read).unzip();
        assert!(ranges.iter().zip(&ends).take(5).all(|(range, end)| range.end == *end));
        assert_eq!(ends[5], ranges[5].end + FIRST_SMALL);
    }

    #[test]
    fn the_window_of_a_reader_in_order_grows_to_its_limit() {
        let mut streams = Streams::new(20 * MIB);
        let ends: Vec<u64> = (0..64).map(|i| streams.record(&(i * MIB / 2..(i + 1) * MIB / 2), false).until).collect();
        assert_eq!(ends[..3], [MIB / 2, MIB, 3 * MIB / 2 + FIRST]);
        let mut windows: Vec<u64> = ends.iter().zip(1..).map(|(end, i)| end - i * MIB / 2).collect();
        assert!(windows.iter().all(|&window| window <= 20 * MIB));
        windows.sort_unstable();
        assert_eq!(windows.last(), Some(&(20 * MIB)));
        // In few steps, each at least half a window.
        let mut steps = ends;
        steps.dedup();
        assert!(steps.len() <= 6, "{steps:?}");
    }

    #[test]
    fn a_reader_that_is_known_to_go_in_order_gets_its_window_at_once_and_keeps_it() {
        let mut streams = Streams::new(u64::MAX);
        assert_eq!(streams.record(&(MIB..MIB + 10), true).until, MIB + 10 + FIRST);
        assert_eq!(streams.record(&(MIB + 10..MIB + 20), false).until, MIB + 10 + FIRST);
        assert_eq!(streams.record(&(MIB + 20..2 * MIB + 20), false).until, 2 * MIB + 20 + MOST);
    }

    #[test]
    fn a_window_grows_early_and_the_largest_is_half_used_first() {
        let run = |window| StreamRun { start: 0, next: 0, bytes: 0, reads: 0, is_known: true, window, ahead: 0 };
        assert_eq!(run(16 * MIB).refill_at(20 * MIB), 14 * MIB);
        assert_eq!(run(20 * MIB).refill_at(20 * MIB), 10 * MIB);
        assert_eq!(run(0).refill_at(20 * MIB), 0);
    }

    #[test]
    fn the_last_part_of_a_long_run_decides_whether_it_is_in_order() {
        let run = |next, bytes| StreamRun { start: 0, next, bytes, reads: 9, is_known: false, window: 0, ahead: 0 };
        for (next, bytes, is_dense, (start, left)) in [
            (MEMORY, 60 * MIB, true, (0, 61 * MIB)),
            (MEMORY + 2, 61 * MIB, true, (MEMORY / 2 + 1, 31 * MIB)),
            (MEMORY + 2 * MIB, 61 * MIB, true, (33 * MIB, 31 * MIB)),
            (MEMORY + 2 * MIB, 2 * MIB, false, (33 * MIB, 3 * MIB / 2)),
        ] {
            let mut run = run(next, bytes);
            assert_eq!((run.read(MIB), run.start, run.bytes), (is_dense, start, left), "{next} {bytes}");
        }
    }

    #[test]
    fn two_readers_in_order_and_small_reads_out_of_order_are_runs() {
        let mut streams = Streams::new(u64::MAX);
        let mut last = [0; 2];
        for i in (0..400_u64).map(|i| i ^ 1) {
            for (reader, end) in (0_u64..).zip(last.iter_mut()) {
                let start = 1000 * MIB * reader + i * 8192;
                *end = streams.record(&(start..start + 8192), false).until - start;
            }
        }
        assert!(last.iter().all(|&ahead| ahead > MIB), "{last:?}");
        assert_eq!(streams.runs.len(), 2);
    }

    #[test]
    fn a_reader_of_rows_through_several_chunks_is_one_in_order_from_the_second_row_of_chunks_on() {
        let mut streams = Streams::new(u64::MAX);
        let mut read = |at: u64| streams.record(&(at..at + MIB / 4), false);
        for part in 0..4 {
            for chunk in 0..8 {
                let (at, ahead) = (chunk * MIB + part * MIB / 4, read(chunk * MIB + part * MIB / 4));
                let is_back = part > 0 && chunk < 7;
                assert_eq!(ahead.hole, if is_back { HOLE } else { 0 }, "{part} {chunk}");
                assert!(part > 0 || ahead.until == at + MIB / 4, "{part} {chunk}");
            }
        }
        assert!(read(8 * MIB).until >= 12 * MIB);
    }
}
