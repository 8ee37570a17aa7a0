//! An object and its readers: what is asked for, what is given up, and what is known without a request.
#![forbid(unsafe_code)]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::single_range_in_vec_init,
    reason = "a test"
)]

use std::thread::{scope, spawn};

use super::super::testing::{Fault, KIB, MIB, Server, account, answer, counts, noise, object, patient};
use super::*;
use crate::clock::wait_until;
use crate::wanted::{Allowance, while_wanted};

fn address(server: &Server, name: &str) -> Address {
    Address::parse(&server.url(name)).unwrap()
}

/// The object `name`, with at most `most` bytes of memory.
fn open_within(server: &Server, name: &str, session: &Arc<Session>, most: u64) -> Arc<Object> {
    Arc::new(Object::open(address(server, name), session, &patient(), &account(), most, false).unwrap())
}

/// A server with an object of 64 MiB, and the object.
fn opened() -> (Arc<Server>, Arc<Object>) {
    let server = Arc::new(Server::start());
    server.put("x", object(64 * MIB));
    let object = open_within(&server, "x", &Arc::default(), 64 * MIB);
    server.take_log();
    (server, object)
}

impl Object {
    fn get(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.read(FileOffset(range.start), &mut bytes, "x")?;
        Ok(bytes)
    }

    /// How many bytes of `range` are neither there nor on their way.
    fn missing(&self, range: Range<u64>) -> u64 {
        self.shared.spans.missing(&range)
    }

    /// The span of which the request was made for `range` alone.
    fn span(&self, range: Range<u64>) -> Arc<Span> {
        let ahead = RangeAhead { until: range.end, hole: 0 };
        let Needed { mut cover, fetch } = self.shared.spans.needed(&[(range, ahead)], true);
        assert!(fetch.is_empty() && cover.len() == 1);
        cover.remove(0)
    }
}

/// A range of whole requests: a read of it is not widened.
const RANGE: Range<u64> = MIB..2 * MIB;

#[test]
fn a_request_that_nobody_waits_for_is_cancelled_and_made_again_for_a_reader() {
    let (server, object) = opened();
    server.fail([Fault::Held, Fault::None]);
    object.announce(&[RANGE], Need::Now);
    let span = object.span(RANGE);
    assert!(object.is_near(RANGE) && !span.has_failed());
    object.cancel();
    assert!(span.has_failed() && !object.is_near(RANGE));
    server.let_go();
    assert!(object.get(RANGE).unwrap() == noise(2 * MIB)[MIB as usize..]);
}

#[test]
fn a_request_that_a_reader_waits_for_is_not_cancelled() {
    let (server, object) = opened();
    server.fail([Fault::Held, Fault::None]);
    scope(|scope| {
        let reader = scope.spawn(|| object.get(RANGE));
        wait_until(|| object.missing(RANGE) == 0);
        let span = object.span(RANGE);
        wait_until(|| span.is_awaited());
        object.cancel();
        assert!(!span.has_failed());
        server.let_go();
        assert!(reader.join().unwrap().unwrap() == noise(2 * MIB)[MIB as usize..]);
    });
}

#[test]
fn an_object_that_goes_takes_its_requests_and_not_those_of_others() {
    let (server, session) = (Server::start(), Arc::default());
    let [a, b] = ["a", "b"].map(|name| {
        server.put(name, object(4 * MIB));
        open_within(&server, name, &session, MIB)
    });
    server.fail([Fault::Held]);
    let [of_a, of_b] = [&a, &b].map(|object| {
        object.announce(&[MIB..MIB + 1000], Need::Now);
        object.span(MIB..MIB + 1000)
    });
    drop(a);
    assert!(of_a.has_failed() && !of_b.has_failed());
    server.let_go();
}

#[test]
fn a_reader_that_gives_up_takes_its_request_and_not_those_of_others() {
    let (server, object) = opened();
    server.fail([Fault::Held]);
    object.announce(&[10 * MIB..11 * MIB], Need::Now);
    let mine = object.clone();
    let error = while_wanted(|| false, move || mine.get(RANGE)).unwrap_err();
    assert!(is_given_up(&error), "{error}");
    assert_eq!((object.missing(RANGE), object.missing(10 * MIB..11 * MIB)), (MIB, 0));
    server.let_go();
}

#[test]
fn a_request_for_what_was_announced_ends_once_the_work_that_did_it_is_given_up() {
    let (server, object) = opened();
    server.fail([Fault::Held]);
    let work = Wanted::default();
    work.within(|| object.announce(&[RANGE], Need::Now));
    assert_eq!(object.missing(RANGE), 0);
    work.give_up();
    wait_until(|| object.missing(RANGE) == MIB);
    server.let_go();
}

