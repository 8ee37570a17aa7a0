//! libzstd: its contexts, its errors, its memory.
#![forbid(unsafe_code)]

use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd::zstd_safe::{DCtx, DParameter, get_error_name};

use crate::error::{Error, Result};

use super::header::Header;

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
pub(super) fn context(dictionary: Option<&[u8]>, in_place: bool) -> Result<DCtx<'static>> {
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
