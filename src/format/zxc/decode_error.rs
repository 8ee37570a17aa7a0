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
    /// If set, `why` names a part with an unknown variant of this number.
    unknown: Option<u8>,
}

impl DecodeError {
    /// The field `what` is invalid: `why`.
    pub(super) const fn new(why: &'static str, what: &'static str) -> Self {
        Self { why, what, at: 0, unknown: None }
    }

    /// The field `what` selects variant `number` of `part`, which has no known meaning.
    pub(super) const fn unknown(part: &'static str, number: u8, what: &'static str) -> Self {
        Self { why: part, what, at: 0, unknown: Some(number) }
    }

    /// The same fault, if the input starts `skip` bytes into a larger buffer.
    pub(super) fn plus(self, skip: usize) -> Self {
        Self { at: self.at.saturating_add(skip), ..self }
    }

    /// Converts it to an error for an input at the file offset `at`.
    pub(super) fn error(self, at: FileOffset) -> Error {
        let error = match self.unknown {
            Some(number) => Error::unknown(format!("{} {number}", self.why), self.what),
            None => Error::corrupt(self.why, self.what),
        };
        error.at(at.plus(to_u64(self.at)))
    }
}
