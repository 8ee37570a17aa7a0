//! What leaves the queues of the cache: at the limits of the ring, of prefetched pieces and of ghosts, to the piece.

use std::sync::Arc;
use std::time::Instant;

use crate::cache::queues::{ABANDONED, GHOSTS, LEAST, QueueStep, Queues, ReadOrder};
use crate::format::PieceKey;

const MIB: usize = 1 << 20;
/// Much more than the pieces of a test.
const BUDGET: u64 = 1 << 30;

/// Inserts a piece of `bytes` bytes, which are not written.
fn insert(queues: &mut Queues, piece: u64, bytes: usize, (ahead, order): (bool, ReadOrder), now: Instant) {
    queues.insert((1, piece), &Arc::new(Vec::with_capacity(bytes)), ahead, order, BUDGET, now);
}

fn evicted(step: &QueueStep) -> Option<PieceKey> {
    match step {
        QueueStep::Evicted(key, _) => Some(*key),
        QueueStep::Done | QueueStep::Moved => None,
    }
}

#[test]
fn a_ring_of_two_pieces_is_not_trimmed_however_large_they_are() {
    let (mut queues, now) = (Queues::new(), Instant::now());
    (0..2).for_each(|piece| insert(&mut queues, piece, 16 * MIB, (false, ReadOrder::Sequential), now));
    assert_eq!(evicted(&queues.trim(BUDGET, 0, now)), None);
    insert(&mut queues, 2, 16 * MIB, (false, ReadOrder::Sequential), now);
    assert_eq!(evicted(&queues.trim(BUDGET, 0, now)), Some((1, 0)));
    assert_eq!(evicted(&queues.trim(BUDGET, 0, now)), None);
}

#[test]
fn more_than_two_prefetched_pieces_are_trimmed_once_they_are_abandoned() {
    let (mut queues, now) = (Queues::new(), Instant::now());
    (0..2).for_each(|piece| insert(&mut queues, piece, 16 * MIB, (true, ReadOrder::Unknown), now));
    assert_eq!(evicted(&queues.trim(BUDGET, 0, now + ABANDONED)), None);
    insert(&mut queues, 2, 16 * MIB, (true, ReadOrder::Unknown), now);
    assert_eq!(evicted(&queues.trim(BUDGET, 0, now + ABANDONED / 2)), None);
    assert_eq!(evicted(&queues.trim(BUDGET, 0, now + ABANDONED)), Some((1, 0)));
}

#[test]
fn the_ring_leaves_before_other_pieces_only_beyond_its_share() {
    // A share of 16 MiB, and what goes first.
    for (count, bytes, first) in [(2, 16 * MIB, 100), (3, 16 * MIB, 0), (4, 4 * MIB, 100), (5, 4 * MIB, 0)] {
        let (mut queues, now) = (Queues::new(), Instant::now());
        (0..count).for_each(|piece| insert(&mut queues, piece, bytes, (false, ReadOrder::Sequential), now));
        insert(&mut queues, 100, MIB, (false, ReadOrder::Random), now);
        assert_eq!(evicted(&queues.shrink(64 << 20, 0, now)), Some((1, first)), "{count} of {bytes}");
    }
}

#[test]
fn reuse_enlarges_the_ring_to_three_quarters_of_the_budget() {
    let (mut queues, now, budget) = (Queues::new(), Instant::now(), 64 << 20);
    (0..60).for_each(|piece| insert(&mut queues, piece, MIB, (false, ReadOrder::Sequential), now));
    // The wanted size grows by two pieces each time.
    (0..60).for_each(|_| assert!(queues.find((1, 0)).is_some()));
    let evicted = std::iter::from_fn(|| evicted(&queues.trim(budget, 0, now)));
    assert_eq!(evicted.map(|(_, piece)| piece).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
}

#[test]
fn of_evicted_pieces_a_number_is_remembered_and_a_budget_of_bytes() {
    let (mut queues, now) = (Queues::new(), Instant::now());
    let most = GHOSTS.get() as u64;
    let evict = |queues: &mut Queues, piece| {
        insert(queues, piece, 1, (false, ReadOrder::Random), now);
        assert_eq!(evicted(&queues.shrink(BUDGET, 0, now)), Some((1, piece)));
    };
    (0..most + 100).for_each(|piece| evict(&mut queues, piece));
    queues.limit_ghosts(most * LEAST);
    assert_eq!(queues.ghosts() as u64, most);
    // One that is remembered is kept like one that was used again.
    insert(&mut queues, most, 1, (false, ReadOrder::Random), now);
    queues.limit_ghosts((most - 1) * LEAST);
    assert_eq!(queues.ghosts() as u64, most - 1);
    queues.limit_ghosts(10 * LEAST);
    assert_eq!(queues.ghosts(), 10);
}
