//! A frame decoded from its start, block by block: 0.7 by our own decoder, the others by libzstd.
#![forbid(unsafe_code)]

use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, get_error_name};

use crate::bytes::{Cursor, FileOffset, wide};
use crate::error::{Error, Result};
use crate::source::Source;

use super::dictionary::Dictionary;
use super::header::{Block, BlockKind, Generation, MAX_BLOCK};
use super::v07;
use super::walk::Frame;

/// Bytes read from the file at a time: a few blocks.
const GULP: u64 = 512 << 10;

/// libzstd's own bound for windows.
const MAX_WINDOW_LOG: u32 = 31;

/// The decoder of one frame, somewhere between two blocks.
pub(super) struct FrameDecoder {
    engine: Engine,
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
    V07(Box<v07::Decoder>),
    Lib(DCtx<'static>),
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

impl FrameDecoder {
    /// A decoder before the first block of `frame`; `window` bytes of history are allowed.
    ///
    /// # Errors
    /// When the window is larger, or the dictionary is refused.
    pub(super) fn new(frame: &Frame, dictionary: Option<&Dictionary>, window: u64) -> Result<Self> {
        // What a frame claims costs memory only as far as its blocks can fill it.
        let needed = frame.header.window.min(frame.bound);
        crate::limits::Limits::check(needed, window, "window size").map_err(|e| e.at(frame.at.plus(4)))?;
        let engine = if frame.header.generation == Generation::V07 {
            let dictionary = dictionary.map(Dictionary::v07).transpose()?;
            Engine::V07(Box::new(v07::Decoder::new(&frame.header, needed, dictionary)))
        } else {
            Engine::Lib(context(dictionary)?)
        };
        let end = frame.at.plus(frame.stored);
        let mut decoder = Self { engine, at: frame.at, end, stored: Vec::new(), stored_at: frame.at, ended: false };
        decoder.at = frame.blocks_at;
        Ok(decoder)
    }

    /// The stored bytes from `self.at` on: at least `len`, and as many more as one read brings.
    fn stored(&mut self, source: &Source, len: u64) -> Result<&[u8]> {
        let start = self.at.0.wrapping_sub(self.stored_at.0);
        if wide(self.stored.len()) < start.saturating_add(len) {
            let size = GULP.max(len).min(self.end.0.saturating_sub(self.at.0));
            self.stored.resize(size as usize, 0);
            source.read(self.at, &mut self.stored, "block")?;
            self.stored_at = self.at;
        }
        let start = (self.at.0 - self.stored_at.0) as usize;
        Ok(self.stored.get(start..).unwrap_or_default())
    }

    /// Decodes the next block and adds its content to `out`; `false` once the frame has ended.
    ///
    /// # Errors
    /// When the block is broken, or (libzstd) the checksum behind the last one differs.
    pub(super) fn block(&mut self, source: &Source, frame: &Frame, out: &mut Vec<u8>) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let at = self.at;
        if at == frame.blocks_at && matches!(self.engine, Engine::Lib(_)) {
            let header = source.get(frame.at, frame.blocks_at.0 - frame.at.0, "frame header")?;
            self.feed(&header, out)?;
        }
        let head = self.stored(source, Block::HEADER as u64)?;
        let block = Block::read(&mut Cursor::new(head, at), &frame.header)?;
        let mut size = Block::HEADER + block.stored();
        if block.last && frame.header.has_checksum {
            size += 4;
        }
        self.stored(source, size as u64)?;
        self.ended = block.last || block.kind == BlockKind::End;
        let start = (self.at.0 - self.stored_at.0) as usize;
        let stored = std::mem::take(&mut self.stored);
        let bytes = stored.get(start..start + size).unwrap_or_default();
        let done = match &mut self.engine {
            Engine::V07(decoder) => decoder
                .block(block, &bytes[Block::HEADER.min(bytes.len())..])
                .map(|content| out.extend_from_slice(content)),
            Engine::Lib(_) => self.feed(bytes, out),
        };
        self.stored = stored;
        done.map_err(|e| e.at(at))?;
        self.at = at.plus(size as u64);
        Ok(true)
    }

    /// Gives libzstd bytes up to a block's end, and takes all that comes out.
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let Engine::Lib(ctx) = &mut self.engine else { return Ok(()) };
        let mut input = InBuffer::around(bytes);
        loop {
            let before = (input.pos, out.len());
            out.reserve(MAX_BLOCK);
            let start = out.len();
            // The spare room as a slice that libzstd fills: zeroed first, for want of a safe way without.
            out.resize(start + MAX_BLOCK, 0);
            let mut output = OutBuffer::around(&mut out[start..]);
            let hint = ctx.decompress_stream(&mut output, &mut input);
            let written = output.pos();
            out.truncate(start + written);
            let left = hint.map_err(|code| lib(code, "block"))?;
            if (input.pos == bytes.len() && written < MAX_BLOCK) || left == 0 {
                return Ok(());
            }
            if (input.pos, out.len()) == before {
                return Err(Error::corrupt("libzstd makes no progress", "block"));
            }
        }
    }
}
