//! The stages of an FZM pipeline, seen from decompression: a configuration, and its inverse.
//!
//! Reference: sections 4 (conventions), 5 (stages), 6 (version differences) and 11 (validation).
//!
//! [`parse`] turns a stage record into a [`Stage`]; [`Stage::invert`] makes the stream of the
//! forward input out of the streams of the forward outputs. Nothing is decoded before a window is read.
//!
//! Adding a stage: one file beside this one, one line in [`parse`].
#![forbid(unsafe_code)]

mod bitpack;
mod bitshuffle;
mod checkpoints;
mod difference;
mod huffman;
mod lazy;
mod lorenzo;
mod lorenzo_quant;
mod outliers;
mod pass_through;
mod quantizer;
mod recode;
mod rle;
mod rze;
mod store;
#[cfg(test)]
mod testing;
mod types;
mod window;

use std::sync::Arc;

use serde_json::{Map, Value};

use super::stream::Stream;
use crate::account::Account;
use crate::bytes::Cursor;
use crate::error::{Error, Result};
use crate::limits::Limits;

use lorenzo_quant::LorenzoQuant;
pub use types::DataType;

/// What stages may use while they decode.
#[derive(Debug, Clone)]
pub struct Context {
    /// The memory, disk space and work that stages may take.
    pub account: Account,
    /// Upper bounds for what a file may ask for.
    pub limits: Limits,
    /// Bytes of the payload that all is decoded from.
    pub stored: u64,
}

/// Bytes that may be decoded for anything that is made once and kept.
const BUILD: u64 = 4 << 30;
/// Bytes on top for each that is kept: a chain of as many stages.
const PER_KEPT: u64 = 16;
/// Bytes on top for each that is stored.
const PER_STORED: u64 = 256;

impl Context {
    /// Bytes that may be decoded to make something of which `kept` bytes are kept: in proportion to what there
    /// is and what is charged, so that an honest file is never refused, and a small one cannot ask for hours.
    fn build_limit(&self, kept: u64) -> u64 {
        let kept = kept.saturating_mul(PER_KEPT);
        BUILD.saturating_add(kept).saturating_add(self.stored.saturating_mul(PER_STORED))
    }
}

/// A stage whose configuration was parsed and found valid.
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

    /// Every field of the configuration by its name in the reference.
    fn fields(&self) -> Map<String, Value>;

    /// The main parameters for a picture, a short line each: `eb 0.001`.
    fn summary(&self) -> Vec<String>;

    /// The shape of the forward input, slowest dimension first, where the configuration carries it.
    fn dims(&self) -> Option<Vec<u64>> {
        None
    }

    /// The input's length is a multiple of so many bytes: the writer pads it with zeros.
    fn alignment(&self) -> u64 {
        1
    }

    /// The stream of the forward input, made from those of the forward outputs in port order.
    ///
    /// Checks the number of outputs and all lengths that can be checked without decoding; reads at
    /// most a few header bytes, or an index where a length is nowhere else.
    ///
    /// # Errors
    /// What does not fit together; without a file offset where the stream is a decoded one.
    fn invert(&self, outputs: Vec<Arc<dyn Stream>>, cx: &Context) -> Result<Arc<dyn Stream>>;
}

/// The stage that a record of `stage_type` with these configuration bytes describes.
///
/// Older generations are told apart by the length of the configuration (section 6).
///
/// # Errors
/// [`Unsupported`](crate::error::Kind::Unsupported) for a stage that no file can hold,
/// [`Corrupt`](crate::error::Kind::Corrupt) or [`Truncated`](crate::error::Kind::Truncated) for a bad configuration.
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
        15 => Box::new(recode::Recode::zigzag(config)?),
        16 => Box::new(recode::Recode::negabinary(config)?),
        17 => Box::new(bitshuffle::Bitshuffle::parse(config)?),
        18 => Box::new(rze::Rze::parse(config)?),
        _ => return Err(Error::unsupported(format!("stage type {stage_type}"), "stage_type")),
    })
}

/// Exactly `N` outputs.
fn exactly<const N: usize>(outputs: Vec<Arc<dyn Stream>>) -> Result<[Arc<dyn Stream>; N]> {
    let have = outputs.len();
    outputs
        .try_into()
        .map_err(|_| Error::corrupt(format!("the stage needs {N} outputs, not {have}"), "output_buffer_ids"))
}

/// A field for [`Stage::fields`].
fn field(name: &str, value: impl Into<Value>) -> (String, Value) {
    (name.to_owned(), value.into())
}

/// A float for [`Stage::fields`]: the shortest decimal of its 32 bits; what JSON has no number for, as text.
fn float(value: f32) -> Value {
    let text = value.to_string();
    match text.parse::<f64>() {
        Ok(shortest) if shortest.is_finite() => shortest.into(),
        _ => text.into(),
    }
}

/// The word for a mode of error bounds; the number where there is none.
fn mode_name(mode: u8) -> Value {
    match mode {
        0 => "ABS".into(),
        1 => "REL".into(),
        2 => "NOA".into(),
        _ => mode.into(),
    }
}
