//! Decodes a frame block by block, from its start or from a checkpoint: 0.7 with our own decoder, the others with
//! libzstd.
#![forbid(unsafe_code)]

use std::ops::Range;

use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd::zstd_safe::{DCtx, InBuffer, OutBuffer};

use crate::account::Account;
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::limits::Charge;
use crate::source::Source;

use super::checkpoint::{Recorder, Resume};
use super::dictionary::Dictionary;
use super::frame::{Frame, needed};
use super::header::{Block, BlockKind, Generation};
use super::libzstd::{context, decode_error, is_code, shrink_window};
use super::v07;

/// Bytes read from the file at a time: a few blocks.
const READ_AHEAD: u64 = 512 << 10;

/// Maximum memory of a used decoder that is kept for the next frame.
const REUSABLE: usize = 8 << 20;

/// The decoder of one frame, at some position in its content.
pub(super) struct FrameDecoder {
    engine: Engine,
    /// Where the current block starts.
    begun: FileOffset,
    /// Where the next block's header starts.
    at: FileOffset,
    /// Where the frame ends in the file.
    end: FileOffset,
    /// Stored bytes from `stored_at` on.
    stored: Vec<u8>,
    stored_at: FileOffset,
    ended: bool,
    /// Follows the blocks of a modern frame, for checkpoints.
    recorder: Option<Box<Recorder>>,
    /// Whether it began at a checkpoint: libzstd then knows nothing of the content before, nor of its checksum.
    is_resumed: bool,
}

enum Engine {
    V07 {
        decoder: Box<v07::Decoder>,
        /// Bytes of the last block's content not returned yet.
        left: usize,
    },
    Lib {
        ctx: DCtx<'static>,
        /// The range of `stored` that libzstd has not consumed yet of the current block.
        block: Range<usize>,
        /// Whether libzstd may hold back content because the output buffer was full.
        holds: bool,
        /// Whether libzstd has found that the content does not match its checksum.
        mismatch: bool,
        /// Charge for libzstd's window, unless it decodes in place.
        _charge: Option<Charge>,
    },
}

/// The error for content of the wrong length.
pub fn length_error(got: u64, want: u64) -> Error {
    Error::corrupt(format!("decodes to {got} bytes instead of {want}"), "content size")
}

/// The memory for a decoder's window.
pub(super) enum WindowMemory {
    /// Its own: charged here for libzstd (`None` exceeds the account); our own decoder charges `Account` itself.
    Own(Option<Charge>),
    /// None: it decodes into a buffer that holds the whole content.
    InPlace,
}

impl FrameDecoder {
    /// Creates a decoder before the first block of `frame`; `limit` is the maximum history in bytes.
    ///
    /// # Errors
    /// Fails if the window is larger, or the dictionary is rejected.
    pub(super) fn new(
        frame: &Frame,
        dictionary: Option<&Dictionary>,
        limit: u64,
        window: WindowMemory,
        account: &Account,
    ) -> Result<Self> {
        let needed = needed(frame, limit)?;
        let engine = if frame.header.generation == Generation::V07 {
            let dictionary = dictionary.map(Dictionary::v07).transpose()?;
            Engine::V07 { decoder: Box::new(v07::Decoder::new(account, &frame.header, needed, dictionary)?), left: 0 }
        } else {
            let (in_place, charge) = match window {
                WindowMemory::Own(charge) => (false, charge),
                WindowMemory::InPlace => (true, None),
            };
            Engine::Lib {
                ctx: context(dictionary.map(Dictionary::bytes), in_place)?,
                block: 0..0,
                holds: false,
                mismatch: false,
                _charge: charge,
            }
        };
        Ok(Self::at(frame, frame.blocks_at, engine, None, false))
    }

