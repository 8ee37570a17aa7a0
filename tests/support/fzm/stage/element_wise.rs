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
    /// Whether the codes are bytes without a type.
    transparent: bool,
}

impl ElementWise {
    pub(crate) fn new(name: &str, p: &mut Params, input: Dtype) -> Result<Self> {
        let (kind, name) = match name {
            "zigzag" => (15, "zigzag"),
            "negabinary" => (16, "negabinary"),
            _ => return Ok(Self { kind: 4, name: "pass_through", dtype: input, config: 0, transparent: false }),
        };
        let (dtype, transparent) = (p.dtype("t", input.signed())?, kind == 15 && p.flag("bytes")?);
        let sizes: &[usize] = match kind {
            15 if transparent => &[3],
            15 => &[2, 0, 3],
            _ => &[2, 0],
        };
        let stage = Self { kind, name, dtype, config: p.one_of("config", sizes)?, transparent };
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
        match self.kind {
            4 => self.dtype,
            _ if self.transparent => Dtype::Opaque,
            _ => self.dtype.unsigned(),
        }
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let size = self.dtype.size();
        let mut out = match self.kind {
            15 => map(input, size, |v| zigzag(signed(v, size))),
            16 => map(input, size, |v| negabinary(v, size)),
            _ => input.to_vec(),
        };
        let mut config = Record::default();
        if self.config >= 2 {
            config = config.u8(self.dtype.code()).u8(self.dtype.unsigned().code());
        }
        if self.config == 3 {
            config = config.u8(u8::from(self.transparent));
            let tail = input.len() / size * size;
            out[tail..].copy_from_slice(&input[tail..]);
        }
        Ok(Encoded::one(config.0, out))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        match (self.kind, ports) {
            (4, Some(ports)) => Ok(Cow::Owned(ports[0].to_vec())),
            (4, None) => Ok(Cow::Borrowed(input)),
            _ if self.config == 3 => lossless(input, ports),
            _ => lossless(zeros_from(input, input.len() / self.dtype.size() * self.dtype.size()), ports),
        }
    }
}