#[test]
fn what_work_may_not_ask_for_is_left_to_others() {
    let (_server, object) = opened();
    let none = Allowance { requests: 0, bytes: u64::MAX, until: std::time::Instant::now() + Duration::from_secs(3600) };
    let error = Wanted::limited(none).within(|| object.get(RANGE)).unwrap_err();
    assert!(matches!(error.kind(), Kind::TooLarge { .. }), "{error}");
    assert_eq!(object.missing(RANGE), MIB);
    object.get(RANGE).unwrap();
}

#[test]
fn a_reader_that_joined_a_request_which_fails_makes_its_own() {
    let (server, object) = opened();
    // The first is made again once it is let go, and refused.
    server.fail([Fault::Held, Fault::Status(403), Fault::None]);
    object.announce(&[RANGE], Need::Now);
    let span = object.span(RANGE);
    scope(|scope| {
        let reader = scope.spawn(|| object.get(RANGE));
        wait_until(|| span.is_awaited() && !server.log().is_empty());
        server.let_go();
        assert!(reader.join().unwrap().unwrap() == noise(2 * MIB)[MIB as usize..]);
    });
    assert_eq!(server.take_log().len(), 3);
    // Its own request is made once.
    server.fail([Fault::Status(403), Fault::None]);
    object.get(10 * MIB..11 * MIB).unwrap_err();
    assert_eq!(server.take_log().len(), 1);
}

#[test]
fn a_reader_whose_request_others_have_cancelled_makes_it_again_and_readahead_does_not() {
    for is_ahead in [false, true] {
        let (server, object) = opened();
        server.fail([Fault::Held, Fault::None]);
        let mine = object.clone();
        let get = move || mine.get(RANGE);
        let reader = spawn(move || if is_ahead { wanted::ahead(get) } else { get() });
        wait_until(|| !server.log().is_empty());
        let span = object.span(RANGE);
        wait_until(|| is_ahead || span.is_awaited());
        span.cancel();
        let read = reader.join().unwrap();
        assert_eq!(read.map_err(|e| is_given_up(&e)).err(), is_ahead.then_some(true));
        assert_eq!(server.log().len(), if is_ahead { 1 } else { 2 });
        server.let_go();
    }
}

#[test]
fn a_change_that_was_seen_is_one_of_the_whole_object_for_good() {
    let (server, object) = opened();
    object.get(RANGE).unwrap();
    object.check().unwrap();
    assert!(object.is_same_in_memory() && object.fingerprint().is_some());
    server.take_log();
    object.set_changed();
    assert!(!object.is_same_in_memory() && object.fingerprint().is_none());
    assert!(matches!(object.check().unwrap_err().kind(), Kind::Changed));
    assert!(matches!(object.get(RANGE).unwrap_err().kind(), Kind::Changed));
    object.announce(&[10 * MIB..11 * MIB], Need::Now);
    assert_eq!(object.missing(10 * MIB..11 * MIB), MIB);
}

#[test]
fn the_fingerprint_is_that_of_a_version_at_an_address() {
    let (server, session) = (Server::start(), Arc::default());
    let print = |name: &str, served| {
        server.put(name, served);
        open_within(&server, name, &session, MIB).fingerprint()
    };
    let first = print("x", object(100)).unwrap();
    assert_eq!(print("x", object(100)), Some(first));
    for other in [print("x", object(101)), print("x", object(100).with_etag("\"v2\"")), print("y", object(100))] {
        assert!(other.is_some_and(|other| other != first));
    }
    assert_eq!(print("x", object(100).with_etag("W/\"v1\"")), None);
}

#[test]
fn a_range_is_near_if_a_sixteenth_of_it_is_missing_or_64_kib() {
    let (server, object) = opened();
    server.fail([Fault::Held]);
    object.announce(&[MIB..4 * MIB + 3 * MIB / 4], Need::Now);
    for (range, is_near) in [
        (MIB..5 * MIB, true),
        (MIB - 1..5 * MIB, false),
        (MIB..4 * MIB, true),
        (10 * MIB..10 * MIB + 64 * KIB, true),
        (10 * MIB..10 * MIB + 64 * KIB + 1, false),
    ] {
        assert_eq!(object.is_near(range.clone()), is_near, "{range:?}");
    }
    assert!(object.is_far());
    server.let_go();
}

#[test]
fn reads_within_the_beginning_and_single_ones_elsewhere_are_no_reason_to_fetch_more() {
    let (server, object) = opened();
    for at in 0..16 {
        object.get(at * KIB..(at + 1) * KIB).unwrap();
    }
    assert_eq!((object.missing(HEAD..MIB), server.take_log().len()), (MIB - HEAD, 0));
    for at in [HEAD, 10 * MIB] {
        object.get(at..at + 10).unwrap();
        assert_eq!(object.missing(at..at + MIB), MIB - 32 * KIB);
    }
}

