//! Spans that are requested, arrive, fail and make room.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::single_range_in_vec_init,
    reason = "a test of ranges"
)]
use super::*;
use crate::error::{Error, Kind};

const MIB: u64 = 1 << 20;

fn ranges(spans: &[Arc<Span>]) -> Vec<Range<u64>> {
    spans.iter().map(|span| span.range()).collect()
}

fn until(until: u64) -> RangeAhead {
    RangeAhead { until, hole: 0 }
}

fn arrive(needed: &Needed) {
    for span in &needed.fetch {
        span.push(&vec![0; usize::try_from(span.len()).unwrap()]).unwrap();
    }
}

impl Spans {
    /// As [`Spans::needed`], with the same ahead of each range.
    fn wanted(&self, ranges: &[Range<u64>], ahead: RangeAhead, is_exact: bool) -> Needed {
        let ranges: Vec<_> = joined(ranges).into_iter().map(|range| (range, ahead)).collect();
        self.needed(&ranges, is_exact)
    }
}

fn spans(size: u64, most: u64) -> Spans {
    Spans::new(size, &Account::new(1 << 30, 0), most, None)
}

#[test]
fn no_byte_is_fetched_twice() {
    let spans = spans(100 * MIB, 64 * MIB);
    let first = spans.wanted(&[MIB..MIB + 10], until(0), false);
    assert_eq!(ranges(&first.fetch), [MIB..MIB + SMALLEST]);
    assert!(spans.wanted(&[MIB + 5..MIB + SMALLEST], until(0), false).fetch.is_empty());
    let around = spans.wanted(&[MIB - 10..MIB + SMALLEST + 10], until(0), false);
    let want = [MIB - 10..MIB, MIB..MIB + SMALLEST, MIB + SMALLEST..MIB + 2 * SMALLEST];
    assert_eq!(ranges(&around.cover), want);
    assert_eq!(ranges(&around.fetch), [want[0].clone(), want[2].clone()]);
}

#[test]
fn ranges_near_each_other_are_one_request_and_large_ones_several() {
    let spans = spans(100 * MIB, 64 * MIB);
    let needed = spans.wanted(&[0..10, 50_000..50_010, 10 * MIB..10 * MIB + 10], until(0), false);
    assert_eq!(ranges(&needed.fetch), [0..50_010, 10 * MIB..10 * MIB + SMALLEST]);
    let needed = spans.wanted(&[20 * MIB..40 * MIB], until(0), false);
    assert_eq!(ranges(&needed.fetch), [20 * MIB..32 * MIB, 32 * MIB..40 * MIB]);
}

#[test]
fn what_is_announced_is_fetched_exactly_and_what_is_ahead_in_large_requests() {
    let spans = spans(100 * MIB, 64 * MIB);
    let announced = spans.wanted(&[MIB..MIB + 10, 2 * MIB..2 * MIB + 10], until(0), true);
    assert_eq!(ranges(&announced.fetch), [MIB..MIB + 10, 2 * MIB..2 * MIB + 10]);
    let ahead = spans.wanted(&[10 * MIB..11 * MIB], until(40 * MIB), false);
    assert_eq!(ranges(&ahead.fetch), [10 * MIB..22 * MIB, 22 * MIB..34 * MIB]);
    // The start of the next window is left to it.
    assert!(spans.wanted(&[10 * MIB..11 * MIB], until(40 * MIB), false).fetch.is_empty());
    let hole = spans.wanted(&[3 * MIB..3 * MIB + 10], RangeAhead { until: 0, hole: 8 * MIB }, true);
    assert_eq!(ranges(&hole.fetch), [3 * MIB..10 * MIB]);
    let end = spans.wanted(&[80 * MIB..81 * MIB], until(u64::MAX), false);
    assert_eq!(ranges(&end.fetch), [80 * MIB..92 * MIB, 92 * MIB..100 * MIB]);
}

#[test]
fn the_end_of_an_object_is_one_request() {
    let spans = spans(10 * MIB, MIB);
    assert_eq!(ranges(&spans.wanted(&[10 * MIB - 8..10 * MIB], until(0), false).fetch), [10 * MIB - TAIL..10 * MIB]);
    assert!(spans.wanted(&[10 * MIB - TAIL..10 * MIB - 8], until(0), false).fetch.is_empty());
    let tiny = Spans::new(100, &Account::new(1 << 30, 0), MIB, None);
    assert_eq!(ranges(&tiny.wanted(&[3..4], until(0), false).fetch), [0..100]);
}

