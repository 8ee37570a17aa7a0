//! Decodes and memory of the store for whole traces of requests.
//!
//! Pieces have a size and no content, so that a gigabyte of them takes no memory. Readers in order take a piece in
//! eight requests, as the kernel does.

mod policy;

use std::ops::Range;
use std::sync::Arc;

use super::queues::{RING, ReadOrder};
use super::store::{DecodeRoom, Store};
use crate::account::Account;
use crate::format::PieceKey;

const MIB: u64 = 1 << 20;
/// Budget of most traces, in pieces.
const BUDGET: u64 = 256;
/// Most bytes of one pass: the ring, prefetched pieces, and a little for pieces about to leave.
const PASS: u64 = RING + 8 * MIB;

struct Reader {
    store: Store,
    decodes: u64,
    /// Decodes into memory that the store did not provide.
    fresh: u64,
}

impl Reader {
    fn new(pieces: u64) -> Self {
        Self { store: Store::new(pieces * MIB, pieces * MIB, Account::new(0, 0)), decodes: 0, fresh: 0 }
    }

    /// Requests a piece; decodes it if it is missing.
    fn read(&mut self, key: PieceKey) {
        if self.store.find(key).is_none() {
            self.store.request_prefetched(key);
            self.decode(key, MIB);
        }
    }

    fn prefetch(&mut self, key: PieceKey) {
        if !self.store.holds(key) && self.store.mark_prefetched(key, MIB, ReadOrder::Sequential) {
            self.decode(key, MIB);
        }
    }

    /// Requests pieces that were prefetched together, for a file that is read whole.
    fn whole(&mut self, blob: u64, pieces: Range<u64>) {
        let order = self.store.order_of_whole(blob, &(pieces.start..=pieces.end - 1));
        for key in pieces.clone().map(|piece| (blob, piece)) {
            if !self.store.holds(key) && self.store.mark_prefetched(key, MIB, order) {
                self.decode(key, MIB);
            }
        }
        pieces.for_each(|piece| (0..8).for_each(|_| self.read((blob, piece))));
    }

    fn decode(&mut self, key: PieceKey, len: u64) {
        self.decodes += 1;
        self.store.reserve(len);
        let mut room = DecodeRoom::new(len);
        while !self.store.make_room(&mut room) {
            room.sweep();
        }
        let buffer = room.buffer.take().unwrap_or_else(|| {
            self.fresh += 1;
            Vec::with_capacity(len as usize)
        });
        self.store.release(len);
        let piece = Arc::new(buffer);
        let mut room = DecodeRoom::default();
        while !self.store.keep(key, &piece, false, &mut room) {
            room.sweep();
        }
    }

    /// Requests the pieces in order, each eight times, with five pieces prefetched.
    fn pass(&mut self, blob: u64, pieces: u64) {
        for key in scan(blob, pieces) {
            self.read(key);
            ((key.1 + 1)..pieces.min(key.1 + 6)).for_each(|piece| self.prefetch((blob, piece)));
        }
    }

    /// Decodes since the last call.
    fn counted(&mut self) -> u64 {
        std::mem::take(&mut self.decodes)
    }

    fn peak(&self) -> u64 {
        self.store.stats().peak
    }
}

fn scan(blob: u64, pieces: u64) -> impl Iterator<Item = PieceKey> {
    (0..pieces).flat_map(move |piece| std::iter::repeat_n((blob, piece), 8))
}

/// Numbers below `n`, from a fixed seed.
fn uniform(n: u64, mut state: u64) -> impl Iterator<Item = u64> {
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % n
    })
}

/// Numbers below `n`; the k-th of a random order has a probability proportional to 1/k.
fn zipf(n: u64, seed: u64) -> impl Iterator<Item = u64> {
    let mut order: Vec<u64> = (0..n).collect();
    for (i, j) in (0..order.len()).zip(uniform(n, 77)) {
        order.swap(i, j as usize);
    }
    let sums: Vec<f64> = (1..=n).scan(0.0, |sum, k| Some((*sum += 1.0 / k as f64, *sum).1)).collect();
    uniform(1 << 40, seed).map(move |random| {
        let at = random as f64 / (1_u64 << 40) as f64 * sums[sums.len() - 1];
        order[sums.partition_point(|&sum| sum <= at).min(order.len() - 1)]
    })
}

