//! A frame decoded from its start, block by block: 0.7 by our own decoder, the others by libzstd.
#![forbid(unsafe_code)]

use std::ops::Range;

use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

use crate::account::Account;
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::limits::{Charge, Limits};
use crate::source::Source;

use super::dictionary::Dictionary;
use super::header::{Block, BlockKind, Generation};
use super::v07;
use super::walk::Frame;

/// Bytes read from the file at a time: a few blocks.
const GULP: u64 = 512 << 10;

/// Memory of a used decoder that is kept for the next frame.
const HANDY: usize = 8 << 20;

/// libzstd's own bound for windows.
pub(super) const MAX_WINDOW_LOG: u32 = 31;

/// The decoder of one frame, somewhere in its content.
pub(super) struct FrameDecoder {
    engine: Engine,
    /// Where the block at hand starts.
    begun: FileOffset,
    /// Where the next block's header lies.
    at: FileOffset,
    /// Where the frame ends in the file.
    end: FileOffset,
    /// Stored bytes from `stored_at` on.
    stored: Vec<u8>,
    stored_at: FileOffset,
    ended: bool,
}

enum Engine {
    V07 {
        decoder: Box<v07::Decoder>,
        /// Bytes of the last block's content that nobody has got.
        left: usize,
    },
    Lib {
        ctx: DCtx<'static>,
        /// The block at hand, as far as libzstd has not taken it: where it starts in `stored`, and its bytes.
        block: Range<usize>,
        /// Whether libzstd may hold content back, for want of room.
        holds: bool,
        /// What libzstd takes for history, where it does not decode in place.
        _charge: Option<Charge>,
    },
}

/// What libzstd says of `what`.
pub(super) fn lib(code: usize, what: &'static str) -> Error {
    Error::corrupt(format!("libzstd says: {}", get_error_name(code)), what)
}

/// A context of libzstd for one frame, with its dictionary.
///
/// # Errors
/// When it is refused.
fn context(dictionary: Option<&Dictionary>, in_place: bool) -> Result<DCtx<'static>> {
    let mut ctx = DCtx::try_create().ok_or_else(|| Error::corrupt("no memory for Zstandard", "decoder"))?;
    for parameter in [DParameter::WindowLogMax(MAX_WINDOW_LOG), DParameter::StableOutBuffer(in_place)] {
        ctx.set_parameter(parameter).map_err(|c| lib(c, "decoder"))?;
    }
    if let Some(dictionary) = dictionary {
        ctx.load_dictionary(dictionary.bytes()).map_err(|c| lib(c, "dictionary"))?;
    }
    Ok(ctx)
}

/// The content has another length than it should.
pub fn length_error(got: u64, want: u64) -> Error {
    Error::corrupt(format!("decodes to {got} bytes instead of {want}"), "content size")
}

/// Bytes of history that `frame` needs, of the `window` bytes that are allowed. What it claims costs memory only as
/// far as its blocks can fill it.
///
/// # Errors
/// When that is more.
pub(super) fn needed(frame: &Frame, window: u64) -> Result<u64> {
    Limits::check(frame.header.window.min(frame.bound), window, "window size").map_err(|e| e.at(frame.at.plus(4)))
}

/// What memory a decoder takes for its window.
pub(super) enum Window {
    /// Its own: what libzstd takes is charged here, or to nobody; our own decoder charges `Account` itself.
    Own(Option<Charge>),
    /// None: it decodes into a buffer that holds the whole content.
    InPlace,
}

/// Has a modern frame's header claim no larger window than its `bound` bytes of content can fill: libzstd takes memory
/// for what is claimed.
fn lighten(header: &mut [u8], bound: u64) {
    let [_, _, _, _, descriptor, window, ..] = header else { return };
    let single = *descriptor & 0x20 != 0;
    let exponent = bound.max(1 << 10).checked_next_power_of_two().map_or(31, |size| size.trailing_zeros() - 10);
    if !single && exponent < u32::from(*window >> 3) {
        *window = (exponent << 3) as u8;
    }
}

impl FrameDecoder {
    /// A decoder before the first block of `frame`; `limit` bytes of history are allowed.
    ///
    /// # Errors
    /// When the window is larger, or the dictionary is refused.
    pub(super) fn new(
        frame: &Frame,
        dictionary: Option<&Dictionary>,
        limit: u64,
        window: Window,
        account: &Account,
    ) -> Result<Self> {
        let needed = needed(frame, limit)?;
        let engine = if frame.header.generation == Generation::V07 {
            let dictionary = dictionary.map(Dictionary::v07).transpose()?;
            Engine::V07 { decoder: Box::new(v07::Decoder::new(account, &frame.header, needed, dictionary)?), left: 0 }
        } else {
            let (in_place, charge) = match window {
                Window::Own(charge) => (false, charge),
                Window::InPlace => (true, None),
            };
            Engine::Lib { ctx: context(dictionary, in_place)?, block: 0..0, holds: false, _charge: charge }
        };
        let end = frame.at.plus(frame.stored);
        let (begun, at) = (frame.at, frame.blocks_at);
        Ok(Self { engine, begun, at, end, stored: Vec::new(), stored_at: begun, ended: false })
    }

