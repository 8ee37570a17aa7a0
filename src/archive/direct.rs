//! Large reads of one stream: the pieces that lie in the range as a whole are decoded straight into the buffer, on all
//! threads, without passing through the cache.
//!
//! A caller that reads so much at once has no use for the cache, which is left to small reads. A stream that is read
//! completely is verified while it is decoded: nothing of it is in use before the read returns.
//!
//! Limits: no memory besides the buffer. Pieces that continue each other are decoded by one thread.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Archive, contained};
use crate::bytes::to_usize;
use crate::error::{Error, Result};
use crate::format::{BlobRef, Layout};
use crate::parallel;
use crate::view::View;
use crate::wanted;

/// Minimum bytes of whole pieces for such a read: about as much as the cache keeps of data read once.
const LARGE: u64 = 16 << 20;
/// The same for a stream that is read completely.
const COMPLETE: u64 = 1 << 20;
/// Bytes that a thread takes at a time, if pieces are smaller.
const JOB: u64 = 256 << 10;

/// The pieces of one stream that lie in a range as a whole.
pub(super) struct Direct<'a> {
    blob: &'a BlobRef,
    layout: &'a Layout,
    pieces: Range<u64>,
    /// Their bytes, counted from the beginning of the range.
    pub(super) bytes: Range<usize>,
    /// Whether they are all pieces of the stream.
    is_complete: bool,
}

impl<'a> Direct<'a> {
    /// The pieces in `range` of `view`; `None` if they are few or are decoded better in another way.
    pub(super) fn new(view: &'a View, range: &Range<u64>) -> Option<Self> {
        let (blob, layout, part) = view.single_blob()?;
        let (start, end) = (part.start.checked_add(range.start)?, part.start.checked_add(range.end)?);
        if end.checked_sub(start)? < COMPLETE || end > part.end {
            return None;
        }
        let mut pieces = layout.locate(start)..layout.locate(end - 1);
        pieces.start += u64::from(layout.range(pieces.start).start < start);
        pieces.end += u64::from(layout.range(pieces.end).end <= end);
        if pieces.is_empty() {
            return None;
        }
        let inner = layout.range(pieces.start).start..layout.range(pieces.end - 1).end;
        let is_complete = pieces == (0..layout.count());
        let least = if is_complete { COMPLETE } else { LARGE };
        // A GPU decodes batches.
        if inner.end.checked_sub(inner.start)? < least || blob.batch() > 1 {
            return None;
        }
        let bytes =
            to_usize(inner.start.checked_sub(start)?, "range").ok()?..to_usize(inner.end - start, "range").ok()?;
        Some(Self { blob, layout, pieces, bytes, is_complete })
    }

    /// Decodes the pieces into `buffer`, which has their length.
    ///
    /// # Errors
    /// That of one of the pieces, or of a checksum over them.
    pub(super) fn decode(&self, archive: &Archive, buffer: &mut [u8]) -> Result<()> {
        let queue = Mutex::new(PiecesLeft { next: self.pieces.start, rest: buffer, error: None });
        let threads = archive.cache().workers().min(self.pieces.clone().count());
        parallel::together(threads.saturating_sub(1), || {
            self.work(archive, &queue);
            Ok(())
        })?;
        let queue = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        queue.error.map_or(Ok(()), Err)?;
        archive.container().unchanged()?;
        match self.blob.in_order() {
            Some(blob) if self.is_complete => contained("file", || blob.confirm()),
            _ => Ok(()),
        }
    }

    fn work(&self, archive: &Archive, queue: &Mutex<PiecesLeft>) {
        loop {
            let mut state = lock(queue);
            let job = match state.take(self) {
                Ok(Some(job)) => job,
                Ok(None) => return,
                Err(error) => return state.fail(error),
            };
            drop(state);
            if let Err(error) = contained("piece", || self.decode_row(archive, job)) {
                return lock(queue).fail(error);
            }
        }
    }

    /// Decodes consecutive pieces.
    fn decode_row(&self, archive: &Archive, (pieces, mut rest): PieceJob) -> Result<()> {
        for piece in pieces {
            wanted::check()?;
            let Some((dst, after)) = rest.split_at_mut_checked(self.len(piece)?) else { return Err(longer()) };
            rest = after;
            let kept = archive.cache().peek(self.blob, piece).or_else(|| self.blob.in_order()?.ready_soon(piece));
            match (kept.filter(|kept| kept.len() == dst.len()), self.blob.in_order()) {
                (Some(kept), _) => dst.copy_from_slice(&kept),
                (None, Some(blob)) if self.is_complete => blob.decode_unconfirmed(piece, dst)?,
                (None, _) => self.blob.decode(piece, dst)?,
            }
        }
        Ok(())
    }

