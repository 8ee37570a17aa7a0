//! Our own decoder for frames of zstd 0.7, the 0.0.2 draft of July 2016; its files follow the format's sections.
//!
//! Reference: section 2 of the Zstandard reference, which completes the unfinished draft. `super::header` parses
//! headers.
//!
//! `literals`: the literals section. `offsets`: repeat offsets. `decoder`: the state across blocks. `dictionary`:
//! dictionaries.
//!
//! Invariants: no I/O; a block decodes to at most 128 KiB; the caller checks the window against a limit before memory
//! is allocated.
#![forbid(unsafe_code)]

mod decoder;
mod dictionary;
mod literals;
mod offsets;

use crate::error::{Error, Kind, Result};

use super::frame::Frame;
use super::header::Generation;

pub(super) use decoder::Decoder;
pub(super) use dictionary::V07Dictionary;
pub(super) use literals::measure as measure_literals;

/// Verifies the checksum of `frame`, if it is a 0.7 frame, against the XXH64 of its content; the decoders of modern frames
/// do so themselves.
///
/// # Errors
/// [`Kind::Checksum`] if it differs.
pub(super) fn check(frame: &Frame, xxh64: impl FnOnce() -> u64) -> Result<()> {
    let Some(stored) = frame.checksum.filter(|_| frame.header.generation == Generation::V07) else { return Ok(()) };
    // The end mark has room for 22 bits.
    let computed = (xxh64() >> 11) as u32 & 0x3F_FFFF;
    if stored == computed {
        return Ok(());
    }
    let kind = Kind::Checksum { stored: stored.into(), computed: computed.into() };
    Err(Error::new(kind, "content checksum").at(frame.at.plus(frame.stored.saturating_sub(3))))
}
