//! The stages, one file each: forward, and what inverting them gives.

mod adaptive_bitpack;
mod adaptive_lorenzo;
mod adm;
mod ans;
mod bitpack;
mod bitplane_rze;
mod bitshuffle;
mod cdf97;
mod difference;
mod element_wise;
mod ginterp;
mod huffman;
mod lc;
mod log_transform;
mod lorenzo;
mod lorenzo_quant;
mod merge;
mod outliers;
mod quantizer;
mod rle;
mod roibin_split;
mod speck2d;
mod spline;
mod sz_blocks;
mod tile_sums;
mod tiled_lorenzo;

use std::borrow::Cow;
use std::fmt::Debug;

use crate::Result;
use crate::dtype::Dtype;
use crate::spec::Params;

/// A stage of a pipeline, with its parameters.
pub(crate) trait Stage: Debug + Send + Sync {
    /// The number of the stage type.
    fn kind(&self) -> u16;

    /// The name of the stage type in snake case.
    fn name(&self) -> &'static str;

    /// Names and element types of the outputs.
    fn ports(&self) -> Vec<(&'static str, Dtype)> {
        vec![("output", self.output())]
    }

    /// The element type of the first output.
    fn output(&self) -> Dtype;

    /// How many buffer ids the stage takes; more than its ports where some were dropped later.
    fn ids(&self) -> usize {
        self.ports().len()
    }

    /// The input has to be a multiple of so many bytes.
    fn alignment(&self) -> usize {
        1
    }

    /// Whether the first output has an element for each one of the input, in the same places.
    fn keeps_shape(&self) -> bool {
        true
    }

    /// Encodes the one input. Ports that feed another stage (`branched`) come at their full capacity.
    ///
    /// # Errors
    /// When the parameters do not fit the input.
    fn encode(&self, input: &[u8], branched: &[bool]) -> Result<Encoded> {
        let _ = branched;
        Err(format!("one input of {} bytes is not enough", input.len()))
    }

    /// As [`Stage::encode`]; a stage with several inputs has this and [`Stage::inverse_all`] in place of those for one.
    ///
    /// # Errors
    /// As for [`Stage::encode`].
    fn encode_all(&self, inputs: &[&[u8]], branched: &[bool]) -> Result<Encoded> {
        match inputs {
            [input] => self.encode(input, branched),
            _ => Err(format!("takes one input, not {}", inputs.len())),
        }
    }

    /// What inverting gives. `Some(ports)`: the outputs do not come back as they were written.
    /// Only a stage that computes can say what it makes of that.
    ///
    /// # Errors
    /// When the outputs come back changed and the stage does not compute.
    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, encoded: &Encoded) -> Result<Cow<'a, [u8]>> {
        let _ = encoded;
        lossless(input, ports)
    }

    /// As [`Stage::inverse`], for each input.
    ///
    /// # Errors
    /// As for [`Stage::inverse`].
    fn inverse_all<'a>(
        &self,
        inputs: &[&'a [u8]],
        ports: Option<&[&[u8]]>,
        encoded: &Encoded,
    ) -> Result<Vec<Cow<'a, [u8]>>> {
        inputs.iter().map(|input| self.inverse(input, ports, encoded)).collect()
    }
}

/// A buffer that a stage reads.
#[derive(Debug)]
pub(crate) struct Reads {
    /// The name of the port, or `input`.
    pub(crate) name: &'static str,
    pub(crate) dtype: Dtype,
    /// Elements per dimension, slowest first, where they are an array.
    pub(crate) shape: Vec<u32>,
}

/// What a stage makes of its input.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// The configuration record.
    pub(crate) config: Vec<u8>,
    /// The outputs.
    pub(crate) ports: Vec<Port>,
}

/// One output.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) bytes: Vec<u8>,
    /// The capacity in the buffer table.
    pub(crate) allocated: usize,
}

impl From<Vec<u8>> for Port {
    fn from(bytes: Vec<u8>) -> Self {
        Self { allocated: bytes.len(), bytes }
    }
}

impl Encoded {
    fn one(config: Vec<u8>, output: Vec<u8>) -> Self {
        Self { config, ports: vec![output.into()] }
    }
}

