//! RLE (section 5.5): values and run lengths, of the whole array or chunk by chunk.

use std::borrow::Cow;

use super::{Encoded, Stage, lossless};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Record, load, whole};
use crate::spec::Params;

#[derive(Debug)]
pub(crate) struct Rle {
    dtype: Dtype,
    config: usize,
    /// Bytes per chunk; 0 for none.
    chunk: usize,
}

impl Rle {
    pub(crate) fn new(p: &mut Params, input: Dtype) -> Result<Self> {
        let chunk = p.take("chunk", 0)?;
        let config = p.one_of("config", if chunk > 0 { &[9] } else { &[5, 1, 0, 9] })?;
        let default = match input {
            Dtype::Opaque => Dtype::U8,
            Dtype::F32 => Dtype::U32,
            Dtype::F64 => Dtype::U64,
            Dtype::I8 if config < 9 => Dtype::U8,
            Dtype::I16 if config < 9 => Dtype::U16,
            other => other,
        };
        let stage = Self { dtype: p.dtype("t", default)?, config, chunk };
        if config < 9 && !matches!(stage.dtype, Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::I32)
            || matches!(stage.dtype, Dtype::F32 | Dtype::F64 | Dtype::Opaque)
        {
            return Err(format!("does not know {}", stage.dtype.name()));
        }
        if !chunk.is_multiple_of(stage.dtype.size()) {
            return Err(format!("chunk={chunk}: must be whole elements"));
        }
        if stage.config == 0 && stage.dtype != Dtype::U16 {
            return Err("config=0 means u16".into());
        }
        Ok(stage)
    }
}

impl Stage for Rle {
    fn kind(&self) -> u16 {
        5
    }

    fn name(&self) -> &'static str {
        "rle"
    }

    fn output(&self) -> Dtype {
        self.dtype
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn alignment(&self) -> usize {
        self.chunk.max(1)
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let size = self.dtype.size();
        let input = whole(input, size);
        let (mut values, mut lengths): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
        let mut offsets = vec![0_u32];
        for chunk in input.chunks(if self.chunk > 0 { self.chunk } else { usize::MAX }) {
            let mut rest = chunk;
            while let Some(first) = rest.get(..size) {
                let value = load(first, size);
                let run = rest.chunks_exact(size).take_while(|e| load(e, size) == value).count();
                values.extend(first);
                lengths.extend((run as u32).to_le_bytes());
                rest = &rest[run * size..];
            }
            offsets.push((lengths.len() / 4) as u32);
        }
        let head: Vec<u32> = if self.chunk > 0 {
            std::iter::once(offsets.len() as u32 - 1).chain(offsets).collect()
        } else {
            vec![(lengths.len() / 4) as u32]
        };
        let mut stream: Vec<u8> = head.iter().flat_map(|n| n.to_le_bytes()).collect();
        if !input.is_empty() {
            stream.resize(stream.len().next_multiple_of(size.max(4)), 0);
        }
        stream.extend(values);
        stream.resize(stream.len().next_multiple_of(4), 0);
        stream.extend(lengths);
        let record = Record::default();
        let count = (input.len() / size) as u32;
        let config = match self.config {
            9 => record.u8(self.dtype.code()).u32(count).u32(self.chunk as u32),
            5 => record.u8(self.dtype.code()).u32(count),
            1 => record.u8(self.dtype.code()),
            _ => record,
        };
        Ok(Encoded::one(config.0, stream))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        lossless(whole(input, self.dtype.size()), ports)
    }
}
