//! Decodes a frame block by block, from its start or from a checkpoint: 0.7, and long modern frames where there are threads
//! for it, with our own decoders; the others with libzstd.
#![forbid(unsafe_code)]

use crate::account::Account;
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::checksum::Threads;
use crate::error::{Error, Result};
use crate::limits::Charge;
use crate::source::Source;

use super::checkpoint::{Recorder, Resume};
use super::dictionary::Dictionary;
use super::frame::{Frame, needed};
use super::header::{BlockKind, Generation, ZstdBlockHeader};
use super::libzstd::{LibDecoder, shrink_window};
use super::pipeline::Pipeline;
use super::stored_bytes::StoredBytes;
use super::v07;

/// Maximum memory of a used decoder that is kept for the next frame.
const REUSABLE: usize = 8 << 20;

/// The decoder of one frame, at some position in its content.
pub(super) struct FrameDecoder {
    engine: Engine,
    /// Where the current block starts.
    begun: FileOffset,
    /// Where the next block's header starts.
    at: FileOffset,
    stored: StoredBytes,
    ended: bool,
    /// Follows the blocks of a modern frame, for checkpoints.
    recorder: Option<Box<Recorder>>,
    /// Whether it began at a checkpoint: it then knows nothing of the content before, nor of its checksum.
    is_resumed: bool,
}