    fn len(&self, piece: u64) -> Result<usize> {
        let bounds = self.layout.range(piece);
        to_usize(bounds.end.saturating_sub(bounds.start), "piece")
    }
}

/// Consecutive pieces, and their bytes.
type PieceJob<'a> = (Range<u64>, &'a mut [u8]);

/// The pieces that no thread has taken yet.
struct PiecesLeft<'a> {
    next: u64,
    rest: &'a mut [u8],
    error: Option<Error>,
}

impl<'a> PiecesLeft<'a> {
    /// The next pieces, in order; `None` after the last one and after an error.
    fn take(&mut self, of: &Direct) -> Result<Option<PieceJob<'a>>> {
        let first = self.next;
        if self.error.is_some() || first >= of.pieces.end {
            return Ok(None);
        }
        let mut bytes = 0_usize;
        while self.next < of.pieces.end && (bytes == 0 || to_usize(JOB, "job")? > bytes || of.blob.is_run(self.next)) {
            bytes = bytes.saturating_add(of.len(self.next)?);
            self.next += 1;
        }
        let (job, rest) = std::mem::take(&mut self.rest).split_at_mut_checked(bytes).ok_or_else(longer)?;
        self.rest = rest;
        Ok(Some((first..self.next, job)))
    }

    fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }
}

