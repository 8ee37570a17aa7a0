//! The stages of an FZM pipeline as seen by decompression: a configuration and its inverse.
//!
//! Reference: sections 4 (conventions), 5 (stages), 6 (version differences) and 11 (validation).
//!
//! [`parse`] turns a stage record into a [`Stage`]. [`Stage::invert`] builds the stream of the forward input from the
//! streams of the forward outputs; except to find a length that is not stored, nothing is decoded before a window is
//! read.
//!
//! Adding a stage: one file in this folder with its [`StageType`], one row in [`STAGES`].
#![forbid(unsafe_code)]

mod adaptive_bitpack;
mod adaptive_lorenzo;
mod adm;
mod ans;
mod array_store;
mod bitpack;
mod bitplane_rze;
mod bitshuffle;
mod block_windows;
mod boxes;
mod cdf97;
mod checkpoints;
mod code_blocks;
pub mod config;
mod difference;
mod ginterp;
mod gpulz;
#[cfg(test)]
mod hostile;
mod huffman;
mod kogge_stone;
mod layout;
mod lc;
mod log_transform;
mod lorenzo;
mod lorenzo_quant;
mod merge;
mod outliers;
mod part;
mod pass_through;
mod quantizer;
mod rle;
mod roibin_split;
mod rze;
mod scratch;
mod sign_coding;
mod speck2d;
mod sz_blocks;
#[cfg(test)]
mod testing;
mod tiled_lorenzo;
mod types;
mod unknown;

use std::sync::Arc;

use super::stream::ByteStream;
use crate::account::Account;
use crate::bytes::Cursor;
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;

use config::{Config, ConfigLayout};
pub(super) use part::Part;
pub use types::DataType;
use unknown::Unknown;

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
    /// The name of its type: `lorenzo_quant`.
    fn name(&self) -> &'static str {
        self.config().stage()
    }

    /// Its configuration, with every field by its name in the reference.
    fn config(&self) -> &Config;

    /// The names of its forward outputs, in port order.
    fn ports(&self) -> &[&'static str] {
        &["output"]
    }

    /// The number of its forward inputs.
    fn inputs(&self) -> usize {
        1
    }

    /// The element type of forward input `input`.
    fn input_type(&self, input: usize) -> DataType;

    /// The element type of forward output `port`.
    fn output_type(&self, port: usize) -> DataType;

    /// The main parameters for the diagram, one short line each: `eb 0.001`.
    fn summary(&self) -> Vec<String>;

    /// The shape of forward input 0, slowest dimension first, if the configuration contains it.
    fn dims(&self) -> Option<Vec<u64>> {
        None
    }

    /// Whether the length of forward input 0 comes from the configuration alone, so that it may be shorter than the
    /// padded input of the pipeline.
    fn has_own_length(&self) -> bool {
        false
    }

    /// Whether the inverse may give more than forward input 0 held, as the configuration does not say how much.
    fn is_overlong(&self) -> bool {
        false
    }

    /// The error that names the unknown part of it, if there is one; it cannot be inverted then.
    fn unknown(&self) -> Option<&Error> {
        None
    }

    /// The writer pads the input with zeros to a multiple of this many bytes.
    fn alignment(&self) -> u64 {
        1
    }

    /// Builds the streams of the forward inputs, in their order, from the forward outputs, in port order.
    ///
    /// Checks the number of outputs, and all lengths that can be checked without decoding. Reads at most a few header
    /// bytes, or an index if a length is not stored elsewhere.
    ///
    /// # Errors
    /// Fails if the outputs do not fit the configuration; the error has no file offset if the stream is a decoded one.
    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>>;
}

/// A group of stage types, by their effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Lossy: predicts or divides, then rounds.
    Quantizer,
    /// Replaces values by differences.
    Predictor,
    /// Reorders or recodes values.
    Shuffler,
    /// Shortens the stream.
    Coder,
}

