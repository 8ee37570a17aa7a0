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
        let threads = archive.cache().workers().min(to_usize(self.pieces.end - self.pieces.start, "pieces")?);
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
