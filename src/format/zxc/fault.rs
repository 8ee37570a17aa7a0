//! What a decoder finds wrong in a payload: small, and free of file offsets until it is reported.
#![forbid(unsafe_code)]

use crate::bytes::{FileOffset, to_u64};
use crate::error::Error;

/// Why a payload does not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    why: &'static str,
    what: &'static str,
    /// Where, in bytes from the start of what the decoder was given.
    at: usize,
}

impl Fault {
    /// The field `what` holds something that cannot be: `why`.
    pub(super) const fn new(why: &'static str, what: &'static str) -> Self {
        Self { why, what, at: 0 }
    }

    /// The same, `skip` bytes further on: where the decoder's bytes lie in a larger part.
    pub(super) fn plus(self, skip: usize) -> Self {
        Self { at: self.at.saturating_add(skip), ..self }
    }

    /// The error, for a decoder whose bytes lie at `at` in the file.
    pub(super) fn error(self, at: FileOffset) -> Error {
        Error::corrupt(self.why, self.what).at(at.plus(to_u64(self.at)))
    }
}