#[test]
fn one_pass_decodes_once_holds_the_ring_and_reuses_its_buffers_whatever_the_budget() {
    for (budget, pieces) in [(BUDGET, 1024), (1024, 4096), (1 << 20, 2000)] {
        let mut reader = Reader::new(budget);
        reader.pass(1, pieces);
        assert_eq!(reader.counted(), pieces);
        assert!(reader.peak() <= PASS, "{}", reader.peak());
        assert!(reader.fresh <= PASS / MIB, "{}", reader.fresh);
    }
}

#[test]
fn a_pass_from_the_middle_without_prefetching_holds_no_more_than_the_ring() {
    let mut reader = Reader::new(BUDGET);
    scan(1, 1024).skip(8 * 500).for_each(|key| reader.read(key));
    assert_eq!(reader.counted(), 524);
    assert!(reader.peak() <= RING + MIB);
}

#[test]
fn a_small_budget_serves_one_pass_too() {
    for budget in [8, 16, 24] {
        let mut reader = Reader::new(budget);
        reader.pass(1, 500);
        assert_eq!(reader.counted(), 500, "budget {budget}");
        assert!(reader.peak() <= budget * MIB && reader.fresh <= budget);
    }
}

#[test]
fn pieces_of_several_sizes_reuse_buffers() {
    let mut reader = Reader::new(1024);
    for piece in 0..2000 {
        reader.decode((piece % 2, piece / 2), if piece % 2 == 0 { MIB } else { 300 << 10 });
    }
    assert!(reader.fresh < 80, "{}", reader.fresh);
    assert!(reader.peak() <= RING + 10 * MIB);
}

#[test]
fn two_interleaved_passes_decode_once() {
    let mut reader = Reader::new(BUDGET);
    for (a, b) in scan(1, 512).zip(scan(2, 512)) {
        reader.read(a);
        reader.read(b);
    }
    assert_eq!(reader.counted(), 1024);
    assert!(reader.peak() <= PASS);
}

#[test]
fn forty_readers_at_once_decode_once() {
    let mut reader = Reader::new(1024);
    for at in 0..8 * 50 {
        for blob in 0..40 {
            reader.read((blob, at / 8));
            (at / 8 + 1..(at / 8 + 4).min(50)).for_each(|piece| reader.prefetch((blob, piece)));
        }
    }
    assert_eq!(reader.counted(), 40 * 50);
    assert!(reader.peak() <= 40 * 6 * MIB, "{}", reader.peak());
}

#[test]
fn a_reader_close_behind_another_decodes_nothing() {
    let mut reader = Reader::new(BUDGET);
    let behind = std::iter::repeat_n((1, 0), 64).chain(scan(1, 504));
    for (a, b) in scan(1, 512).zip(behind) {
        reader.read(a);
        reader.read(b);
    }
    assert_eq!(reader.counted(), 512);
    assert!(reader.peak() <= PASS);
}

#[test]
fn a_second_pass_is_admitted_and_a_third_served_from_memory() {
    let mut reader = Reader::new(BUDGET);
    reader.pass(1, 200);
    assert_eq!(reader.counted(), 200);
    // As of data.npy after data.raw: the same pieces.
    reader.pass(1, 200);
    assert!(reader.counted() <= 190);
    reader.pass(1, 200);
    assert_eq!(reader.counted(), 0);
    // Another file, read once, does not displace it.
    reader.pass(2, 2000);
    assert_eq!(reader.counted(), 2000);
    reader.pass(1, 200);
    let lost = reader.counted();
    assert!(lost <= 24, "{lost}");
}

#[test]
fn passes_over_more_than_the_budget_hold_no_more_than_one_pass() {
    let mut reader = Reader::new(BUDGET);
    (0..3).for_each(|_| reader.pass(1, 1024));
    assert_eq!(reader.counted(), 3072);
    assert!(reader.peak() <= PASS);
}

#[test]
fn random_reads_of_what_fits_the_budget_decode_once() {
    let mut reader = Reader::new(BUDGET);
    zipf(250, 1).take(20_000).for_each(|piece| reader.read((1, piece)));
    assert!(reader.counted() <= 260);
    let mut reader = Reader::new(BUDGET);
    uniform(128, 5).take(4000).for_each(|piece| reader.read((1, piece)));
    assert!(reader.counted() <= 140);
}