#[test]
fn reads_in_order_are_fetched_ahead_of_and_so_are_those_of_what_is_there_already() {
    let (_server, object) = opened();
    let quarter = MIB / 4;
    // As the table in `streams`; what is ahead by less than a large request waits for the next read.
    for (read, ahead) in (1..).zip([1, 2, 6, 6, 6, 6, 52, 52, 52, 100]) {
        object.get(MIB + (read - 1) * quarter..MIB + read * quarter).unwrap();
        let end = MIB + ahead * quarter;
        assert_eq!((object.missing(MIB..end), object.missing(end..end + 10)), (0, 10), "{read}");
    }
}

#[test]
fn what_is_announced_is_fetched_and_no_more_unless_a_reader_will_come_to_more() {
    let (_server, object) = opened();
    let part = |i: u64| MIB + i * MIB / 2..MIB + (i + 1) * MIB / 2;
    object.announce(&[part(0).start..part(9).end], Need::Now);
    for i in 0..10 {
        object.get(part(i)).unwrap();
    }
    assert_eq!(object.missing(part(9).end..part(9).end + MIB), MIB);
    // Others are read in order as before.
    for i in 0..4 {
        object.get(30 * MIB + i * MIB..30 * MIB + (i + 1) * MIB).unwrap();
    }
    assert_eq!(object.missing(34 * MIB..40 * MIB), 0);
    let (_server, object) = opened();
    for (need, at, ahead) in [(Need::Now, 20 * MIB, 0), (Need::Ahead, 40 * MIB, 8 * MIB)] {
        object.announce(&[at..at + MIB], need);
        let end = at + MIB + ahead;
        assert_eq!((object.missing(at..end), object.missing(end..end + MIB)), (0, MIB), "{need:?}");
    }
}

#[test]
fn what_is_fetched_ahead_takes_half_of_the_memory() {
    let server = Server::start();
    server.put("x", object(64 * MIB));
    let object = open_within(&server, "x", &Arc::default(), 8 * MIB);
    object.announce(&[MIB..MIB + 1000], Need::Ahead);
    let end = MIB + 1000 + 4 * MIB;
    assert_eq!((object.missing(MIB..end), object.missing(end..end + MIB)), (0, MIB));
}

#[test]
fn the_end_of_a_short_object_is_not_asked_for() {
    let server = Server::start();
    server.serve_tails(Fault::None);
    for (is_long, tails) in [(false, 0), (true, 1)] {
        server.put("x", object(100 * KIB));
        wait_until(|| {
            // The beginning comes late, so that an end would come first.
            server.fail([Fault::Status(503), Fault::None]);
            Object::open(address(&server, "x"), &Arc::default(), &patient(), &account(), MIB, is_long).unwrap();
            let found = counts(&server).1;
            assert!(found <= tails);
            found == tails
        });
    }
}

#[test]
fn the_end_is_waited_for_as_long_as_the_beginning_took_if_it_is_another_part() {
    let took = Duration::from_millis(7);
    for (size, waits) in [(0, Duration::ZERO), (HEAD - 1, Duration::ZERO), (HEAD, Duration::ZERO), (HEAD + 1, took)] {
        assert_eq!(patience(size, took), waits, "{size}");
    }
}

#[test]
fn an_end_that_is_not_plainly_the_last_bytes_is_not_used() {
    let (bytes, text) = (noise(MIB), |range: &str| format!("bytes {range}/1048576"));
    let body = "x".repeat(16 << 10);
    for (range, encoding) in [("1032192-1048575", "gzip"), ("1032190-1048573", "identity")] {
        let server = Server::start();
        server.put("x", object(MIB));
        let headers = [
            ("Content-Range", text(range)),
            ("Content-Encoding", encoding.to_owned()),
            ("ETag", "\"v1\"".to_owned()),
            ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT".to_owned()),
        ];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        server.serve_tails(answer(206, &headers, &body));
        server.fail([Fault::Status(503), Fault::None]);
        let object = Object::open(address(&server, "x"), &Arc::default(), &patient(), &account(), MIB, true).unwrap();
        assert!(object.get(MIB - 100..MIB).unwrap() == bytes[bytes.len() - 100..], "{range} {encoding}");
    }
}

#[test]
fn a_reader_waits_for_no_span_beside_its_bytes() {
    let spans = [0..10, 10..20, 20..30].map(|range| Arc::new(Span::new(range)));
    spans[1].push(&[7; 10]).unwrap();
    spans[0].fail(Error::new(Kind::NotFound, "x"));
    spans[2].fail(Error::new(Kind::NotFound, "x"));
    let mut dst = [0; 10];
    let mut parts = [Part { at: FileOffset(10), dst: &mut dst }];
    assert!(Object::copy(&spans, &mut parts, "x").is_ok());
    assert_eq!(dst, [7; 10]);
}