/// A stage type.
#[derive(Debug)]
pub struct StageType {
    /// Its number in files.
    pub code: u16,
    /// Its name in snake case: `lorenzo_quant`.
    pub name: &'static str,
    /// Its group; the diagram shows it as a color.
    pub family: Family,
    /// The layout of its configuration.
    pub layout: &'static ConfigLayout,
    /// Makes a stage of a configuration. Fails with [`Kind::Unknown`] for values without known meaning, with
    /// [`Kind::Corrupt`] for invalid ones.
    pub parse: fn(Config) -> Result<Box<dyn Stage>>,
}

/// All stage types that can be inverted.
pub const STAGES: &[&StageType] = &[
    &lorenzo_quant::TYPE,
    &difference::TYPE,
    &pass_through::TYPE,
    &rle::TYPE,
    &huffman::TYPE,
    &bitpack::TYPE,
    &lorenzo::TYPE,
    &quantizer::TYPE,
    &sign_coding::ZIGZAG,
    &sign_coding::NEGABINARY,
    &bitshuffle::TYPE,
    &rze::TYPE,
    &merge::TYPE,
    &bitplane_rze::TYPE,
    &adaptive_bitpack::TYPE,
    &tiled_lorenzo::TYPE,
    &adaptive_lorenzo::TYPE,
    &roibin_split::TYPE,
    &sz_blocks::SZX,
    &sz_blocks::SZP,
    &cdf97::TYPE,
    &speck2d::TYPE,
    &cdf97::CORRECT,
    &lc::coders::RRE,
    &lc::coders::RARE,
    &lc::coders::RAZE,
    &lc::coders::CLOG,
    &lc::coders::HCLOG,
    &lc::tupl::TYPE,
    &gpulz::TYPE,
    &lc::golomb_rice::TYPE,
    &adm::TYPE,
    &ans::TYPE,
    &ginterp::TYPE,
    &log_transform::TYPE,
];

/// The type with number `code` and a configuration of `len` bytes. Numbers 12 and 13 were `LorenzoQuant` of rank 2 and
/// 3 (section 6).
pub(super) fn stage_type(code: u16, len: usize) -> Option<&'static StageType> {
    let code = if matches!(code, 12 | 13) && len >= lorenzo_quant::SHORTEST { lorenzo_quant::TYPE.code } else { code };
    STAGES.iter().find(|row| row.code == code).copied()
}

/// Makes stage `index`, of type `code`, with `inputs` and `outputs` in the file.
///
/// A stage with an unknown part is made too, with [`Stage::unknown`].
///
/// # Errors
/// Fails with [`Corrupt`](Kind::Corrupt) or [`Truncated`](Kind::Truncated) for an invalid configuration.
pub fn parse(index: usize, code: u16, config: &Cursor, inputs: usize, outputs: usize) -> Result<Box<dyn Stage>> {
    let Some(row) = stage_type(code, config.len()) else {
        let why = Error::unknown(format!("stage {index} (type {code})"), "stage_type");
        return Ok(Box::new(Unknown::new("unknown", config, inputs, outputs, why)?));
    };
    let own = Config::read(row.name, row.layout, config, outputs);
    let parsed = own.and_then(row.parse).and_then(|stage| {
        let want = (stage.inputs(), stage.ports().len());
        if want == (inputs, outputs) {
            return Ok(stage);
        }
        let why = format!("a stage with {inputs} inputs and {outputs} outputs, not {} and {},", want.0, want.1);
        Err(Error::unknown(why, if want.0 == inputs { "output_buffer_ids" } else { "input_buffer_ids" }))
    });
    match parsed.map_err(|e| e.within(format_args!("stage {index} ({})", row.name))) {
        Err(why) if matches!(why.kind(), Kind::Unknown(_)) => {
            Ok(Box::new(Unknown::new(row.name, config, inputs, outputs, why)?))
        }
        other => other,
    }
}

/// Converts to exactly `N` outputs.
fn exactly<const N: usize>(outputs: Vec<Arc<dyn ByteStream>>) -> Result<[Arc<dyn ByteStream>; N]> {
    let have = outputs.len();
    outputs
        .try_into()
        .map_err(|_| Error::corrupt(format!("the stage needs {N} outputs, not {have}"), "output_buffer_ids"))
}
