//! Errors in a payload: small, and relative to the input until they are reported with a file offset.
#![forbid(unsafe_code)]

use crate::bytes::{FileOffset, to_u64};
use crate::error::Error;

/// Why a payload cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DecodeError {
    why: &'static str,
    what: &'static str,
    /// Position in the input of the decoder.
    at: usize,
}

impl DecodeError {
    /// The field `what` is invalid: `why`.
    pub(super) const fn new(why: &'static str, what: &'static str) -> Self {
        Self { why, what, at: 0 }
    }

    /// The same fault, if the input starts `skip` bytes into a larger buffer.
    pub(super) fn plus(self, skip: usize) -> Self {
        Self { at: self.at.saturating_add(skip), ..self }
    }

    /// Converts it to an error for an input at the file offset `at`.
    pub(super) fn error(self, at: FileOffset) -> Error {
        Error::corrupt(self.why, self.what).at(at.plus(to_u64(self.at)))
    }
}
