//! Models of a decoded stream as a source: a walk over it, and the thread that decodes ahead of it.

use std::sync::atomic::AtomicU32;

use super::*;
use crate::format::{Blob, InOrder};
use crate::sync::model::{Time, check, later};
use crate::sync::thread;

const PIECE: u64 = 10;
const COUNT: u64 = 3 * AT_ONCE as u64;
/// One that takes long.
const SLOW: u64 = 6;

/// A stream of which each piece but the first continues the one before it; how often each was decoded.
struct Stream([AtomicU32; COUNT as usize]);

impl Blob for Stream {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: COUNT * PIECE, piece: PIECE })
    }

    fn in_order(&self) -> Option<&dyn InOrder> {
        Some(self)
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        (0..if piece == SLOW { 20 } else { 1 }).for_each(|_| later());
        self.0[piece as usize].fetch_add(1, Ordering::Relaxed);
        dst.fill(piece as u8);
        Ok(())
    }
}

impl InOrder for Stream {
    fn is_run(&self, piece: u64) -> bool {
        piece > 0
    }
}

/// Reads the pieces `walk` in that order; returns how often each was decoded.
fn walked(walk: impl IntoIterator<Item = u64>) -> Vec<u32> {
    let stream = Arc::new(Stream(std::array::from_fn(|_| AtomicU32::new(0))));
    let options = Options { threads: Threads::new(2), account: Account::new(1 << 20, 0), ..Options::default() };
    let decoded = Decoded::new(Vec::new(), BlobRef::shared(stream.clone()), &options).unwrap();
    for piece in walk {
        let mut header = [0; 3];
        decoded.read(FileOffset(piece * PIECE + 4), &mut header, "header").unwrap();
        assert_eq!(header, [piece as u8; 3]);
        thread::yield_now();
    }
    // The thread ends.
    while decoded.shared.run().is_begun {
        thread::yield_now();
    }
    stream.0.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

#[test]
fn each_piece_of_a_walk_is_decoded_once_whoever_comes_first() {
    check(Time::Stands, || assert!(walked(0..COUNT).into_iter().all(|count| count == 1)));
}

#[test]
fn a_thread_that_follows_the_walk_elsewhere_does_not_wait_for_itself() {
    // What follows there has the same turn as the piece that takes long.
    let there = SLOW + AT_ONCE as u64;
    check(Time::Stands, move || _ = walked((0..4).chain(there - 3..there)));
}