    /// Makes a used decoder as new, for another frame; its memory stays where both frames are of 0.7.
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
            return Self::new(frame, dictionary, limit, Window::Own(None), account);
        };
        let needed = needed(frame, limit)?;
        decoder.renew(&frame.header, needed, dictionary.map(Dictionary::v07).transpose()?)?;
        (*left, self.ended) = (0, false);
        (self.begun, self.at, self.end) = (frame.at, frame.blocks_at, frame.at.plus(frame.stored));
        // What it has read stays: neighbouring frames share a gulp.
        Ok(self)
    }

    /// Whether its memory is worth keeping for another frame.
    pub(super) fn is_handy(&self) -> bool {
        matches!(&self.engine, Engine::V07 { decoder, .. } if decoder.footprint() <= HANDY)
    }

    /// Decodes on into `dst`; gives how many bytes there were, which are fewer than it takes only where the frame ends.
    ///
    /// # Errors
    /// When a block is broken, or (libzstd) the checksum behind the last one differs.
    pub(super) fn fill(&mut self, source: &Source, frame: &Frame, dst: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        loop {
            let rest = dst.get_mut(done..).unwrap_or_default();
            done += self.give(rest).map_err(|e| e.at(self.begun))?;
            if done == dst.len() || self.ended {
                return Ok(done);
            }
            self.next_block(source, frame)?;
        }
    }

    /// Decodes on into `whole`, which has room for all content and holds the first `at` bytes of it: up to `until`, or to
    /// the end of the block in which that is. Gives how many bytes it then holds; fewer than `until` only where the
    /// frame ends. For a decoder without a window of its own.
    ///
    /// # Errors
    /// As [`FrameDecoder::fill`], and when the content is longer than `whole`.
    pub(super) fn extend(
        &mut self,
        source: &Source,
        frame: &Frame,
        whole: &mut [u8],
        mut at: usize,
        until: usize,
    ) -> Result<usize> {
        loop {
            if let Engine::Lib { ctx, block, .. } = &mut self.engine {
                while block.start < block.end {
                    let mut input = InBuffer::around(self.stored.get(block.clone()).unwrap_or_default());
                    let mut output = OutBuffer::around_pos(whole, at);
                    let done = ctx.decompress_stream(&mut output, &mut input).map_err(|code| lib(code, "block"));
                    done.map_err(|e| e.at(self.begun))?;
                    if input.pos() == 0 && output.pos() == at {
                        return Err(Error::corrupt("libzstd makes no progress", "block").at(self.begun));
                    }
                    (at, block.start) = (output.pos(), block.start + input.pos());
                }
            }
            if at >= until || self.ended {
                return Ok(at);
            }
            self.next_block(source, frame)?;
        }
    }

    /// Whether the last block was decoded.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// How many bytes of content come behind what was given, as far as a few show: 0 where the frame ends.
    ///
    /// # Errors
    /// As [`FrameDecoder::fill`].
    pub(super) fn excess(&mut self, source: &Source, frame: &Frame) -> Result<usize> {
        self.fill(source, frame, &mut [0; 512])
    }

    /// Content of the block at hand, as far as `dst` has room.
    fn give(&mut self, dst: &mut [u8]) -> Result<usize> {
        match &mut self.engine {
            Engine::V07 { decoder, left } => {
                let n = dst.len().min(*left);
                dst[..n].copy_from_slice(&decoder.tail(*left)[..n]);
                *left -= n;
                Ok(n)
            }
            Engine::Lib { ctx, block, holds, .. } => {
                let mut done = 0;
                while (*holds || block.start < block.end) && done < dst.len() {
                    let mut input = InBuffer::around(self.stored.get(block.clone()).unwrap_or_default());
                    let mut output = OutBuffer::around(&mut dst[done..]);
                    let left = ctx.decompress_stream(&mut output, &mut input).map_err(|code| lib(code, "block"))?;
                    let (taken, given) = (input.pos(), output.pos());
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

    /// Takes the next block to hand; all of the last one was given.
    fn next_block(&mut self, source: &Source, frame: &Frame) -> Result<()> {
        let at = self.at;
        // libzstd wants the frame's header too.
        let from = if at == frame.blocks_at && matches!(self.engine, Engine::Lib { .. }) { frame.at } else { at };
        let before = (at.0 - from.0) as usize;
        let head = self.stored(source, from, before + Block::HEADER)?;
        let head = self.stored.get(head + before..).unwrap_or_default();
        let block = Block::read(&mut Cursor::new(head, at), &frame.header)?;
        let mut size = Block::HEADER + block.stored();
        if block.last && frame.header.has_checksum {
            size += 4;
        }
        let start = self.stored(source, from, before + size)?;
        if before > 0 && frame.header.generation == Generation::Modern {
            lighten(self.stored.get_mut(start..).unwrap_or_default(), frame.bound);
        }
        self.ended = block.last || block.kind == BlockKind::End;
        match &mut self.engine {
            Engine::V07 { decoder, left } => {
                let bytes = self.stored.get(start + Block::HEADER..start + size).unwrap_or_default();
                *left = decoder.block(block, bytes).map_err(|e| e.at(at))?;
            }
            Engine::Lib { block, .. } => *block = start..start + before + size,
        }
        (self.begun, self.at) = (at, at.plus(size as u64));
        Ok(())
    }

    /// Sees to it that `len` stored bytes from `at` on are here, and as many more as one read brings; gives where they start.
    fn stored(&mut self, source: &Source, at: FileOffset, len: usize) -> Result<usize> {
        let start = at.0.wrapping_sub(self.stored_at.0);
        if to_u64(self.stored.len()) < start.saturating_add(to_u64(len)) {
            let size = GULP.max(to_u64(len)).min(self.end.0.saturating_sub(at.0));
            self.stored.resize(size as usize, 0);
            source.read(at, &mut self.stored, "block")?;
            self.stored_at = at;
        }
        Ok((at.0 - self.stored_at.0) as usize)
    }
}
