//! Models of a span: who reads it, who fills it, and who gives it up.

use std::sync::Arc;

use super::*;
use crate::sync::model::{Time, check, later};
use crate::sync::thread;
use crate::wanted::{Wanted, is_given_up};

/// Reads four bytes on a thread.
fn reads(span: &Arc<Span>, at: u64) -> thread::JoinHandle<Result<[u8; 4]>> {
    let span = span.clone();
    thread::spawn(move || {
        let mut dst = [0; 4];
        span.copy(at, &mut dst).map(|()| dst)
    })
}

#[test]
fn each_reader_gets_its_bytes_when_they_are_there_or_the_failure() {
    check(Time::Passes, || {
        let span = Arc::new(Span::new(0..12));
        let all = [reads(&span, 0), reads(&span, 4), reads(&span, 8)];
        span.push(&[1; 6]).unwrap();
        span.push(&[2; 2]).unwrap();
        span.fail(Error::new(Kind::Changed, "x"));
        let [first, second, third] = all.map(|one| one.join().unwrap());
        assert_eq!((first.unwrap(), second.unwrap()), ([1; 4], [1, 1, 2, 2]));
        assert!(matches!(third.unwrap_err().kind(), Kind::Changed));
    });
}

#[test]
fn a_whole_span_is_not_cancelled_and_a_cancelled_one_ends_its_readers() {
    check(Time::Passes, || {
        let span = Arc::new(Span::new(0..4));
        let (reader, same) = (reads(&span, 0), span.clone());
        let cancels = thread::spawn(move || same.cancel());
        span.push(&[1; 2]).unwrap();
        span.push(&[1; 2]).unwrap();
        cancels.join().unwrap();
        assert!(span.is_done() && span.has_failed() == (span.missing_from() < 4));
        assert!(reader.join().unwrap().map_or_else(|error| is_given_up(&error), |got| got == [1; 4]));
    });
}

#[test]
fn who_gives_up_is_not_awaited_any_more() {
    check(Time::Passes, || {
        let (span, mine) = (Arc::new(Span::new(0..4)), Wanted::default());
        let (same, asks) = (span.clone(), mine.clone());
        let reader = thread::spawn(move || asks.within(|| same.copy(0, &mut [0; 4])));
        later();
        mine.give_up();
        assert!(is_given_up(&reader.join().unwrap().unwrap_err()));
        assert!(!span.is_awaited());
    });
}
