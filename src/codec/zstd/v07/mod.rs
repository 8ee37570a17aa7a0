//! Frames of zstd 0.7, the 0.0.2 draft of July 2016: our own decoder, chapter by chapter.
//!
//! Reference: section 2 of the Zstandard reference, which completes the unfinished draft. Headers are read one folder up.
//!
//! `literals`, `huffman`, `sequences`, `fse`, `bits`: the parts of a
//! compressed block. `decoder`: what goes from block to block. `dictionary`: what precedes a frame.
//!
//! Invariants: no I/O; a block decodes to at most 128 KiB; the window is held against a limit before
//! memory is taken.
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
pub(super) use sequences::{Dialect, Recent, Sequences, Tables};

/// The checksum of a frame's content, as the end mark carries it.
pub(super) fn checksum(xxh64: u64) -> u32 {
    (xxh64 >> 11) as u32 & 0x3F_FFFF
}
