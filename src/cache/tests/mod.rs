//! Each piece is decoded once, the budget is kept, waits and failures are handled, on one thread and on many.

mod in_flight;
mod prefetch;
mod queues;
mod store;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::checksum::{ChecksumGate, Threads, Verify};
use crate::clock::{PATIENCE, wait_until};
use crate::error::Error;
use crate::format::testing::{Memory, noise};
use crate::format::{Blob, Layout};
use crate::wanted::{Then, while_wanted};

const PIECE: u64 = 1000;

fn memory(pieces: u64) -> Memory {
    Memory::new(noise((pieces * PIECE) as usize), PIECE)
}

fn is_piece(got: &Piece, of: &Memory, piece: u64) -> bool {
    let range = of.layout.range(piece);
    got[..] == of.bytes[range.start as usize..range.end as usize]
}

/// Occupies the only worker of `cache` until the returned sender is used or dropped.
pub(super) fn occupied(cache: &Cache) -> mpsc::Sender<()> {
    let ((go, wait), (tx, begun)) = (mpsc::channel::<()>(), mpsc::channel());
    cache.submit(Box::new(move || {
        tx.send(()).unwrap();
        wait.recv().ok();
    }));
    begun.recv_timeout(PATIENCE).unwrap();
    go
}

#[test]
fn a_piece_is_decoded_once_and_then_cached() {
    let (blob, memory) = memory(3).blob();
    let cache = Cache::new(1 << 20, 2);
    assert_eq!(cache.workers(), 2);
    assert!(cache.peek(&blob, 1).is_none());
    for _ in 0..3 {
        assert!(is_piece(&cache.get(&blob, 1).unwrap(), &memory, 1));
    }
    assert!(is_piece(&cache.peek(&blob, 1).unwrap(), &memory, 1));
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.decodes, stats.held, stats.pieces), (3, 1, 1, 1000, 1));
    cache.clear();
    assert!(cache.peek(&blob, 1).is_none());
    assert_eq!((cache.stats().held, cache.stats().peak), (0, 1000));
}

#[test]
fn memory_charged_by_others_reduces_the_budget_to_no_less_than_a_quarter() {
    let (blob, _) = memory(20).blob();
    let other_users = Account::new(100 * PIECE, 0);
    let cache = Cache::sharing(12 * PIECE, 12 * PIECE, 1, other_users.clone());
    let all = |held| {
        (0..20).for_each(|piece| _ = cache.get(&blob, piece).unwrap());
        assert_eq!(cache.stats().held, held * PIECE);
    };
    all(12);
    let some = other_users.charge(5 * PIECE, "a").unwrap();
    all(7);
    let most = other_users.charge(90 * PIECE, "b").unwrap();
    all(3);
    drop((some, most));
    all(12);
    let cache = Cache::sharing(12 * PIECE, 24 * PIECE, 1, other_users.clone());
    for (charged, held) in [(0, 12), (10, 12), (20, 4), (30, 3)] {
        let _charge = other_users.charge(charged * PIECE, "c").unwrap();
        (0..20).for_each(|piece| _ = cache.get(&blob, piece).unwrap());
        assert_eq!(cache.stats().held, held * PIECE, "{charged}");
    }
}

#[test]
fn of_what_is_read_in_order_the_oldest_is_evicted_and_its_buffer_reused() {
    let (blob, memory) = memory(10).blob();
    let cache = Cache::new(3 * PIECE, 1);
    for piece in [0, 1, 2] {
        cache.get(&blob, piece).unwrap();
    }
    let buffer = cache.peek(&blob, 0).unwrap().as_ptr();
    let got = cache.get(&blob, 3).unwrap();
    assert!(is_piece(&got, &memory, 3));
    assert_eq!(got.as_ptr(), buffer, "piece 0 was the oldest");
    assert!(!cache.holds(&blob, 0) && cache.holds(&blob, 1) && cache.holds(&blob, 2) && cache.holds(&blob, 3));

    // The buffer of a piece that a reader still holds is not reused.
    let held = cache.peek(&blob, 1).unwrap();
    for piece in 4..9 {
        cache.get(&blob, piece).unwrap();
    }
    assert!(is_piece(&held, &memory, 1));
    assert!(cache.stats().peak <= 3 * PIECE);
}