    /// Creates a decoder that continues `frame` at a checkpoint; `charge` is for its window.
    ///
    /// # Errors
    /// Fails if the checkpoint is malformed.
    pub(super) fn resume(frame: &Frame, resume: &Resume, charge: Option<Charge>) -> Result<Self> {
        let mut ctx = context(Some(&resume.dictionary), false)?;
        let mut header = InBuffer::around(&resume.header);
        let fed = ctx.decompress_stream(&mut OutBuffer::around(&mut [0; 0][..]), &mut header);
        fed.map_err(|code| decode_error(code, &frame.header, "checkpoint"))?;
        if header.pos() < resume.header.len() {
            return Err(Error::corrupt("libzstd makes no progress", "checkpoint"));
        }
        let engine = Engine::Lib { ctx, block: 0..0, holds: false, mismatch: false, _charge: charge };
        Ok(Self::at(frame, resume.state.at, engine, Some(Box::new(resume.follower())), true))
    }

    fn at(frame: &Frame, at: FileOffset, engine: Engine, recorder: Option<Box<Recorder>>, is_resumed: bool) -> Self {
        let (stored, end) = (Vec::new(), frame.at.plus(frame.stored));
        Self { engine, begun: at, at, end, stored, stored_at: at, ended: false, recorder, is_resumed }
    }

    /// Whether it began at a checkpoint.
    pub(super) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Follows the blocks of the frame; `with` may have checkpoints made. Must be called before the first byte, unless it
    /// is resumed.
    pub(super) fn record(&mut self, with: impl FnOnce(&mut Recorder)) {
        with(self.recorder.get_or_insert_with(|| Box::new(Recorder::from_start())));
    }

    /// Resets a used decoder for another frame; its memory is reused if both frames are 0.7.
    ///
    /// # Errors
    /// As [`FrameDecoder::new`].
    pub(super) fn renew(
        mut self,
        frame: &Frame,
        dictionary: Option<&Dictionary>,
        limit: u64,
        account: &Account,
    ) -> Result<Self> {
        let (Engine::V07 { decoder, left }, Generation::V07) = (&mut self.engine, frame.header.generation) else {
            return Self::new(frame, dictionary, limit, WindowMemory::Own(None), account);
        };
        let needed = needed(frame, limit)?;
        decoder.renew(&frame.header, needed, dictionary.map(Dictionary::v07).transpose()?)?;
        (*left, self.ended) = (0, false);
        (self.begun, self.at, self.end) = (frame.at, frame.blocks_at, frame.at.plus(frame.stored));
        // The bytes read stay: neighbouring frames share a read.
        Ok(self)
    }

    /// Whether its memory is worth keeping for another frame.
    pub(super) fn is_reusable(&self) -> bool {
        matches!(&self.engine, Engine::V07 { decoder, .. } if decoder.footprint() <= REUSABLE)
    }

    /// Decodes the next content into `dst`; returns the number of bytes, less than `dst.len()` only at the end of the
    /// frame.
    ///
    /// # Errors
    /// Fails if a block is malformed, or (libzstd) the checksum after the last block differs.
    pub(super) fn fill(&mut self, source: &Source, frame: &Frame, dst: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        loop {
            let rest = dst.get_mut(done..).unwrap_or_default();
            done += self.give(frame, rest).map_err(|e| e.at(self.begun))?;
            if done == dst.len() || self.ended {
                return Ok(done);
            }
            self.next_block(source, frame, None)?;
        }
    }

