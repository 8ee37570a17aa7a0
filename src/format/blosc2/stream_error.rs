//! The error of a codec: small, and relative to the stream until it is reported with a file offset.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::{FileOffset, to_u64};
use crate::error::Error;

/// A fault in a stream, and its byte offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamError {
    why: &'static str,
    at: usize,
}

impl StreamError {
    /// Byte `at` of the stream is invalid: `why`.
    pub(super) const fn new(why: &'static str, at: usize) -> Self {
        Self { why, at }
    }

    /// The error of a stream at the file offset `at`.
    pub(super) fn error(self, at: FileOffset) -> Error {
        Error::corrupt(self.why, "stream").at(at.plus(to_u64(self.at)))
    }
}
