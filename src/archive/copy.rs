//! Sequential processing of a file's range, decoded ahead on all threads, in bounded memory.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::cache::{Cache, Readahead};
use crate::error::{Error, Result};
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
