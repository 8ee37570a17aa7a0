//! Decodes pieces of an outer container before a walk over its content reaches them, such as that over the headers of an
//! archive.
//!
//! A walk that needs part after part, each of them decodable by itself, is expected to go on: the next ones are decoded
//! on other threads. So is a walk that needs piece after piece of a long part: another thread decodes the next [`RUN`], in
//! order. One that skips parts or pieces is not, since what it needs next is known only when it has read it.
//! Limits: [`AHEAD`] bytes, and no more than are kept until the walk is there; [`PIECES`] pieces, and as many as there
//! are threads. A walk that has read piece after piece does not come back: it keeps the last [`BEHIND`].
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;

use crate::bytes::to_u64;

/// Maximum bytes that are decoded ahead.
const AHEAD: u64 = 16 << 20;
/// How far ahead of the walk, in pieces.
const PIECES: u64 = 64;
/// Parts or pieces in a row before the next ones are decoded.
const PATIENCE: u32 = 2;
/// Maximum pieces of one part that are decoded ahead.
const RUN: u64 = 3;
/// Pieces of a walk in order that are kept.
const BEHIND: u32 = 4;

/// Pieces to decode after a read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NextPieces {
    /// Pieces at which parts begin, to be decoded ahead.
    pub(super) parts: Vec<u64>,
    /// The next pieces of the same part, to be decoded one after the other.
    pub(super) run: Range<u64>,
    /// A piece that is not needed any more.
    pub(super) behind: Option<u64>,
}

/// Where a walk is.
#[derive(Debug, Default)]
pub(super) struct StreamWalk {
    /// The piece that was read last.
    at: Option<u64>,
    /// Parts that were read in a row.
    streak: u32,
    /// Pieces that were read in a row.
    steps: u32,
    /// Pieces before this one have been chosen already.
    chosen: u64,
}

impl StreamWalk {
    /// Whether piece `piece` was read last.
    pub(super) fn is_at(&self, piece: u64) -> bool {
        self.at == Some(piece)
    }

    /// Records that piece `piece` is read. `most`: parts to decode ahead; `room`: bytes of the pieces that are kept, with
    /// this one; `is_run`: whether a piece continues the one before it; `range`: its bytes, `None` after the last piece.
    pub(super) fn reads(
        &mut self,
        piece: u64,
        most: usize,
        room: u64,
        is_run: impl Fn(u64) -> bool,
        range: impl Fn(u64) -> Option<Range<u64>>,
    ) -> NextPieces {
        let Some(from) = self.at.replace(piece).filter(|&from| from != piece) else { return NextPieces::default() };
        let next = piece.saturating_add(1);
        let begun = |pieces: Range<u64>| pieces.filter(|&piece| !is_run(piece));
        self.steps = if from.saturating_add(1) == piece { self.steps.saturating_add(1) } else { 0 };
        let is_near = piece > from && piece.saturating_sub(from) <= PIECES;
        match begun(from.saturating_add(1)..next).take(if is_near { 2 } else { 0 }).count() {
            // Further on in the same part.
            0 if is_near => {}
            1 => self.streak = self.streak.saturating_add(1),
            _ => self.streak = 0,
        }
        let kept = |range: Range<u64>| range.start.saturating_add(room).min(range.end.saturating_add(AHEAD));
        let end = range(piece).map_or(0, kept);
        let fits = |piece: &u64| range(*piece).is_some_and(|range| range.end <= end);
        let run = (next..next.saturating_add(RUN)).take_while(|piece| is_run(*piece) && fits(piece)).count();
        let run = if self.steps >= PATIENCE && most > 0 { to_u64(run) } else { 0 };
        let behind = piece.checked_sub(BEHIND.into()).filter(|_| self.steps >= BEHIND);
        let chosen = |parts| NextPieces { parts, run: next..next.saturating_add(run), behind };
        if self.streak < PATIENCE {
            self.chosen = 0;
            return chosen(Vec::new());
        }
        let ahead = begun(next..next.saturating_add(PIECES));
        let parts: Vec<u64> = ahead.take_while(fits).take(most).filter(|&piece| piece >= self.chosen).collect();
        self.chosen = parts.last().map_or(self.chosen, |last| last.saturating_add(1));
        chosen(parts)
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Parts of `pieces` pieces of `len` bytes, 100 pieces in all.
    fn reads(walk: &mut StreamWalk, pieces: u64, len: u64, at: u64) -> Vec<u64> {
        let range = |piece: u64| (piece < 100).then_some(piece * len..(piece + 1) * len);
        walk.reads(at, 3, 32 << 20, |piece| !piece.is_multiple_of(pieces), range).parts
    }

    #[test]
    fn parts_that_are_read_in_order_are_chosen_once_each_and_others_not_at_all() {
        let mut walk = StreamWalk::default();
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
        let mut walk = StreamWalk::default();
        let read = |walk: &mut StreamWalk, at| reads(walk, 10, 1 << 20, at);
        for at in [0, 3, 9, 15, 18] {
            assert!(read(&mut walk, at).is_empty(), "{at}");
        }
        assert_eq!(read(&mut walk, 21), [30]);
        assert_eq!(read(&mut walk, 25), [40]);
        let mut walk = StreamWalk::default();
        assert!((0..90).all(|at| reads(&mut walk, 1, 17 << 20, at).is_empty()));
    }

    #[test]
    fn no_more_is_chosen_than_is_kept_until_the_walk_is_there() {
        let range = |piece: u64| (piece < 100).then_some(piece * 100..(piece + 1) * 100);
        for (room, count) in [(0, 0), (100, 0), (199, 0), (200, 1), (350, 2), (u64::MAX, 3)] {
            let mut walk = StreamWalk::default();
            let chosen = [0, 1, 2].map(|at| walk.reads(at, 3, room, |_| false, range).parts.len());
            assert_eq!(chosen, [0, 0, count], "{room}");
        }
    }

    #[test]
    fn within_a_part_the_next_pieces_are_chosen_and_those_behind_go() {
        let range = |piece: u64| (piece < 30).then_some(piece * 100..(piece + 1) * 100);
        let is_run = |piece: u64| !piece.is_multiple_of(20);
        let mut walk = StreamWalk::default();
        let next: Vec<_> = (0..30).map(|at| walk.reads(at, 1, 350, is_run, range)).collect();
        assert!(next.iter().all(|next| next.parts.is_empty()));
        let runs: Vec<_> = next.iter().map(|next| next.run.clone()).filter(|run| !run.is_empty()).collect();
        let want = (2..30).map(|at| at + 1..(at + 3).min(if at < 20 { 20 } else { 30 })).filter(|run| !run.is_empty());
        assert_eq!(runs, want.collect::<Vec<_>>(), "two pieces fit beside the one that is read");
        let behind: Vec<_> = next.iter().filter_map(|next| next.behind).collect();
        assert_eq!(behind, (0..30 - u64::from(BEHIND)).collect::<Vec<_>>());
        // A walk that skips pieces; one without threads.
        let mut walk = StreamWalk::default();
        let nothing = |next: &NextPieces| next.run.is_empty() && next.behind.is_none();
        assert!((0..14).all(|i| nothing(&walk.reads(2 * i, 1, 350, is_run, range))));
        let mut walk = StreamWalk::default();
        assert!((0..30).all(|at| walk.reads(at, 0, 350, is_run, range).run.is_empty()));
    }
}
