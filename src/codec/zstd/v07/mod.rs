//! Our own decoder for frames of zstd 0.7, the 0.0.2 draft of July 2016; its files follow the format's sections.
//!
//! Reference: section 2 of the Zstandard reference, which completes the unfinished draft. `super::header` parses
//! headers.
//!
//! `literals`, `huffman`, `sequences`, `fse`, `bits`: the parts of a compressed block. `decoder`: the state across
//! blocks. `dictionary`: dictionaries.
//!
//! Invariants: no I/O; a block decodes to at most 128 KiB; the caller checks the window against a limit before memory
//! is allocated.
#![forbid(unsafe_code)]

mod bits;
mod decoder;
mod dictionary;
mod fse;
mod huffman;
mod literals;
mod sequences;

pub(super) use decoder::Decoder;
pub(super) use dictionary::Dictionary;
pub(super) use literals::measure as measure_literals;
pub(super) use sequences::{Dialect, RepeatOffsets, Sequences, Tables};

/// Converts an XXH64 of the content to the checksum in a frame's end mark.
pub(super) fn checksum(xxh64: u64) -> u32 {
    (xxh64 >> 11) as u32 & 0x3F_FFFF
}
