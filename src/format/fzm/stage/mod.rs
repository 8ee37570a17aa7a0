//! The stages of an FZM pipeline as seen by decompression: a configuration and its inverse.
//!
//! Reference: sections 4 (conventions), 5 (stages), 6 (version differences) and 11 (validation).
//!
//! [`parse`] turns a stage record into a [`Stage`]. [`Stage::invert`] builds the stream of the forward input from the
//! streams of the forward outputs; except to find a length that is not stored, nothing is decoded before a window is
//! read.
//!
//! Adding a stage: one file in this folder, one line in [`parse`].
#![forbid(unsafe_code)]

mod array_store;
mod bitpack;
mod bitshuffle;
mod block_windows;
mod checkpoints;
mod code_blocks;
mod difference;
mod huffman;
mod kogge_stone;
mod lorenzo;
mod lorenzo_quant;
mod outliers;
mod pass_through;
mod quantizer;
mod rle;
mod rze;
mod scratch;
mod sign_coding;
#[cfg(test)]
mod testing;
mod types;

use std::sync::Arc;

use serde_json::{Map, Value};

use super::stream::ByteStream;
use crate::account::Account;
use crate::bytes::Cursor;
use crate::error::{Error, Result};
use crate::limits::Limits;

use lorenzo_quant::LorenzoQuant;
pub use types::DataType;

/// Resources available to stages.
#[derive(Debug, Clone)]
pub struct Context {
    /// The memory, disk space and work that may be used.
    pub account: Account,
    /// Upper bounds for values in a file.
    pub limits: Limits,
    /// Bytes of the payload.
    pub stored: u64,
}

/// Limit of bytes decoded to build a value that is kept, plus the amounts below.
const BUILD: u64 = 4 << 30;
/// Additional bytes per byte kept: enough for a chain of this many stages.
const PER_KEPT: u64 = 16;
/// Additional bytes per stored byte.
const PER_STORED: u64 = 256;

impl Context {
    /// Limit of bytes decoded to build a value of `kept` bytes. It is proportional to the stored size and to the
    /// charged memory, so that valid files are never refused, and small ones cannot cause hours of work.
    fn build_limit(&self, kept: u64) -> u64 {
        let kept = kept.saturating_mul(PER_KEPT);
        BUILD.saturating_add(kept).saturating_add(self.stored.saturating_mul(PER_STORED))
    }
}

/// A stage with a validated configuration.
pub trait Stage: Send + Sync {
    /// Its name in snake case: `lorenzo_quant`.
    fn name(&self) -> &'static str;

    /// The names of its forward outputs, in port order.
    fn ports(&self) -> &'static [&'static str] {
        &["output"]
    }

    /// The element type of its forward input.
    fn input_type(&self) -> DataType;

    /// The element type of forward output `port`.
    fn output_type(&self, port: usize) -> DataType;

    /// Every field of the configuration, by its name in the reference.
    fn fields(&self) -> Map<String, Value>;

    /// The main parameters for the diagram, one short line each: `eb 0.001`.
    fn summary(&self) -> Vec<String>;

    /// The shape of the forward input, slowest dimension first, if the configuration contains it.
    fn dims(&self) -> Option<Vec<u64>> {
        None
    }

    /// The writer pads the input with zeros to a multiple of this many bytes.
    fn alignment(&self) -> u64 {
        1
    }

    /// Builds the stream of the forward input from those of the forward outputs, in port order.
    ///
    /// Checks the number of outputs, and all lengths that can be checked without decoding. Reads at most a few header
    /// bytes, or an index if a length is not stored elsewhere.
    ///
    /// # Errors
    /// Fails if the outputs do not fit the configuration; the error has no file offset if the stream is a decoded one.
    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Arc<dyn ByteStream>>;
}

/// Parses the configuration of a stage of `stage_type`.
///
/// The length of the configuration distinguishes older generations (section 6).
///
/// # Errors
/// Fails with [`Unsupported`](crate::error::Kind::Unsupported) for a stage that cannot be in a file, with
/// [`Corrupt`](crate::error::Kind::Corrupt) or [`Truncated`](crate::error::Kind::Truncated) for an invalid
/// configuration.
pub fn parse(stage_type: u16, config: Cursor) -> Result<Box<dyn Stage>> {
    Ok(match stage_type {
        1 => Box::new(LorenzoQuant::parse(config)?),
        2 => Box::new(difference::Difference::parse(config)?),
        12 | 13 if config.len() >= LorenzoQuant::SHORTEST => Box::new(LorenzoQuant::parse(config)?),
        12 => Box::new(lorenzo::Lorenzo::parse(config)?),
        4 => Box::new(pass_through::PassThrough),
        5 => Box::new(rle::Rle::parse(config)?),
        6 => Box::new(huffman::Huffman::parse(config)?),
        7 => Box::new(bitpack::Bitpack::parse(config)?),
        14 => Box::new(quantizer::Quantizer::parse(config)?),
        15 => Box::new(sign_coding::SignCoding::zigzag(config)?),
        16 => Box::new(sign_coding::SignCoding::negabinary(config)?),
        17 => Box::new(bitshuffle::Bitshuffle::parse(config)?),
        18 => Box::new(rze::Rze::parse(config)?),
        _ => return Err(Error::unsupported(format!("stage type {stage_type}"), "stage_type")),
    })
}

/// Converts to exactly `N` outputs.
fn exactly<const N: usize>(outputs: Vec<Arc<dyn ByteStream>>) -> Result<[Arc<dyn ByteStream>; N]> {
    let have = outputs.len();
    outputs
        .try_into()
        .map_err(|_| Error::corrupt(format!("the stage needs {N} outputs, not {have}"), "output_buffer_ids"))
}

/// A field for [`Stage::fields`].
fn field(name: &str, value: impl Into<Value>) -> (String, Value) {
    (name.to_owned(), value.into())
}

/// A float for [`Stage::fields`]: the shortest decimal of its 32 bits; NaN and infinities as text.
fn float(value: f32) -> Value {
    let text = value.to_string();
    match text.parse::<f64>() {
        Ok(shortest) if shortest.is_finite() => shortest.into(),
        _ => text.into(),
    }
}

/// The name of an error-bound mode, or its number if unknown.
fn mode_name(mode: u8) -> Value {
    match mode {
        0 => "ABS".into(),
        1 => "REL".into(),
        2 => "NOA".into(),
        _ => mode.into(),
    }
}
