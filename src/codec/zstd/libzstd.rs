//! libzstd: its contexts, its errors, its memory; decoding with it block by block.
#![forbid(unsafe_code)]

use std::ops::Range;

use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

use crate::error::{Error, Result};
use crate::limits::Charge;

use super::header::Header;
use super::stored_bytes::StoredBytes;

/// libzstd's maximum window size.
pub(super) const MAX_WINDOW_LOG: u32 = 31;

/// Converts libzstd error `code` about `what`.
pub(super) fn lib(code: usize, what: &'static str) -> Error {
    Error::corrupt(format!("libzstd: {}", get_error_name(code)), what)
}

/// Whether libzstd's error `code` is `error`.
pub(super) fn is_code(code: usize, error: ZSTD_ErrorCode) -> bool {
    code.wrapping_neg() == error as usize
}

/// Converts libzstd error `code` about `what`, a part of a frame with the header `frame`.
pub(super) fn decode_error(code: usize, frame: &Header, what: &'static str) -> Error {
    // A frame made with a dictionary that it does not name cannot be distinguished from a malformed one.
    if frame.dictionary == 0 && is_code(code, ZSTD_ErrorCode::ZSTD_error_corruption_detected) {
        let why = get_error_name(code);
        let why = format!("libzstd: {why}; a dictionary may be missing: give its file with -o dict=FILE");
        return Error::corrupt(why, what);
    }
    lib(code, what)
}

/// Creates a libzstd context for one frame, with its dictionary.
///
/// # Errors
/// Fails if libzstd cannot allocate the context, or rejects the dictionary.
fn context(dictionary: Option<&[u8]>, in_place: bool) -> Result<DCtx<'static>> {
    let mut ctx = DCtx::try_create().ok_or_else(|| Error::no_memory("decoder"))?;
    for parameter in [DParameter::WindowLogMax(MAX_WINDOW_LOG), DParameter::StableOutBuffer(in_place)] {
        ctx.set_parameter(parameter).map_err(|c| lib(c, "decoder"))?;
    }
    if let Some(dictionary) = dictionary {
        ctx.load_dictionary(dictionary).map_err(|c| lib(c, "dictionary"))?;
    }
    Ok(ctx)
}

/// Reduces the window size in a modern frame's header to the size that `bound` bytes of content can fill, because
/// libzstd allocates the stated size.
pub(super) fn shrink_window(header: &mut [u8], bound: u64) {
    let [_, _, _, _, descriptor, window, ..] = header else { return };
    let single = *descriptor & 0x20 != 0;
    let exponent = bound.max(1 << 10).checked_next_power_of_two().map_or(31, |size| size.trailing_zeros() - 10);
    if !single && exponent < u32::from(*window >> 3) {
        *window = (exponent << 3) as u8;
    }
}

/// libzstd at some block of a frame.
pub(super) struct LibDecoder {
    ctx: DCtx<'static>,
    /// The range of the stored bytes that libzstd has not consumed yet of the current block.
    block: Range<usize>,
    /// Whether libzstd may hold back content because the output buffer was full.
    holds: bool,
    /// Whether libzstd has found that the content does not match its checksum.
    is_mismatch: bool,
    /// Charge for libzstd's window, unless it decodes in place.
    _charge: Option<Charge>,
}

impl LibDecoder {
    /// A decoder before a frame.
    ///
    /// # Errors
    /// As [`context`].
    pub(super) fn new(dictionary: Option<&[u8]>, in_place: bool, charge: Option<Charge>) -> Result<Self> {
        let ctx = context(dictionary, in_place)?;
        Ok(Self { ctx, block: 0..0, holds: false, is_mismatch: false, _charge: charge })
    }

    /// Begins a frame with the bytes `header`, for blocks of `frame`.
    ///
    /// # Errors
    /// Fails if libzstd refuses it.
    pub(super) fn begin(&mut self, header: &[u8], frame: &Header) -> Result<()> {
        let mut input = InBuffer::around(header);
        let fed = self.ctx.decompress_stream(&mut OutBuffer::around(&mut [0; 0][..]), &mut input);
        fed.map_err(|code| decode_error(code, frame, "checkpoint"))?;
        if input.pos() < header.len() {
            return Err(no_progress("checkpoint"));
        }
        Ok(())
    }

    /// Continues with the block that is at `range` of the stored bytes.
    pub(super) fn block(&mut self, range: Range<usize>) {
        self.block = range;
    }

    /// Decodes content of the block to `dst`, up to its length; returns the number of bytes.
    ///
    /// # Errors
    /// Fails if the block is malformed, or the checksum after it differs.
    pub(super) fn give(&mut self, stored: &StoredBytes, frame: &Header, dst: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while (self.holds || !self.block.is_empty()) && done < dst.len() {
            let (at, left) = self.step(stored, frame, dst, done)?;
            self.holds = at == dst.len() && left != 0;
            done = at;
        }
        Ok(done)
    }

    /// Decodes the block to `whole`, which contains all content before it, `at` bytes; returns the number of bytes that it
    /// then contains.
    ///
    /// # Errors
    /// As [`LibDecoder::give`]; fails if the content is longer than `whole`.
    pub(super) fn extend(
        &mut self,
        stored: &StoredBytes,
        frame: &Header,
        whole: &mut [u8],
        mut at: usize,
    ) -> Result<usize> {
        while !self.block.is_empty() {
            at = self.step(stored, frame, whole, at)?.0;
        }
        Ok(at)
    }

    /// Decodes content to `dst`, from `at` on; returns where it ends, and what libzstd says that it still needs.
    fn step(&mut self, stored: &StoredBytes, frame: &Header, dst: &mut [u8], at: usize) -> Result<(usize, usize)> {
        let mut input = InBuffer::around(stored.get(self.block.clone()));
        let mut output = OutBuffer::around_pos(dst, at);
        let left = self.ctx.decompress_stream(&mut output, &mut input).map_err(|code| {
            self.is_mismatch = is_code(code, ZSTD_ErrorCode::ZSTD_error_checksum_wrong);
            decode_error(code, frame, "block")
        })?;
        self.block.start += input.pos();
        if input.pos() == 0 && output.pos() == at && !self.block.is_empty() {
            return Err(no_progress("block"));
        }
        Ok((output.pos(), left))
    }

    /// Whether the content does not match its checksum.
    pub(super) fn is_mismatch(&self) -> bool {
        self.is_mismatch
    }
}

fn no_progress(what: &'static str) -> Error {
    Error::corrupt("libzstd makes no progress", what)
}
