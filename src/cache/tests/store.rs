//! What the store marks as prefetched, keeps as spare memory, and counts.

use std::sync::Arc;

use crate::account::Account;
use crate::cache::queues::{FRESH, ReadOrder};
use crate::cache::store::{DecodeRoom, Store};
use crate::error::{Error, Kind};

const MIB: u64 = 1 << 20;

fn store(budget: u64) -> Store {
    Store::new(budget, budget, Account::new(0, 0))
}

/// Makes room for a piece of `bytes` bytes, and keeps it.
fn decode(store: &mut Store, piece: u64, bytes: u64) {
    let mut room = DecodeRoom::new(bytes);
    store.reserve(bytes);
    while !store.make_room(&mut room) {
        room.sweep();
    }
    let buffer = room.buffer.take().unwrap_or_else(|| Vec::with_capacity(usize::try_from(bytes).unwrap()));
    let piece = ((1, piece), Arc::new(buffer));
    store.release(bytes);
    while !store.keep(piece.0, &piece.1, false, &mut room) {
        room.sweep();
    }
}

#[test]
fn memory_of_the_ring_is_spare_and_counted() {
    let mut store = store(64 * MIB);
    (0..16).for_each(|piece| decode(&mut store, piece, MIB));
    assert_eq!((store.stats().held, store.stats().spare), (16 * MIB, 0));
    // Too small for the memory of the piece that leaves the ring.
    decode(&mut store, 16, MIB / 8);
    let stats = store.stats();
    assert_eq!((stats.held, stats.spare, stats.peak), (15 * MIB + MIB / 8, MIB, 16 * MIB + MIB / 8));
}

#[test]
fn memory_that_is_needed_is_not_kept_as_spare() {
    let mut store = store(8 * MIB);
    // Read out of order.
    (1..9).for_each(|piece| decode(&mut store, 10 * piece, MIB));
    assert_eq!(store.stats().held, 8 * MIB);
    decode(&mut store, 100, MIB / 8);
    assert_eq!((store.stats().held, store.stats().spare), (7 * MIB + MIB / 8, 0));
}

#[test]
fn half_of_the_budget_may_be_prefetched_and_nothing_that_has_failed() {
    let mut store = store(8 * MIB);
    let mark = |store: &mut Store, piece| store.mark_prefetched((1, piece), MIB, ReadOrder::Sequential);
    store.fail((1, 0), Error::new(Kind::NotFound, "piece"));
    let marked: Vec<u64> = (0..10).filter(|&piece| mark(&mut store, piece)).collect();
    assert_eq!(marked, [1, 2, 3, 4]);
    store.clear_prefetched((1, 2));
    assert!(!mark(&mut store, 3) && mark(&mut store, 5) && !mark(&mut store, 6));
}

#[test]
fn pieces_that_were_prefetched_in_vain_count_until_their_room_is_needed() {
    let mut store = store(8 * MIB);
    let mark = |store: &mut Store, piece| store.mark_prefetched((1, piece), MIB, ReadOrder::Sequential);
    assert!((0..3).all(|piece| mark(&mut store, piece)));
    store.clock.pass(FRESH);
    assert!(mark(&mut store, 3) && store.is_prefetched((1, 0)), "half of the budget is enough");
    assert!(mark(&mut store, 4) && !store.is_prefetched((1, 0)) && store.is_prefetched((1, 3)));
}
