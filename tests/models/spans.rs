//! Models of the spans of one object.

use super::*;
use crate::sync::model::{Time, check};
use crate::sync::thread;

/// Half of what is fetched for a small read.
const HALF: u64 = SMALLEST / 2;

fn spans() -> Arc<Spans> {
    Arc::new(Spans::new(4 * SMALLEST, &Account::new(1 << 30, 0), 1 << 30, None))
}

fn read(spans: &Spans, range: Range<u64>) -> Needed {
    let ahead = RangeAhead { until: range.end, hole: 0 };
    spans.needed(&[(range, ahead)], false)
}

fn fill(span: &Span) {
    span.push(&vec![7; span.len() as usize]).unwrap();
}

#[test]
fn no_byte_is_fetched_twice_and_each_reader_gets_its_bytes() {
    check(Time::Passes, || {
        let spans = spans();
        let all = [0, HALF, SMALLEST].map(|at| {
            let spans = spans.clone();
            thread::spawn(move || {
                let needed = read(&spans, at..at + SMALLEST);
                for span in &needed.fetch {
                    fill(span);
                    spans.settle(span);
                }
                for span in &needed.cover {
                    let mut dst = vec![0; SMALLEST as usize];
                    span.copy(at, &mut dst).unwrap();
                }
                needed.fetch.iter().map(|span| span.len()).sum::<u64>()
            })
        });
        let fetched: u64 = all.into_iter().map(|one| one.join().unwrap()).sum();
        let kept = spans.lock();
        assert_eq!((kept.used.weight(), spans.account.memory().used() >= fetched), (fetched, true));
        assert_eq!(kept.spans.values().map(|(span, _)| span.len()).sum::<u64>(), fetched);
    });
}

#[test]
fn who_asks_after_a_fetch_was_cancelled_asks_again_and_keeps_what_comes() {
    check(Time::Passes, || {
        let spans = spans();
        let first = read(&spans, 0..HALF).fetch.remove(0);
        let (same, mine) = (first.clone(), spans.clone());
        // As a request that is given up ends.
        let ends = thread::spawn(move || {
            same.cancel();
            mine.settle(&same);
        });
        while !first.has_failed() {
            thread::yield_now();
        }
        let second = read(&spans, 0..HALF).fetch.remove(0);
        fill(&second);
        spans.settle(&second);
        ends.join().unwrap();
        assert!(spans.has(&second) && !spans.has(&first));
    });
}
