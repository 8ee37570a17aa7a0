//! A frame decoded from its start, block by block: 0.7 by our own decoder, the others by libzstd.
#![forbid(unsafe_code)]

use std::ops::Range;

use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, get_error_name};

use crate::bytes::{Cursor, FileOffset, wide};
use crate::error::{Error, Result};
use crate::limits::Limits;
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
const MAX_WINDOW_LOG: u32 = 31;

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
    },
}

fn lib(code: usize, what: &'static str) -> Error {
    Error::corrupt(format!("libzstd says: {}", get_error_name(code)), what)
}

/// A context of libzstd, with its dictionary.
///
/// # Errors
/// When it is refused.
pub(super) fn context(dictionary: Option<&Dictionary>) -> Result<DCtx<'static>> {
    let mut ctx = DCtx::create();
    prepare(&mut ctx, dictionary)?;
    Ok(ctx)
}

/// Makes a used context new again.
///
/// # Errors
/// When the dictionary is refused.
pub(super) fn prepare(ctx: &mut DCtx<'static>, dictionary: Option<&Dictionary>) -> Result<()> {
    ctx.reset(ResetDirective::SessionAndParameters).map_err(|c| lib(c, "decoder"))?;
    ctx.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).map_err(|c| lib(c, "decoder"))?;
    if let Some(dictionary) = dictionary {
        ctx.load_dictionary(dictionary.bytes()).map_err(|c| lib(c, "dictionary"))?;
    }
    Ok(())
}

/// Decodes a whole modern frame in one go; its content is exactly as long as `dst`.
///
/// # Errors
/// When it is broken, its checksum differs, or its content has another length.
pub(super) fn whole(ctx: &mut DCtx<'static>, stored: &[u8], dst: &mut [u8]) -> Result<()> {
    match ctx.decompress(dst, stored) {
        Ok(n) if n == dst.len() => Ok(()),
        Ok(n) => Err(length_error(wide(n), wide(dst.len()))),
        Err(code) => Err(lib(code, "frame")),
    }
}

/// The content has another length than it should.
pub fn length_error(got: u64, want: u64) -> Error {
    Error::corrupt(format!("decodes to {got} bytes instead of {want}"), "content size")
}

/// Bytes of history that `frame` needs, of the `window` bytes that are allowed. What it claims costs memory only as
/// far as its blocks can fill it.
fn needed(frame: &Frame, window: u64) -> Result<u64> {
    Limits::check(frame.header.window.min(frame.bound), window, "window size").map_err(|e| e.at(frame.at.plus(4)))
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
    /// A decoder before the first block of `frame`; `window` bytes of history are allowed.
    ///
    /// # Errors
    /// When the window is larger, or the dictionary is refused.
    pub(super) fn new(frame: &Frame, dictionary: Option<&Dictionary>, window: u64) -> Result<Self> {
        let needed = needed(frame, window)?;
        let engine = if frame.header.generation == Generation::V07 {
            let dictionary = dictionary.map(Dictionary::v07).transpose()?;
            Engine::V07 { decoder: Box::new(v07::Decoder::new(&frame.header, needed, dictionary)), left: 0 }
        } else {
            Engine::Lib { ctx: context(dictionary)?, block: 0..0, holds: false }
        };
        let end = frame.at.plus(frame.stored);
        let (begun, at) = (frame.at, frame.blocks_at);
        Ok(Self { engine, begun, at, end, stored: Vec::new(), stored_at: begun, ended: false })
    }

    /// Makes a used decoder as new, for another frame; its memory stays where both frames are of 0.7.
    ///
    /// # Errors
    /// As [`FrameDecoder::new`].
    pub(super) fn renew(mut self, frame: &Frame, dictionary: Option<&Dictionary>, window: u64) -> Result<Self> {
        let (Engine::V07 { decoder, left }, Generation::V07) = (&mut self.engine, frame.header.generation) else {
            return Self::new(frame, dictionary, window);
        };
        let needed = needed(frame, window)?;
        decoder.renew(&frame.header, needed, dictionary.map(Dictionary::v07).transpose()?);
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
            Engine::Lib { ctx, block, holds } => {
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
        if wide(self.stored.len()) < start.saturating_add(wide(len)) {
            let size = GULP.max(wide(len)).min(self.end.0.saturating_sub(at.0));
            self.stored.resize(size as usize, 0);
            source.read(at, &mut self.stored, "block")?;
            self.stored_at = at;
        }
        Ok((at.0 - self.stored_at.0) as usize)
    }
}