    /// Continues decoding in place: `whole` has room for all content and contains its first `at` bytes. Decodes to the
    /// end of the block that contains `until`. Returns the number of bytes that `whole` then contains, less than
    /// `until` only at the end of the frame. Only for [`WindowMemory::InPlace`].
    ///
    /// # Errors
    /// As [`FrameDecoder::fill`]; fails if the content is longer than `whole`.
    pub(super) fn extend(
        &mut self,
        source: &Source,
        frame: &Frame,
        whole: &mut [u8],
        mut at: usize,
        until: usize,
    ) -> Result<usize> {
        loop {
            if let Engine::Lib { ctx, block, mismatch, .. } = &mut self.engine {
                while block.start < block.end {
                    let mut input = InBuffer::around(self.stored.get(block.clone()).unwrap_or_default());
                    let mut output = OutBuffer::around_pos(whole, at);
                    if let Err(code) = ctx.decompress_stream(&mut output, &mut input) {
                        *mismatch = is_code(code, ZSTD_ErrorCode::ZSTD_error_checksum_wrong);
                        return Err(decode_error(code, &frame.header, "block").at(self.begun));
                    }
                    if input.pos() == 0 && output.pos() == at {
                        return Err(Error::corrupt("libzstd makes no progress", "block").at(self.begun));
                    }
                    (at, block.start) = (output.pos(), block.start + input.pos());
                }
            }
            if let Some(recorder) = &mut self.recorder {
                recorder.content_in_place(to_u64(at));
            }
            if at >= until || self.ended {
                return Ok(at);
            }
            self.next_block(source, frame, whole.get(..at))?;
        }
    }

    /// Whether the last block was read.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether it has failed because the content does not match the frame's own checksum.
    pub(super) fn is_mismatch(&self) -> bool {
        matches!(self.engine, Engine::Lib { mismatch: true, .. })
    }

    /// Returns how many bytes of content follow, up to a few hundred; 0 at the end of the frame.
    ///
    /// # Errors
    /// As [`FrameDecoder::fill`].
    pub(super) fn excess(&mut self, source: &Source, frame: &Frame) -> Result<usize> {
        self.fill(source, frame, &mut [0; 512])
    }

    /// Copies content of the current block to `dst`, up to its length.
    fn give(&mut self, frame: &Frame, dst: &mut [u8]) -> Result<usize> {
        match &mut self.engine {
            Engine::V07 { decoder, left } => {
                let n = dst.len().min(*left);
                dst[..n].copy_from_slice(&decoder.tail(*left)[..n]);
                *left -= n;
                Ok(n)
            }
            Engine::Lib { ctx, block, holds, mismatch, .. } => {
                let mut done = 0;
                while (*holds || block.start < block.end) && done < dst.len() {
                    let mut input = InBuffer::around(self.stored.get(block.clone()).unwrap_or_default());
                    let mut output = OutBuffer::around(&mut dst[done..]);
                    let left = ctx.decompress_stream(&mut output, &mut input).map_err(|code| {
                        *mismatch = is_code(code, ZSTD_ErrorCode::ZSTD_error_checksum_wrong);
                        decode_error(code, &frame.header, "block")
                    })?;
                    let (taken, given) = (input.pos(), output.pos());
                    if let Some(recorder) = &mut self.recorder {
                        recorder.content(&dst[done..done + given]);
                    }
                    block.start += taken;
                    done += given;
                    *holds = done == dst.len() && left != 0;
                    if taken == 0 && given == 0 && block.start < block.end {
                        return Err(Error::corrupt("libzstd makes no progress", "block"));
                    }
                }
                Ok(done)
            }
        }
    }

    /// Reads the next block; all content of the current one has been returned. `whole` is all content so far, if it is
    /// decoded in place.
    fn next_block(&mut self, source: &Source, frame: &Frame, whole: Option<&[u8]>) -> Result<()> {
        let at = self.at;
        if let Some(recorder) = &mut self.recorder {
            recorder.boundary(at, whole);
        }
        // libzstd needs the frame's header too.
        let from = if at == frame.blocks_at && matches!(self.engine, Engine::Lib { .. }) { frame.at } else { at };
        let before = (at.0 - from.0) as usize;
        let head = self.stored(source, from, before + Block::HEADER)?;
        let head = self.stored.get(head + before..).unwrap_or_default();
        let block = Block::read(&mut Cursor::new(head, at), &frame.header)?;
        let mut size = Block::HEADER + block.stored();
        if block.last && frame.header.has_checksum && !self.is_resumed {
            size += 4;
        }
        let start = self.stored(source, from, before + size)?;
        if before > 0 && frame.header.generation == Generation::Modern {
            shrink_window(self.stored.get_mut(start..).unwrap_or_default(), frame.bound);
        }
        self.follow(block, start + before + Block::HEADER).map_err(|e| e.at(at))?;
        match &mut self.engine {
            Engine::V07 { decoder, left } => {
                let bytes = self.stored.get(start + Block::HEADER..start + size).unwrap_or_default();
                *left = decoder.block(block, bytes).map_err(|e| e.at(at))?;
            }
            Engine::Lib { block, .. } => *block = start..start + before + size,
        }
        (self.begun, self.at) = (at, at.plus(size as u64));
        self.ended = block.last || block.kind == BlockKind::End || (frame.is_cut && self.at >= self.end);
        Ok(())
    }

