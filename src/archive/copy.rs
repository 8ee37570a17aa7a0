//! Sequential processing of a file's range, decoded ahead on all threads, in bounded memory.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::cache::{Cache, Readahead};
use crate::error::{Error, Result};
use crate::format::{BlobRef, Fetch, Piece};
use crate::view::View;

/// Bytes per step.
const STEP: u64 = 1 << 20;

/// Why a copy ended before its last byte.
#[derive(Debug)]
pub enum CopyError {
    /// The archive is broken or has changed.
    Archive(Error),
    /// The bytes could not be written.
    Write(io::Error),
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Archive(error) => error.fmt(f),
            Self::Write(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CopyError {}

impl From<Error> for CopyError {
    fn from(error: Error) -> Self {
        Self::Archive(error)
    }
}

impl From<CopyError> for io::Error {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Archive(error) => Self::other(error),
            CopyError::Write(error) => error,
        }
    }
}

/// Fetches pieces for a reader that reads each byte once, in order.
pub(super) struct SequentialFetch<'a> {
    cache: &'a Cache,
    /// The last piece: a step may end within it, and the cache does not keep pieces larger than its budget.
    last: RefCell<Option<(u64, u64, Piece)>>,
}

impl<'a> SequentialFetch<'a> {
    pub(super) fn new(cache: &'a Cache) -> Self {
        Self { cache, last: RefCell::default() }
    }
}

impl Fetch for SequentialFetch<'_> {
    fn piece(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        let key = (blob.id(), piece);
        if let Some((_, _, bytes)) = self.last.borrow().as_ref().filter(|(blob, piece, _)| (*blob, *piece) == key) {
            return Ok(bytes.clone());
        }
        drop(self.last.take());
        // Pieces that the blob itself keeps are neither copied nor cached.
        let bytes = if let Some(bytes) = self.cache.peek(blob, piece) {
            bytes
        } else {
            if let Some(gate) = blob.gate(piece) {
                gate.wait()?;
            }
            self.cache.peek(blob, piece).map_or_else(|| self.cache.get(blob, piece), Ok)?
        };
        *self.last.borrow_mut() = Some((key.0, key.1, bytes.clone()));
        Ok(bytes)
    }
}

/// The parts of `range` of `view` that can fail on their own: one for each piece, if the view is of one blob.
pub(super) fn parts(view: &View, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let blob = view.single_blob();
    let mut at = range.start;
    std::iter::from_fn(move || {
        let (_, layout, part) = blob.as_ref().filter(|_| at < range.end)?;
        let end = layout.range(layout.locate(part.start + at)).end - part.start;
        let from = std::mem::replace(&mut at, end.min(range.end));
        Some(from..at)
    })
}

/// Calls `each` for consecutive steps of `range` of `view`. Before each step, prefetches what the following steps and
/// reads are likely to need, as predicted by `ahead` from earlier reads.
///
/// # Errors
/// The error of the first step that fails.
pub(super) fn steps<E: From<Error>>(
    view: &View,
    range: Range<u64>,
    ahead: &Mutex<Readahead>,
    cache: &Cache,
    each: &mut dyn FnMut(Range<u64>) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = range.start;
    while at < range.end {
        let step = at..range.end.min(at.saturating_add(STEP));
        let mut ahead = ahead.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = ahead.next(&step, view.piece_and_batch()) {
            let next = next.start.min(view.len())..next.end.min(view.len());
            let mut hints = cache.prefetch_batch();
            view.pieces(next, &mut |blob, piece, size| hints.add(blob, piece, size))?;
            if !hints.send() {
                ahead.refused();
            }
        }
        drop(ahead);
        at = step.end;
        each(step)?;
    }
    Ok(())
}
