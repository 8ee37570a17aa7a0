//! RLE (section 5.5): values and run lengths.

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
}

impl Rle {
    pub(crate) fn new(p: &mut Params, input: Dtype) -> Result<Self> {
        let default = match input {
            Dtype::Opaque | Dtype::I8 => Dtype::U8,
            Dtype::I16 => Dtype::U16,
            Dtype::F32 => Dtype::U32,
            other => other,
        };
        let stage = Self { dtype: p.dtype("t", default)?, config: p.one_of("config", &[5, 1, 0])? };
        if !matches!(stage.dtype, Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::I32) {
            return Err(format!("does not know {}", stage.dtype.name()));
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

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let size = self.dtype.size();
        let input = whole(input, size);
        let (mut values, mut lengths): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
        let mut rest = input;
        while let Some(first) = rest.get(..size) {
            let value = load(first, size);
            let run = rest.chunks_exact(size).take_while(|e| load(e, size) == value).count();
            values.extend(first);
            lengths.extend((run as u32).to_le_bytes());
            rest = &rest[run * size..];
        }
        let runs = (lengths.len() / 4) as u32;
        let padding = values.len().next_multiple_of(4) - values.len();
        let stream = [&runs.to_le_bytes()[..], &values, &[0; 3][..padding], &lengths].concat();
        let record = Record::default();
        let config = match self.config {
            5 => record.u8(self.dtype.code()).u32((input.len() / size) as u32),
            1 => record.u8(self.dtype.code()),
            _ => record,
        };
        Ok(Encoded::one(config.0, stream))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        lossless(whole(input, self.dtype.size()), ports)
    }
}