/// The answer of a stage that does not compute: `input`, unless its outputs come back changed.
fn lossless<'a>(input: impl Into<Cow<'a, [u8]>>, ports: Option<&[&[u8]]>) -> Result<Cow<'a, [u8]>> {
    match ports {
        None => Ok(input.into()),
        Some(_) => Err("the stages behind it do not give back what it wrote".into()),
    }
}

/// Makes the stage called `name`, which reads `inputs`, at least one.
///
/// # Errors
/// Says which parameter does not fit.
pub(crate) fn make(name: &str, mut params: Params, inputs: &[Reads]) -> Result<Box<dyn Stage>> {
    let p = &mut params;
    let (input, shape) = (inputs[0].dtype, &inputs[0].shape[..]);
    let stage: Result<Box<dyn Stage>> = match name {
        "lorenzo_quant" => lorenzo_quant::LorenzoQuant::new(p, input, shape).map(|s| Box::new(s) as _),
        "quantizer" => quantizer::Quantizer::new(p, input).map(|s| Box::new(s) as _),
        "lorenzo" => lorenzo::Lorenzo::new(p, input, shape).map(|s| Box::new(s) as _),
        "difference" => difference::Difference::new(p, input).map(|s| Box::new(s) as _),
        "rle" => rle::Rle::new(p, input).map(|s| Box::new(s) as _),
        "bitpack" => bitpack::Bitpack::new(p, input).map(|s| Box::new(s) as _),
        "bitshuffle" => bitshuffle::Bitshuffle::new(p, input).map(|s| Box::new(s) as _),
        "rze" | "rre" | "rare" | "raze" | "clog" | "hclog" => lc::Coder::new(name, p).map(|s| Box::new(s) as _),
        "tupl" => lc::tupl::Tupl::new(p).map(|s| Box::new(s) as _),
        "gpulz" => lc::gpulz::Gpulz::new(p).map(|s| Box::new(s) as _),
        "golomb_rice" => lc::golomb_rice::GolombRice::new(p, input).map(|s| Box::new(s) as _),
        "huffman" => huffman::Huffman::new(p, input).map(|s| Box::new(s) as _),
        "adaptive_bitpack" => adaptive_bitpack::AdaptiveBitpack::new(p, input).map(|s| Box::new(s) as _),
        "adaptive_lorenzo" => adaptive_lorenzo::AdaptiveLorenzo::new(p, input).map(|s| Box::new(s) as _),
        "bitplane_rze" => bitplane_rze::BitplaneRze::new(p).map(|s| Box::new(s) as _),
        "merge" => merge::Merge::new(p, inputs).map(|s| Box::new(s) as _),
        "tiled_lorenzo" => tiled_lorenzo::TiledLorenzo::new(p, input, shape).map(|s| Box::new(s) as _),
        "zigzag" | "negabinary" | "pass_through" => {
            element_wise::ElementWise::new(name, p, input).map(|s| Box::new(s) as _)
        }
        "szx" | "szp" => sz_blocks::SzBlocks::new(name, p, input).map(|s| Box::new(s) as _),
        "cdf97" => cdf97::Cdf97::new(p, input, shape).map(|s| Box::new(s) as _),
        "cdf97_outlier_correct" => cdf97::Correct::new(p, inputs).map(|s| Box::new(s) as _),
        "speck2d" => speck2d::Speck2d::new(p, shape).map(|s| Box::new(s) as _),
        "roibin_split" => roibin_split::RoibinSplit::new(p, input, shape).map(|s| Box::new(s) as _),
        "adm" => adm::Adm::new(p, input).map(|s| Box::new(s) as _),
        "ans" => Ok(Box::new(ans::Ans)),
        "ginterp" => ginterp::GInterp::new(p, input, shape).map(|s| Box::new(s) as _),
        "log_transform" => log_transform::LogTransform::new(p, input).map(|s| Box::new(s) as _),
        _ => Err("no such stage".into()),
    };
    stage.and_then(|stage| params.finish().map(|()| stage)).map_err(|e| format!("{name}: {e}"))
}
