//! The content of a frame as far as matches can reach, and the execution of sequences on it.
//!
//! Decoded content is in one buffer; when that is full, content older than the window is dropped.
#![forbid(unsafe_code)]

use crate::account::{Account, Buffer};
use crate::bytes::to_u64;
use crate::error::{Error, Result};

use super::entropy::ZstdSequence;
use super::header::{BlockKind, MAX_BLOCK, ZstdBlockHeader};
use crate::codec::lz_writer::LzWriter;
use crate::codec::simd_dispatch::{self, SimdLoop, SimdOps};

/// Bytes after a block, and after its literals, that copies may overwrite and overread.
pub(super) const ROOM: usize = 64;
/// Bytes beyond the window, at least and at most, before the content is moved to the front of the buffer.
const SLACK: std::ops::Range<usize> = 8 * MAX_BLOCK..32 << 20;

const HISTORY: &str = "history of a decoder";
const FEW: &str = "needs more literals than there are";

/// The sequences of a block, in order.
pub(super) trait SequenceStream {
    /// Calls `run` for each sequence until it returns false; returns the sequence at which it did.
    ///
    /// # Errors
    /// Fails if the stream is malformed.
    fn each(self, run: impl FnMut(ZstdSequence) -> bool) -> Result<Option<ZstdSequence>>;
}

/// The last content of a frame.
#[derive(Debug)]
pub(super) struct Window {
    /// Bytes that matches may reach back.
    len: usize,
    max_block: usize,
    /// The account that the buffer is charged to.
    account: Account,
    /// History and content, up to `end`; free space after it.
    buffer: Buffer,
    end: usize,
    /// Where the content begins that was not returned yet.
    given: usize,
}

impl Window {
    /// A window without memory, for [`Window::renew`]; its buffer grows with the content, charged to `account`.
    ///
    /// # Errors
    /// Fails if the account is exhausted.
    pub(super) fn new(account: &Account) -> Result<Self> {
        Ok(Self {
            len: 0,
            max_block: 0,
            account: account.clone(),
            buffer: account.buffer(0, HISTORY)?,
            end: 0,
            given: 0,
        })
    }

    /// A window of `len` bytes and blocks of at most `max_block` bytes, with the content `before` it and all the memory that
    /// it will need; `None` if the account has no room for that in memory.
    pub(super) fn in_memory(account: &Account, len: u64, max_block: usize, before: &[u8]) -> Option<Self> {
        let mut buffer = account.buffer_in_memory(to_u64(Self::size(len, max_block)?), HISTORY)?;
        let len = usize::try_from(len).ok()?.max(1024);
        buffer.get_mut(..before.len())?.copy_from_slice(before);
        Some(Self { len, max_block, account: account.clone(), buffer, end: before.len(), given: before.len() })
    }

    /// The memory of such a window, if it has an address.
    pub(super) fn size(len: u64, max_block: usize) -> Option<usize> {
        let len = usize::try_from(len).ok()?.max(1024);
        len.checked_add(slack(len))?.checked_add(max_block + ROOM)
    }

    /// Resets it for another frame, with `before` as the content before it; its memory is reused.
    ///
    /// # Errors
    /// Fails if the account is exhausted.
    pub(super) fn renew(&mut self, len: u64, max_block: usize, before: &[u8]) -> Result<()> {
        self.len = usize::try_from(len).unwrap_or(usize::MAX / 4).max(1024);
        self.max_block = max_block;
        (self.end, self.given) = (before.len(), before.len());
        if self.buffer.len() < self.end {
            self.buffer = self.account.buffer(to_u64(self.end), HISTORY)?;
        }
        self.buffer[..self.end].copy_from_slice(before);
        // Matches may reach it until the window has moved past it.
        self.len = self.len.saturating_add(self.end);
        Ok(())
    }

    /// Memory allocated.
    pub(super) fn footprint(&self) -> usize {
        self.buffer.len()
    }

    /// The content that was not returned yet: that of the last block, or its rest.
    pub(super) fn rest(&self) -> &[u8] {
        self.buffer.get(self.given..self.end).unwrap_or_default()
    }

    /// Returns content in `dst`, up to its length; returns the number of bytes.
    pub(super) fn give(&mut self, dst: &mut [u8]) -> usize {
        let rest = self.rest();
        let n = dst.len().min(rest.len());
        dst[..n].copy_from_slice(&rest[..n]);
        self.given += n;
        n
    }

