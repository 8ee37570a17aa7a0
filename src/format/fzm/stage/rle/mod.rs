//! RLE (type 5): values and run lengths, of the whole array or chunk by chunk.
//!
//! Reference: sections 5.5 and 6 (shorter configurations). The stream is a run count, the values, zero padding to 4
//! bytes, the lengths. With chunks (configurations of 9 bytes), it begins with a table of the runs before each chunk, and
//! no run passes the end of a chunk.
//!
//! If the configuration does not give the number of elements, all lengths are summed when the file is opened, within
//! the work limit of opening.
#![forbid(unsafe_code)]

mod chunks;
mod coded;
mod expand;
mod expanded;

use std::sync::Arc;

use super::DataType::{self, I8, I16, I32, I64, U8, U16, U32, U64};
use super::config::{Config, ConfigLayout, Field};
use super::{Context, Family, Stage, StageType, exactly};
use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::format::fzm::stream::ByteStream;
use chunks::RleChunks;
use coded::{Coded, RleForm};
use expand::{Expand, expand};
use expanded::Expanded;

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 5,
    name: "rle",
    family: Family::Coder,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(Rle::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[0, 1, 5, 9],
    fields: &[Field::element_type("data_type", 0), Field::u32("num_elements", 1), Field::u32("chunk_size", 5)],
};

/// A stage.
struct Rle {
    config: Config,
    ty: DataType,
    num_elements: Option<u32>,
    /// Bytes per chunk; 0 for no chunks.
    chunk_size: u32,
}

impl Rle {
    fn parse(config: Config) -> Result<Self> {
        let all = [U8, U16, U32, I32, U64, I8, I16, I64];
        // The types of the first four came with the chunks.
        let defined = if config.has("chunk_size") { &all[..] } else { &all[..4] };
        let ty = config.element_type("data_type", defined, U16)?;
        let num_elements = config.has("num_elements").then(|| config.u32("num_elements"));
        let chunk_size = config.u32("chunk_size");
        if !(chunk_size as usize).is_multiple_of(ty.size()) {
            let why = format!("chunks of {chunk_size} bytes are not whole elements of {}", ty.name());
            return Err(config.corrupt("chunk_size", why));
        }
        Ok(Self { config, ty, num_elements, chunk_size })
    }
}

impl Stage for Rle {
    fn input_type(&self, _input: usize) -> DataType {
        self.ty
    }

    fn output_type(&self, _port: usize) -> DataType {
        U8
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn summary(&self) -> Vec<String> {
        let chunks = (self.chunk_size > 0).then(|| format!("chunks of {} bytes", self.chunk_size));
        [format!("runs of {}", self.ty.name())].into_iter().chain(chunks).collect()
    }

    fn alignment(&self) -> u64 {
        self.chunk_size.max(1).into()
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let size = self.ty.size();
        let per = u64::from(self.chunk_size) / to_u64(size);
        let form = match self.num_elements.map(u64::from) {
            Some(count) if per > 0 => RleForm::Chunks { per, count },
            _ => RleForm::Whole,
        };
        let coded = Coded::new(input, size, form, self.config.has("chunk_size"), cx);
        let count = match self.num_elements {
            Some(count) => u64::from(count),
            None => coded.total()?,
        };
        // A sum of at most 2^32 lengths below 2^32 fits 64 bits; the product may not.
        let len = count.checked_mul(to_u64(size)).ok_or_else(|| Error::corrupt("more than 2^64 bytes", "lengths"))?;
        let expand: Expand = match size {
            1 => expand::<u8>,
            2 => expand::<u16>,
            4 => expand::<u32>,
            _ => expand::<u64>,
        };
        let chunk = u64::from(self.chunk_size);
        if (1..=chunks::LARGEST).contains(&chunk) {
            return Ok(vec![Arc::new(RleChunks::new(coded, len, chunk, expand))]);
        }
        Ok(vec![Arc::new(Expanded::new(coded, count, len, expand))])
    }
}

#[cfg(test)]
mod tests;