fn lock<'q, 'a>(queue: &'q Mutex<PiecesLeft<'a>>) -> MutexGuard<'q, PiecesLeft<'a>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn longer() -> Error {
    Error::corrupt("the pieces are longer than their sum", "layout")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::super::tests::lone;
    use super::super::{File, Options};
    use super::*;
    use crate::format::testing::Plain;
    use crate::format::{Blob, Content, InOrder};

    const MIB: u64 = 1 << 20;
    const PIECE: u64 = 64 << 10;

    /// Pieces that are their numbers, with a checksum over all of them, and how they were decoded.
    #[derive(Default)]
    struct Numbered {
        len: u64,
        is_run: bool,
        is_wrong: bool,
        broken: Option<u64>,
        decoded: AtomicU64,
        unconfirmed: AtomicU64,
        is_confirmed: AtomicBool,
    }

    impl Numbered {
        fn counts(&self) -> (u64, u64, bool) {
            let [decoded, unconfirmed] = [&self.decoded, &self.unconfirmed].map(|count| count.load(Ordering::Relaxed));
            (decoded, unconfirmed, self.is_confirmed.load(Ordering::Relaxed))
        }
    }

    impl Blob for Numbered {
        fn layout(&self) -> Result<Layout> {
            Ok(Layout::Uniform { len: self.len, piece: PIECE })
        }

        fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
            self.decoded.fetch_add(1, Ordering::Relaxed);
            if self.broken == Some(piece) {
                return Err(Error::corrupt("broken on purpose", "piece"));
            }
            dst.fill(piece as u8);
            Ok(())
        }

        fn in_order(&self) -> Option<&dyn InOrder> {
            Some(self)
        }
    }

    impl InOrder for Numbered {
        fn is_run(&self, _: u64) -> bool {
            self.is_run
        }

        fn decode_unconfirmed(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
            self.unconfirmed.fetch_add(1, Ordering::Relaxed);
            dst.fill(piece as u8);
            Ok(())
        }

        fn confirm(&self) -> Result<()> {
            self.is_confirmed.store(true, Ordering::Relaxed);
            if self.is_wrong { Err(Error::corrupt("wrong", "sum")) } else { Ok(()) }
        }
    }

    fn view(blob: &Arc<Numbered>, part: Range<u64>) -> View {
        let whole = Content::Blob(BlobRef::shared(blob.clone()));
        View::new(&Content::Slice(Arc::new(whole), part), &Plain).unwrap()
    }

    fn file(blob: &Arc<Numbered>) -> File {
        lone(Content::Blob(BlobRef::shared(blob.clone())), &Options::new().threads(2).cache(1 << 20))
    }

    #[test]
    fn a_read_of_many_whole_pieces_or_of_a_whole_stream_is_direct() {
        let pieces = |len, part: Range<u64>, range: Range<u64>| {
            let blob = Arc::new(Numbered { len, ..Numbered::default() });
            let view = view(&blob, part);
            Direct::new(&view, &range).map(|direct| (direct.pieces, direct.bytes, direct.is_complete))
        };
        assert_eq!(pieces(MIB, 0..MIB, 0..MIB), Some((0..16, 0..1 << 20, true)));
        assert_eq!(pieces(MIB - 1, 0..MIB - 1, 0..MIB - 1), None);
        let odd = MIB + 5;
        assert_eq!(pieces(odd, 0..odd, 0..odd), Some((0..17, 0..(1 << 20) + 5, true)));
        for (range, is_direct) in [(5..16 * MIB + PIECE, true), (5..17 * MIB, true), (5..16 * MIB + PIECE - 1, false)] {
            let found = pieces(20 * MIB, 0..20 * MIB, range.clone());
            assert_eq!(found.is_some(), is_direct, "{range:?}");
            let Some((pieces, bytes, is_complete)) = found else { continue };
            assert_eq!((pieces.start, pieces.end, is_complete), (1, range.end / PIECE, false));
            assert_eq!(bytes, (PIECE - 5) as usize..(range.end - 5) as usize);
        }
        // Of a part of the stream.
        let found = pieces(20 * MIB, 10..18 * MIB, 0..17 * MIB).unwrap();
        assert_eq!(found, (1..272, (PIECE - 10) as usize..(272 * PIECE - 10) as usize, false));
    }

    /// The numbers of the pieces of the jobs for `blob`.
    fn jobs(blob: &Arc<Numbered>) -> Vec<Range<u64>> {
        let view = view(blob, 0..blob.len);
        let direct = Direct::new(&view, &(0..blob.len)).unwrap();
        let mut buffer = vec![0; blob.len as usize];
        let mut left = PiecesLeft { next: 0, rest: &mut buffer, error: None };
        let mut jobs = Vec::new();
        while let Some((pieces, bytes)) = left.take(&direct).unwrap() {
            let len = view.len().min(pieces.end * PIECE) - pieces.start * PIECE;
            assert_eq!(bytes.len() as u64, len);
            jobs.push(pieces);
        }
        jobs
    }

    #[test]
    fn a_thread_takes_a_few_pieces_at_a_time_or_all_that_continue_each_other() {
        let numbered = |is_run| Arc::new(Numbered { len: MIB + 5, is_run, ..Numbered::default() });
        assert_eq!(jobs(&numbered(false)), [0..4, 4..8, 8..12, 12..16, 16..17]);
        assert_eq!(jobs(&numbered(true)), vec![0..17]);
        let (blob, mut buffer) = (numbered(false), [0; 5]);
        let view = view(&blob, 0..MIB + 5);
        let direct = Direct::new(&view, &(0..MIB + 5)).unwrap();
        let mut left = PiecesLeft { next: 0, rest: &mut buffer, error: None };
        assert_eq!(left.take(&direct).unwrap_err().what(), "layout");
        left.fail(Error::corrupt("first", "piece"));
        left.fail(Error::corrupt("second", "piece"));
        assert!(left.take(&direct).unwrap().is_none());
        assert_eq!(left.error.unwrap().to_string(), "first (piece)");
    }

    #[test]
    fn a_checksum_over_a_stream_is_verified_after_its_pieces_if_all_are_read() {
        let blob = Arc::new(Numbered { len: MIB, ..Numbered::default() });
        let bytes = file(&blob).read().unwrap();
        let is_whole = |(piece, bytes): (usize, &[u8])| bytes.iter().all(|&byte| usize::from(byte) == piece);
        assert!(bytes.chunks(PIECE as usize).enumerate().all(is_whole) && bytes.len() as u64 == MIB);
        assert_eq!(blob.counts(), (0, 16, true));
        // It is wrong: the pieces are decoded again, each verified.
        let blob = Arc::new(Numbered { len: MIB, is_wrong: true, ..Numbered::default() });
        assert_eq!(file(&blob).read().unwrap(), bytes);
        assert_eq!(blob.counts(), (16, 16, true));
        let blob = Arc::new(Numbered { len: 20 * MIB, ..Numbered::default() });
        let mut buffer = vec![0; 17 << 20];
        file(&blob).read_exact_at(0, &mut buffer).unwrap();
        assert_eq!(blob.counts(), (272, 0, false));
        let blob = Arc::new(Numbered { len: 20 * MIB, broken: Some(20), ..Numbered::default() });
        assert_eq!(file(&blob).read_exact_at(0, &mut buffer).unwrap_err().what(), "piece");
    }

    #[test]
    fn a_piece_that_the_cache_has_is_not_decoded_again() {
        let blob = Arc::new(Numbered { len: MIB, ..Numbered::default() });
        let file = file(&blob);
        file.read_at(5 * PIECE, &mut [0; 10]).unwrap();
        assert_eq!(blob.counts(), (1, 0, false));
        file.read().unwrap();
        assert_eq!(blob.counts(), (1, 15, true));
    }
}
