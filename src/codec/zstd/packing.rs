//! Bytes of our own, compressed for the index.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

/// How they are compressed: nothing is faster.
const LEVEL: i32 = 1;

/// `bytes` as a Zstandard frame.
///
/// # Errors
/// Fails if libzstd cannot allocate memory.
pub fn packed(bytes: &[u8]) -> Result<Vec<u8>> {
    zstd::bulk::compress(bytes, LEVEL).map_err(|e| Error::io(e, "index"))
}

/// The bytes that were [`packed`] as `frame`, if that is a frame of at most `most`.
pub fn unpacked(frame: &[u8], most: usize) -> Option<Vec<u8>> {
    zstd::bulk::decompress(frame, most).ok()
}