#[test]
fn a_piece_of_the_size_of_the_budget_is_kept_and_its_buffer_serves_the_next_one() {
    let (blob, memory) = memory(2).blob();
    let cache = Cache::new(PIECE, 1);
    let buffer = cache.get(&blob, 0).unwrap().as_ptr();
    assert!(cache.holds(&blob, 0));
    let next = cache.get(&blob, 1).unwrap();
    assert_eq!((next.as_ptr(), cache.holds(&blob, 0), cache.holds(&blob, 1)), (buffer, false, true));
    assert!(is_piece(&next, &memory, 1));
    assert_eq!(cache.stats().peak, PIECE);
}

#[test]
fn what_others_charge_and_decode_of_the_same_memory_is_counted() {
    let (account, (blob, _)) = (Account::new(100 * PIECE, 0), memory(3).blob());
    let cache = Cache::sharing(10 * PIECE, 20 * PIECE, 1, account.clone());
    cache.get(&blob, 0).unwrap();
    let _charge = account.charge(700, "x").unwrap();
    account.count_beside(50);
    let stats = cache.stats();
    assert_eq!((stats.decoded_bytes, stats.beside, stats.held), (PIECE + 50, 700, PIECE));
}

#[test]
fn a_piece_larger_than_the_budget_is_served_and_not_kept() {
    let (blob, memory) = memory(2).blob();
    let cache = Cache::new(PIECE - 1, 1);
    assert!(is_piece(&cache.get(&blob, 0).unwrap(), &memory, 0));
    assert!(!cache.holds(&blob, 0));
    assert_eq!(cache.stats().peak, 0);
    assert!(!cache.prefetch(&blob, 0..2));
}

#[test]
fn a_failure_is_remembered_for_a_second_and_a_panic_is_a_failure() {
    let (blob, memory) = Memory { broken: vec![0], panics: vec![1], ..memory(3) }.blob();
    let cache = Cache::new(1 << 20, 1);
    for piece in [0, 1] {
        let first = cache.get(&blob, piece).unwrap_err().to_string();
        assert_eq!(cache.get(&blob, piece).unwrap_err().to_string(), first);
        assert_eq!(first.contains("the decoder panicked: as the test wants it"), piece == 1, "{first}");
    }
    assert_eq!(memory.decodes.load(Ordering::Relaxed), 2);
    assert!(is_piece(&cache.get(&blob, 2).unwrap(), &memory, 2));
    cache.clock().pass(Duration::from_millis(999));
    assert!(cache.get(&blob, 0).is_err());
    assert_eq!(memory.decodes.load(Ordering::Relaxed), 3);
    cache.clock().pass(Duration::from_millis(1));
    assert!(cache.get(&blob, 0).is_err());
    assert_eq!(memory.decodes.load(Ordering::Relaxed), 4);
    assert_eq!(cache.stats().failures, 3);
}

#[test]
fn concurrent_callers_wait_for_one_decode_even_if_it_panics() {
    let takes = Duration::from_millis(100);
    let (blob, memory) = Memory { takes, panics: vec![1], ..memory(2) }.blob();
    let cache = Cache::new(1 << 20, 1);
    let ok = AtomicU64::new(0);
    thread::scope(|scope| {
        for i in 0..16 {
            let (cache, blob, ok) = (&cache, &blob, &ok);
            scope.spawn(move || ok.fetch_add(u64::from(cache.get(blob, i % 2).is_ok()), Ordering::Relaxed));
        }
    });
    assert_eq!((ok.into_inner(), memory.decodes.load(Ordering::Relaxed)), (8, 2));
}

