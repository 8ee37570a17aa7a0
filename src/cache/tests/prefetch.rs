//! Prefetched pieces: in batches, within half of the budget, and not before their gate has opened.

use super::*;
use crate::cache::queues::FRESH;
use crate::format::InOrder;

#[test]
fn pieces_behind_an_undecided_gate_are_not_prefetched() {
    let gate = ChecksumGate::new(&Verify::First, 0, &Threads::default(), || Ok(()));
    let (blob, _) = Memory { gate: Some(gate.clone()), ..memory(4) }.blob();
    let cache = Cache::new(100 * PIECE, 1);
    assert!(!cache.prefetch(&blob, 0..4));
    gate.wait().unwrap();
    assert!(cache.prefetch(&blob, 0..4));
}

#[test]
fn prefetched_pieces_take_at_most_half_the_budget() {
    let (blob, memory) = memory(20).blob();
    let cache = Cache::new(10 * PIECE, 2);
    assert!(!cache.prefetch(&blob, 0..20));
    let counts = || {
        let stats = cache.stats();
        (stats.pieces, stats.decodes, stats.ahead)
    };
    wait_until(|| counts() == (5, 5, 5));
    // Queued behind any other decode.
    let (tx, rx) = mpsc::channel();
    cache.submit(Box::new(move || tx.send(()).unwrap()));
    rx.recv_timeout(PATIENCE).unwrap();
    assert_eq!(counts(), (5, 5, 5));
    for piece in 0..5 {
        assert!(is_piece(&cache.get(&blob, piece).unwrap(), &memory, piece));
    }
    assert!(cache.prefetch(&blob, 3..8));
    wait_until(|| cache.stats().pieces == 8);
    assert_eq!((cache.stats().decodes, cache.stats().hits), (8, 5));
    assert!(cache.prefetch(&blob, 25..30), "nothing there, nothing to do");
}

#[test]
fn consecutive_prefetched_pieces_are_decoded_in_one_batch() {
    let (blob, memory) = Memory { batch: 4, ..memory(20) }.blob();
    let cache = Cache::new(40 * PIECE, 1);
    let completed = |pieces| {
        wait_until(|| cache.stats().decodes >= pieces);
        std::mem::take(&mut *memory.batches.lock().unwrap())
    };
    assert!(cache.prefetch(&blob, 0..10));
    assert_eq!(completed(10), [(0, 4), (4, 4), (8, 2)]);
    assert!(is_piece(&cache.get(&blob, 15).unwrap(), &memory, 15));
    assert!(cache.prefetch(&blob, 12..19));
    assert_eq!(completed(17), [(12, 3), (16, 3)], "15 was there");
    assert!(cache.prefetch(&blob, 19..20));
    assert_eq!(completed(18), []);
    for piece in (0..10).chain(12..20) {
        assert!(is_piece(&cache.peek(&blob, piece).unwrap(), &memory, piece), "{piece}");
    }
    assert_eq!((cache.stats().ahead, memory.decodes.load(Ordering::Relaxed)), (17, 18));
}

#[test]
fn a_broken_piece_does_not_fail_the_others_of_its_batch() {
    let (blob, memory) = Memory { batch: 8, broken: vec![2], panics: vec![5], ..memory(8) }.blob();
    let cache = Cache::new(40 * PIECE, 1);
    assert!(cache.prefetch(&blob, 0..8));
    for piece in (0..8).rev() {
        match cache.get(&blob, piece) {
            Ok(got) => assert!(is_piece(&got, &memory, piece)),
            Err(e) => assert_eq!(e.to_string().contains("panicked"), piece == 5, "{e}"),
        }
    }
    assert_eq!(cache.stats().failures, 2);
}

#[test]
fn a_caller_of_a_piece_of_a_running_batch_waits_for_the_batch() {
    let takes = Duration::from_millis(20);
    let (blob, memory) = Memory { batch: 8, takes, ..memory(8) }.blob();
    let cache = Cache::new(40 * PIECE, 1);
    assert!(cache.prefetch(&blob, 0..8));
    wait_until(|| !memory.batches.lock().unwrap().is_empty());
    assert!(is_piece(&cache.get(&blob, 7).unwrap(), &memory, 7));
    assert_eq!(memory.decodes.load(Ordering::Relaxed), 8);
}

#[test]
fn a_batch_stays_within_the_budget() {
    let (blob, memory) = Memory { batch: 4, ..memory(40) }.blob();
    let cache = Cache::new(8 * PIECE, 1);
    for first in (0..40).step_by(4) {
        assert!(cache.prefetch(&blob, first..first + 4));
        for piece in first..first + 4 {
            assert!(is_piece(&cache.get(&blob, piece).unwrap(), &memory, piece));
        }
    }
    assert!(cache.stats().peak <= 8 * PIECE);
}

#[test]
fn prefetching_does_not_decode_to_find_a_length() {
    let (blob, _) = Memory { known: false, ..memory(2) }.blob();
    assert!(!Cache::new(1 << 20, 1).prefetch(&blob, 0..2));
}

