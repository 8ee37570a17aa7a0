//! A stored segment as a stream: the payload bytes that a buffer entry names.
//!
//! Reference: section 1 (segments). The header has checked that the segment is within the payload and the payload
//! within the file. The payload checksum is verified by the blobs, not here.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::source::Source;

use super::stream::ByteStream;

/// `len` bytes of the container at `at`.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) source: Arc<Source>,
    pub(super) at: FileOffset,
    pub(super) len: u64,
}

impl ByteStream for Segment {
    fn len(&self) -> u64 {
        self.len
    }

    fn unit(&self) -> u64 {
        1
    }

    fn is_stored(&self) -> bool {
        true
    }

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        let (need, have) = (to_u64(dst.len()), self.len.saturating_sub(at));
        if need > have {
            return Err(Error::new(Kind::Truncated { need, have }, "segment").at(self.at.plus(at)));
        }
        self.source.read(self.at.plus(at), dst, "segment")
    }
}