/// Pieces that a test requests, each with its number.
type Come = mpsc::Receiver<(u64, Result<Piece>)>;

/// Receives them.
fn collect() -> (impl Fn(u64) -> Then<Piece>, Come) {
    let (tx, rx) = mpsc::channel();
    let then = move |piece| -> Then<Piece> {
        let tx = tx.clone();
        Box::new(move |result| tx.send((piece, result)).unwrap())
    };
    (then, rx)
}

#[test]
fn fetching_asynchronously_blocks_no_thread() {
    let (blob, memory) = Memory { takes: Duration::from_millis(50), broken: vec![1], ..memory(2) }.blob();
    let cache = Cache::new(1 << 20, 1);
    let (then, rx) = collect();
    (0..20).for_each(|i| cache.fetch_async(&blob, i % 2, then(i % 2)));
    let got: Vec<_> = (0..20).map(|_| rx.recv_timeout(PATIENCE).unwrap()).collect();
    assert!(got.iter().all(|(piece, result)| result.is_ok() == (*piece == 0)));
    assert_eq!(memory.decodes.load(Ordering::Relaxed), 2);
}

#[test]
fn a_piece_larger_than_the_budget_is_decoded_once_for_concurrent_callers() {
    let (blob, memory) = memory(1).blob();
    let cache = Cache::new(PIECE - 1, 1);
    let go = occupied(&cache);
    let (then, rx) = collect();
    (0..10).for_each(|_| cache.fetch_async(&blob, 0, then(0)));
    go.send(()).unwrap();
    for _ in 0..10 {
        assert!(is_piece(&rx.recv_timeout(PATIENCE).unwrap().1.unwrap(), &memory, 0));
    }
    assert_eq!(memory.decodes.load(Ordering::Relaxed), 1);
    assert!(!cache.holds(&blob, 0));
}

#[test]
fn a_cached_piece_does_not_queue_behind_missing_pieces() {
    let (blob, _) = memory(3).blob();
    let cache = Cache::new(1 << 20, 1);
    let (then, rx) = collect();
    let go = occupied(&cache);
    cache.fetch_async(&blob, 0, then(0));
    // Queued behind piece 0 on the only worker, and not finished before the test ends.
    let (end, held) = mpsc::channel::<()>();
    cache.submit(Box::new(move || _ = held.recv()));
    cache.fetch_async(&blob, 1, then(1));
    go.send(()).unwrap();
    assert_eq!(rx.recv_timeout(PATIENCE).unwrap().0, 0);
    // A cached piece is passed on immediately, on this thread.
    cache.fetch_async(&blob, 0, then(0));
    assert_eq!(rx.try_recv().unwrap().0, 0);
    drop(end);
    assert_eq!(rx.recv_timeout(PATIENCE).unwrap().0, 1);
}

#[test]
fn a_job_that_waits_for_a_piece_queued_behind_it_decodes_it_itself() {
    let (blob, memory) = memory(2).blob();
    let cache = Cache::new(1 << 20, 1);
    let (tx, rx) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let (me, b) = (Arc::downgrade(&cache), blob.clone());
    cache.submit(Box::new(move || {
        wait.recv().unwrap();
        tx.send(me.upgrade().unwrap().get(&b, 0).is_ok()).unwrap();
    }));
    let (then, completed) = collect();
    cache.fetch_async(&blob, 0, then(0));
    go.send(()).unwrap();
    assert!(rx.recv_timeout(PATIENCE).unwrap());
    assert!(completed.recv_timeout(PATIENCE).unwrap().1.is_ok());
    assert_eq!(memory.decodes.load(Ordering::Relaxed), 1);
}

/// A piece that comes only once nobody wants it any more; counts the decodes that have begun.
struct Never(AtomicU64);

impl Blob for Never {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: PIECE, piece: PIECE })
    }

    fn decode(&self, _: u64, _: &mut [u8]) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        wait_until(|| wanted::check().is_err());
        wanted::check()
    }
}

