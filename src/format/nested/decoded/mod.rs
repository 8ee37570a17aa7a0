//! The decoded bytes of a container as the source of the containers in it.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError};

use super::OuterPieces;
use super::ahead::{NextPieces, StreamWalk};
use crate::account::{Account, Pieces, decode_budget};
use crate::bytes::{FileOffset, to_u64, to_usize};
use crate::checksum::Threads;
use crate::error::{Error, Kind, Result};
use crate::format::{BlobRef, Layout, Measured, Options, Piece};
use crate::limits::Charge;
use crate::source::{Origin, Source, combined};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::wanted::carried;

/// How many pieces are decoded at a time.
const AT_ONCE: usize = 8;
/// More than are decoded ahead at any time.
const UNCHARGED: usize = 64;

/// The stream of a container.
pub(in crate::format) struct Decoded {
    /// The files of the container.
    outer: Vec<Arc<Source>>,
    /// Whether the content depends on nothing but the files of the container.
    is_own: bool,
    shared: Arc<StreamPieces>,
    walk: Mutex<StreamWalk>,
    threads: Threads,
}

/// The pieces of the stream.
struct StreamPieces {
    stream: BlobRef,
    /// Of the longest content that it can be.
    longest: Layout,
    /// The layout, once the length is known.
    known: OnceLock<Layout>,
    pieces: Arc<OuterPieces>,
    /// Whose buffers are used again: their memory is mapped already.
    buffers: Arc<Pieces>,
    account: Account,
    /// The piece that was decoded last for the walk, by its number, if `pieces` has no room for it: a walk reads it in parts.
    last: Mutex<Option<(u64, Piece, Charge)>>,
    /// Pieces of one part to be decoded ahead of a walk.
    run: Mutex<PieceRun>,
    /// The last [`UNCHARGED`] pieces that were decoded ahead, which the opening of a container pays for when it reads them.
    uncharged: Mutex<VecDeque<u64>>,
    /// Pieces before this one are behind the walk, and freed.
    passed: AtomicU64,
    /// Held while a piece is decoded, by its number: others wait for it. Locks are taken from inner to outer
    /// containers, and only by the one thread of a [`PieceRun`] while it holds another, so that no cycle can deadlock.
    decoding: [Mutex<()>; AT_ONCE],
}

impl Decoded {
    /// Decodes only if the container does not record the length, and the stream cannot be read before it is known.
    ///
    /// # Errors
    /// As [`crate::format::Blob::layout`].
    pub(in crate::format) fn new(outer: Vec<Arc<Source>>, stream: BlobRef, options: &Options) -> Result<Self> {
        let known = OnceLock::new();
        let longest = if let Some(longest) = stream.measured().and_then(Measured::longest) {
            longest
        } else {
            let layout = decode_budget::once(|| stream.layout())?;
            known.get_or_init(|| layout).clone()
        };
        let (pieces, buffers) = (options.outer_pieces.clone(), options.pieces.clone());
        let account = options.account.clone();
        let is_own = options.dicts.is_empty() && options.dtype.is_none();
        let shared = Arc::new(StreamPieces {
            stream,
            longest,
            known,
            pieces,
            buffers,
            account,
            last: Mutex::default(),
            run: Mutex::default(),
            uncharged: Mutex::default(),
            passed: AtomicU64::new(0),
            decoding: Default::default(),
        });
        Ok(Self { outer, is_own, shared, walk: Mutex::default(), threads: options.threads.clone() })
    }

    /// Records that piece `piece` is read, and has decoded ahead what follows from that.
    fn note_read(&self, piece: u64) {
        let (stream, layout) = (&self.shared.stream, self.shared.layout());
        let most = self.threads.most().saturating_sub(1).min(AT_ONCE);
        let range = |piece| (piece < layout.count()).then(|| layout.range(piece));
        let mut walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
        if walk.is_at(piece) {
            return;
        }
        let room = self.shared.pieces.room(&self.shared.account);
        let NextPieces { parts, run, behind } = walk.reads(piece, most, room, |piece| stream.is_run(piece), range);
        match behind {
            Some(behind) => self.shared.passed.store(behind.saturating_add(1), Ordering::Relaxed),
            None => _ = self.shared.passed.fetch_min(piece, Ordering::Relaxed),
        }
        drop(walk);
        if let Some(stream) = stream.in_order() {
            stream.note_read(piece);
        }
        if let Some(behind) = behind.and_then(|behind| self.shared.pieces.take(&(stream.id(), behind))) {
            self.shared.free(behind);
        }
        if self.shared.run().extend(run) {
            let shared = self.shared.clone();
            self.threads.run(Box::new(carried(move || shared.decode_run())));
        }
        for piece in parts.into_iter().filter(|&piece| !self.shared.is_there(piece)) {
            let shared = self.shared.clone();
            let job = carried(move || {
                // Its reader gets the error.
                drop(shared.piece(piece, shared.layout().range(piece), true));
            });
            self.threads.run(Box::new(job));
        }
    }
}

