//! Names of codecs and filters by their ids.
//!
//! Reference: sections 7.1 and 8.6.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

/// Names of codecs by id.
pub(super) fn codec_name(id: u8) -> &'static str {
    match id {
        0 => "blosclz",
        1 => "lz4",
        2 => "lz4hc",
        4 => "zlib",
        5 => "zstd",
        32 => "ndlz",
        33 => "zfp fixed accuracy",
        34 => "zfp fixed precision",
        35 => "zfp fixed rate",
        36 => "openhtj2k",
        37 => "grok",
        38 => "openzl",
        39 => "j2k",
        40 => "htj2k",
        160.. => "user-defined codec",
        _ => UNREGISTERED,
    }
}

const UNREGISTERED: &str = "unregistered codec";

/// Whether the codec `id` has a name, or is one that users may define.
pub(super) fn is_registered(id: u8) -> bool {
    codec_name(id) != UNREGISTERED
}

/// Names of filters by id.
pub(super) fn filter_name(id: u8) -> &'static str {
    match id {
        0 => "none",
        1 => "shuffle",
        2 => "bitshuffle",
        3 => "delta",
        4 => "trunc_prec",
        32 => "ndcell",
        33 => "ndmean",
        34 => "bytedelta (first version)",
        35 => "bytedelta",
        36 => "int_trunc",
        160.. => "user-defined filter",
        _ => "unregistered filter",
    }
}
