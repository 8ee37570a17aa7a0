//! Stages that use the coders of the LC framework.
//!
//! Reference: the LC stages; section 5 of the block stages (RRE); section 5.7 (RZE). A stream of chunks ([`chunks`])
//! has one coding; several codings share bitmaps ([`bitmaps`]).
#![forbid(unsafe_code)]

pub(super) mod bitmaps;
pub(super) mod chunks;
mod clog_body;
pub(super) mod coders;
pub(super) mod golomb_rice;
mod golomb_rice_body;
pub(super) mod kept_words;
mod rare_body;
pub(super) mod tupl;

#[cfg(test)]
pub(super) mod tests;
