//! Content that cannot be read: an error in its place.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

use super::{Blob, BlobRef, Content, Layout};

/// Bytes of a piece. Nothing is decoded, however many there are.
const PIECE: u64 = 1 << 20;

/// A blob of `len` bytes, if that is known, each of which fails.
struct Failed {
    len: Option<u64>,
    error: Error,
}

impl Blob for Failed {
    fn layout(&self) -> Result<Layout> {
        let layout = |len: u64| Layout::Uniform { len, piece: PIECE };
        self.len.map(layout).ok_or_else(|| self.error.clone())
    }

    fn decode(&self, _piece: u64, _dst: &mut [u8]) -> Result<()> {
        Err(self.error.clone())
    }
}

impl Content {
    /// Content of `len` bytes, of which each read fails with `error`; without a length, that fails too.
    pub fn failed(len: Option<u64>, error: Error) -> Self {
        Self::Blob(BlobRef::new(Failed { len, error }))
    }
}