#[test]
fn files_that_are_read_whole_pass_in_order_and_stay_if_opened_at_random() {
    let mut reader = Reader::new(1024);
    (0..1000).for_each(|file| reader.whole(1, file * 2..file * 2 + 2));
    (0..1000).rev().for_each(|file| reader.whole(3, file * 2..file * 2 + 2));
    assert!(reader.counted() == 4000 && reader.peak() <= PASS, "{}", reader.peak());
    // A few happen to follow the file opened just before.
    uniform(200, 9).take(2000).for_each(|file| reader.whole(2, file * 2..file * 2 + 2));
    let decodes = reader.counted();
    assert!((400..450).contains(&decodes), "{decodes}");
}

#[test]
fn skewed_random_reads_of_four_times_the_budget_keep_the_frequent_pieces() {
    let mut reader = Reader::new(BUDGET);
    zipf(1024, 1).take(20_000).for_each(|piece| reader.read((1, piece)));
    // LRU decodes 5410. Always keeping the most frequent would decode about 3940.
    let decodes = reader.counted();
    assert!(decodes < 4800, "{decodes}");
}

#[test]
fn a_pass_does_not_displace_what_is_read_at_random() {
    let mut reader = Reader::new(BUDGET);
    zipf(200, 1).take(4000).for_each(|piece| reader.read((1, piece)));
    assert!(reader.counted() <= 210);
    reader.pass(2, 1024);
    assert_eq!(reader.counted(), 1024);
    zipf(200, 2).take(4000).for_each(|piece| reader.read((1, piece)));
    let decodes = reader.counted();
    assert!(decodes <= 20, "{decodes}");

    // The same, at once.
    let mut reader = Reader::new(BUDGET);
    for ((i, key), hot) in scan(1, 1024).enumerate().zip(uniform(100, 3)) {
        reader.read(key);
        if i % 4 == 0 {
            reader.read((2, hot * 7));
        }
    }
    assert!(reader.counted() <= 1024 + 105);
    assert!(reader.peak() <= PASS + 110 * MIB);
}

#[test]
fn rows_of_chunks_wider_than_the_ring_enlarge_it() {
    let (rows, wide, times) = (10, 60, 16);
    let mut reader = Reader::new(BUDGET);
    for row in 0..rows {
        for _ in 0..times {
            (0..wide).for_each(|chunk| reader.read((1, row * wide + chunk)));
        }
    }
    let decodes = reader.counted();
    assert!(decodes <= rows * wide + wide + wide / 2, "{decodes}");
    // Passes over other files shrink it again.
    reader.pass(2, 2000);
    (0..4).for_each(|blob| reader.pass(3 + blob, 100));
    assert!(reader.store.stats().held <= PASS + (wide + wide / 2) * MIB, "{:?}", reader.store.stats());
}

#[test]
fn a_piece_is_inserted_once_if_making_room_takes_several_turns() {
    let beside = Account::new(1 << 40, 0);
    let mut reader = Reader { store: Store::new(400 * MIB, 400 * MIB, beside.clone()), ..Reader::new(1) };
    (0..300).for_each(|piece| reader.read((1, piece * 2)));
    let _charge = beside.charge(250 * MIB, "test").unwrap();
    assert!(reader.store.mark_prefetched((2, 5), MIB, ReadOrder::Sequential));
    reader.store.request_prefetched((2, 5));
    let (piece, mut room, mut turns) = (Arc::new(Vec::with_capacity(1 << 20)), DecodeRoom::default(), 1);
    while !reader.store.keep((2, 5), &piece, false, &mut room) {
        room.sweep();
        turns += 1;
    }
    assert!(turns > 3 && reader.store.holds((2, 5)) && reader.store.stats().held <= 150 * MIB, "{turns}");
    // It was prefetched, so it went to the ring: another pass evicts it.
    reader.pass(3, 40);
    assert!(!reader.store.holds((2, 5)));
}

#[test]
fn less_memory_evicts_at_once_and_ghosts_are_bounded() {
    let beside = Account::new(1 << 40, 0);
    let mut reader = Reader { store: Store::new(100 * MIB, 100 * MIB, beside.clone()), ..Reader::new(1) };
    zipf(90, 1).take(2000).for_each(|piece| reader.read((1, piece)));
    let held = reader.store.stats().held;
    assert!(held >= 80 * MIB);
    let charge = beside.charge(60 * MIB, "test").unwrap();
    reader.read((2, 1));
    assert!(reader.store.stats().held + reader.store.stats().spare <= 40 * MIB);
    drop(charge);
    for piece in 0..100_000 {
        reader.decode((3, piece), 64);
    }
    assert!(reader.store.ghosts() <= 32 << 10);
}