    /// Follows the block with bytes at `start` in `stored`.
    ///
    /// # Errors
    /// Fails if the decoder is resumed and does not have a table that the block repeats.
    fn follow(&mut self, block: Block, start: usize) -> Result<()> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        let bytes = self.stored.get(start..start + block.stored()).unwrap_or_default();
        let followed = recorder.block(block.kind, bytes);
        if self.is_resumed {
            return followed;
        }
        if followed.is_err() {
            // libzstd decides what is malformed.
            self.recorder = None;
        }
        Ok(())
    }

    /// Ensures that `stored` contains `len` stored bytes from `at` on, reading ahead; returns their index in `stored`.
    fn stored(&mut self, source: &Source, at: FileOffset, len: usize) -> Result<usize> {
        let start = at.0.wrapping_sub(self.stored_at.0);
        if to_u64(self.stored.len()) < start.saturating_add(to_u64(len)) {
            let size = READ_AHEAD.max(to_u64(len)).min(self.end.0.saturating_sub(at.0));
            self.stored_at = at;
            self.stored.resize(size as usize, 0);
            if let Err(e) = source.read(at, &mut self.stored, "block") {
                // Partly overwritten.
                self.stored.clear();
                return Err(e);
            }
        }
        Ok((at.0 - self.stored_at.0) as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::frame_scan::scan_frames;
    use super::*;
    use crate::limits::Limits;
    use crate::platform::os_error;
    use crate::source::Origin;

    /// A file with a second half that cannot be read once; until then, other bytes are left in the buffer.
    #[derive(Debug)]
    struct FailsOnce(Vec<u8>, AtomicBool);

    impl Origin for FailsOnce {
        fn len(&self) -> u64 {
            to_u64(self.0.len())
        }

        fn read(&self, at: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
            if at.0 > self.len() / 2 && !self.1.swap(true, Ordering::Relaxed) {
                dst.fill(0xAA);
                return Err(Error::io(os_error(libc::EIO), what));
            }
            dst.copy_from_slice(&self.0[at.0 as usize..][..dst.len()]);
            Ok(())
        }
    }

    #[test]
    fn a_read_that_failed_leaves_no_bytes_of_another_place_behind() {
        let content: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let file = zstd::bulk::compress(&content, 1).unwrap();
        let (account, plain) = (Account::new(64 << 20, 0), Source::from_bytes(file.clone()));
        let range = FileOffset(0)..FileOffset(plain.len());
        let frame = scan_frames(&plain, range, &Limits::default(), &account).unwrap().frames.get(0).unwrap();
        let source = Source::of("file", FailsOnce(file.clone(), AtomicBool::new(false)));
        let mut decoder = FrameDecoder::new(&frame, None, 8 << 20, WindowMemory::Own(None), &account).unwrap();
        assert_eq!(decoder.stored(&source, FileOffset(0), 10).unwrap(), 0);
        assert!(decoder.stored(&source, FileOffset(2_000_000), 10).is_err());
        let start = decoder.stored(&source, FileOffset(0), 10).unwrap();
        assert_eq!(decoder.stored[start..][..10], file[..10]);
    }
}