#[test]
fn what_was_not_used_for_the_longest_time_makes_room() {
    let spans = spans(100 * MIB, 4 * MIB);
    for i in 0..10 {
        arrive(&spans.wanted(&[i * MIB..(i + 1) * MIB], until(0), false));
        assert!(spans.wanted(&[0..1], until(0), false).fetch.is_empty(), "used all the time");
        assert!(spans.lock().used.weight() <= 4 * MIB);
    }
    assert_eq!(spans.wanted(&[MIB..MIB + 1], until(0), false).fetch.len(), 1);
    assert!(spans.wanted(&[9 * MIB..9 * MIB + 1], until(0), false).fetch.is_empty());
}

#[test]
fn without_room_what_is_waited_for_passes_through_and_nothing_is_fetched_ahead() {
    let account = Account::new(MIB, 0);
    let spans = Spans::new(100 * MIB, &account, 4 * MIB, None);
    let needed = spans.wanted(&[0..2 * MIB], until(50 * MIB), false);
    assert_eq!(ranges(&needed.fetch), [0..2 * MIB]);
    assert_eq!(account.memory().used(), 0);
    arrive(&needed);
    spans.settle(&needed.cover[0]);
    assert!(spans.lock().spans.is_empty());
    assert_eq!(spans.lock().used.weight(), 0);
    // Not widened either; present spans are not kept.
    let full = account.charge(MIB - 10, "others").unwrap();
    let little = spans.wanted(&[10 * MIB..10 * MIB + 100], until(50 * MIB), false);
    assert_eq!(ranges(&little.fetch), [10 * MIB..10 * MIB + 100]);
    arrive(&little);
    spans.settle(&little.cover[0]);
    assert_eq!(spans.insert(0, &[7; 100]).unwrap().unwrap().range(), 0..100);
    assert!(spans.lock().spans.is_empty());
    assert_eq!(spans.lock().used.weight(), 0);
    drop(full);
    let ahead = spans.wanted(&[0..MIB / 4], until(MIB / 2), false);
    assert_eq!(ranges(&ahead.fetch), [0..MIB / 2]);
    assert_eq!(account.memory().used(), MIB / 2 + OVERHEAD);
    drop(spans);
    assert_eq!(account.memory().used(), 0);
}

#[test]
fn a_span_that_failed_is_fetched_again() {
    let spans = spans(MIB, MIB);
    let needed = spans.wanted(&[0..10], until(0), false);
    needed.fetch[0].fail(Error::new(Kind::NotFound, "x"));
    spans.settle(&needed.fetch[0]);
    assert_eq!(spans.wanted(&[0..10], until(0), false).fetch.len(), 1);
}

#[test]
fn no_small_hole_is_left_before_a_read_and_no_small_rest_at_the_end() {
    let spans = spans(100 * MIB, 64 * MIB);
    arrive(&spans.wanted(&[MIB..MIB + SMALLEST], until(0), false));
    let near = spans.wanted(&[MIB + 2 * SMALLEST - 1..MIB + 2 * SMALLEST], until(0), false);
    assert_eq!(ranges(&near.fetch), [MIB + SMALLEST..MIB + 3 * SMALLEST - 1]);
    let far = spans.wanted(&[2 * MIB..2 * MIB + 1], until(0), false);
    assert_eq!(ranges(&far.fetch), [2 * MIB..2 * MIB + SMALLEST]);
    let end = spans.wanted(&[95 * MIB..96 * MIB], until(99 * MIB + 1), false);
    assert_eq!(ranges(&end.fetch), [95 * MIB..100 * MIB]);
}

#[test]
fn each_range_has_its_own_ahead() {
    let spans = spans(100 * MIB, 64 * MIB);
    let ranges =
        [(10 * MIB..11 * MIB, until(14 * MIB)), (30 * MIB..31 * MIB, until(0)), (50 * MIB..51 * MIB, until(52 * MIB))];
    let want = [10 * MIB..14 * MIB, 30 * MIB..31 * MIB, 50 * MIB..52 * MIB];
    assert_eq!(super::tests::ranges(&spans.needed(&ranges, true).fetch), want);
}

#[test]
fn a_read_needs_no_span_that_begins_where_it_ends() {
    let spans = spans(100 * MIB, 64 * MIB);
    let first = spans.wanted(&[MIB..2 * MIB], until(0), false);
    assert_eq!(ranges(&first.cover), [MIB..2 * MIB]);
    let ahead = spans.wanted(&[MIB..2 * MIB], until(20 * MIB), false);
    assert_eq!((ranges(&ahead.cover), ranges(&ahead.fetch)), (vec![MIB..2 * MIB], vec![2 * MIB..14 * MIB]));
}