    /// Makes space for a block after `end`, dropping history that no match can reach; all content was returned.
    ///
    /// # Errors
    /// Fails if the account is exhausted.
    pub(super) fn make_room(&mut self) -> Result<()> {
        let need = self.max_block + ROOM;
        self.given = self.end;
        if self.buffer.len() - self.end >= need {
            return Ok(());
        }
        // The buffer grows with the content up to the window plus slack; after that the content is moved.
        let slack = slack(self.len);
        if self.end > self.len.saturating_add(slack) {
            let keep = self.end - self.len;
            self.buffer.copy_within(keep..self.end, 0);
            (self.end, self.given) = (self.len, self.len);
        }
        let want = self.end + need;
        if self.buffer.len() < want {
            let most = self.len.saturating_add(slack + need);
            let len = want.max(self.buffer.len().saturating_mul(2).min(most));
            let mut grown = self.account.buffer(to_u64(len), HISTORY)?;
            grown[..self.end].copy_from_slice(&self.buffer[..self.end]);
            self.buffer = grown;
        }
        // Pages of a spilled buffer return to memory when a match accesses them.
        self.buffer.release(0..self.buffer.len());
        Ok(())
    }

    /// Appends the content of `block`, which is not a compressed one, and has the stored bytes `src`.
    ///
    /// # Errors
    /// Fails if it is larger than a block may be.
    pub(super) fn plain(&mut self, block: ZstdBlockHeader, src: &[u8]) -> Result<()> {
        match block.kind {
            BlockKind::Raw => self.output(src.len())?.copy_from_slice(src),
            BlockKind::Run => {
                let &byte = src.first().ok_or_else(|| Error::corrupt("byte missing", "RLE block"))?;
                self.output(block.size as usize)?.fill(byte);
            }
            BlockKind::Compressed | BlockKind::End => {}
        }
        Ok(())
    }

    /// Appends `size` bytes, and returns them.
    fn output(&mut self, size: usize) -> Result<&mut [u8]> {
        if size > self.max_block {
            return Err(Error::corrupt(format!("{size} bytes, the maximum is {}", self.max_block), "block size"));
        }
        let start = self.end;
        let exceeds = || Error::corrupt("exceeds the buffer", "block size");
        let output = self.buffer.get_mut(start..start + size).ok_or_else(exceeds)?;
        self.end += size;
        Ok(output)
    }

    /// Executes the sequences of a compressed block, and appends the literals that are left.
    ///
    /// # Errors
    /// Fails if a sequence is malformed, or the block is too large. The window is unusable afterwards.
    pub(super) fn execute(&mut self, literals: &mut Vec<u8>, sequences: Option<impl SequenceStream>) -> Result<()> {
        let count = literals.len();
        // Copies read whole vectors past the end.
        literals.resize(count + ROOM, 0);
        let limit = self.end + self.max_block;
        let out =
            self.buffer.get_mut(..limit + ROOM).ok_or_else(|| Error::corrupt("exceeds the buffer", "block size"))?;
        let (mut at, mut used) = (self.end, 0);
        if let Some(sequences) = sequences {
            let writer = LzWriter::new(out, at, literals);
            (at, used) = simd_dispatch::run(Execution { sequences, writer, window: self.len })?;
        }
        let Some(rest) = literals[..count].get(used..) else { return Err(Error::corrupt(FEW, "sequence")) };
        let end = at + rest.len();
        if end > limit {
            return Err(Error::corrupt("decodes to more than the maximum block size", "compressed block"));
        }
        out[at..end].copy_from_slice(rest);
        self.end = end;
        Ok(())
    }
}

/// Bytes beyond the window: the larger, the more seldom the window is moved.
fn slack(window: usize) -> usize {
    window.saturating_mul(2).clamp(SLACK.start, SLACK.end)
}

/// The sequences of a block and what they act on.
struct Execution<'a, S> {
    sequences: S,
    writer: LzWriter<'a>,
    window: usize,
}

impl<S: SequenceStream> SimdLoop for Execution<'_, S> {
    /// The end of the output and the number of literals used; both may slightly exceed the valid range.
    type Output = Result<(usize, usize)>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
    fn run(self, vectors: impl SimdOps) -> Self::Output {
        let Self { sequences, mut writer, window } = self;
        let refused = sequences.each(|s| {
            let ZstdSequence { literals, matched, offset } = s;
            offset <= window
                && (writer.short::<16>(vectors, literals, matched, offset)
                    || writer.long(vectors, literals, matched, offset))
        })?;
        match refused {
            None => Ok((writer.pos(), writer.taken())),
            Some(ZstdSequence { literals, offset, .. }) => {
                Err(if offset > window.min(writer.pos() + literals as usize) {
                    Error::corrupt(format!("offset {offset} is before the window"), "sequence")
                } else {
                    Error::corrupt(
                        "needs more literals than there are, or decodes to more than the maximum block size",
                        "sequence",
                    )
                })
            }
        }
    }
}
