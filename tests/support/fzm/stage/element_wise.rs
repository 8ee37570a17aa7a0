//! Zigzag and Negabinary (section 5.7), which change every element on its own, and `PassThrough`.

use std::borrow::Cow;

use super::{Encoded, Stage, lossless};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Record, map, negabinary, signed, zeros_from, zigzag};
use crate::spec::Params;

#[derive(Debug)]
pub(crate) struct ElementWise {
    kind: u16,
    name: &'static str,
    /// The signed type; any type for `PassThrough`.
    dtype: Dtype,
    config: usize,
}

impl ElementWise {
    pub(crate) fn new(name: &str, p: &mut Params, input: Dtype) -> Result<Self> {
        let (kind, name) = match name {
            "zigzag" => (15, "zigzag"),
            "negabinary" => (16, "negabinary"),
            _ => return Ok(Self { kind: 4, name: "pass_through", dtype: input, config: 0 }),
        };
        let stage = Self { kind, name, dtype: p.dtype("t", input.signed())?, config: p.one_of("config", &[2, 0])? };
        if !matches!(stage.dtype, Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64) {
            return Err(format!("works on signed integers, not on {}", stage.dtype.name()));
        }
        if stage.config == 0 && stage.dtype != Dtype::I32 {
            return Err("config=0 means i32".into());
        }
        Ok(stage)
    }
}

impl Stage for ElementWise {
    fn kind(&self) -> u16 {
        self.kind
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn output(&self) -> Dtype {
        if self.kind == 4 { self.dtype } else { self.dtype.unsigned() }
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let size = self.dtype.size();
        let out = match self.kind {
            15 => map(input, size, |v| zigzag(signed(v, size))),
            16 => map(input, size, |v| negabinary(v, size)),
            _ => input.to_vec(),
        };
        let record = Record::default();
        let config =
            if self.config == 2 { record.u8(self.dtype.code()).u8(self.dtype.unsigned().code()) } else { record };
        Ok(Encoded::one(config.0, out))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        match (self.kind, ports) {
            (4, Some(ports)) => Ok(Cow::Owned(ports[0].to_vec())),
            (4, None) => Ok(Cow::Borrowed(input)),
            _ => lossless(zeros_from(input, input.len() / self.dtype.size() * self.dtype.size()), ports),
        }
    }
}
