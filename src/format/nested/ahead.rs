//! Decodes pieces of an outer container before a walk over its content reaches them, such as that over the headers of an
//! archive.
//!
//! A walk that needs part after part, each of them decodable by itself, is expected to go on: the next ones are decoded
//! on other threads. One that skips parts is not, since what it needs next is known only when it has read it.
//! Limits: [`AHEAD`] bytes, and no more than are kept until the walk is there; [`PIECES`] pieces, and as many as there
//! are threads.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;

/// Maximum bytes that are decoded ahead.
const AHEAD: u64 = 16 << 20;
/// How far ahead of the walk, in pieces.
const PIECES: u64 = 64;
/// Parts in a row before the next ones are decoded.
const PATIENCE: u32 = 2;

/// Where a walk is.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The piece that was read last.
    at: Option<u64>,
    /// Parts that were read in a row.
    streak: u32,
    /// Pieces before this one have been chosen already.
    chosen: u64,
}

impl Walk {
    /// Whether piece `piece` was read last.
    pub(super) fn is_at(&self, piece: u64) -> bool {
        self.at == Some(piece)
    }

    /// Records that piece `piece` is read. Returns at most `most` pieces to decode ahead: those at which a part begins.
    /// `room`: bytes of the pieces that are kept, with this one; `is_run`: whether a piece continues the one before it;
    /// `range`: its bytes, `None` after the last piece.
    pub(super) fn reads(
        &mut self,
        piece: u64,
        most: usize,
        room: u64,
        is_run: impl Fn(u64) -> bool,
        range: impl Fn(u64) -> Option<Range<u64>>,
    ) -> Vec<u64> {
        let Some(from) = self.at.replace(piece).filter(|&from| from != piece) else { return Vec::new() };
        let next = piece.saturating_add(1);
        let begun = |pieces: Range<u64>| pieces.filter(|&piece| !is_run(piece));
        let is_near = piece > from && piece.saturating_sub(from) <= PIECES;
        match begun(from.saturating_add(1)..next).take(if is_near { 2 } else { 0 }).count() {
            // Further on in the same part.
            0 if is_near => {}
            1 => self.streak = self.streak.saturating_add(1),
            _ => self.streak = 0,
        }
        if self.streak < PATIENCE {
            self.chosen = 0;
            return Vec::new();
        }
        let kept = |range: Range<u64>| range.start.saturating_add(room).min(range.end.saturating_add(AHEAD));
        let end = range(piece).map_or(0, kept);
        let ahead = begun(next..next.saturating_add(PIECES));
        let fits = |piece: &u64| range(*piece).is_some_and(|range| range.end <= end);
        let chosen: Vec<u64> = ahead.take_while(fits).take(most).filter(|&piece| piece >= self.chosen).collect();
        self.chosen = chosen.last().map_or(self.chosen, |last| last.saturating_add(1));
        chosen
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Parts of `pieces` pieces of `len` bytes, 100 pieces in all.
    fn reads(walk: &mut Walk, pieces: u64, len: u64, at: u64) -> Vec<u64> {
        let range = |piece: u64| (piece < 100).then_some(piece * len..(piece + 1) * len);
        walk.reads(at, 3, 32 << 20, |piece| !piece.is_multiple_of(pieces), range)
    }

    #[test]
    fn parts_that_are_read_in_order_are_chosen_once_each_and_others_not_at_all() {
        let mut walk = Walk::default();
        let chosen: Vec<_> = [0, 1, 1, 2, 3, 4].map(|at| reads(&mut walk, 1, 100, at)).into();
        assert_eq!(chosen, [vec![], vec![], vec![], vec![3, 4, 5], vec![6], vec![7]]);
        // A jump, and on from there.
        let chosen: Vec<_> = [50, 51, 53, 54, 55].map(|at| reads(&mut walk, 1, 100, at)).into();
        assert_eq!(chosen, [vec![], vec![], vec![], vec![], vec![56, 57, 58]]);
        let chosen: Vec<_> = [97, 98, 99].map(|at| reads(&mut walk, 1, 100, at)).into();
        assert!(chosen.iter().all(Vec::is_empty));
        // Each second one.
        assert!((0..50).all(|i| reads(&mut walk, 1, 100, 2 * i).is_empty()));
    }

    #[test]
    fn of_long_parts_the_beginnings_are_chosen_and_no_more_than_fits() {
        let mut walk = Walk::default();
        let read = |walk: &mut Walk, at| reads(walk, 10, 1 << 20, at);
        for at in [0, 3, 9, 15, 18] {
            assert!(read(&mut walk, at).is_empty(), "{at}");
        }
        assert_eq!(read(&mut walk, 21), [30]);
        assert_eq!(read(&mut walk, 25), [40]);
        let mut walk = Walk::default();
        assert!((0..90).all(|at| reads(&mut walk, 1, 17 << 20, at).is_empty()));
    }

    #[test]
    fn no_more_is_chosen_than_is_kept_until_the_walk_is_there() {
        let range = |piece: u64| (piece < 100).then_some(piece * 100..(piece + 1) * 100);
        for (room, count) in [(0, 0), (100, 0), (199, 0), (200, 1), (350, 2), (u64::MAX, 3)] {
            let mut walk = Walk::default();
            let chosen = [0, 1, 2].map(|at| walk.reads(at, 3, room, |_| false, range).len());
            assert_eq!(chosen, [0, 0, count], "{room}");
        }
    }
}