#[test]
fn a_decode_that_is_passed_on_ends_when_its_last_waiter_has_left_before_it_begins() {
    let never = Arc::new(Never(AtomicU64::new(0)));
    let (blob, begun) = (BlobRef::shared(never.clone()), || never.0.load(Ordering::Relaxed));
    let cache = Cache::new(1 << 20, 1);
    let go = occupied(&cache);
    thread::scope(|scope| {
        let reader = || {
            let left = Arc::new(AtomicBool::new(false));
            let (has_left, cache, blob) = (left.clone(), &cache, &blob);
            let read =
                scope.spawn(move || while_wanted(move || !has_left.load(Ordering::Relaxed), || cache.get(blob, 0)));
            (left, read)
        };
        let (one_left, one) = reader();
        wait_until(|| begun() == 1);
        let (other_left, other) = reader();
        let awaited = || cache.lock().in_flight_pieces.get(&(blob.id(), 0)).is_some_and(|flight| flight.is_wanted());
        wait_until(awaited);
        for (left, reader) in [(one_left, one), (other_left, other)] {
            left.store(true, Ordering::Relaxed);
            assert!(is_given_up(&reader.join().unwrap().unwrap_err()));
        }
    });
    go.send(()).unwrap();
    wait_until(|| begun() == 2 && cache.lock().in_flight_pieces.is_empty());
}

#[test]
fn a_changed_container_is_an_error_and_clears_the_cache() {
    let (blob, _) = memory(3).blob();
    let cache = Cache::new(1 << 20, 1);
    let same = Arc::new(AtomicBool::new(true));
    let flag = same.clone();
    cache.source_check(move || {
        let changed = || Error::new(crate::error::Kind::Changed, "file");
        flag.load(Ordering::Relaxed).then_some(()).ok_or_else(changed)
    });
    cache.get(&blob, 0).unwrap();
    same.store(false, Ordering::Relaxed);
    assert!(cache.get(&blob, 1).is_err());
    assert!(!cache.holds(&blob, 0));
}

#[test]
fn sixteen_threads_over_random_pieces_see_the_right_bytes_within_the_budget() {
    let blobs: Vec<_> = (0..3)
        .map(|i| Memory { broken: vec![7], panics: vec![11 + i], batch: 1 + i, is_run: i == 1, ..memory(40) }.blob())
        .collect();
    let cache = Cache::new(30 * PIECE, 4);
    let reads = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 1..=16_u64 {
            let (cache, blobs, reads) = (&cache, &blobs, &reads);
            scope.spawn(move || {
                let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let mut random = |n: u64| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state % n
                };
                for round in 0..3000 {
                    let (blob, memory) = &blobs[random(3) as usize];
                    let piece = random(40);
                    match random(8) {
                        0 => _ = cache.prefetch(blob, piece..piece + 4),
                        1 if round % 500 == 0 => cache.clear(),
                        2 => assert!(cache.peek(blob, piece).is_none_or(|got| is_piece(&got, memory, piece))),
                        _ => match cache.get(blob, piece) {
                            Ok(got) => assert!(is_piece(&got, memory, piece)),
                            Err(_) => assert!(memory.broken.contains(&piece) || memory.panics.contains(&piece)),
                        },
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let stats = cache.stats();
    assert_eq!(reads.into_inner(), 48_000);
    assert!(stats.peak <= 30 * PIECE && stats.held <= 30 * PIECE, "{stats:?}");
    assert!(stats.hits > 0 && stats.failures > 0, "{stats:?}");
}

#[test]
fn pieces_of_a_few_bytes_count_with_their_entries() {
    let (blob, _) = Memory::new(noise(8 * 1000), 8).blob();
    let cache = Cache::new(64 * 512, 1);
    for piece in 0..500 {
        cache.get(&blob, piece).unwrap();
    }
    assert!(cache.stats().pieces <= 64, "{:?}", cache.stats());
    assert!(!cache.prefetch(&blob, 500..1000), "half of the budget is 32 pieces");
}
