//! Decodes small frames at once, reusing the context and buffers.
//!
//! A file may have millions of frames of a few bytes: read in order, they share allocations, contexts and reads.
//!
//! Limits: a frame that is not [`Frame::is_long`]: at most 4 MiB of content, and 8 MiB of stored bytes, which are then
//! at most 64 KiB and 8 bytes for each byte of content.
#![forbid(unsafe_code)]

use zstd::zstd_safe::DCtx;

use crate::account::{Account, Retained};
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::limits::zeroed;
use crate::source::Source;

use super::decode::length_error;
use super::dictionary::Dictionary;
use super::frame::Frame;
use super::libzstd::decode_error;

/// Bytes per read if frames are read in order.
const READ_AHEAD: u64 = 256 << 10;
/// Larger buffers are not kept.
const KEPT: usize = 1 << 20;

/// A decoder of small frames and its buffers.
pub(super) struct Small {
    ctx: DCtx<'static>,
    /// Stored bytes from `at` on.
    stored: Vec<u8>,
    at: FileOffset,
    /// Where the last frame read ends.
    next: FileOffset,
    content: Vec<u8>,
    charge: Retained,
}

impl Small {
    /// Creates a decoder.
    ///
    /// # Errors
    /// Fails if libzstd cannot allocate a context.
    pub(super) fn new() -> Result<Self> {
        let ctx = DCtx::try_create().ok_or_else(|| Error::no_memory("decoder"))?;
        let (at, next) = (FileOffset(0), FileOffset(0));
        Ok(Self { ctx, stored: Vec::new(), at, next, content: Vec::new(), charge: Retained::default() })
    }

    /// Decodes `frame`, a modern one, into `dst`, which must have the length of its content.
    ///
    /// # Errors
    /// Fails if it is malformed, its checksum differs, or its content has another length.
    pub(super) fn fill(
        &mut self,
        source: &Source,
        frame: &Frame,
        dictionary: Option<&Dictionary>,
        dst: &mut [u8],
    ) -> Result<()> {
        self.read(source, frame)?;
        let stored = stored(&self.stored, self.at, frame);
        match decode(&mut self.ctx, frame, dictionary, stored, dst)? {
            n if n == dst.len() => Ok(()),
            n => Err(length_error(to_u64(n), to_u64(dst.len()))),
        }
    }

    /// Decodes `frame`, a modern one, of at most `most` bytes of content; returns the content.
    ///
    /// # Errors
    /// As [`Small::fill`].
    pub(super) fn content(
        &mut self,
        source: &Source,
        frame: &Frame,
        dictionary: Option<&Dictionary>,
        most: usize,
    ) -> Result<&[u8]> {
        self.read(source, frame)?;
        let stored = stored(&self.stored, self.at, frame);
        if self.content.len() < most {
            self.content = zeroed(to_u64(most), "frame")?;
        }
        let n = decode(&mut self.ctx, frame, dictionary, stored, self.content.get_mut(..most).unwrap_or_default())?;
        Ok(self.content.get(..n).unwrap_or_default())
    }

    /// Ensures that `stored` contains the bytes of `frame`.
    fn read(&mut self, source: &Source, frame: &Frame) -> Result<()> {
        let (start, end) = (frame.at.0, frame.at.plus(frame.stored).0);
        let in_order = frame.at == self.next;
        self.next = FileOffset(end);
        if self.at.0 <= start && end <= self.at.plus(to_u64(self.stored.len())).0 {
            return Ok(());
        }
        let len = frame.stored.max(if in_order { READ_AHEAD } else { 0 }).min(source.len().saturating_sub(start));
        self.at = frame.at;
        let len = len.max(frame.stored);
        if to_u64(self.stored.capacity()) < len {
            self.stored = Vec::new();
            self.stored = zeroed(len, "frame")?;
        }
        self.stored.resize(len as usize, 0);
        let read = source.read(frame.at, &mut self.stored, "frame");
        if read.is_err() {
            self.stored.clear();
        }
        read
    }

    /// Charges its memory to `account`; returns whether it may be kept.
    pub(super) fn charge_memory(&mut self, account: &Account) -> bool {
        for buffer in [&mut self.stored, &mut self.content] {
            if buffer.capacity() > KEPT {
                *buffer = Vec::new();
            }
        }
        let size = to_u64(self.ctx.sizeof() + self.stored.capacity() + self.content.capacity());
        self.charge.cover(account, size, "decoder")
    }
}

/// The stored bytes of `frame` in `bytes`, which start at `at` in the file.
fn stored<'a>(bytes: &'a [u8], at: FileOffset, frame: &Frame) -> &'a [u8] {
    let start = frame.at.0.saturating_sub(at.0) as usize;
    bytes.get(start..).and_then(|rest| rest.get(..frame.stored as usize)).unwrap_or_default()
}

fn decode(
    ctx: &mut DCtx<'static>,
    frame: &Frame,
    dictionary: Option<&Dictionary>,
    stored: &[u8],
    dst: &mut [u8],
) -> Result<usize> {
    let done = match dictionary {
        Some(dictionary) => ctx.decompress_using_ddict(dst, stored, dictionary.ready()?),
        None => ctx.decompress(dst, stored),
    };
    done.map_err(|code| decode_error(code, &frame.header, "frame"))
}