#[test]
fn the_rest_of_an_object_is_fetched_with_what_is_ahead_if_it_is_less_than_that() {
    for (end, want) in [(97 * MIB, 97 * MIB), (97 * MIB + 1, 100 * MIB)] {
        let spans = spans(100 * MIB, 64 * MIB);
        assert_eq!(ranges(&spans.wanted(&[93 * MIB..94 * MIB], until(end), false).fetch), [93 * MIB..want]);
    }
}

#[test]
fn a_hole_before_a_read_is_fetched_if_it_is_small_and_the_end_if_the_read_comes_to_it() {
    for (hole, start) in [(SMALLEST - 1, 2 * MIB), (SMALLEST, 2 * MIB + SMALLEST)] {
        let spans = spans(100 * MIB, 64 * MIB);
        arrive(&spans.wanted(&[MIB..2 * MIB], until(0), false));
        let at = 2 * MIB + hole;
        assert_eq!(ranges(&spans.wanted(&[at..at + 10], until(0), false).fetch), [start..at + SMALLEST]);
    }
    let tail = 10 * MIB - TAIL;
    for (at, end) in [(tail - SMALLEST, tail), (tail - SMALLEST + 1, 10 * MIB)] {
        let spans = spans(10 * MIB, 64 * MIB);
        assert_eq!(ranges(&spans.wanted(&[at..at + 10], until(0), false).fetch), [at..end]);
    }
}

#[test]
fn what_is_announced_comes_in_smaller_requests_than_what_is_ahead_of_it() {
    let announced = spans(100 * MIB, 64 * MIB);
    let want = [10 * MIB..18 * MIB, 18 * MIB..26 * MIB, 26 * MIB..30 * MIB];
    assert_eq!(ranges(&announced.wanted(&[10 * MIB..30 * MIB], until(0), true).fetch), want);
    let ahead = spans(100 * MIB, 64 * MIB);
    let want = [10 * MIB..22 * MIB, 22 * MIB..34 * MIB];
    assert_eq!(ranges(&ahead.wanted(&[10 * MIB..30 * MIB], until(40 * MIB), true).fetch), want);
}

#[test]
fn what_is_on_its_way_makes_no_room() {
    let spans = spans(100 * MIB, 2 * MIB);
    let first = spans.wanted(&[10 * MIB..12 * MIB], until(0), false);
    let other = spans.wanted(&[20 * MIB..21 * MIB], until(0), false);
    assert!(spans.has(&first.fetch[0]) && spans.lock().spans[&(20 * MIB)].1.is_none());
    arrive(&first);
    arrive(&other);
    let third = spans.wanted(&[30 * MIB..31 * MIB], until(0), false);
    assert!(!spans.has(&first.fetch[0]) && spans.lock().spans[&(30 * MIB)].1.is_some());
    assert!(spans.has(&third.fetch[0]));
}

#[test]
fn what_is_missing_is_neither_there_nor_on_its_way_nor_on_disk() {
    let spans = spans(100 * MIB, 64 * MIB);
    let needed = spans.wanted(&[MIB..2 * MIB, 4 * MIB..5 * MIB], until(0), false);
    arrive(&Needed { fetch: vec![needed.fetch[0].clone()], cover: Vec::new() });
    for (range, missing) in [
        (MIB..2 * MIB, 0),
        (MIB - 3..MIB + 5, 3),
        (2 * MIB - 5..2 * MIB + 7, 7),
        (0..10 * MIB, 8 * MIB),
        (3 * MIB..3 * MIB, 0),
        (3 * MIB..3 * MIB + 1, 1),
    ] {
        assert_eq!(spans.missing(&range), missing, "{range:?}");
    }
    needed.fetch[1].fail(Error::new(Kind::NotFound, "x"));
    assert_eq!(spans.missing(&(0..10 * MIB)), 9 * MIB);
    assert_eq!(spans.missing(&(4 * MIB..5 * MIB)), MIB);
}

#[test]
fn what_is_forgotten_takes_no_memory() {
    let account = Account::new(1 << 30, 0);
    let spans = Spans::new(100 * MIB, &account, 64 * MIB, None);
    let needed = spans.wanted(&[MIB..2 * MIB], until(0), false);
    let other = Arc::new(Span::new(MIB..2 * MIB));
    assert!(spans.has(&needed.fetch[0]) && !spans.has(&other) && account.memory().used() > MIB);
    spans.clear();
    assert!(!spans.has(&needed.fetch[0]));
    assert_eq!((account.memory().used(), spans.missing(&(MIB..2 * MIB))), (0, MIB));
}