enum Engine {
    V07(Box<v07::Decoder>),
    Pipeline(Box<Pipeline>),
    Lib(LibDecoder),
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
            Engine::V07(Box::new(v07::Decoder::new(account, &frame.header, needed, dictionary)?))
        } else {
            let (in_place, charge) = match window {
                WindowMemory::Own(charge) => (false, charge),
                WindowMemory::InPlace => (true, None),
            };
            Engine::Lib(LibDecoder::new(dictionary.map(Dictionary::bytes), in_place, charge)?)
        };
        Ok(Self::at(frame, frame.blocks_at, engine, None, false))
    }

    /// Creates a decoder before the first block of `frame`, or at the checkpoint `resume`, that works on several of
    /// `threads`; `None` if it cannot: only modern frames that need no dictionary, if there are threads and there is room
    /// in memory.
    ///
    /// # Errors
    /// Fails if the window is larger than `limit`.
    pub(super) fn on_threads(
        frame: &Frame,
        resume: Option<&Resume>,
        limit: u64,
        account: &Account,
        threads: &Threads,
    ) -> Result<Option<Self>> {
        let needed = needed(frame, limit)?;
        if frame.header.generation != Generation::Modern || frame.header.dictionary != 0 {
            return Ok(None);
        }
        let Some(decoder) = Pipeline::new(frame, needed, resume, account, threads) else { return Ok(None) };
        let engine = Engine::Pipeline(Box::new(decoder));
        let at = resume.map_or(frame.blocks_at, |resume| resume.state.at);
        let recorder = resume.map(|resume| Box::new(resume.follower()));
        Ok(Some(Self::at(frame, at, engine, recorder, resume.is_some())))
    }

    /// Creates a decoder that continues `frame` at a checkpoint; `charge` is for its window.
    ///
    /// # Errors
    /// Fails if the checkpoint is malformed.
    pub(super) fn resume(frame: &Frame, resume: &Resume, charge: Option<Charge>) -> Result<Self> {
        let mut decoder = LibDecoder::new(Some(&resume.dictionary), false, charge)?;
        decoder.begin(&resume.header, &frame.header)?;
        let engine = Engine::Lib(decoder);
        Ok(Self::at(frame, resume.state.at, engine, Some(Box::new(resume.follower())), true))
    }

    fn at(frame: &Frame, at: FileOffset, engine: Engine, recorder: Option<Box<Recorder>>, is_resumed: bool) -> Self {
        let stored = StoredBytes::new(frame.at.plus(frame.stored));
        Self { engine, begun: at, at, stored, ended: false, recorder, is_resumed }
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
        let (Engine::V07(decoder), Generation::V07) = (&mut self.engine, frame.header.generation) else {
            return Self::new(frame, dictionary, limit, WindowMemory::Own(None), account);
        };
        let needed = needed(frame, limit)?;
        decoder.renew(&frame.header, needed, dictionary.map(Dictionary::v07).transpose()?)?;
        (self.begun, self.at, self.ended) = (frame.at, frame.blocks_at, false);
        self.stored.renew(frame.at.plus(frame.stored));
        Ok(self)
    }

    /// Whether its memory is worth keeping for another frame.
    pub(super) fn is_reusable(&self) -> bool {
        matches!(&self.engine, Engine::V07(decoder) if decoder.footprint() <= REUSABLE)
    }

    /// Decodes the next content into `dst`; returns the number of bytes, less than `dst.len()` only at the end of the
    /// frame.
    ///
    /// # Errors
    /// Fails if a block is malformed, or (modern frames) the checksum after the last block differs.
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
            if let Engine::Lib(decoder) = &mut self.engine {
                at = decoder.extend(&self.stored, &frame.header, whole, at).map_err(|e| e.at(self.begun))?;
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
        match &self.engine {
            Engine::V07(_) => false,
            Engine::Pipeline(decoder) => decoder.is_mismatch(),
            Engine::Lib(decoder) => decoder.is_mismatch(),
        }
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
        let n = match &mut self.engine {
            Engine::V07(decoder) => decoder.give(dst),
            Engine::Pipeline(decoder) => {
                let n = decoder.give(dst);
                if self.ended {
                    decoder.check(frame)?;
                }
                n
            }
            Engine::Lib(decoder) => decoder.give(&self.stored, &frame.header, dst)?,
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.content(dst.get(..n).unwrap_or_default());
        }
        Ok(n)
    }

    /// Reads the next block; all content of the current one has been returned. `whole` is all content so far, if it is
    /// decoded in place.
    fn next_block(&mut self, source: &Source, frame: &Frame, whole: Option<&[u8]>) -> Result<()> {
        let at = self.at;
        if let Some(recorder) = &mut self.recorder {
            recorder.boundary(at, whole);
        }
        if matches!(self.engine, Engine::Pipeline(_)) {
            return self.next_of_pipeline(source, frame);
        }
        // libzstd needs the frame's header too.
        let from = if at == frame.blocks_at && matches!(self.engine, Engine::Lib(_)) { frame.at } else { at };
        let before = (at.0 - from.0) as usize;
        let head = self.stored.ensure(source, from, before + ZstdBlockHeader::HEADER)?;
        let head = self.stored.get(head + before..);
        let block = ZstdBlockHeader::read(&mut Cursor::new(head, at), &frame.header)?;
        let mut size = ZstdBlockHeader::HEADER + block.stored();
        if block.last && frame.header.has_checksum && !self.is_resumed {
            size += 4;
        }
        let start = self.stored.ensure(source, from, before + size)?;
        if before > 0 && frame.header.generation == Generation::Modern {
            shrink_window(self.stored.get_mut(start..), frame.bound);
        }
        self.follow(block, start + before + ZstdBlockHeader::HEADER).map_err(|e| e.at(at))?;
        match &mut self.engine {
            Engine::V07(decoder) => {
                let bytes = self.stored.get(start + ZstdBlockHeader::HEADER..start + size);
                decoder.block(block, bytes).map_err(|e| e.at(at))?;
            }
            Engine::Lib(decoder) => decoder.block(start..start + before + size),
            Engine::Pipeline(_) => {}
        }
        (self.begun, self.at) = (at, at.plus(size as u64));
        self.ended = block.last || block.kind == BlockKind::End || (frame.is_cut && self.at >= self.stored.end());
        Ok(())
    }

    /// The same for [`Engine::Pipeline`].
    fn next_of_pipeline(&mut self, source: &Source, frame: &Frame) -> Result<()> {
        let Engine::Pipeline(decoder) = &mut self.engine else { return Ok(()) };
        let Some(mut block) = decoder.next(&mut self.stored, source, frame)? else {
            return Err(Error::corrupt("the frame has no last block", "block header").at(self.at));
        };
        decoder.execute(&mut block).map_err(|e| e.at(block.at))?;
        (self.begun, self.at) = (block.at, block.at.plus(to_u64(ZstdBlockHeader::HEADER + block.stored.len())));
        self.ended = block.is_last() || (frame.is_cut && self.at >= self.stored.end());
        if let Some(recorder) = &mut self.recorder {
            recorder.executed(block.take_entropy(), decoder.offsets());
        }
        decoder.recycle(block);
        Ok(())
    }

    /// Follows the block with bytes at `start` in `stored`.
    ///
    /// # Errors
    /// Fails if the decoder is resumed and does not have a table that the block repeats.
    fn follow(&mut self, block: ZstdBlockHeader, start: usize) -> Result<()> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        let bytes = self.stored.get(start..start + block.stored());
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
}