/// Waits until the only worker of `cache` has done what is queued.
fn idle(cache: &Cache) {
    let (tx, rx) = mpsc::channel();
    // Behind all other hints.
    wait_until(|| {
        let tx = tx.clone();
        cache.pool.hint(Box::new(move || tx.send(()).unwrap()))
    });
    rx.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn what_was_read_or_forgotten_meanwhile_is_not_decoded_ahead() {
    let (blob, memory) = memory(20).blob();
    let cache = Cache::new(100 * PIECE, 1);
    let go = occupied(&cache);
    assert!(cache.prefetch(&blob, 0..4));
    assert!(is_piece(&cache.get(&blob, 1).unwrap(), &memory, 1));
    drop(go);
    idle(&cache);
    assert_eq!((cache.stats().decodes, cache.stats().ahead), (4, 3), "each once");

    // Read, and evicted again.
    for is_run in [false, true] {
        let blob = Memory { is_run, ..self::memory(20) }.blob().0;
        let small = Cache::new(4 * PIECE, 1);
        let go = occupied(&small);
        assert!(small.prefetch(&blob, 0..1));
        for piece in 0..6 {
            small.get(&blob, piece).unwrap();
        }
        assert!(!small.holds(&blob, 0));
        drop(go);
        idle(&small);
        assert_eq!((small.stats().decodes, small.stats().ahead), (6, 0), "{is_run}");
    }

    let go = occupied(&cache);
    assert!(cache.prefetch(&blob, 10..14));
    cache.clear();
    drop(go);
    idle(&cache);
    assert_eq!((cache.stats().decodes, cache.stats().held), (4, 0));
}

#[test]
fn pieces_of_a_list_are_queued_when_it_is_dropped_and_refused_if_they_are_too_many() {
    let (blob, memory) = memory(20).blob();
    let cache = Cache::new(10 * PIECE, 1);
    let mut hints = cache.prefetch_batch();
    assert!(hints.add(&blob, 3, PIECE));
    drop(hints);
    idle(&cache);
    assert!(is_piece(&cache.peek(&blob, 3).unwrap(), &memory, 3));
    let mut hints = cache.prefetch_batch();
    assert!((4..8).all(|piece| hints.add(&blob, piece, PIECE)));
    assert!(!hints.add(&blob, 9, 6 * PIECE));
    assert!(!hints.send());
}

#[test]
fn pieces_that_no_worker_can_take_are_refused_and_may_be_asked_for_again() {
    for is_run in [false, true] {
        // Pieces of a run that do not follow each other are jobs of their own, and so are large ones.
        let (blob, memory) = Memory { is_run, ..Memory::new(noise(600 << 10), 1 << 10) }.blob();
        let cache = Cache::new(1 << 30, 1);
        let go = occupied(&cache);
        let wanted = (0..600).step_by(2).find(|&piece| !cache.prefetch(&blob, piece..piece + 1));
        let refused = wanted.unwrap_or_else(|| panic!("all were taken, {is_run}"));
        assert!(!cache.is_known(&blob, refused), "{is_run}");
        drop(go);
        assert_eq!(cache.get(&blob, refused).unwrap()[..], memory.bytes[(refused << 10) as usize..][..1 << 10]);
        idle(&cache);
        assert!(cache.prefetch(&blob, refused + 1..refused + 2), "{is_run}");
    }
}

/// A stream that keeps piece 1 itself, and decodes piece 2 ahead.
struct Ahead(AtomicU64);

impl Blob for Ahead {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: 4 * PIECE, piece: PIECE })
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        dst.fill(piece as u8);
        Ok(())
    }

    fn in_order(&self) -> Option<&dyn InOrder> {
        Some(self)
    }
}

impl InOrder for Ahead {
    fn is_run(&self, _: u64) -> bool {
        false
    }

    fn ready(&self, piece: u64) -> Option<Piece> {
        (piece == 1).then(|| Arc::new(vec![1; PIECE as usize]))
    }

    fn is_coming(&self, piece: u64) -> bool {
        piece == 1 || piece == 2
    }
}

#[test]
fn what_a_stream_keeps_or_decodes_ahead_itself_is_neither_prefetched_nor_kept_twice() {
    let stream = Arc::new(Ahead(AtomicU64::new(0)));
    let (blob, cache) = (BlobRef::shared(stream.clone()), Cache::new(100 * PIECE, 1));
    assert!(cache.prefetch(&blob, 1..3));
    idle(&cache);
    assert_eq!((stream.0.load(Ordering::Relaxed), cache.stats().ahead), (0, 0));
    assert_eq!(cache.peek(&blob, 1).unwrap()[..], [1; PIECE as usize]);
    assert_eq!((cache.stats().hits, cache.stats().held), (1, 0));
    assert!(cache.peek(&blob, 2).is_none());
    assert_eq!(cache.get(&blob, 1).unwrap()[..], [1; PIECE as usize]);
    assert_eq!((stream.0.load(Ordering::Relaxed), cache.stats().held), (0, 0));
}

#[test]
fn pieces_that_nobody_came_for_in_two_seconds_give_their_place_to_others() {
    let (blob, _) = memory(30).blob();
    let cache = Cache::new(10 * PIECE, 1);
    let _go = occupied(&cache);
    assert!(cache.prefetch(&blob, 0..4));
    cache.clock().pass(FRESH / 2);
    assert!(cache.prefetch(&blob, 10..11) && !cache.prefetch(&blob, 11..12));
    cache.clock().pass(FRESH / 4);
    assert!(!cache.prefetch(&blob, 20..21));
    cache.clock().pass(FRESH / 4);
    assert!(cache.prefetch(&blob, 20..24) && !cache.prefetch(&blob, 24..25), "four, beside the one that is fresh");
}

#[test]
fn a_piece_that_has_failed_lately_is_not_prefetched() {
    let (blob, memory) = Memory { broken: vec![0], ..memory(2) }.blob();
    let cache = Cache::new(10 * PIECE, 1);
    cache.get(&blob, 0).unwrap_err();
    assert!(!cache.prefetch(&blob, 0..1));
    idle(&cache);
    assert_eq!(memory.decodes.load(Ordering::Relaxed), 1);
}