/// The turn to decode a piece.
type PieceTurn<'a> = Option<MutexGuard<'a, ()>>;

/// The number of the turn in which piece `piece` is decoded.
fn turn_of(piece: u64) -> usize {
    usize::try_from(piece.checked_rem(to_u64(AT_ONCE)).unwrap_or(0)).unwrap_or(0)
}

/// Pieces that one thread decodes, in order.
#[derive(Debug, Default)]
struct PieceRun {
    pieces: Range<u64>,
    /// Whether a thread does.
    is_begun: bool,
}

impl PieceRun {
    /// Adds `pieces`; returns whether a thread has to begin.
    fn extend(&mut self, pieces: Range<u64>) -> bool {
        if pieces.is_empty() {
            return false;
        }
        // The walk has passed those before.
        let from = if pieces.contains(&self.pieces.start) { self.pieces.start } else { pieces.start };
        self.pieces = from..pieces.end;
        !std::mem::replace(&mut self.is_begun, true)
    }

    /// The next piece; after the last one, the thread ends.
    fn next(&mut self) -> Option<u64> {
        let next = self.pieces.next();
        self.is_begun = next.is_some();
        next
    }
}

impl StreamPieces {
    /// The layout; of the longest content while the length is not known.
    fn layout(&self) -> &Layout {
        self.known.get().unwrap_or(&self.longest)
    }

    /// The layout; finds the length first.
    fn measured(&self) -> Result<&Layout> {
        if let Some(layout) = self.known.get() {
            return Ok(layout);
        }
        let layout = decode_budget::once(|| self.stream.layout())?;
        Ok(self.known.get_or_init(|| layout))
    }

    fn run(&self) -> MutexGuard<'_, PieceRun> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uncharged(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.uncharged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether piece `piece` was decoded ahead and is read for the first time.
    fn is_uncharged(&self, piece: u64) -> bool {
        let mut uncharged = self.uncharged();
        let found = uncharged.iter().position(|&ahead| ahead == piece);
        found.is_some_and(|at| uncharged.remove(at).is_some())
    }

    /// Decodes the pieces of [`PieceRun`]; ends early where that fails, or nothing more can be kept.
    fn decode_run(&self) {
        let mut held: Option<(usize, PieceTurn<'_>)> = None;
        loop {
            let Some(piece) = self.run().next() else { return };
            // Taken before the last one is given up: the walk, which waits for that, would decode this piece itself, and
            // this thread would then wait for the walk.
            let turn = turn_of(piece);
            if held.as_ref().is_none_or(|(number, _)| *number != turn) {
                held = Some((turn, self.turn(piece)));
            }
            if !self.is_there(piece) && self.piece_in(piece, self.layout().range(piece), true, || ()).is_err() {
                *self.run() = PieceRun::default();
                return;
            }
        }
    }

    /// The turn to decode piece `piece`.
    fn turn(&self, piece: u64) -> PieceTurn<'_> {
        self.decoding.get(turn_of(piece)).map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn free(&self, piece: Piece) {
        if let Some(bytes) = Arc::into_inner(piece) {
            self.buffers.recycle(bytes);
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<(u64, Piece, Charge)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether piece `piece` is decoded, or about to be.
    fn is_there(&self, piece: u64) -> bool {
        self.pieces.get(&(self.stream.id(), piece)).is_some()
            || self.stream.in_order().is_some_and(|stream| stream.is_coming(piece))
    }

    /// Piece `piece`, of the bytes `range`, verified; `is_ahead` of the walk, or read now.
    fn piece(&self, piece: u64, range: Range<u64>, is_ahead: bool) -> Result<Piece> {
        self.piece_in(piece, range, is_ahead, || self.turn(piece))
    }

    /// The same in the turn that `turn` takes.
    fn piece_in<T>(&self, piece: u64, range: Range<u64>, is_ahead: bool, turn: impl FnOnce() -> T) -> Result<Piece> {
        let len = range.end.saturating_sub(range.start);
        let key = (self.stream.id(), piece);
        let last = || self.last().as_ref().filter(|last| last.0 == piece).map(|last| last.1.clone());
        let kept = || self.pieces.get(&key).or_else(last).or_else(|| self.stream.in_order()?.ready(piece));
        let decode = || {
            let _turn = turn();
            kept().map_or_else(|| self.decode(piece, len, is_ahead), Ok)
        };
        let found = kept().map_or_else(decode, Ok)?;
        if !is_ahead && self.is_uncharged(piece) {
            decode_budget::charge_opening(len)?;
        }
        // A checksum that covers more may have failed since.
        self.stream.gate(piece).map_or(Ok(()), |gate| gate.wait())?;
        Ok(found)
    }

    fn decode(&self, piece: u64, len: u64, is_ahead: bool) -> Result<Piece> {
        // A thread that comes late would decode it again, for nobody.
        if is_ahead && piece < self.passed.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::NotFound, "piece"));
        }
        let reserve = || self.pieces.reserve(len, &self.account, |gone| self.free(gone));
        // Ahead of the walk, nothing is decoded that cannot be kept.
        let reserved = if is_ahead { Some(reserve()?) } else { None };
        if !is_ahead {
            decode_budget::charge_opening(len)?;
        }
        // A piece that the walk reads in parts stays, whatever is decoded ahead of it.
        let last = if is_ahead { None } else { self.last().take() };
        if let Some((_, bytes, _)) = last {
            self.free(bytes);
        }
        let mut bytes = self.buffers.buffer(to_usize(len, "piece")?)?;
        decode_budget::once(|| self.stream.decode(piece, &mut bytes))?;
        let found = Arc::new(bytes);
        if is_ahead {
            let mut uncharged = self.uncharged();
            if uncharged.len() >= UNCHARGED {
                uncharged.pop_front();
            }
            uncharged.push_back(piece);
        }
        if let Some(reserved) = reserved.or_else(|| reserve().ok()) {
            return Ok(self.pieces.keep((self.stream.id(), piece), found, len, reserved));
        }
        if let Ok(charge) = self.account.charge_window(len, "piece") {
            *self.last() = Some((piece, found.clone(), charge));
        }
        Ok(found)
    }
}

