//! `GolombRice` (type 42): 16- or 32-bit integers as codes of variable length.
//!
//! Reference: section 6 of the LC stages. The first configurations do not have the length; the stream does.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::chunks::{Coding, Invalid, LcChunks};
use super::golomb_rice_body;
use crate::error::Result;
use crate::format::fzm::stage::config::{Config, ConfigLayout, Field};
use crate::format::fzm::stage::{Context, DataType, Family, Stage, StageType, exactly};
use crate::format::fzm::stream::ByteStream;

/// The stage type.
pub(in super::super) const TYPE: StageType = StageType {
    code: 42,
    name: "golomb_rice",
    family: Family::Coder,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(GolombRice::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[5, 9],
    fields: &[Field::u32("chunk_size", 0), Field::element_type("element_type", 4), Field::u32("original_size", 5)],
};

/// Bytes of a decoded chunk; the last may be shorter.
const CHUNK: u64 = 16384;

/// A stage.
struct GolombRice {
    config: Config,
    ty: DataType,
}

impl GolombRice {
    fn parse(config: Config) -> Result<Self> {
        let chunk = config.u64("chunk_size");
        if chunk != CHUNK {
            return Err(config.unknown("chunk_size", format!("a chunk of {chunk} bytes")));
        }
        let ty = config.element_type("element_type", &[DataType::I16, DataType::I32], DataType::I32)?;
        Ok(Self { config, ty })
    }
}

impl Stage for GolombRice {
    fn config(&self) -> &Config {
        &self.config
    }

    fn input_type(&self, _input: usize) -> DataType {
        self.ty
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::U8
    }

    fn summary(&self) -> Vec<String> {
        vec![self.ty.name().to_owned(), format!("chunks of {CHUNK} bytes")]
    }

    fn alignment(&self) -> u64 {
        CHUNK
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let original = self.config.has("original_size").then(|| self.config.u64("original_size"));
        Ok(vec![Arc::new(LcChunks::new(GolombRiceCoding { size: self.ty.size() }, input, CHUNK, original, cx)?)])
    }
}

/// The coding of chunks.
struct GolombRiceCoding {
    /// Bytes of an element: 2 or 4.
    size: usize,
}

impl Coding for GolombRiceCoding {
    fn what(&self) -> &'static str {
        "golomb_rice chunk"
    }

    fn longest(&self, len: usize) -> usize {
        golomb_rice_body::longest(len)
    }

    fn raw(&self, len: usize) -> usize {
        len - len % self.size
    }

    fn decode(&self, body: &[u8], out: &mut [u8]) -> Result<(), Invalid> {
        match self.size {
            2 => golomb_rice_body::decode::<u16>(15, body, out),
            _ => golomb_rice_body::decode::<u32>(24, body, out),
        }
    }
}
