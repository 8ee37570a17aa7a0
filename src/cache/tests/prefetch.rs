//! Prefetched pieces: in batches, within half of the budget, and not before their gate has opened.

use super::*;

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