impl Origin for Decoded {
    fn len(&self) -> u64 {
        self.shared.layout().len()
    }

    fn size(&self) -> Result<u64> {
        self.shared.measured().map(Layout::len)
    }

    fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
        let (mut at, mut rest) = (at.0, dst);
        while !rest.is_empty() {
            let known = self.shared.known.get();
            let layout = known.unwrap_or(&self.shared.longest);
            let (need, have) = (to_u64(rest.len()), layout.len().saturating_sub(at));
            if need > have {
                return Err(Error::new(Kind::Truncated { need, have }, what).at(FileOffset(at)));
            }
            let piece = layout.locate(at);
            let range = layout.range(piece);
            self.note_read(piece);
            let found = match self.shared.piece(piece, range.clone(), false) {
                // It may be shorter than that of the longest content, or there is none.
                Err(_) if known.is_none() => {
                    self.shared.measured()?;
                    continue;
                }
                found => found?,
            };
            let skip = to_usize(at.saturating_sub(range.start), what)?;
            let part = found.get(skip..).unwrap_or_default();
            let len = part.len().min(rest.len());
            if len == 0 && known.is_none() {
                // A check of the whole stream has kept its last piece.
                self.shared.measured()?;
                continue;
            }
            if len == 0 {
                return Err(Error::corrupt("shorter than its layout says", "piece").at(FileOffset(at)));
            }
            let (head, tail) = rest.split_at_mut(len);
            head.copy_from_slice(part.get(..len).unwrap_or_default());
            at = at.saturating_add(to_u64(len));
            rest = tail;
        }
        Ok(())
    }

    fn mtime(&self) -> (i64, i64) {
        self.outer.first().map_or((0, 0), |source| source.mtime())
    }

    fn fingerprint(&self) -> Option<[u8; 32]> {
        let [outer] = &*self.outer else { return None };
        let outer = outer.fingerprint().filter(|_| self.is_own)?;
        Some(combined("stream", &[&outer]))
    }

    fn is_same_in_memory(&self) -> bool {
        self.outer.iter().all(|source| source.is_same_in_memory())
    }

    fn check(&self) -> Result<()> {
        self.outer.iter().try_for_each(|source| source.check())
    }

    fn set_changed(&self) {
        self.outer.iter().for_each(|source| source.set_changed());
    }
}

impl Drop for StreamPieces {
    fn drop(&mut self) {
        self.pieces.remove_all(|(blob, _)| *blob == self.stream.id());
    }
}

impl fmt::Debug for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decoded({:?}, {})", self.shared.stream, self.shared.layout().len())
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::as_conversions, reason = "a test fails by panicking")]
mod tests;

#[cfg(all(test, shuttle))]
#[allow(clippy::arithmetic_side_effects, clippy::as_conversions, reason = "a model fails by panicking")]
#[path = "../../../../tests/models/decoded.rs"]
mod models;
